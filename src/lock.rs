//! `fleasefs lock`: a command that runs while a lock is held.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use client::{Client, Lock};
use osd::lifeline;
use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::family::Family;

/// The lock could not be had.
const NOT_OBTAINED: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 76;
/// The command is there, but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;
/// What a shell adds to the number of the signal that ended a command.
const BY_SIGNAL: u8 = 128;
/// Where the command finds its fencing token.
const TOKEN_VARIABLE: &str = "FLEASEFS_TOKEN";

/// Run a command while holding a lock that at most one client in the cluster has
///
/// The lock is kept by a majority of its daemons and survives the death of any of
/// them. The command finds a number in FLEASEFS_TOKEN that is higher than that of
/// every holder before: whatever it acts upon can refuse lower ones.
///
/// If no daemon confirms the lock in time, the command and what it has started
/// get SIGTERM, and SIGKILL before anybody else can have the lock. SIGTERM, SIGHUP
/// and a SIGINT that is not the terminal's are passed on to all of them. What a
/// command leaves running when it ends runs on without the lock.
///
/// Exit codes: the command's own, or 128 + N if signal N ended it; 75 when
/// somebody else has the lock; 76 when it was lost; 126 when the command cannot be
/// executed; 127 when it is not found; 1 when something else failed.
///
/// Examples:
///   fleasefs lock nightly-backup -- /usr/local/bin/backup --all
///   fleasefs lock deploy --wait 0 -- make deploy || echo somebody else deploys
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The lock: any text
    name: String,

    /// Give up after this many seconds if somebody else has the lock; 0 does not wait; default: wait as long as it takes
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,

    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = client::Config::find(args.cluster.as_deref())?;
    // One thread: the command must be started by the thread whose death it is to be told of.
    crate::runtime()?.block_on(hold(args, &config))
}

async fn hold(args: &Args, config: &client::Config) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("could not listen for signals")?;
    let client = Client::connect(config).await?;
    let lock = tokio::select! {
        lock = obtain(&client, args) => lock?,
        signal = signals.next() => return Ok(by_signal(signal.as_raw())),
    };
    let Some(lock) = lock else {
        say(&format!("somebody else has the lock `{}`", args.name));
        client.close().await;
        return Ok(ExitCode::from(NOT_OBTAINED));
    };
    let ran = run_under(&lock, args, &mut signals).await;
    lock.release().await;
    client.close().await;
    ran
}

async fn obtain(client: &Client, args: &Args) -> Result<Option<Lock>, client::LockError> {
    match args.wait {
        None => client.lock(&args.name).await.map(Some),
        Some(Duration::ZERO) => client.try_lock(&args.name).await,
        Some(wait) => client.lock_within(&args.name, wait).await,
    }
}

async fn run_under(lock: &Lock, args: &Args, signals: &mut Signals) -> anyhow::Result<ExitCode> {
    let mut family = Family::found().context("could not keep what the command starts together")?;
    let mut ended = signal(SignalKind::child()).context("could not listen for signals")?;
    let mut child = match start(lock, args) {
        Ok(child) => child,
        Err(error) => {
            let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            say(&format!("could not start `{program}`: {error}"));
            return Ok(ExitCode::from(unstarted(&error)));
        }
    };
    let mut warned = false;
    loop {
        tokio::select! {
            status = child.wait() => {
                if warned {
                    // What a script has started may have outlived it.
                    family.kill();
                }
                let status = status.context("could not wait for the command")?;
                // A command that ends in peace when it is told to end has not come to its own end.
                return Ok(if warned && status.success() { ExitCode::from(LOST) } else { code_of(status) });
            }
            // The terminal sends its signals to the command as well; the others come to us alone.
            signal = signals.next() => if signal != Signal::INT || signals.was_sent() {
                family.tell(signal);
            },
            _ = ended.recv() => family.bury_all_but(child.id()),
            () = lock.at_risk(), if !warned => {
                warned = true;
                say(&format!("no daemon confirms the lock `{}`; ending the command", args.name));
                family.tell(Signal::TERM);
            }
            () = lock.lost() => {
                family.kill();
                let _ = child.wait().await;
                say(&format!("lost the lock `{}`; the command was ended", args.name));
                return Ok(ExitCode::from(LOST));
            }
        }
    }
}

fn start(lock: &Lock, args: &Args) -> io::Result<Child> {
    let (program, arguments) = args.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).env(TOKEN_VARIABLE, lock.token().to_string());
    // If this process is killed, nobody is left to watch the lock.
    lifeline::tie(command.as_std_mut(), Signal::KILL);
    command.spawn()
}

/// The exit code for a command that could not be started, as shells, `env` and `timeout` have it.
fn unstarted(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

fn code_of(status: ExitStatus) -> ExitCode {
    match (status.code().and_then(|code| u8::try_from(code).ok()), status.signal()) {
        (Some(code), _) => ExitCode::from(code),
        (None, Some(signal)) => by_signal(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

fn by_signal(number: i32) -> ExitCode {
    u8::try_from(number).map_or(ExitCode::FAILURE, |number| ExitCode::from(BY_SIGNAL.saturating_add(number)))
}

fn say(what: &str) {
    // Nobody is left to be told if this fails.
    let _ = writeln!(io::stderr(), "fleasefs: {what}");
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| "use a number of seconds, such as 0, 1.5 or 60".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "use a number of seconds from 0 on".to_owned())
}

/// The signals that ask this process to end.
struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hang_up: Stream,
    /// Whether a process has sent the last SIGINT, and not the terminal.
    sent: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let sent = Arc::new(AtomicBool::new(false));
        let note = Arc::clone(&sent);
        // First, so that it is noted by the time that the stream tells of it. What the kernel sends has a positive code.
        // SAFETY: the action runs in a signal handler, and does nothing but store to an atomic.
        unsafe {
            signal_hook_registry::register_sigaction(Signal::INT.as_raw(), move |info| {
                note.store(info.si_code <= 0, Ordering::Relaxed);
            })?;
        }
        Ok(Self {
            sent,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Whether the last SIGINT was sent by a process, as `kill` does, and so to us alone.
    fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    /// The next one.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
