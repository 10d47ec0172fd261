//! The terminal while a view is on it: a screen of its own, keys as they are pressed, and everything as before at the end.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::changes::Change;

/// Another screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
/// What a terminal is taken for that does not say how large it is.
const SIZE_DEFAULT: (usize, usize) = (24, 80);

/// A terminal with a view on it. When this goes it is as it was.
pub(super) struct Terminal {
    before: Termios,
    keys: mpsc::Receiver<u8>,
}

impl Terminal {
    pub(super) fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        // Signals stay: Ctrl-C is one.
        quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        let (sender, keys) = mpsc::channel(16);
        // It waits for a key for as long as the process lives, and nobody waits for it.
        std::thread::spawn(move || {
            let mut key = [0];
            while io::stdin().read_exact(&mut key).is_ok() {
                if sender.blocking_send(key[0]).is_err() {
                    return;
                }
            }
        });
        let terminal = Self { before, keys };
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        drop(out);
        Ok(terminal)
    }

    /// Returns when the user wants to end.
    pub(super) async fn quit(&mut self) {
        loop {
            match self.keys.recv().await {
                Some(b'q' | b'Q') => return,
                Some(_) => {}
                // Without keys it is ended by a signal.
                None => std::future::pending().await,
            }
        }
    }

    /// Puts these lines on the screen, and what has room of the log below, the latest last.
    pub(super) fn draw(&mut self, lines: &[String], log: &VecDeque<Change>) -> io::Result<()> {
        let (rows, columns) = match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
            _ => SIZE_DEFAULT,
        };
        let mut out = io::stdout().lock();
        out.write_all(frame((rows, columns), lines, log).as_bytes())?;
        out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        // Whoever closed the terminal does not miss it.
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// What to write so that the screen shows this. Nothing is wider or longer than the screen.
fn frame((rows, columns): (usize, usize), lines: &[String], log: &VecDeque<Change>) -> String {
    let room = rows.saturating_sub(1);
    let above = lines.len().min(room);
    let for_log = (room - above).saturating_sub(1);
    let told = log.iter().skip(log.len().saturating_sub(for_log)).map(ToString::to_string);
    let last = "q ends".to_owned();
    let all = lines.iter().take(above).cloned().chain((above < room).then(String::new)).chain(told);
    let mut text = HOME.to_owned();
    let blank = std::iter::repeat_n(String::new(), room);
    for line in all.chain(blank).take(room).chain([last]) {
        text.extend(line.chars().take(columns));
        text.push_str(REST_OF_LINE);
        text.push_str("\r\n");
    }
    // The last line must not scroll the screen.
    text.truncate(text.len() - 2);
    text.push_str(REST_OF_SCREEN);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(size: (usize, usize), lines: &[&str], log: &[&str]) -> Vec<String> {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let log = log.iter().map(|what| Change::new("now", what)).collect();
        let frame = frame(size, &lines, &log);
        let frame = frame.strip_prefix(HOME).unwrap().strip_suffix(REST_OF_SCREEN).unwrap();
        frame.split("\r\n").map(|line| line.strip_suffix(REST_OF_LINE).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_view_fits_its_screen() {
        assert_eq!(shown((5, 6), &["a", "b"], &["one", "two"]), ["a", "b", "", "now  t", "q ends"]);
        assert_eq!(shown((3, 9), &["a", "b", "c"], &["one"]), ["a", "b", "q ends"]);
        assert_eq!(shown((4, 9), &["a"], &[]), ["a", "", "", "q ends"]);
        assert_eq!(shown((1, 9), &["a"], &["one"]), ["q ends"]);
    }
}
