//! `fleasefs osd`: a storage daemon under its supervisor.

use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use ::osd::config::{Config, LogFormat, LogLevel};
use ::osd::daemon::{self, Options};
use ::osd::supervisor::{
    self, EXIT_HOPELESS, Ended, History, Peers, STOP_TIMEOUT, Supervised, SupervisorError, supervise,
};
use anyhow::Context;
use clap::ValueEnum;
use tokio::process::Command;
use tokio::sync::watch;

use crate::log;

/// The exit code when the daemon does not stay alive.
const EXIT_CRASH_LOOP: u8 = 3;
/// The exit code when the daemon had to be killed.
const EXIT_KILLED: u8 = 4;

/// Run a storage daemon, start it again when it dies, and tell its peers of its death
///
/// SIGTERM, SIGINT and SIGHUP stop it: it gives its leases up and exits. A second
/// one, more than 0.3 s later, kills it. The log goes to standard error, as
/// systemd wants it, unless --log-file says otherwise.
///
/// Exit codes: 0 stopped as asked, 1 cannot run, 3 given up because the daemon
/// kept dying, 4 had to be killed to stop.
///
/// Example:
///   fleasefs osd --config cluster/osd-1/osd.toml
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The daemon's configuration, as `fleasefs init` made it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The least important lines that are logged [default: what the configuration says]
    #[arg(long, value_enum, value_name = "LEVEL")]
    log_level: Option<Level>,
    /// The form of the log [default: what the configuration says]
    #[arg(long, value_enum, value_name = "FORM")]
    log_format: Option<Form>,
    /// Log to FILE; when it has 16 MiB it becomes FILE.1, in place of the one before
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Be the child that the supervisor starts; the number of restarts before
    #[arg(long, hide = true, value_name = "RESTARTS")]
    child: Option<u32>,
    /// The children before did not stay alive
    #[arg(long, hide = true, requires = "child")]
    crash_looping: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// One object a line
    Json,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    log::start(
        args.log_level.map_or(config.log.level, LogLevel::from),
        args.log_format.map_or(config.log.format, LogFormat::from),
        args.log_file.as_deref(),
    )?;
    log::abort_on_panic();
    match args.child {
        Some(restarts) => {
            let history = History { restarts, is_crash_looping: args.crash_looping };
            Ok(run_daemon(config, history))
        }
        None => run_supervisor(args, &config),
    }
}

fn run_supervisor(args: &Args, config: &Config) -> anyhow::Result<ExitCode> {
    let identity = config.supervisor_identity(crate::init::now_s()?)?;
    let address = config.listen_address()?.ip();
    let witness = Peers::new(config.node, config.map.clone(), identity, address);
    let settings = supervisor::Config::new(config.node);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let stops = supervisor::stop_signals().context("signals cannot be handled")?;
        Ok::<_, anyhow::Error>(supervise(settings, witness, stops, |history| child(args, history)).await)
    })?;
    match ended {
        Ok(Ended::Stopped) => Ok(ExitCode::SUCCESS),
        Ok(Ended::Killed) => Ok(ExitCode::from(EXIT_KILLED)),
        Err(error @ SupervisorError::CrashLoop(_)) => {
            tracing::error!("{error}");
            // Nobody is left to be told if this fails.
            let _ = writeln!(io::stderr(), "fleasefs: {error}");
            Ok(ExitCode::from(EXIT_CRASH_LOOP))
        }
        Err(error) => Err(error.into()),
    }
}

/// This program, even if another one has its name by now, as the child.
fn child(args: &Args, history: History) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("osd").arg("--config").arg(&args.config);
    if let Some(level) = args.log_level {
        command.args(["--log-level", LogLevel::from(level).name()]);
    }
    if let Some(form) = args.log_format.as_ref().and_then(ValueEnum::to_possible_value) {
        command.args(["--log-format", form.get_name()]);
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(file);
    }
    command.args(["--child", &history.restarts.to_string()]);
    if history.is_crash_looping {
        command.arg("--crash-looping");
    }
    command
}

fn run_daemon(config: Config, history: History) -> ExitCode {
    let supervised = Supervised::adopt(STOP_TIMEOUT);
    let served = serve(config, history, &supervised);
    let Err(error) = served else { return ExitCode::SUCCESS };
    tracing::error!("{error:#}");
    let daemon_error = error.downcast_ref::<daemon::DaemonError>();
    // A port that is taken at the first start was taken by somebody else, and not by the daemon that just died.
    let is_refused = daemon_error.is_some_and(daemon::DaemonError::is_taken_address) && history.restarts == 0;
    if is_refused || daemon_error.is_some_and(daemon::DaemonError::is_hopeless) {
        ExitCode::from(EXIT_HOPELESS)
    } else {
        ExitCode::FAILURE
    }
}

fn serve(config: Config, history: History, supervised: &Supervised) -> anyhow::Result<()> {
    let told =
        daemon::Supervised { restarts: history.restarts.into(), crash_looping: history.is_crash_looping };
    let options = Options { config, now_s: crate::init::now_s()?, supervised: Some(told) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut signals = supervisor::stop_signals().context("signals cannot be handled")?;
        let (tell, stop) = watch::channel(false);
        let announce = |incarnation| supervised.tell(incarnation).map_err(io::Error::other);
        let asked = async {
            tokio::select! {
                _ = signals.recv() => {}
                () = supervised.wait_until_gone() => {}
            }
            tell.send_replace(true);
            std::future::pending().await
        };
        anyhow::Ok(first(daemon::run(options, stop, announce), asked).await?)
    });
    // A disk that hangs may be the reason for the end, and must not hold it up.
    runtime.shutdown_background();
    served
}

/// What `work` comes to, while `beside` goes on, which never ends.
async fn first<T>(work: impl Future<Output = T>, beside: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        never = beside => never,
    }
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::Error,
            Level::Warn => Self::Warn,
            Level::Info => Self::Info,
            Level::Debug => Self::Debug,
            Level::Trace => Self::Trace,
        }
    }
}

impl From<Form> for LogFormat {
    fn from(form: Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Json => Self::Json,
        }
    }
}
