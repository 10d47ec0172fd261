//! The child's end: it says which incarnation it is, and notices when its supervisor is gone.

use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use wire::Notice;

use super::to_line;

/// The exit code of a child that its lost supervisor would have had to kill.
const EXIT_STUCK: i32 = 1;

/// What ties a daemon to its supervisor.
#[derive(Debug)]
pub struct Supervised {
    gone: watch::Receiver<bool>,
}

/// The supervisor cannot be told which incarnation this is, so it could not report its death.
#[derive(Debug, thiserror::Error)]
#[error("the supervisor does not listen; start the daemon with `fleasefs osd --config FILE`")]
pub struct TellError(#[source] io::Error);

impl Supervised {
    /// Takes this process's standard input as what ends with the supervisor.
    ///
    /// A daemon that is still there `stop_timeout` after that ends itself: nobody else would.
    pub fn adopt(stop_timeout: Duration) -> Self {
        let (tell, gone) = watch::channel(false);
        thread::spawn(move || {
            wait_for_end(io::stdin().lock());
            tracing::warn!("the supervisor is gone, so the daemon stops");
            tell.send_replace(true);
            thread::sleep(stop_timeout);
            tracing::error!("the daemon did not stop in time after its supervisor was gone");
            std::process::exit(EXIT_STUCK);
        });
        Self { gone }
    }

    /// Tells the supervisor what to report when this process is gone. To be called before anything is sent to anybody.
    pub fn tell(&self, notice: Notice) -> Result<(), TellError> {
        tell(io::stdout().lock(), notice).map_err(TellError)
    }

    /// Returns when the supervisor is gone.
    pub async fn wait_until_gone(&self) {
        // An error says that the thread is gone, which only the end of the process brings about.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }
}

fn tell(mut output: impl Write, notice: Notice) -> io::Result<()> {
    output.write_all(to_line(notice).as_bytes())?;
    output.flush()
}

/// Returns at the end of `input`, or when it cannot be read any more.
fn wait_for_end(mut input: impl Read) {
    let mut unused = [0; 64];
    loop {
        match input.read(&mut unused) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::StartId;
    use base::{Incarnation, NodeId, Process};

    use super::*;

    #[test]
    fn the_supervisor_understands_what_the_child_tells() {
        let mut line = Vec::new();
        let largest = StartId { incarnation: Incarnation(u32::MAX), nonce: u64::MAX };
        let notice = Notice { dead: Process::new(7, u32::MAX), line: largest };
        tell(&mut line, notice).unwrap();
        assert!(line.len() as u64 <= super::super::LINE_BYTES_MAX);
        assert_eq!(super::super::parse_line(NodeId(7), str::from_utf8(&line).unwrap()), Some(notice));
    }

    #[test]
    fn input_is_read_to_its_end() {
        let mut input: &[u8] = &[0; 1_000];
        wait_for_end(&mut input);
        assert!(input.is_empty());
    }
}
