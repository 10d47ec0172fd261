//! Objects as programs see them: content that is changed and read in pieces, many pieces at a time.
//!
//! Every call is one request, which is sent until it has a result. What is under way at once is bounded: a call waits
//! for its turn before it takes any memory of its own. Data is handed on as it is, and its checksum is made here, once.

mod syncing;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{ClientId, MonoTime, NodeId, ObjectId};
use bytes::Bytes;
use namespace::{Attributes, Change as TreeChange, Generation, Op, Root, Who};
use net::Link;
use node::file::{
    Answer, Change, Done, Extent, FileError, FileReply, FileRequest, Level, Payload, Query, Stat,
};
use node::{Capability, ClusterMap, Named, object_named};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::core::files::{FileEvent, FileOutput, FileTicket, Files, Opening};
use crate::core::grants::{ChangeId, Told};
use crate::driver::{Client, PATIENCE, Shared};
use crate::handles::Handles;
use crate::lock::{NAME_BYTES_MAX, said};

/// So much data of changes is under way at once, whatever it belongs to: a daemon's connection takes twice as much.
const WRITES_BYTES: u32 = 8 << 20;
/// So much data of answers, which a daemon keeps until it is sent: its queue takes all of that several times.
const READS_BYTES: u32 = 4 << 20;
/// What a request counts for at least.
const REQUEST_BYTES_MIN: u32 = 1 << 10;
/// If so much waits for a daemon already, a request is not added to it: it is sent again anyway.
const WAITING_BYTES_MAX: usize = 12 << 20;
/// How soon what did not fit is tried again.
const FULL_RETRY: Duration = Duration::from_millis(5);
/// Why something could not be done to an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ObjectError {
    /// Empty or too long.
    #[error("an object's name has 1 to {NAME_BYTES_MAX} bytes, not {0}")]
    Name(usize),
    /// Nobody has made it, or it was removed.
    #[error("there is no such object")]
    NoSuchObject,
    /// It is impossible. Nothing has changed.
    #[error(transparent)]
    Refused(FileError),
    /// Acknowledged changes may not have outlived the failure of several daemons.
    #[error(
        "some of what was written since the last sync may be lost, because several daemons failed at once; write it again"
    )]
    Lost,
    /// Nobody has said what came of it.
    #[error(
        "no daemon has answered for this object in {patience_s} s: {why}; if it was to be changed, that may still happen; \
         `fleasefs status` shows what is wrong"
    )]
    Unanswered {
        /// How long it was tried.
        patience_s: u64,
        /// What the last daemon said.
        why: &'static str,
    },
    /// The daemons take the program for dead.
    #[error(
        "the daemons have not heard of this client for too long and take no changes of it any more; whether this one took \
         effect is unknown: connect again, and read what is there"
    )]
    Expired,
    /// What a daemon says is no answer to what it was asked.
    #[error("a daemon has answered what it was not asked; see that all run the same version")]
    Mismatch,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

/// An object, by its id; it need not be there. Clones are cheap.
pub struct Object {
    shared: Arc<Shared>,
    id: ObjectId,
    patience: Duration,
    /// How often something of it was reported as lost by the time of the last sync.
    losses: AtomicU64,
}

impl Client {
    /// An object by its id.
    pub fn object(&self, id: ObjectId) -> Object {
        let losses = self.shared.with_objects(|objects| objects.open(id));
        Object {
            shared: Arc::clone(&self.shared),
            id,
            patience: self.patience,
            losses: AtomicU64::new(losses),
        }
    }

    /// An object by its name: any text.
    pub fn object_named(&self, name: &str) -> Result<Object, ObjectError> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(ObjectError::Name(name.len()));
        }
        Ok(self.object(object_named(name)))
    }
}

impl Object {
    /// Which it is.
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// The content of a file of the volume that this is, which was opened just now.
    pub(crate) fn content(&self, capability: Capability) -> Self {
        let (id, shared) = (capability.open.file, Arc::clone(&self.shared));
        let losses = shared.with_objects(|objects| objects.open(id));
        let content = Self { shared, id, patience: self.patience, losses: AtomicU64::new(losses) };
        content.show(capability);
        content
    }

    /// The content of a file for which there is nothing to show yet.
    pub(crate) fn content_of(&self, id: ObjectId) -> Self {
        Self::of(&self.shared, id).with_patience(self.patience)
    }

    /// An object of this client's.
    pub(crate) fn of(shared: &Arc<Shared>, id: ObjectId) -> Self {
        let losses = AtomicU64::new(shared.with_objects(|objects| objects.open(id)));
        Self { shared: Arc::clone(shared), id, patience: PATIENCE, losses }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What to show for it from now on, if it is the content of a volume's file. It was given just now.
    pub(crate) fn show(&self, capability: Capability) {
        self.with_files(|files| files.show(clock::now(), capability));
    }

    /// The same for somebody who is told only of what is lost from now on.
    pub(crate) fn anew(&self) -> Self {
        Self::of(&self.shared, self.id).with_patience(self.patience)
    }

    /// The same for somebody who is told of what is lost from now on, and of what nobody was told.
    pub(crate) fn again(&self) -> Self {
        let again = self.anew();
        let told = self.shared.with_objects(|objects| objects.handles.told(self.id));
        again.losses.store(told, Ordering::Relaxed);
        again
    }

    /// Whether something of it was lost of which the next sync tells.
    pub(crate) fn has_lost(&self) -> bool {
        self.losses.load(Ordering::Relaxed)
            != self.shared.with_objects(|objects| objects.handles.losses(self.id))
    }

    /// The same, with another time for each request to get a result.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes it, empty, unless it is there.
    pub async fn create(&self) -> Result<(), ObjectError> {
        self.create_once().await?;
        // There may be something here that was removed.
        self.change(Change::Begin).await.map(drop)
    }

    /// Makes it, unless it is there, or was.
    pub(crate) async fn create_once(&self) -> Result<(), ObjectError> {
        let _permit = self.windows().for_change(0).await?;
        match self.run(&Wanted::Create).await? {
            FileEvent::Created { .. } => Ok(()),
            event => Err(error_of(event)),
        }
    }

    /// Its size and times.
    pub async fn stat(&self) -> Result<Stat, ObjectError> {
        match self.ask(Query::Stat).await? {
            Answer::Stat(stat) => Ok(stat),
            Answer::Data(_) | Answer::Extent(_) | Answer::Tree(_) => Err(ObjectError::Mismatch),
        }
    }

    /// Where something was written to next, from `offset` on, if it is lent by this lend.
    pub(crate) async fn extent(
        &self,
        offset: u64,
        under: Option<Generation>,
    ) -> Result<Option<Extent>, ObjectError> {
        match self.ask(Query::Extent { offset, under }).await? {
            Answer::Extent(extent) => Ok(extent),
            Answer::Data(_) | Answer::Stat(_) | Answer::Tree(_) => Err(ObjectError::Mismatch),
        }
    }

    /// What stands at `offset`, short where the object ends. At most [`READ_BYTES_MAX`](node::file::READ_BYTES_MAX)
    /// at once.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes, ObjectError> {
        self.read_under(offset, length, None).await
    }

    /// The same, if it is lent by this lend.
    pub(crate) async fn read_under(
        &self,
        offset: u64,
        length: u64,
        under: Option<Generation>,
    ) -> Result<Bytes, ObjectError> {
        match self.ask(Query::Read { offset, length, under }).await? {
            Answer::Data(data) => data.to_bytes().ok_or(ObjectError::Mismatch),
            Answer::Stat(_) | Answer::Extent(_) | Answer::Tree(_) => Err(ObjectError::Mismatch),
        }
    }

    /// Puts data at `offset`. Returns once a majority has it; [`sync`](Self::sync) makes it outlive their power.
    /// At most [`WRITE_BYTES_MAX`](node::file::WRITE_BYTES_MAX) at once.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<Stat, ObjectError> {
        stat_of(&self.change(Change::Write { offset, data: Payload::new(data) }).await?)
    }

    /// The same, and returns once the disks of a majority have it: in less time than [`write`](Self::write) and then
    /// [`sync`](Self::sync) take.
    pub async fn write_synced(&self, offset: u64, data: Bytes) -> Result<Stat, ObjectError> {
        let change = Change::Write { offset, data: Payload::new(data) };
        let losses = || self.shared.with_objects(|objects| objects.handles.losses(self.id));
        let before = losses();
        let (done, level) = self.change_to(change, Level::Durable).await?;
        if level == Level::Written {
            self.sync().await?;
            // Whoever synced meanwhile was told, and there was nothing left to be synced.
            if losses() != before {
                return Err(ObjectError::Lost);
            }
        }
        stat_of(&done)
    }

    /// Puts data at the end. Returns where that was.
    pub async fn append(&self, data: Bytes) -> Result<u64, ObjectError> {
        match self.change(Change::Append { data: Payload::new(data) }).await? {
            Done::Written { offset, .. } => Ok(offset),
            Done::Changed { .. } | Done::Tree(_) | Done::Returned { .. } => Err(ObjectError::Mismatch),
        }
    }

    /// Sets its size. What is added reads as zeros.
    pub async fn truncate(&self, size: u64) -> Result<Stat, ObjectError> {
        stat_of(&self.change(Change::Truncate { size }).await?)
    }

    /// Makes it at least so long. What is added reads as zeros.
    pub(crate) async fn extend(&self, size: u64) -> Result<Stat, ObjectError> {
        stat_of(&self.change(Change::Extend { size }).await?)
    }

    /// Makes a hole, which reads as zeros.
    pub async fn punch(&self, offset: u64, length: u64) -> Result<Stat, ObjectError> {
        stat_of(&self.change(Change::Punch { offset, length }).await?)
    }

    /// Changes it under a lend to this client.
    pub(crate) async fn flush(
        &self,
        change: Change,
        (under, level): (Generation, Level),
    ) -> Result<Stat, ObjectError> {
        let _permit = self.windows().for_change(change.data_bytes()).await?;
        match self.run(&Wanted::Flush(change, under, level)).await? {
            FileEvent::Changed { outcome, .. } => stat_of(&outcome?),
            event => Err(error_of(event)),
        }
    }

    /// Takes it away with all that is in it.
    pub async fn remove(&self) -> Result<(), ObjectError> {
        self.change(Change::Remove).await.map(drop)
    }

    /// Makes it a tree with this root. Refused if it is one.
    pub(crate) async fn plant(&self, root: Root) -> Result<(), ObjectError> {
        self.change(Change::Plant(root)).await.map(drop)
    }

    /// Changes the tree that it is. If that creates a file, what to show to use it comes with the outcome.
    pub(crate) async fn change_tree(&self, op: Op) -> Result<Created, ObjectError> {
        self.change_tree_by(op, |change| Wanted::Change(change, Level::Written)).await
    }

    /// The same, to have open what that creates.
    pub(crate) async fn create_held(&self, op: Op) -> Result<Created, ObjectError> {
        self.change_tree_by(op, Wanted::CreateHeld).await
    }

    /// The same of what this client has created by itself, with what its cache knows of that.
    pub(crate) async fn enter_held(&self, op: Arc<Op>, change: ChangeId) -> Result<Created, ObjectError> {
        let changing = Changing { shared: &self.shared, change: Some(change), op: Arc::clone(&op) };
        // Who waits with a place in the window may wait for this, which needs none: only so much is created ahead.
        self.changed(changing, &Wanted::Enter(Change::Tree(op))).await
    }

    async fn change_tree_by(
        &self,
        op: Op,
        wanted: impl FnOnce(Change) -> Wanted,
    ) -> Result<Created, ObjectError> {
        let op = Arc::new(op);
        let wanted = wanted(Change::Tree(Arc::clone(&op)));
        let _permit = self.windows().for_change(namespace::cost::op_bytes(&op)).await?;
        // From now on nothing is created ahead that this names.
        let changing = Changing::begin(&self.shared, self.id, Arc::clone(&op));
        self.await_entered(&Named::by(&op.change).inodes).await?;
        self.changed(changing, &wanted).await
    }

    async fn changed(&self, changing: Changing<'_>, wanted: &Wanted) -> Result<Created, ObjectError> {
        let (event, told) = self.run_told(wanted).await?;
        changing.end(&event, told.as_ref());
        match event {
            FileEvent::Changed { outcome, opened, .. } => match outcome? {
                Done::Tree(done) => Ok((*done, opened)),
                Done::Written { .. } | Done::Changed { .. } | Done::Returned { .. } => {
                    Err(ObjectError::Mismatch)
                }
            },
            event => Err(error_of(event)),
        }
    }

    /// Asks the tree that it is.
    pub(crate) async fn ask_tree(&self, query: namespace::Query) -> Result<namespace::Answer, ObjectError> {
        let query = Arc::new(query);
        let wanted = Query::Tree(Arc::clone(&query));
        let _permit = self.windows().for_answer(wanted.answer_bytes_max()).await?;
        let (event, told) = self.run_told(&Wanted::Ask(wanted)).await?;
        let answer = match event {
            FileEvent::Answered { answer: Ok(Answer::Tree(answer)), .. } => Ok(*answer),
            FileEvent::Answered { answer: Err(FileError::Tree(error)), .. } => Err(error),
            FileEvent::Answered { answer: Ok(_), .. } => return Err(ObjectError::Mismatch),
            FileEvent::Answered { answer: Err(error), .. } => return Err(error.into()),
            event => return Err(error_of(event)),
        };
        if let Some(told) = told {
            self.shared.cache().tell(self.id, (&query.who, &query.ask), (&told, &answer));
        }
        answer.map_err(|error| FileError::from(error).into())
    }

    /// For how long what is known here of the tree that it is is good.
    pub(crate) fn known_for(&self) -> Duration {
        let now = clock::now();
        let until = self.shared.cache().lasts(self.id).unwrap_or_default();
        Duration::from_micros(until.since(now).as_micros())
    }

    /// Begins a change whose outcome nobody waits for: it is sent until it has one, while the client lasts.
    pub(crate) fn fire(&self, change: Change) {
        self.shared
            .with_objects(|objects| objects.core.change(clock::now(), self.id, change, Level::Written));
        self.shared.wake();
    }

    /// Asks or changes what is known of files. Whoever wants something done wakes the driver.
    pub(crate) fn with_files<T>(&self, act: impl FnOnce(&mut Files) -> T) -> T {
        self.shared.with_objects(|objects| act(&mut objects.core))
    }

    pub(crate) fn wake(&self) {
        self.shared.wake();
    }

    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Puts this client on record in the volume that it is, so that this would survive a power cut.
    pub(crate) async fn come(&self) -> Result<(), ObjectError> {
        let client = ClientId { certificate: 0, program: 0 };
        let op = Arc::new(Op::wanted(Who::root(), TreeChange::Welcome { client, opens: true }));
        loop {
            let (_, level) = self.change_to(Change::Tree(Arc::clone(&op)), Level::Durable).await?;
            if level == Level::Durable {
                return Ok(());
            }
            match self.sync().await {
                Ok(()) => return Ok(()),
                Err(ObjectError::Lost) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens a file of the volume that it is, to have it open until it is closed.
    pub(crate) async fn open_held(&self, opening: Opening) -> Result<(Attributes, Capability), ObjectError> {
        let _permit = self.windows().for_answer(0).await?;
        self.open_by(&Wanted::OpenHeld(opening)).await
    }

    /// The same of a file that this client has opened by itself. It waits for no place in the window: who has one may wait for it.
    pub(crate) async fn open_own(&self, opening: Opening) -> Result<(Attributes, Capability), ObjectError> {
        self.open_by(&Wanted::OpenOwn(opening)).await
    }

    /// Opens a file of the volume that it is, or keeps it open.
    pub(crate) async fn open_file(&self, opening: Opening) -> Result<(Attributes, Capability), ObjectError> {
        let _permit = self.windows().for_answer(0).await?;
        self.open_by(&Wanted::Open(opening)).await
    }

    async fn open_by(&self, wanted: &Wanted) -> Result<(Attributes, Capability), ObjectError> {
        match self.run(wanted).await? {
            FileEvent::Opened { attributes, capability, .. } => Ok((*attributes, *capability)),
            event => Err(error_of(event)),
        }
    }

    async fn ask(&self, query: Query) -> Result<Answer, ObjectError> {
        let _permit = self.windows().for_answer(query.answer_bytes_max()).await?;
        match self.run(&Wanted::Ask(query)).await? {
            FileEvent::Answered { answer, .. } => answer.map_err(ObjectError::from),
            event => Err(error_of(event)),
        }
    }

    async fn change(&self, change: Change) -> Result<Done, ObjectError> {
        self.change_to(change, Level::Written).await.map(|(done, _)| done)
    }

    /// Changes it, and says how safe that is.
    async fn change_to(&self, change: Change, level: Level) -> Result<(Done, Level), ObjectError> {
        self.change_for(change, level).await.map(|(done, level, _)| (done, level))
    }

    /// The same, with what to show for a file that this has created.
    async fn change_for(
        &self,
        change: Change,
        level: Level,
    ) -> Result<(Done, Level, Option<Box<Capability>>), ObjectError> {
        let _permit = self.windows().for_change(change.data_bytes()).await?;
        match self.run(&Wanted::Change(change, level)).await? {
            FileEvent::Changed { outcome, level, opened, .. } => Ok((outcome?, level, opened)),
            event => Err(error_of(event)),
        }
    }

    fn windows(&self) -> &Windows {
        &self.shared.windows
    }

    /// Sends a request until it has a result.
    async fn run(&self, wanted: &Wanted) -> Result<FileEvent, ObjectError> {
        self.run_told(wanted).await.map(|(event, _)| event)
    }

    /// The same, with what came with the result.
    async fn run_told(&self, wanted: &Wanted) -> Result<Outcome, ObjectError> {
        loop {
            let (sender, mut result) = oneshot::channel();
            let ticket = self.shared.with_objects(|objects| objects.begin(self.id, wanted, sender));
            self.shared.wake();
            let under_way = UnderWay { shared: &self.shared, ticket };
            match timeout(self.patience, &mut result).await {
                Ok(Ok((FileEvent::Full { .. }, _))) => sleep(FULL_RETRY).await,
                Ok(Ok(outcome)) => return Ok(outcome),
                Ok(Err(_)) => return Err(ObjectError::Closed),
                Err(_) => {
                    let why = self.shared.with_objects(|objects| objects.core.obstacle(ticket));
                    let patience_s = self.patience.as_secs();
                    drop(under_way);
                    // It may have come just now, and something may be open by it.
                    if let Ok(outcome) = result.try_recv() {
                        return Ok(outcome);
                    }
                    return Err(ObjectError::Unanswered { patience_s, why: said(why) });
                }
            }
        }
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        self.shared.with_objects(|objects| objects.open(self.id));
        Self {
            shared: Arc::clone(&self.shared),
            id: self.id,
            patience: self.patience,
            losses: AtomicU64::new(self.losses.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.shared.with_objects(|objects| objects.close(self.id)) {
            self.shared.wake();
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.id).finish()
    }
}

/// What came of a change of a tree, and what to show for a file that it has created.
pub(crate) type Created = (namespace::Done, Option<Box<Capability>>);

/// A result, and what came with it.
type Outcome = (FileEvent, Option<Told>);

/// A change of a volume that is under way. What it names is not answered from the cache, for long if nobody hears what became of it.
struct Changing<'a> {
    shared: &'a Shared,
    change: Option<ChangeId>,
    op: Arc<Op>,
}

impl<'a> Changing<'a> {
    fn begin(shared: &'a Shared, volume: ObjectId, op: Arc<Op>) -> Self {
        let change = shared.cache().begin(volume, &op.change);
        Self { shared, change: Some(change), op }
    }

    /// It has a result.
    fn end(mut self, event: &FileEvent, told: Option<&Told>) {
        let done = match event {
            FileEvent::Changed { outcome: Ok(Done::Tree(done)), .. } => Some(&**done),
            FileEvent::Changed { .. } | FileEvent::Refused { .. } => None,
            _ => return,
        };
        if let Some(told) = told
            && let Some(change) = self.change.take()
        {
            self.shared.cache().end(change, &self.op, (told, done));
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            self.shared.cache().abandon(change);
        }
    }
}

/// What is asked of the core.
enum Wanted {
    Create,
    Change(Change, Level),
    Flush(Change, Generation, Level),
    Ask(Query),
    Open(Opening),
    OpenHeld(Opening),
    OpenOwn(Opening),
    CreateHeld(Change),
    Enter(Change),
    Sync,
}

/// A request that somebody waits for: given up if that ends.
struct UnderWay<'a> {
    shared: &'a Arc<Shared>,
    ticket: FileTicket,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.shared.with_objects(|objects| objects.give_up(self.ticket)) {
            self.shared.wake();
        }
    }
}

/// How much may be under way.
#[derive(Debug)]
pub(crate) struct Windows {
    changes: Semaphore,
    answers: Semaphore,
}

impl Windows {
    pub(crate) const fn new() -> Self {
        let changes = Semaphore::const_new(WRITES_BYTES as usize);
        Self { changes, answers: Semaphore::const_new(READS_BYTES as usize) }
    }

    async fn for_change(&self, bytes: u64) -> Result<SemaphorePermit<'_>, ObjectError> {
        place(&self.changes, WRITES_BYTES, bytes).await
    }

    async fn for_answer(&self, bytes: u64) -> Result<SemaphorePermit<'_>, ObjectError> {
        place(&self.answers, READS_BYTES, bytes).await
    }
}

async fn place(window: &Semaphore, bytes_max: u32, bytes: u64) -> Result<SemaphorePermit<'_>, ObjectError> {
    // What is too long for a window is too long for a request, and will be refused.
    let bytes = u32::try_from(bytes).unwrap_or(bytes_max).clamp(REQUEST_BYTES_MIN, bytes_max);
    window.acquire_many(bytes).await.map_err(|_| ObjectError::Closed)
}

/// The driver's part: the core, who waits for what, and what is to be sent.
pub(crate) struct Objects {
    pub(crate) core: Files,
    waiting: BTreeMap<FileTicket, oneshot::Sender<Outcome>>,
    /// What came with the result that is told next.
    told: Option<(FileTicket, Told)>,
    pub(crate) handles: Handles,
    outgoing: BTreeMap<NodeId, VecDeque<FileRequest>>,
    /// Nothing is sent any more.
    is_over: bool,
}

impl Objects {
    pub(crate) fn new(map: Arc<ClusterMap>) -> Self {
        let (waiting, handles) = (BTreeMap::new(), Handles::default());
        let (core, outgoing) = (Files::new(map).caching(), BTreeMap::new());
        Self { core, waiting, told: None, handles, outgoing, is_over: false }
    }

    /// Nobody is told anything any more, and whoever asks for something hears that at once.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.waiting.clear();
    }

    pub(crate) fn handle_replies(&mut self, now: MonoTime, node: NodeId, replies: Vec<FileReply>) {
        replies.into_iter().for_each(|reply| self.core.handle_reply(now, node, reply));
    }

    /// Does what the core wants done.
    pub(crate) fn turn(&mut self, now: MonoTime, links: &BTreeMap<NodeId, Link>) {
        self.core.handle_timeout(now);
        while let Some(output) = self.core.poll_output() {
            match output {
                FileOutput::Send { to, request } => self.outgoing.entry(to).or_default().push_back(request),
                FileOutput::Told { ticket, told } => self.told = Some((ticket, told)),
                FileOutput::Event(event) => self.tell(event),
            }
        }
        for (node, requests) in &mut self.outgoing {
            match links.get(node) {
                Some(link) => send(link, requests),
                // It went away meanwhile, and the core knows.
                None => requests.clear(),
            }
        }
    }

    fn begin(&mut self, id: ObjectId, wanted: &Wanted, result: oneshot::Sender<Outcome>) -> FileTicket {
        let now = clock::now();
        let ticket = match wanted {
            Wanted::Create => self.core.create(now, id),
            Wanted::Change(change, level) => self.core.change(now, id, change.clone(), *level),
            Wanted::Flush(change, under, level) => self.core.flush(now, id, change.clone(), (*under, *level)),
            Wanted::Ask(query) => self.core.ask(now, id, query.clone()),
            Wanted::Open(opening) => self.core.open(now, id, opening.clone()),
            Wanted::OpenHeld(opening) => self.core.open_to_hold(now, id, opening.clone()),
            Wanted::OpenOwn(opening) => self.core.open_own_to_hold(now, id, opening.clone()),
            Wanted::CreateHeld(change) => self.core.create_to_hold(now, id, change.clone(), Level::Written),
            Wanted::Enter(change) => self.core.enter_to_hold(now, id, change.clone(), Level::Written),
            Wanted::Sync => self.core.sync(now, id),
        };
        if !self.is_over {
            self.waiting.insert(ticket, result);
        }
        ticket
    }

    /// Whether somebody waited for it until now, and nothing had come of it.
    fn give_up(&mut self, ticket: FileTicket) -> bool {
        let waited = self.waiting.remove(&ticket).is_some();
        if waited {
            self.core.give_up(clock::now(), ticket);
        }
        waited
    }

    /// The program has an object once more. Returns how many losses are none of that handle's.
    fn open(&mut self, id: ObjectId) -> u64 {
        self.core.remember_file(id);
        self.handles.open(id)
    }

    /// Whether that was the last.
    fn close(&mut self, id: ObjectId) -> bool {
        let is_last = self.handles.close(id);
        if is_last {
            self.core.forget_file(clock::now(), id);
        }
        is_last
    }

    fn tell(&mut self, event: FileEvent) {
        let ticket = match event {
            FileEvent::Lost { object, ticket, .. } => {
                self.handles.note_loss(object);
                ticket
            }
            FileEvent::Created { ticket }
            | FileEvent::Changed { ticket, .. }
            | FileEvent::Answered { ticket, .. }
            | FileEvent::Opened { ticket, .. }
            | FileEvent::Synced { ticket }
            | FileEvent::Refused { ticket, .. }
            | FileEvent::NoSuchFile { ticket }
            | FileEvent::Expired { ticket }
            | FileEvent::Settled { ticket }
            | FileEvent::GivenUp { ticket, .. }
            | FileEvent::Full { ticket } => Some(ticket),
            FileEvent::Ended { .. } => None,
        };
        let told = self.told.take().filter(|(of, _)| Some(*of) == ticket).map(|(_, told)| told);
        if let Some(waiting) = ticket.and_then(|ticket| self.waiting.remove(&ticket)) {
            // Whoever waited may have gone just now.
            let _ = waiting.send((event, told));
        }
    }
}

/// As many requests as fit go into one frame, and their data goes along uncopied.
fn send(link: &Link, requests: &mut VecDeque<FileRequest>) {
    while !requests.is_empty() {
        let frame = wire::next_batch(requests);
        if link.waiting_bytes() > WAITING_BYTES_MAX {
            // A daemon that takes in so little is slow, or gone. Whatever of this it misses is sent again.
            continue;
        }
        if link.send_in_pieces(wire::encode_in_pieces(&frame)).is_err() {
            link.close("too much waits to be sent");
        }
    }
}

fn stat_of(done: &Done) -> Result<Stat, ObjectError> {
    match done {
        Done::Written { stat, .. } | Done::Changed { stat } => Ok(*stat),
        Done::Tree(_) | Done::Returned { .. } => Err(ObjectError::Mismatch),
    }
}

impl From<FileError> for ObjectError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Removed => Self::NoSuchObject,
            error => Self::Refused(error),
        }
    }
}

/// What it means that something ended this way.
fn error_of(event: FileEvent) -> ObjectError {
    match event {
        FileEvent::Refused { error, .. } => error.into(),
        FileEvent::NoSuchFile { .. } => ObjectError::NoSuchObject,
        FileEvent::Lost { .. } => ObjectError::Lost,
        // Outcomes are forgotten once the client has them; one that it waits for is not, unless it was declared dead.
        FileEvent::Expired { .. } | FileEvent::Settled { .. } => ObjectError::Expired,
        _ => ObjectError::Closed,
    }
}
