//! The daemon: one task that owns the shard, and everything around it that touches the world.
//!
//! ```text
//! network --inbox--> driver --handle_*--> Shard --poll_output--> driver --links--> network
//! store   --done---> driver                                     driver --jobs---> store (its own thread)
//! ```
//!
//! The driver decides nothing: it says what happened and when, and does what the shard wants done.

mod disk;
mod doorman;
mod driver;
mod files;
mod gauges;
mod keeper;
mod links;
mod page;
mod refusals;
mod report;
mod space;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base::{Process, Span, WallTime};
use lease::{FleaseRules, PaxosRules};
use net::{BindError, Endpoint, Event, Identity, Inbox, Network, Path};
use node::{
    BEHIND_MAX, CapabilityKeys, ClusterMap, FIRST_TIMES_MAX, FirstClock, FirstTime, LeaseAlgorithm,
    Remembered, RestoredCopy, Shard, ShardConfig,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::Notice;

use crate::board::Board;
use crate::clock::{self, Behind, Clock, OffsetError, Reading};
use crate::config::{Config, ConfigError};
use crate::metrics::About;
use crate::store::check::FILES_DIR;
use crate::store::contents::{ContentsError, INLINE_MAX, PutError};
use crate::store::files::{self as files_store, FilesError, FilesParts};
use crate::store::index::IndexError;
use crate::store::journal::{AppendError, JournalError, JournalLimits};
use crate::store::media::{Media, RealMedia};
use crate::store::memo::{MemoError, MemoFile};
use crate::store::{OpenError, Owner, Start, Store, StoreRules, WriteError, is_full};
use crate::supervisor::GOOD_RUN;
use doorman::Doorman;
use driver::{Driver, told_to};
use files::FileDisk;
use gauges::Gauges;
use keeper::StoreKeeper;
use page::Page;

/// How often to look whether another process lets go of the data directory and the ports, and how long to wait in
/// between.
const BUSY_ATTEMPTS: u32 = 30;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait before trying again what there was no space for.
const FULL_PAUSE: Duration = Duration::from_secs(1);

const JOURNAL: JournalLimits =
    JournalLimits { segment_bytes: 16 << 20, segments_max: 8, reserve_bytes: 1 << 20 };

/// What a daemon is started with.
pub struct Options {
    /// Its configuration.
    pub config: Config,
    /// Seconds since 1970, for certificates.
    pub now_s: u64,
    /// What its supervisor says of it, if it has one.
    pub supervised: Option<Supervised>,
}

/// What a supervisor says of its child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Supervised {
    /// How often it has started the daemon again.
    pub restarts: u64,
    /// Whether it waits longer and longer because the daemon keeps dying.
    pub crash_looping: bool,
}

/// Why a daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration, a certificate, or an address in it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The data directory while running.
    #[error("the data directory cannot be written: {0}")]
    Write(#[from] WriteError),
    /// The address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A constant of the network.
    #[error(transparent)]
    Network(#[from] net::ConfigError),
    /// The settings of the cluster.
    #[error(transparent)]
    Shard(#[from] node::ShardError),
    /// The clock was set back.
    #[error(transparent)]
    Behind(#[from] Behind),
    /// The test offset.
    #[error(transparent)]
    Offset(#[from] OffsetError),
    /// The data directory is an old copy.
    #[error(transparent)]
    Restored(#[from] RestoredCopy),
    /// The store of files does not open.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Where files would be kept is not there.
    #[error("{path} cannot be opened: {source}")]
    FilesDirectory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no place for the memo.
    #[error(transparent)]
    Memo(#[from] MemoError),
    /// The index does not open.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The store failed while running.
    #[error(transparent)]
    FilesFailed(#[from] files::FilesFailed),
    /// The threads of the store cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// Nobody was there to hear of the start.
    #[error("the supervisor cannot be told of this start: {0}")]
    Supervisor(io::Error),
    /// The kernel has no random numbers.
    #[error("the kernel gives no random numbers: {0}")]
    Random(io::Error),
    /// Node time reached the mark on disk, because the disk took no newer one for long.
    #[error(
        "the disk has taken no time mark for {0}; this daemon stops before it uses time that it could not remember"
    )]
    MarkReached(Span),
}

impl DaemonError {
    /// Whether a daemon that is started again would fail in the same way until somebody does something.
    pub fn is_hopeless(&self) -> bool {
        match self {
            _ if self.lacks_space() => false,
            // What is in the way may go away: a full disk, a port, a clock that is being set.
            Self::Open(OpenError::Write(_) | OpenError::Random(_))
            | Self::Write(_)
            | Self::Bind(_)
            | Self::Behind(_)
            | Self::Supervisor(_)
            | Self::FilesDirectory { .. }
            | Self::FilesFailed(_)
            | Self::Thread(_)
            | Self::Random(_)
            | Self::MarkReached(_) => false,
            Self::Config(_)
            | Self::Open(_)
            | Self::Network(_)
            | Self::Shard(_)
            | Self::Offset(_)
            | Self::Files(_)
            | Self::Memo(_)
            | Self::Index(_)
            | Self::Restored(_) => true,
        }
    }

    /// Whether there was no space on the disk.
    fn lacks_space(&self) -> bool {
        use files_store::FilesError as Files;
        match self {
            Self::Open(error) => error.lacks_space(),
            Self::Write(error) | Self::Files(Files::Note(error)) => matches!(error, WriteError::Full { .. }),
            Self::FilesDirectory { source, .. } => is_full(source),
            Self::Files(Files::Journal(error)) => {
                error.is_full() || matches!(error, JournalError::Append(AppendError::Full))
            }
            Self::Files(Files::Put(error)) => matches!(error, PutError::Full),
            Self::Files(Files::Contents(ContentsError::Io(error))) => is_full(error),
            Self::Index(error) | Self::Files(Files::Contents(ContentsError::Index(error))) => {
                matches!(error, IndexError::Full)
            }
            _ => false,
        }
    }

    /// Whether an address could not be had. If the daemon was not just running there, it is somebody else's.
    pub const fn is_taken_address(&self) -> bool {
        matches!(self, Self::Bind(_))
    }
}

/// Opens the data directory, tells `announce` what its death would be reported as, and serves until `stop` becomes
/// true. Leases are given up before it returns.
///
/// `announce` runs before anything is sent: a supervisor has to know whose death it would report.
pub async fn run(
    options: Options,
    stop: watch::Receiver<bool>,
    announce: impl FnOnce(Notice) -> io::Result<()>,
) -> Result<(), DaemonError> {
    let mut asked = stop.clone();
    let serving = tokio::select! {
        ready = prepare(options, stop, announce) => ready?,
        // Nothing was promised to anybody yet.
        () = told_to(&mut asked) => return Ok(()),
    };
    // As a task of its own: what a runtime waits for in the foreground it is woken up for by a system call, each time.
    let mut tasks = JoinSet::from_iter([serving]);
    match tasks.join_next().await {
        Some(Ok(served)) => served,
        Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
        None => Ok(()),
    }
}

/// A daemon that is ready, until it stops.
type Serving = Pin<Box<dyn Future<Output = Result<(), DaemonError>> + Send>>;

/// Everything before a daemon serves. It may take a while: until an earlier process lets go, or a clock is right.
async fn prepare(
    options: Options,
    stop: watch::Receiver<bool>,
    announce: impl FnOnce(Notice) -> io::Result<()>,
) -> Result<Serving, DaemonError> {
    let config = &options.config;
    let identity = config.identity(options.now_s)?;
    let (capability_keys, page_at) = (capability_keys(config)?, config.page()?);
    let map = Arc::new(config.map.clone());
    let owner = Owner { cluster: map.cluster(), node: config.node };
    let mut store = open_store(config, owner).await?;
    let id = store.start_id();
    let me = Process { node: config.node, incarnation: id.incarnation };
    announce(Notice { dead: me, line: store.line() }).map_err(DaemonError::Supervisor)?;
    tracing::info!(node = %me.node, incarnation = me.incarnation.0, store = %store.id(), "started");

    let restarts = options.supervised.map_or(0, |supervised| supervised.restarts);
    let about = About { process: me, restarts, epsilon: map.settings().lease_config().epsilon };
    let (gauges, pages) = gauges::start(about);
    let page = Page::open(page_at, pages, Board::new(me, &map));

    let (floor, is_drained) = (store.time_floor(clock::since_boot()), store.is_drained());
    let shard_config = ShardConfig { capability_keys, ..shard_config(config, &map) };
    let (remembered, disk) = open_files(config, &mut store, &shard_config).await?;
    let keeper = StoreKeeper::new(store);
    let reading = Reading::take()?;
    let limits = config.limits;
    let doorman = Doorman::new((map.clone(), me), keeper.clone(), reading, limits.clients_max);
    let doorman = Arc::new(doorman);
    let seed = draw_seed()?;
    let (network, mut inbox) = open_network(config, &identity, &doorman, seed).await?;
    let above = map.osds().filter(|osd| osd.id > me.node);
    let callers = above.map(|osd| network.keep_calling(osd.id, &osd.address)).collect();

    let mut early = Vec::new();
    let first = FirstClock::new(&shard_config)?;
    let clock = fix_clock(reading, first, &mut inbox, &mut early, floor).await?;
    let mark = keeper.mark_time(clock).await?;
    doorman.fix(clock);
    let mut following = JoinSet::new();
    following.spawn(config.deny_file().follow(identity.deny_list().clone(), gauges.deny_list_reporter()));

    let certificate_expires_s = identity.peer().not_after_s;
    let supervised = options.supervised;
    let parts = Parts {
        network,
        inbox,
        callers,
        clock,
        keeper,
        doorman,
        stop,
        certificate_expires_s,
        supervised,
        gauges,
        page,
        _following: following,
    };
    match map.settings().algorithm {
        LeaseAlgorithm::Flease => {
            let mut shard = Shard::<FleaseRules>::new(shard_config, me, remembered, clock.now(), seed)?;
            shard.begin(is_drained);
            Ok(Box::pin(Driver::new(shard, disk, parts, mark).run(early)))
        }
        LeaseAlgorithm::Paxoslease => {
            let mut shard = Shard::<PaxosRules>::new(shard_config, me, remembered, clock.now(), seed)?;
            shard.begin(is_drained);
            Ok(Box::pin(Driver::new(shard, disk, parts, mark).run(early)))
        }
    }
}

/// Bad keys are told of at start, and not when the first client opens a file. Without any a daemon goes on as before there
/// were volumes.
fn capability_keys(config: &Config) -> Result<Option<Arc<CapabilityKeys>>, ConfigError> {
    let keys = config.capability_keys()?;
    match &keys {
        Some(keys) => tracing::debug!(latest = %keys.latest(), "has keys of capabilities"),
        None => tracing::warn!(
            "there is no {}, so no client can open files of volumes here; make it with `fleasefs cert keys`, or copy that of \
             another daemon, and restart this one",
            config.capability_keys.display()
        ),
    }
    Ok(keys.map(Arc::new))
}

/// Opens the data directory as soon as there is space to note that.
async fn open_store(config: &Config, owner: Owner) -> Result<Store, OpenError> {
    let open = async || Store::open(&config.data, owner);
    let mut is_told = false;
    loop {
        match patiently(open, |error| matches!(error, OpenError::Locked { .. })).await {
            Err(error) if error.lacks_space() => {}
            opened => return opened,
        }
        if !std::mem::replace(&mut is_told, true) {
            let dir = config.data.display();
            tracing::error!("the disk of {dir} is full; this daemon starts when there is space");
        }
        sleep(FULL_PAUSE).await;
    }
}

fn shard_config(config: &Config, map: &Arc<ClusterMap>) -> ShardConfig {
    ShardConfig {
        locks_max: config.limits.locks_max as usize,
        sessions_max: config.limits.clients_max as usize,
        ..ShardConfig::new(map.clone())
    }
}

/// Opens what the data directory has of files. If there is no space for that the next process tries, but not at once: it would count
/// as one of those that end again and again.
async fn open_files(
    config: &Config,
    store: &mut Store,
    shard: &ShardConfig,
) -> Result<(Remembered, FileDisk), DaemonError> {
    let opened = read_files(config, store, shard);
    if let Err(error) = &opened
        && error.lacks_space()
    {
        let dir = config.data.display();
        tracing::error!("the disk of {dir} is full; this daemon starts again in a while: {error}");
        sleep(Duration::from_micros(GOOD_RUN.as_micros())).await;
    }
    opened
}

fn read_files(
    config: &Config,
    store: &mut Store,
    shard: &ShardConfig,
) -> Result<(Remembered, FileDisk), DaemonError> {
    let dir = config.data.join(FILES_DIR);
    let failed = |source| DaemonError::FilesDirectory { path: dir.clone(), source };
    let media: Arc<dyn Media> = Arc::new(RealMedia::open(dir.clone()).map_err(failed)?);
    let index = config.store.index.choose(&*media, store.has_served())?.open(&*media, &dir)?;
    let memo = Box::new(MemoFile::open(&config.store.memo, store.id())?);
    let parts = FilesParts {
        media,
        index,
        memo,
        limits: JOURNAL,
        inline_max: INLINE_MAX,
        rules: StoreRules::default(),
        lock: store.lock().map_err(failed)?,
    };
    let mut opened = files_store::open(store, shard, parts)?;
    for object in &opened.damaged {
        tracing::error!(?object, "what is kept of a file cannot be read; its other members give it back");
    }
    let files = std::mem::take(&mut opened.kept);
    let forgot_at = opened.forgot_at;
    let disk = FileDisk::start((config.node, dir), &files, opened).map_err(DaemonError::Thread)?;
    let (start, ceiling) = (remembered(store.start()), store.epoch_ceiling());
    Ok((Remembered { start, ceiling, forgot_at, files }, disk))
}

/// What a driver works with.
struct Parts {
    network: Network,
    inbox: Inbox,
    callers: Vec<net::Caller>,
    clock: Clock,
    keeper: StoreKeeper,
    doorman: Arc<Doorman>,
    stop: watch::Receiver<bool>,
    certificate_expires_s: u64,
    supervised: Option<Supervised>,
    gauges: Gauges,
    /// Keeps the deny list as its file is.
    _following: JoinSet<()>,
    page: Page,
}

/// Does `work` again for a while as long as somebody else has what it needs, as `is_busy` says. A daemon whose
/// supervisor was killed stops by itself, and this may be the next one.
async fn patiently<T, E>(work: impl AsyncFn() -> Result<T, E>, is_busy: impl Fn(&E) -> bool) -> Result<T, E> {
    for _ in 0..BUSY_ATTEMPTS {
        match work().await {
            Err(error) if is_busy(&error) => sleep(BUSY_PAUSE).await,
            done => return done,
        }
    }
    work().await
}

async fn open_network(
    config: &Config,
    identity: &Identity,
    doorman: &Arc<Doorman>,
    seed: u64,
) -> Result<(Network, Inbox), DaemonError> {
    let address = config.listen_address()?;
    let path = if address.ip().is_loopback() { Path::Loopback } else { Path::Network };
    let bind = async || Endpoint::bind(address, identity, path);
    let endpoint = patiently(bind, |error| matches!(error, BindError::InUse { .. })).await?;
    if let Some(clamped) = endpoint.buffers().clamped() {
        tracing::warn!("{clamped}");
    }
    let settings = net::Config { seed, ..net::Config::default() };
    Ok(Network::start(endpoint, settings, doorman.clone())?)
}

const fn remembered(start: Start) -> lease::Start {
    match start {
        Start::Fresh => lease::Start::Fresh,
        Start::Again(_) => lease::Start::Again,
    }
}

/// Asks whom this node can reach for their times, and fixes node time by them.
async fn fix_clock(
    reading: Reading,
    mut first: FirstClock,
    inbox: &mut Inbox,
    early: &mut Vec<Event>,
    floor: WallTime,
) -> Result<Clock, DaemonError> {
    let mut events = Vec::new();
    let deadline = sleep(Duration::from_micros(FIRST_TIMES_MAX.as_micros()));
    tokio::pin!(deadline);
    while !first.is_complete() {
        tokio::select! {
            () = &mut deadline => break,
            is_open = inbox.receive(&mut events) => if !is_open { break },
        }
        for event in events.drain(..) {
            if let Event::Time { link, answer, done } = &event
                && let Some(node) = link.peer().role.node()
            {
                first.handle_time(node, answer.into_exchange(*done), answer.time_is_fixed);
            }
            early.push(event);
        }
    }
    let FirstTime { correction_us, behind } = first.decide(reading.wall, floor);
    if correction_us != 0 {
        tracing::warn!(
            correction_us,
            "most peers' clocks agree that this machine's is off; node time follows them"
        );
    }
    if behind == Span::ZERO {
        return Ok(Clock::fix(reading, correction_us, floor)?);
    }
    if behind > BEHIND_MAX {
        return Err(Behind { by: behind }.into());
    }
    tracing::warn!(by = %behind, "the clock is behind what this node used before; waiting");
    sleep(Duration::from_micros(behind.as_micros())).await;
    Ok(Clock::fix(Reading::take()?, correction_us, floor)?)
}

fn draw_seed() -> Result<u64, DaemonError> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        Ok(_) => Err(DaemonError::Random(io::ErrorKind::UnexpectedEof.into())),
        Err(errno) => Err(DaemonError::Random(errno.into())),
    }
}
