//! What becomes of locks when their daemon, its machine or their holder fails: real processes, killed and frozen.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Config, Lock};
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::control::{TIMER_STALL_MAX, Watch};
use crate::daemons::{Daemons, signal};
use crate::failover::millis;

/// How long a cluster has to come back after an event.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Far above every bound.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Looks at a lock this often.
const POLL: Duration = Duration::from_millis(1);

/// What is done to the lock's surroundings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// The daemon that keeps the lock is killed.
    Crash,
    /// The daemon and the holder are killed.
    Both,
    /// The daemon's supervisor is killed, too.
    Machine,
    /// The holder is frozen for a while.
    Freeze,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which failures.
    pub failures: Vec<Failure>,
    /// How often each.
    pub rounds: u32,
    /// For how long a holder is frozen.
    pub freeze: Duration,
    /// This program: run with the cluster's folder and a lock's name after these arguments, it holds the lock and says so.
    pub holder: (PathBuf, Vec<String>),
}

/// What came of one kind of failure. Times are of the rounds that count.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Which.
    pub failure: Failure,
    /// Rounds that count.
    pub rounds: u32,
    /// Rounds in which the machine itself stalled.
    pub void_rounds: u32,
    /// The middle of the times until the lock was kept again, or somebody else had it.
    pub p50_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// The bound; none where the time says nothing.
    pub bound_ms: Option<f64>,
    /// Locks that their living holder lost.
    pub lost: u32,
    /// Times when somebody else got a lock that was held, or a frozen holder took itself for one.
    pub violations: u32,
}

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FailoverError {
    /// No client.
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    /// No lock.
    #[error(transparent)]
    Lock(#[from] client::LockError),
    /// A process.
    #[error("could not start or watch a process: {0}")]
    Io(#[from] io::Error),
    /// The cluster did not come back.
    #[error("the daemons were not well {0:?} after an event; see their logs")]
    NotReady(Duration),
    /// Nothing happened.
    #[error("nobody had the lock {0:?} after the event")]
    Stuck(Duration),
    /// A lock that nobody keeps.
    #[error("no daemon keeps the lock")]
    NotKept,
}

/// Runs the plan on `daemons`.
pub async fn run(
    plan: &Plan,
    daemons: &mut Daemons,
    config: &Config,
    mut progress: impl FnMut(&str),
) -> Result<Vec<Figures>, FailoverError> {
    let mut all = Vec::new();
    for &failure in &plan.failures {
        let mut times = Vec::new();
        let mut figures = Figures {
            failure,
            rounds: 0,
            void_rounds: 0,
            p50_ms: 0.0,
            max_ms: 0.0,
            bound_ms: bound(failure, config).map(millis),
            lost: 0,
            violations: 0,
        };
        for round in 1..=plan.rounds {
            progress(&format!("{failure:?}, round {round}"));
            let name = format!("{failure:?}-{round}");
            let mut stage = Stage { plan, daemons, config, name: &name, figures: &mut figures };
            stage.wait_until_well().await?;
            let control = Watch::timer();
            let time = stage.play(failure).await?;
            if control.end() > TIMER_STALL_MAX {
                figures.void_rounds += 1;
            } else {
                figures.rounds += 1;
                times.push(time);
            }
        }
        times.sort_unstable();
        figures.p50_ms = times.get(times.len() / 2).copied().map_or(0.0, millis);
        figures.max_ms = times.last().copied().map_or(0.0, millis);
        all.push(figures);
    }
    Ok(all)
}

/// Holds the lock `name` and writes to `say` whether it does, until it is killed: the holder of a plan.
pub async fn hold(config: &Config, name: &str, mut say: impl FnMut(&str)) -> Result<(), FailoverError> {
    let client = Client::connect(config).await?;
    let lock = client.lock(name).await?;
    loop {
        say(if lock.is_held() { "held" } else { "not held" });
        sleep(Duration::from_millis(5)).await;
    }
}

/// One round.
struct Stage<'a> {
    plan: &'a Plan,
    daemons: &'a mut Daemons,
    config: &'a Config,
    name: &'a str,
    figures: &'a mut Figures,
}

impl Stage<'_> {
    async fn play(&mut self, failure: Failure) -> Result<Duration, FailoverError> {
        match failure {
            Failure::Crash => self.crash().await,
            Failure::Both | Failure::Machine => self.lose_both(failure == Failure::Machine).await,
            Failure::Freeze => self.freeze().await,
        }
    }

    /// The holder keeps its lock, and no rival gets it.
    async fn crash(&mut self) -> Result<Duration, FailoverError> {
        let (holder, rival) = (self.client().await?, self.client().await?);
        let lock = holder.lock(self.name).await?;
        let before = lock.kept_by().ok_or(FailoverError::NotKept)?;
        let waiting = rival.lock(self.name);
        tokio::pin!(waiting);
        // The rival is in line before anything happens.
        let _ = timeout(Duration::from_millis(50), &mut waiting).await;
        let begun = Instant::now();
        self.daemons.kill(before.0 as usize);
        while lock.is_held()
            && lock.kept_by().is_none_or(|node| node == before)
            && begun.elapsed() < EVENT_TIMEOUT
        {
            sleep(POLL).await;
        }
        let time = begun.elapsed();
        let overtaken = timeout(Duration::from_millis(1_500), &mut waiting).await.is_ok();
        self.figures.violations += u32::from(overtaken && lock.is_held());
        self.figures.lost += u32::from(!lock.is_held());
        Ok(time)
    }

    /// Whoever waits gets the lock once its dead holder cannot believe in it any longer.
    async fn lose_both(&mut self, machine: bool) -> Result<Duration, FailoverError> {
        let mut holder = Holder::start(self.plan, self.config, self.name)?;
        let rival = self.client().await?;
        let keeper = self.keeper(&rival).await?;
        let waiting = rival.lock(self.name);
        tokio::pin!(waiting);
        let _ = timeout(Duration::from_millis(50), &mut waiting).await;
        let begun = Instant::now();
        signal(holder.process.id(), Signal::KILL);
        if machine {
            self.daemons.kill_machine(keeper);
        } else {
            self.daemons.kill(keeper);
        }
        let lock =
            timeout(EVENT_TIMEOUT, waiting).await.map_err(|_| FailoverError::Stuck(EVENT_TIMEOUT))??;
        let time = begun.elapsed();
        holder.end();
        lock.release().await;
        if machine {
            self.daemons.restart(keeper)?;
        }
        Ok(time)
    }

    /// A frozen holder does not take itself for one when it goes on, and its lock is somebody else's meanwhile.
    async fn freeze(&mut self) -> Result<Duration, FailoverError> {
        let mut holder = Holder::start(self.plan, self.config, self.name)?;
        let rival = self.client().await?;
        signal(holder.process.id(), Signal::STOP);
        let begun = Instant::now();
        let lock: Lock = timeout(EVENT_TIMEOUT, rival.lock(self.name))
            .await
            .map_err(|_| FailoverError::Stuck(EVENT_TIMEOUT))??;
        let time = begun.elapsed();
        sleep(self.plan.freeze.saturating_sub(time)).await;
        self.figures.lost += u32::from(!lock.is_held());
        // Words from before the freeze may still be in the pipe: only what it says from now on counts.
        holder.drain()?;
        signal(holder.process.id(), Signal::CONT);
        sleep(Duration::from_millis(300)).await;
        self.figures.violations += u32::from(holder.end().lines().any(|line| line == "held"));
        Ok(time)
    }

    async fn client(&self) -> Result<Client, FailoverError> {
        Ok(Client::connect(self.config).await?)
    }

    /// The daemon that keeps the one lock there is.
    async fn keeper(&self, client: &Client) -> Result<usize, FailoverError> {
        let states = client.status().await;
        let keeper =
            states.iter().find(|state| state.status.as_ref().is_ok_and(|status| status.locks.held > 0));
        keeper.map(|state| state.node.0 as usize).ok_or(FailoverError::NotKept)
    }

    async fn wait_until_well(&self) -> Result<(), FailoverError> {
        let begun = Instant::now();
        while begun.elapsed() < READY_TIMEOUT {
            if let Ok(client) = Client::connect(self.config).await {
                let states = client.status().await;
                let is_idle = |state: &client::DaemonState| {
                    state
                        .status
                        .as_ref()
                        .is_ok_and(|status| status.locks.held == 0 && status.locks.waiting == 0)
                };
                let is_well = client::problems(&states, 0).is_empty() && states.iter().all(is_idle);
                client.close().await;
                if is_well {
                    return Ok(());
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(FailoverError::NotReady(READY_TIMEOUT))
    }
}

/// A process that holds a lock and says so.
struct Holder {
    process: Child,
}

impl Holder {
    fn start(plan: &Plan, config: &Config, name: &str) -> Result<Self, FailoverError> {
        let (program, arguments) = &plan.holder;
        let folder: &Path = config.path.parent().unwrap_or(Path::new("."));
        let process = Command::new(program)
            .args(arguments)
            .args([folder.as_os_str(), name.as_ref()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut holder = Self { process };
        let mut line = String::new();
        if let Some(stdout) = &mut holder.process.stdout {
            BufReader::with_capacity(1, stdout).read_line(&mut line)?;
        }
        if line.trim() == "held" { Ok(holder) } else { Err(FailoverError::NotKept) }
    }

    /// Takes what is in the pipe; the process is frozen and adds nothing.
    fn drain(&mut self) -> io::Result<()> {
        if let Some(stdout) = &mut self.process.stdout {
            let waiting = rustix::io::ioctl_fionread(&*stdout)?;
            io::copy(&mut stdout.take(waiting), &mut io::sink())?;
        }
        Ok(())
    }

    /// Ends the process and returns what it said last.
    fn end(&mut self) -> String {
        let mut said = String::new();
        let _ = self.process.kill();
        if let Some(stdout) = &mut self.process.stdout {
            // Half a line at the end is no word.
            let _ = stdout.read_to_string(&mut said);
        }
        let _ = self.process.wait();
        said
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long it may take until the lock is kept again, or somebody else's.
fn bound(failure: Failure, config: &Config) -> Option<Duration> {
    let lease = config.map.settings().lease_config();
    let micros = |span: base::Span| Duration::from_micros(span.as_micros());
    let session = micros(lease.session.stretched(lease.rate_error_ppm));
    match failure {
        Failure::Crash => Some(Duration::from_millis(150)),
        Failure::Both => Some(session + Duration::from_millis(200)),
        Failure::Machine => Some(micros(lease.t_max + lease.epsilon) + session + Duration::from_millis(200)),
        Failure::Freeze => None,
    }
}
