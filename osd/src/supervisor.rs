//! The small parent of a daemon's process: it starts it, buries it, tells its peers, and starts it again.
//!
//! A lease belongs to an incarnation of a daemon. Who has reaped the process of that incarnation knows that it is
//! gone, and needs no clock to know it; so the peers need not wait for its leases to run out. For that the child says
//! which incarnation it is before it sends its first packet. Silence is never taken for death: of a child that hangs
//! nothing is reported.
//!
//! Parent and child hold two pipes, the child's standard input and output. What the child writes is its incarnation.
//! Nothing is written to its input: when it ends, the parent is gone, and the child stops.
//!
//! ```text
//! restarts    how long to wait before the next start, and when to give up
//! supervised  the child's end of the pipes
//! witness     how the peers are told
//! ```

mod restarts;
mod supervised;
mod witness;

use std::future::Future;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base::{Incarnation, MonoTime, NodeId, Process, Span, StartId};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use wire::Notice;

pub use self::restarts::{CrashLoop, GOOD_RUN, History, Policy};
pub use self::supervised::{Supervised, TellError};
pub use self::witness::Peers;
use crate::clock;
use restarts::Restarts;

/// The exit code of a child that would fail again however often it is started: its configuration is wrong, or its
/// data directory is not its own.
pub const EXIT_HOPELESS: u8 = 78;

/// How long a daemon may take to stop; it needs a small part of it.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of a daemon that stopped well may wait for the peers to be told.
const CLEAN_NOTICE_TIMEOUT: Duration = Duration::from_millis(200);

/// Requests to stop that come this soon after one are its echo: `timeout` signals a process and then its group.
const ECHO: Span = Span::from_millis(300);

/// Longer than any line that tells an incarnation.
const LINE_BYTES_MAX: u64 = 80;
/// How long to look for the last words of a child that is gone. Only a process that it started could delay them.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Config {
    /// For the daemon `node`: a stop takes as long as the leases it gives up, and no peer is waited for much longer
    /// than it takes to reach one that is there.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            policy: Policy::default(),
            stop_timeout: STOP_TIMEOUT,
            notice_timeout: Duration::from_secs(1),
        }
    }
}

/// Who tells the peers that a process is gone.
pub trait Witness: Clone + Send + 'static {
    /// Tells all peers of a death, until each of them knows or there is no more use in it.
    fn report(self, notice: Notice) -> impl Future<Output = ()> + Send;
}

/// How a supervisor deals with its child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which daemon the child is.
    pub node: NodeId,
    /// When it is started again.
    pub policy: Policy,
    /// How long the child may take to stop before it is killed.
    pub stop_timeout: Duration,
    /// How long the end of the supervisor itself may wait for the peers to be told.
    pub notice_timeout: Duration,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The child stopped when it was asked to.
    Stopped,
    /// The child had to be killed.
    Killed,
}

/// Why the daemon does not run any more although nobody asked for that.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The child says that it cannot run.
    #[error("the daemon cannot run; its log says why")]
    Hopeless,
    /// The child does not stay alive.
    #[error(transparent)]
    CrashLoop(#[from] CrashLoop),
}

/// Runs the child that `command` makes until `stops` gives something, or nothing more can be done.
///
/// `command` is told of the children before. A second stop does not wait for the child any more.
pub async fn supervise<W: Witness>(
    config: Config,
    witness: W,
    mut stops: mpsc::Receiver<()>,
    command: impl Fn(History) -> Command,
) -> Result<Ended, SupervisorError> {
    let mut restarts = Restarts::new(config.policy);
    let mut report = Report { witness, running: None };
    loop {
        let started = clock::since_boot();
        let death = match start(command(restarts.history())) {
            Ok(child) => watch(config, child, &mut stops).await,
            Err(error) => {
                tracing::error!(%error, "the daemon could not be started");
                Death::default()
            }
        };
        death.log(restarts.history());
        // A child that says so has taken no part: it may be a copy of a directory whose daemon is alive.
        if let Some(notice) = death.notice.filter(|_| !death.is_hopeless()) {
            report.send(notice);
        }
        if let Some(ended) = death.asked_for {
            // A daemon that stopped well has given its leases up, and often its peers are stopping too.
            let patience = if death.is_clean() { CLEAN_NOTICE_TIMEOUT } else { config.notice_timeout };
            report.finish(patience).await;
            return Ok(ended);
        }
        if death.is_hopeless() {
            report.finish(config.notice_timeout).await;
            return Err(SupervisorError::Hopeless);
        }
        let delay = match restarts.after(clock::since_boot().since(started)) {
            Ok(delay) => delay,
            Err(crash_loop) => {
                report.finish(config.notice_timeout).await;
                return Err(crash_loop.into());
            }
        };
        tokio::select! {
            () = sleep(delay) => {}
            () = asked(&mut stops) => {
                report.finish(config.notice_timeout).await;
                return Ok(Ended::Stopped);
            }
        }
    }
}

/// Gives something for each SIGTERM, SIGINT and SIGHUP that this process gets from now on. Those that come together
/// are one.
pub fn stop_signals() -> std::io::Result<mpsc::Receiver<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    // Two count; who is in more of a hurry has SIGKILL.
    let (sender, stops) = mpsc::channel(2);
    tokio::spawn(async move {
        let mut requests = Requests::default();
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hang_up.recv() => {}
            }
            if requests.is_new(clock::since_boot()) {
                // Full says that enough have been asked for already.
                let _ = sender.try_send(());
            }
        }
    });
    Ok(stops)
}

/// Tells requests to stop from their echoes.
#[derive(Default)]
struct Requests {
    counted_at: Option<MonoTime>,
}

impl Requests {
    /// Whether a request that arrives now counts.
    fn is_new(&mut self, now: MonoTime) -> bool {
        let is_echo = self.counted_at.is_some_and(|at| now.since(at) < ECHO);
        if !is_echo {
            self.counted_at = Some(now);
        }
        !is_echo
    }
}

/// What is known of a child that is gone.
#[derive(Default)]
struct Death {
    /// What it said is to be reported of it, if it came that far.
    notice: Option<Notice>,
    /// How it ended, if it was started at all.
    status: Option<ExitStatus>,
    /// Whether and how it did what it was asked to.
    asked_for: Option<Ended>,
}

impl Death {
    fn is_clean(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    fn is_hopeless(&self) -> bool {
        self.status.and_then(|status| status.code()) == Some(EXIT_HOPELESS.into())
    }

    fn log(&self, history: History) {
        let restarts = history.restarts;
        let incarnation = self.notice.map(|notice| notice.dead.incarnation.0);
        match (self.status, self.asked_for) {
            (Some(status), Some(_)) => tracing::info!(incarnation, %status, "the daemon has stopped"),
            (Some(status), None) => tracing::error!(incarnation, %status, restarts, "the daemon died"),
            (None, _) => {}
        }
    }
}

fn start(mut command: Command) -> std::io::Result<Child> {
    // Signals of the terminal reach the supervisor alone, which passes on what is meant for the child.
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()
}

/// Waits for the end of `child`, and ends it if a signal says so.
async fn watch(config: Config, mut child: Child, stops: &mut mpsc::Receiver<()>) -> Death {
    let words = child.stdout.take().map(|output| tokio::spawn(listen(config.node, output)));
    // Held for its end: when this process is gone, the child reads that.
    let input = child.stdin.take();
    tracing::info!(process = child.id(), "the daemon was started");
    let (status, asked_for) = tokio::select! {
        status = child.wait() => (status.ok(), None),
        () = asked(stops) => stop(config, &mut child, stops).await,
    };
    drop(input);
    // What was written is in the pipe, whatever became of the writer.
    let notice = match words {
        Some(words) => timeout(LAST_WORDS, words).await.ok().and_then(Result::ok).flatten(),
        None => None,
    };
    Death { notice, status, asked_for }
}

/// Asks the child to stop, and kills it if it does not, or if somebody asks twice.
async fn stop(
    config: Config,
    child: &mut Child,
    stops: &mut mpsc::Receiver<()>,
) -> (Option<ExitStatus>, Option<Ended>) {
    tracing::info!("stopping the daemon");
    send_terminate(child);
    let patience = async {
        tokio::select! {
            () = sleep(config.stop_timeout) => tracing::error!("the daemon does not stop, so it is killed"),
            () = asked(stops) => tracing::warn!("asked twice to stop, so the daemon is killed"),
        }
    };
    tokio::select! {
        status = child.wait() => return (status.ok(), Some(Ended::Stopped)),
        () = patience => {}
    }
    // An error says that it is gone already.
    let _ = child.start_kill();
    (child.wait().await.ok(), Some(Ended::Killed))
}

fn send_terminate(child: &Child) {
    let process = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(process) = process {
        // Not reaped yet, so the id is still its own; an error says that it has just ended.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    }
}

/// Reads what the child says until it ends: which incarnation of which line it is, in its first line. The rest is
/// dropped.
async fn listen(node: NodeId, output: ChildStdout) -> Option<Notice> {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    // What is no text is no line that tells an incarnation.
    let told = (&mut output).take(LINE_BYTES_MAX).read_line(&mut line).await.ok();
    let notice = told.and_then(|_| parse_line(node, &line));
    if let Some(notice) = notice {
        tracing::info!(incarnation = notice.dead.incarnation.0, "the daemon is about to join");
    }
    // A full pipe would stop the child.
    let _ = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
    notice
}

/// What a child tells: its incarnation, and the first start of its line.
fn to_line(Notice { dead, line }: Notice) -> String {
    format!("incarnation {} line {} {}\n", dead.incarnation.0, line.incarnation.0, line.nonce)
}

/// A line that is not finished tells nothing: its numbers may go on.
fn parse_line(node: NodeId, line: &str) -> Option<Notice> {
    let (incarnation, first) = line.strip_suffix('\n')?.strip_prefix("incarnation ")?.split_once(" line ")?;
    let (first, nonce) = first.split_once(' ')?;
    let [incarnation, first] = [incarnation, first].map(|digits| digits.parse().ok().map(Incarnation));
    let line = StartId { incarnation: first?, nonce: nonce.parse().ok()? };
    Some(Notice { dead: Process { node, incarnation: incarnation? }, line })
}

/// The report of the last death that is still being delivered. A later one says all that it said.
struct Report<W> {
    witness: W,
    running: Option<JoinHandle<()>>,
}

impl<W: Witness> Report<W> {
    fn send(&mut self, notice: Notice) {
        if let Some(running) = self.running.replace(tokio::spawn(self.witness.clone().report(notice))) {
            running.abort();
        }
    }

    /// Waits until the peers have been told, but no longer than `patience`.
    async fn finish(&mut self, patience: Duration) {
        if let Some(mut running) = self.running.take()
            && timeout(patience, &mut running).await.is_err()
        {
            running.abort();
            tracing::info!("not every peer was told of the daemon's end; leases that it had left run out");
        }
    }
}

impl<W> Drop for Report<W> {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

/// Waits for a request to stop. That nobody can ask any more is none.
async fn asked(stops: &mut mpsc::Receiver<()>) {
    if stops.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_arrive_together_are_one() {
        let mut requests = Requests::default();
        let arriving = [0, 0, 1, 299, 300, 599, 600, 5_000];
        let counted = arriving.map(|ms| requests.is_new(MonoTime::from_micros(1_000_000 + ms * 1_000)));
        assert_eq!(counted, [true, false, false, false, true, false, true, true]);
    }

    #[test]
    fn only_a_whole_line_tells_an_incarnation() {
        let line = StartId { incarnation: Incarnation(3), nonce: 4 };
        let notice = Notice { dead: Process::new(1, 12), line };
        assert_eq!(parse_line(NodeId(1), "incarnation 12 line 3 4\n"), Some(notice));
        let told =
            ["incarnation 12 line 3 4", "incarnation 12\n", "incarnation -1 line 3 4\n", "12 3 4\n", ""];
        for line in told {
            assert_eq!(parse_line(NodeId(1), line), None, "{line:?}");
        }
    }
}
