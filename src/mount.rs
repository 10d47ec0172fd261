//! `fleasefs mount`: a volume as a directory of this machine.

pub(crate) mod helper;

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ::osd::config::{LogFormat, LogLevel};
use anyhow::{Context, bail};
use client::{Client, ConnectError, ObjectError, Volume, VolumeError};
use client_fuse::{
    Connect, Ended, Mount, NoSuchOption, NotWritten, Options, Parting, Point, Served, VolumeMount,
};
use namespace::InodeId;
use node::VolumeName;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// The volume that is mounted unless another is named.
pub(crate) const VOLUME_DEFAULT: &str = "main";
/// How long the daemons have to say that the volume is there.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// What programs ask for is asked until it is answered, as of a disk. Whoever does not want to wait is killed.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often to try again with `--wait`.
const RETRY: Duration = Duration::from_secs(1);
/// How long whoever has files open may go on with them once the mount is to end.
const GRACE: Duration = Duration::from_secs(10);
/// What ends a session sends several signals at once: they are one.
const SAME_SIGNAL: Duration = Duration::from_millis(300);
/// How long a mount that is to end at once waits for the daemons.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// What a mount in the background says to whoever has started it.
const READY: &str = "ready";

/// Mount a volume on a directory
///
/// Programs use it like any other file system, on as many machines at once as you
/// like: what one has written the others read. Daemons may come and go meanwhile;
/// whoever wants something while too few are there waits for them.
///
/// Without --background it stays in front until it is unmounted: by `fleasefs
/// umount PATH`, by `umount PATH`, or by SIGINT, SIGTERM or SIGHUP, after which
/// everything is with the daemons. If files are open then, it goes on for up to 10
/// seconds; a second signal ends it within 2, whether the daemons answer or not.
///
/// In /etc/fstab, with a link /sbin/mount.fleasefs to this program:
///   /etc/fleasefs:home  /home  fleasefs  allow_other,_netdev,wait  0  0
///
/// Exit codes: 0 when it was unmounted, or with --background when it answers; 1
/// when it could not be mounted, or ended before everything was with the daemons;
/// 2 when the command line was wrong.
///
/// Examples:
///   fleasefs mount /tmp/cluster /mnt --background
///   fleasefs mount /etc/fleasefs:home /home -o allow_other,ro
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml, and behind a colon the volume;
    /// without one it is `main`
    #[arg(value_name = "CLUSTER[:VOLUME]")]
    target: PathBuf,
    /// An existing directory
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// ro, rw, allow_other, dev, suid, noexec, wait and the like, with commas between
    #[arg(short, long, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Return as soon as the mount answers, and leave it running
    #[arg(long)]
    background: bool,
    /// Keep trying while no daemon can be reached; not if daemons refuse the client's certificate
    #[arg(long)]
    wait: bool,
    /// Write what goes wrong to this file; without it to standard error, and in the background to nobody
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Was started in the background
    #[arg(long, hide = true)]
    detached: bool,
    /// Options that there are not are passed over
    #[arg(long, hide = true)]
    sloppy: bool,
    /// All is checked and nothing mounted
    #[arg(skip)]
    is_fake: bool,
}

/// What is to be mounted.
struct Target {
    cluster: PathBuf,
    volume: VolumeName,
}

impl Args {
    /// To mount `target` at `path`, with nothing else said.
    const fn of(target: PathBuf, path: PathBuf) -> Self {
        Self {
            target,
            path,
            options: Vec::new(),
            background: false,
            wait: false,
            log_file: None,
            detached: false,
            sloppy: false,
            is_fake: false,
        }
    }

    fn options(&self, target: &Target) -> Result<Options, NoSuchOption> {
        let mut options = Options::new(Mount::source_of(&target.cluster, target.volume.as_str()));
        for option in self.options.iter().flat_map(|list| list.split(',')) {
            match options.set(option) {
                Err(_) if self.sloppy => {}
                set => set?,
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = parse_target(&args.target)?;
    let options = args.options(&target)?;
    if args.is_fake {
        return client::Config::find(Some(&target.cluster)).map(|_| ExitCode::SUCCESS).map_err(Into::into);
    }
    if args.background {
        return in_background(args, &target);
    }
    if args.detached {
        // What the terminal sends when it is closed is not for a mount.
        rustix::process::setsid().context("cannot leave the terminal")?;
    }
    crate::log::start(LogLevel::Warn, LogFormat::Text, args.log_file.as_deref())?;
    let config = client::Config::find(Some(&target.cluster))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("could not start the asynchronous runtime")?;
    let waits = args.wait || options.waits;
    let (client, volume) = runtime.block_on(find(waits, &config, &target.volume))?;
    // A signal that comes while it is being mounted ends it in order, too.
    let signals = runtime.block_on(async { Signals::new() })?;
    let connect = again(config, target.volume);
    let mount = VolumeMount::new(((client, volume), connect), &args.path, &options, runtime.handle())?;
    if args.detached {
        // Whoever waited for it may have gone.
        let _ = writeln!(io::stdout(), "{READY}");
    }
    let served = runtime.block_on(serve(mount, signals));
    // Whoever still has files open has had time to close them.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Mounts the default volume of a cluster, and returns once it answers.
pub(crate) fn start(cluster: &Path, path: &Path) -> anyhow::Result<()> {
    let target = Target { cluster: cluster.to_owned(), volume: VolumeName::parse(VOLUME_DEFAULT)? };
    let args = Args { background: true, ..Args::of(cluster.to_owned(), path.to_owned()) };
    let code = in_background(&args, &target)?;
    anyhow::ensure!(code == ExitCode::SUCCESS, "{} could not be mounted", path.display());
    Ok(())
}

/// A colon may be part of the folder's name.
fn parse_target(target: &Path) -> anyhow::Result<Target> {
    let text = target.to_str();
    let parts = text.and_then(|text| text.rsplit_once(':')).filter(|_| !target.exists());
    let (cluster, volume) =
        parts.map_or((target, VOLUME_DEFAULT), |(cluster, volume)| (Path::new(cluster), volume));
    let volume = VolumeName::parse(volume).with_context(|| format!("no volume is called `{volume}`"))?;
    let cluster = match cluster.canonicalize() {
        Ok(cluster) => cluster,
        // It says better what is missing.
        Err(_) => client::Config::find(Some(cluster))?.path,
    };
    Ok(Target { cluster, volume })
}

/// Starts the same command in the background. Returns once the mount answers.
fn in_background(args: &Args, target: &Target) -> anyhow::Result<ExitCode> {
    let absolute = |path: &Path| std::path::absolute(path).with_context(|| path.display().to_string());
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fleasefs").args(["mount", "--detached"]);
    command.args(args.options.iter().map(|list| format!("--options={list}")));
    command.args(args.sloppy.then_some("--sloppy"));
    if args.wait {
        command.arg("--wait");
    }
    if let Some(file) = &args.log_file {
        command.arg("--log-file").arg(absolute(file)?);
    }
    command
        .arg("--")
        .arg(Mount::source_of(&target.cluster, target.volume.as_str()))
        .arg(absolute(&args.path)?);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("the mount cannot be started")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // What it has to say before it is ready is for the user. It is not waited for: the mount keeps its end.
    let teller = std::thread::spawn(move || stderr.map(|mut from| io::copy(&mut from, &mut io::stderr())));
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line).context("cannot hear from the mount")?;
    }
    if line.trim_end() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the mount")?;
    let _ = teller.join();
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The volume, once there are daemons to ask for it.
async fn find(waits: bool, config: &client::Config, name: &VolumeName) -> anyhow::Result<(Client, Volume)> {
    let mut told = false;
    loop {
        let error = match try_find(config, name).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        if !is_away(&error) {
            return Err(error);
        }
        if !waits {
            return Err(error.context("start the daemons, or use `--wait` to keep trying"));
        }
        if !std::mem::replace(&mut told, true) {
            writeln!(io::stderr(), "fleasefs: {error}\nfleasefs: trying again until one does")?;
        }
        sleep(RETRY).await;
    }
}

/// The same once more, for a mount that goes on.
fn again(config: client::Config, name: VolumeName) -> Connect {
    let found = move |config: client::Config, name: VolumeName| async move {
        loop {
            match try_find(&config, &name).await {
                Err(error) if is_away(&error) => sleep(RETRY).await,
                found => return found.map_err(|error| format!("{error:#}")),
            }
        }
    };
    Box::new(move || Box::pin(found(config.clone(), name.clone())))
}

/// Whether nobody answers.
fn is_away(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConnectError::NoDaemon(_)))
        || matches!(error.downcast_ref(), Some(VolumeError::Object(ObjectError::Unanswered { .. })))
}

async fn try_find(config: &client::Config, name: &VolumeName) -> anyhow::Result<(Client, Volume)> {
    let client = Client::connect(config).await?.with_patience(FIRST_PATIENCE);
    let found = async { client.volume(name).await?.attributes(InodeId::ROOT).await };
    if let Err(error) = found.await {
        client.close().await;
        return Err(error.into());
    }
    let client = client.with_patience(PATIENCE);
    let volume = client.volume(name).await?;
    Ok((client, volume))
}

/// What ends a mount from outside.
struct Signals {
    all: [Signal; 3],
}

impl Signals {
    fn new() -> io::Result<Self> {
        let [interrupt, terminate, hang_up] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { all: [interrupt?, terminate?, hang_up?] })
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hang_up] = &mut self.all;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }

    /// The next one that comes after so long, or later.
    async fn next_after(&mut self, span: Duration) {
        let from = Instant::now() + span;
        while Instant::now() < from {
            self.next().await;
        }
    }
}

/// Returns when the mount has ended, or has to.
async fn serve(mount: VolumeMount, mut signals: Signals) -> anyhow::Result<()> {
    let (point, parting) = (mount.point(), mount.parting());
    let (sender, mut ended) = oneshot::channel();
    std::thread::Builder::new().name("mount".to_owned()).spawn(move || sender.send(mount.wait()))?;
    tokio::select! {
        served = &mut ended => return leave(served, &mut signals).await,
        () = signals.next() => {}
    }
    let is_written_back = Cell::new(false);
    // What it has of the mount it keeps until the process ends: dropped, nothing would be left to be sent.
    let in_order = end_in_order((&point, &is_written_back), &parting, ended);
    tokio::pin!(in_order);
    tokio::select! {
        done = &mut in_order => return done,
        () = signals.next_after(SAME_SIGNAL) => {}
    }
    let has_left = end_at_once(&point, &parting).await;
    anyhow::ensure!(
        has_left && is_written_back.get(),
        "ended by a second signal before everything was with the daemons that programs wrote"
    );
    Ok(())
}

/// Ends a mount when everything is with the daemons, and whoever has files open has had time to close them.
async fn end_in_order(
    (point, is_written_back): (&Point, &Cell<bool>),
    parting: &Parting,
    mut ended: oneshot::Receiver<Served>,
) -> anyhow::Result<()> {
    let (how, written) = end(point).await?;
    is_written_back.set(written.is_ok());
    if how == Ended::InUse {
        let told =
            format!("files are open; the mount ends when they are closed, or in {} s", GRACE.as_secs());
        // The terminal may have gone.
        let _ = writeln!(io::stderr(), "fleasefs: {told}");
    }
    match timeout(GRACE, &mut ended).await {
        Ok(served) => served?.settled().await,
        Err(_) => _ = parting.leave().await,
    }
    Ok(written?)
}

/// Ends a mount although the daemons may be away and programs may wait for them.
/// Returns whether they have everything that its process had.
async fn end_at_once(point: &Point, parting: &Parting) -> bool {
    let point = point.clone();
    let detached = tokio::task::spawn_blocking(move || point.detach());
    let has_left = timeout(LAST_PATIENCE, async {
        let has_left = parting.leave().await;
        has_left && detached.await.is_ok()
    });
    has_left.await.unwrap_or(false)
}

async fn end(point: &Point) -> anyhow::Result<(Ended, Result<(), NotWritten>)> {
    let point = point.clone();
    Ok(tokio::task::spawn_blocking(move || point.end()).await?)
}

/// Waits until everything is with the daemons, unless whoever ends the mount does not want to wait for that any longer.
async fn leave(
    served: Result<Served, oneshot::error::RecvError>,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    tokio::select! {
        () = served?.settled() => Ok(()),
        () = signals.next() => bail!("ended by a signal before everything was written that programs wrote"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_stands_behind_the_last_colon() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = folder.path().join("a:b").canonicalize().unwrap_or_else(|_| {
            std::fs::create_dir(folder.path().join("a:b")).unwrap();
            folder.path().join("a:b").canonicalize().unwrap()
        });
        for (text, volume) in [("a:b", "main"), ("a:b:home", "home")] {
            let target = parse_target(&folder.path().join(text)).unwrap();
            assert_eq!((target.cluster, target.volume.as_str()), (cluster.clone(), volume));
        }
        assert!(parse_target(&folder.path().join("a:b:No")).is_err());
        assert!(parse_target(&folder.path().join("c:home")).is_err());
    }
}
