//! Files of volumes as programs see them: content by offsets, beside the tree in which they have names.
//!
//! A file's content is an object of its own with a primary of its own, which begins with the first write. Who has size and times, the
//! tree or the content, changes as the file is used; whoever asks here is told by the one that has them. What a daemon gave when the file was opened is shown with each
//! request and renewed while the file is used, whoever may open it by then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::{ClientId, MonoTime, WallTime};
use bytes::Bytes;
use namespace::{
    Attributes, Change, Done, Generation, InodeId, Kind, LentTo, Name, NameError, SetAttributes, SetTime, Who,
};
use node::OpenMode;
use node::file::{FileError, Level, Stat, WRITE_BYTES_MAX};

use crate::behind::Behind;
use crate::clock;
use crate::core::content::{
    Borrowed, ChangeStep, Changing, Contents, Fault, FileId, Lent, LookStep, Looking, Through,
};
use crate::driver::{Client, Shared};
use crate::holding::Held;
use crate::objects::{Object, ObjectError};
use crate::reading::Reader;
use crate::source::Source;
use crate::volumes::{Volume, VolumeError};

/// Whoever this is, the primary of the volume says.
const SELF: ClientId = ClientId { certificate: 0, program: 0 };

/// A file of a volume that is open. It lives on without a name until it is closed, or dropped with all of its clones.
#[derive(Clone, Debug)]
pub struct VolumeFile {
    source: Source,
    held: Arc<Held>,
    user: Arc<User>,
}

/// What is told to who has a file open and has not opened it yet as the client that the program has become.
#[derive(Debug)]
pub struct Heir {
    content: Object,
    volume: Volume,
}

/// What both clocks say.
type Now = (MonoTime, WallTime);
/// How something that is lent is changed. None if it is not lent any more.
type Act<'a, T> =
    dyn Fn(&mut Contents, Now, (FileId, Generation)) -> Option<Result<T, FileError>> + Sync + 'a;

/// What came of it, and whether whoever looks after the lend has to know at once.
type Changed<T> = (Result<T, FileError>, bool);

/// Whoever has the file open.
#[derive(Debug)]
struct User {
    shared: Arc<Shared>,
    id: FileId,
    /// So many of the file's faults it was told.
    told: AtomicU64,
    /// One asks for the file at a time.
    borrowing: tokio::sync::Mutex<()>,
    through: Mutex<Through>,
    reader: Reader,
}

impl Drop for User {
    fn drop(&mut self) {
        if self.shared.behind.contents().close(self.id) {
            self.shared.behind.urge(self.id);
        }
        self.shared.told();
    }
}

impl Client {
    /// Opens a file of a volume.
    pub async fn open_file(
        &self,
        volume: &Volume,
        who: &Who,
        (inode, mode): (InodeId, OpenMode),
    ) -> Result<VolumeFile, VolumeError> {
        if let Some(file) = self.open_at_once(volume, who, (inode, mode)) {
            return Ok(file);
        }
        let rights = self.shared.rights(FileId { volume: volume.object(), inode });
        let (_, capability, held) = volume.open_to_hold(who, (inode, mode)).await?;
        let file = VolumeFile::found(Source::new(volume, capability, held.kept()), held);
        let file = file.ok_or(NameError::NoInode { inode }).map_err(VolumeError::Refused)?;
        self.opened(&file, who, (mode, rights));
        Ok(file)
    }

    /// Creates a file under a name that nothing has, and opens it to read and to write.
    pub async fn create_file(
        &self,
        volume: &Volume,
        who: &Who,
        place: (InodeId, Name),
        mode_and_umask: (u16, u16),
    ) -> Result<VolumeFile, VolumeError> {
        self.create_and_open(volume, who, place, mode_and_umask).await.map(|(_, file)| file)
    }

    /// The same, and says how it is.
    pub async fn create_and_open(
        &self,
        volume: &Volume,
        who: &Who,
        place: (InodeId, Name),
        mode_and_umask: (u16, u16),
    ) -> Result<(Attributes, VolumeFile), VolumeError> {
        if let Some(created) = self.create_ahead(volume, who, (place.0, &place.1), mode_and_umask) {
            return Ok(created);
        }
        let (attributes, opened) = volume.create_to_hold(who, place, mode_and_umask).await?;
        let file = match opened {
            Some((capability, held)) => {
                let file = VolumeFile::new(Source::new(volume, capability, held.kept()), held);
                self.created(&file, who, &attributes);
                file
            }
            // It is gone already, or a daemon has no keys: this says which.
            None => self.open_file(volume, who, (attributes.inode, OpenMode::ReadWrite)).await?,
        };
        Ok((attributes, file))
    }

    /// How an inode of a volume is. Size and times of a file come from whoever has them.
    pub async fn attributes(&self, volume: &Volume, inode: InodeId) -> Result<Attributes, VolumeError> {
        self.with_content(volume, volume.attributes(inode).await?).await
    }

    /// The same, for who was told just now what the tree knows.
    pub async fn with_content(
        &self,
        volume: &Volume,
        attributes: Attributes,
    ) -> Result<Attributes, VolumeError> {
        let inode = attributes.inode;
        if attributes.kind == Kind::Directory {
            // What this client has created there the volume may not know, and whoever asks for what another one has takes it back.
            return if attributes.lent.is_none() { Ok(attributes) } else { volume.attributes(inode).await };
        }
        let (start, patience) = (clock::now(), volume.tree().patience());
        let mut looking = Looking::new();
        let mut step = volume.look(&mut looking, attributes);
        loop {
            step = match step {
                LookStep::Done(attributes) => return Ok(*attributes),
                LookStep::Look => {
                    let attributes = volume.attributes(inode).await?;
                    volume.look(&mut looking, attributes)
                }
                LookStep::Stat => {
                    let (attributes, capability) = volume.open(&Who::root(), inode, OpenMode::Look).await?;
                    match volume.look(&mut looking, attributes) {
                        LookStep::Stat => {
                            let stat = volume.tree().content(capability).stat().await;
                            match stat.map_err(VolumeError::from) {
                                // No daemon was there for so long.
                                Err(error) if error.says_expired() && clock::elapsed(start) >= patience => {
                                    return Err(error);
                                }
                                Err(error) if error.says_expired() => LookStep::Look,
                                stat => looking.answered(known_of(stat)?.as_ref()),
                            }
                        }
                        step => step,
                    }
                }
            };
        }
    }
}

impl Heir {
    /// The same as if it [were](VolumeFile::inherit) open.
    pub fn inherit(&self, before: &VolumeFile) {
        self.content.inherit(&before.source.content);
    }

    /// Whether something is lost that is still to be told.
    pub fn has_lost(&self) -> bool {
        self.content.has_lost() || self.volume.has_lost()
    }
}

impl Volume {
    /// What to do next to know how a file is, of which the tree says this.
    fn look(&self, looking: &mut Looking, attributes: Attributes) -> LookStep {
        let id = FileId { volume: self.object(), inode: attributes.inode };
        self.tree().shared().with_known(id, |known| looking.looked(known, attributes))
    }
}

impl VolumeFile {
    /// A file that was created just now.
    pub(crate) fn new(source: Source, held: Held) -> Self {
        let told = source.shared().behind.contents().open(source.id());
        Self::told(source, held, told)
    }

    /// One that somebody has found. None if it was removed since, and what was written to it is not there any more.
    pub(crate) fn found(source: Source, held: Held) -> Option<Self> {
        let told = {
            let mut contents = source.shared().behind.contents();
            (!contents.was_dropped(source.id())).then(|| contents.open(source.id()))?
        };
        Some(Self::told(source, held, told))
    }

    fn told(source: Source, held: Held, told: u64) -> Self {
        let (shared, id, told) = (Arc::clone(source.shared()), source.id(), AtomicU64::new(told));
        let (through, reader) = (Mutex::new(Through::default()), Reader::default());
        let borrowing = tokio::sync::Mutex::new(());
        let user = Arc::new(User { shared, id, told, borrowing, through, reader });
        Self { source, held: Arc::new(held), user }
    }

    /// The same file, opened once more.
    pub(crate) fn again(source: &Source) -> Option<Self> {
        let held = Held::new(source.kept());
        Self::found(source.again(), held)
    }

    /// Which it is.
    pub const fn inode(&self) -> InodeId {
        self.source.inode
    }

    pub(crate) const fn volume(&self) -> &Volume {
        &self.source.volume
    }

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.user.reader
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether no clone is left.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }

    /// Puts data at `offset`. It is read from then on, by everybody; [`sync`](Self::sync) makes it outlive this client and the power of
    /// all daemons. At most [`WRITE_BYTES_MAX`] at once.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), VolumeError> {
        check_length(&data)?;
        let own = self.change(|contents, at, file| contents.write(at, file, (Some(offset), &data))).await?;
        if own.is_none() {
            self.source.opened(|| self.source.content.write(offset, data.clone())).await?;
        }
        Ok(())
    }

    /// The same, or at the end, if nobody has to be asked for that and nobody waits. Returns where it was.
    pub fn write_at_once(&self, offset: Option<u64>, data: &Bytes) -> Option<Result<u64, VolumeError>> {
        if let Err(error) = check_length(data) {
            return Some(Err(error));
        }
        let may_write = self.source.is_for_writing() && self.contents(|contents| contents.has_room());
        may_write
            .then(|| self.try_to_change(&|contents, at, file| contents.write(at, file, (offset, data))))?
    }

    /// Puts data at the end. Returns where that was.
    pub async fn append(&self, data: Bytes) -> Result<u64, VolumeError> {
        check_length(&data)?;
        match self.change(|contents, at, file| contents.write(at, file, (None, &data))).await? {
            Some(offset) => Ok(offset),
            None => self.source.opened(|| self.source.content.append(data.clone())).await,
        }
    }

    /// Sets its size. What is added reads as zeros.
    pub async fn truncate(&self, size: u64) -> Result<(), VolumeError> {
        let own = self.change(|contents, at, file| contents.truncate(at, file, size)).await?;
        if own.is_none() {
            self.source.opened(|| self.source.content.truncate(size)).await?;
        }
        Ok(())
    }

    /// Makes it at least so long. What is added reads as zeros.
    pub async fn extend(&self, size: u64) -> Result<(), VolumeError> {
        let own = self.change(|contents, at, file| contents.extend(at, file, size)).await?;
        if own.is_none() {
            self.source.opened(|| self.source.content.extend(size)).await?;
        }
        Ok(())
    }

    /// Makes a hole, which reads as zeros.
    pub async fn punch(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        // Only the content can make it, and has to have all that was written before.
        self.change_by(Changing::new(false), |_, _, _| None::<Result<(), FileError>>).await?;
        self.source.opened(|| self.source.content.punch(offset, length)).await.map(drop)
    }

    /// How it is. Size and times come from whoever has them.
    pub async fn attributes(&self) -> Result<Attributes, VolumeError> {
        self.completed(self.volume().attributes(self.inode()).await?).await
    }

    /// The same, for who was told just now what the tree knows.
    pub async fn completed(&self, attributes: Attributes) -> Result<Attributes, VolumeError> {
        let mut looking = Looking::new();
        let mut step = self.volume().look(&mut looking, attributes);
        loop {
            step = match step {
                LookStep::Done(attributes) => return Ok(*attributes),
                LookStep::Look => {
                    let attributes = self.volume().attributes(self.inode()).await?;
                    self.volume().look(&mut looking, attributes)
                }
                LookStep::Stat => {
                    let stat = self.source.opened(|| self.source.content.stat()).await;
                    looking.answered(known_of(stat)?.as_ref())
                }
            };
        }
    }

    /// Sets the time of the last change of its content.
    pub async fn set_modified(&self, who: &Who, time: SetTime) -> Result<Attributes, VolumeError> {
        let set = SetAttributes { mtime: Some(time), ..SetAttributes::default() };
        let change = Change::SetAttributes { inode: self.inode(), set };
        match self.volume().change(who, change).await? {
            Done::Changed { attributes } => Ok(attributes),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    /// Makes durable what this client has written to it, and its names. What went wrong with something that was written before is told
    /// once, or to all who had called by then.
    pub async fn sync(&self) -> Result<(), VolumeError> {
        let known = self.user.told.load(Ordering::Relaxed);
        // Of a client that has ended nothing may be left, and nothing of what was never written is no answer to that.
        self.volume().present().await?;
        // What is made durable by what follows need not be before, so that each daemon syncs its disk once.
        let level = if self.volume().owes() { Level::Written } else { Level::Durable };
        let entered = async {
            self.volume().await_all_entered().await?;
            self.source.entered().await
        };
        tokio::try_join!(self.flush(level), entered)?;
        if self.contents(|contents| contents.has_own_set(self.user.id)) {
            let patience = self.source.content.patience();
            if !self.user.shared.return_lent(self.user.id, patience).await {
                let why = "what was set of the file waits to be taken in";
                return Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why }.into());
            }
        }
        let fault = self.fault_since(known);
        let content = async {
            if fault.is_some() {
                return Ok(None);
            }
            self.source.content.begin_sync().await.map(Some)
        };
        let (content, names) = tokio::join!(content, self.volume().begin_sync());
        // Whoever has given up by now was told nothing.
        self.tell(fault)?;
        let synced = |begun: Option<_>| begun.map_or(Ok(()), |event| self.source.content.end_sync(event));
        let content = match content.and_then(synced) {
            // Nothing was ever written to it.
            Ok(()) | Err(ObjectError::NoSuchObject) => Ok(()),
            Err(error) => Err(error.into()),
        };
        let names = names.and_then(|event| self.volume().end_sync(event));
        content.and(names)
    }

    /// What went wrong with what was written, if this was not told to whoever has the file open: once.
    pub fn tell_fault(&self) -> Result<(), VolumeError> {
        self.tell(self.fault_since(self.user.told.load(Ordering::Relaxed)))
    }

    fn fault_since(&self, known: u64) -> Option<(u64, Fault)> {
        self.contents(|contents| contents.fault(self.user.id, known))
    }

    fn tell(&self, fault: Option<(u64, Fault)>) -> Result<(), VolumeError> {
        let Some((told, fault)) = fault else { return Ok(()) };
        self.user.told.fetch_max(told, Ordering::Relaxed);
        self.contents(|contents| contents.note_told(self.user.id, told));
        Err(fault.told(self.volume()))
    }

    /// Whether something of it or of names is lost that was said to be done, and no sync has told yet.
    pub fn has_lost(&self) -> bool {
        self.source.content.has_lost() || self.volume().has_lost()
    }

    /// Who has it open, and opens it later as another client that has [inherited](Volume::inherit) from this one.
    pub fn heir(&self, volume: &Volume) -> Heir {
        Heir { content: volume.tree().content_of(self.source.content.id()), volume: volume.anew() }
    }

    /// Is told of what the heir is told.
    pub fn take_place_of(&self, heir: &Heir) {
        self.source.content.take_place_of(&heir.content);
        self.volume().take_place_of(&heir.volume);
    }

    /// What the earlier client that has `before` open was told is done since it ended, and does not know to be durable, a sync makes so, or tells to be
    /// lost.
    pub fn inherit(&self, before: &Self) {
        self.source.content.inherit(&before.source.content);
    }

    /// Its name and what was written until now are with a majority of the daemons, or lost, which is [told](Self::tell_fault) then.
    pub async fn settle(&self) -> Result<(), VolumeError> {
        tokio::try_join!(self.flush(Level::Written), self.source.entered()).map(drop)
    }

    /// What was written until now is sent, and has an outcome.
    pub(crate) async fn flush(&self, level: Level) -> Result<(), VolumeError> {
        let id = self.user.id;
        let Some(wanted) = self.contents(|contents| contents.want(id, level)) else { return Ok(()) };
        self.behind().urge(id);
        let patience = self.source.content.patience();
        if self.behind().until(patience, |contents| contents.has_sent(id, wanted)).await {
            return Ok(());
        }
        let why = "what was written waits to be taken in";
        Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why }.into())
    }

    /// Changes what is lent to this client; asks for that if it is not. None if the content is to be asked.
    async fn change<T>(
        &self,
        act: impl Fn(&mut Contents, Now, (FileId, Generation)) -> Option<Result<T, FileError>> + Sync,
    ) -> Result<Option<T>, VolumeError> {
        self.change_by(Changing::new(self.behind().is_on()), act).await
    }

    async fn change_by<T>(
        &self,
        mut changing: Changing,
        act: impl Fn(&mut Contents, Now, (FileId, Generation)) -> Option<Result<T, FileError>> + Sync,
    ) -> Result<Option<T>, VolumeError> {
        if !self.source.is_for_writing() {
            return Ok(None);
        }
        let (id, shared) = (self.user.id, &self.user.shared);
        let patience = self.source.content.patience();
        loop {
            match self.next_of_change(&mut changing, &act) {
                ChangeStep::Done((changed, urges)) => {
                    if urges {
                        self.behind().urge(id);
                    }
                    return Ok(Some(changed.map_err(ObjectError::from)?));
                }
                ChangeStep::Through => return Ok(None),
                ChangeStep::WaitForRoom => {
                    if !self.behind().until(patience, Contents::has_room).await {
                        let why = "too much was written that no daemon takes in";
                        return Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why }.into());
                    }
                }
                ChangeStep::WaitForEnd(lend) => {
                    self.behind().until(patience, |contents| contents.generation(id) != Some(lend)).await;
                }
                ChangeStep::GiveBack => {
                    shared.return_lent(id, patience).await;
                }
                ChangeStep::Borrow => {
                    let turn = self.user.borrowing.lock().await;
                    // Another writer of this client may have had it lent meanwhile. That the tree names this client is not enough: the
                    // lend may have been returned here.
                    let shown = shared.with_known(id, |known| {
                        let lend = known.lent()?;
                        known.contents.shows(id, lend)
                    });
                    let is_lent = shown.is_some();
                    if !is_lent {
                        self.borrow(&mut changing).await?;
                    }
                    drop(turn);
                }
            }
        }
    }

    /// Changes what is lent to this client. None if it is not.
    fn try_to_change<T>(&self, act: &Act<'_, T>) -> Option<Result<T, VolumeError>> {
        let id = self.user.id;
        let (changed, urges) = self.user.shared.with_lent(id, |contents, at, generation| {
            let changed = act(contents, at, (id, generation))?;
            Some((changed, contents.urges(at.0, id)))
        })?;
        if urges {
            self.behind().urge(id);
        }
        Some(changed.map_err(|error| ObjectError::from(error).into()))
    }

    fn next_of_change<T>(&self, changing: &mut Changing, act: &Act<'_, T>) -> ChangeStep<Changed<T>> {
        let through = *self.user.through.lock().expect("nobody fails while holding it");
        self.user.shared.with_known(self.user.id, |known| {
            changing.next(known, &through, |known, generation| {
                let at = (known.now, clock::wall());
                let changed = act(known.contents, at, (known.id, generation))?;
                Some((changed, known.contents.urges(at.0, known.id)))
            })
        })
    }

    /// Asks to have the file lent.
    async fn borrow(&self, changing: &mut Changing) -> Result<(), VolumeError> {
        let (id, shared) = (self.user.id, &self.user.shared);
        let lend = || Change::Lend { inode: self.inode(), to: LentTo::Client(SELF) };
        let root = Who::root();
        let done = self.source.opened(|| self.volume().change(&root, lend())).await;
        let lent = match &done {
            Ok(Done::Changed { attributes }) => Lent::Shown(attributes),
            Ok(_) => return Err(ObjectError::Mismatch.into()),
            Err(VolumeError::Refused(NameError::Lent { .. })) => Lent::ToOther,
            Err(error) => return Err(error.clone()),
        };
        let borrowed = {
            let mut through = self.user.through.lock().expect("nobody fails while holding it");
            shared.with_known(id, |known| changing.lent(known, &mut through, &lent))
        };
        if let (Borrowed::Own(generation), Lent::Shown(attributes)) = (borrowed, lent) {
            shared.adopt(attributes, &self.source);
            if self.contents(|contents| contents.generation(id) != Some(generation)) {
                self.volume().refuse_lend(self.inode(), generation).await?;
            }
        }
        Ok(())
    }

    fn behind(&self) -> &Behind {
        &self.user.shared.behind
    }

    fn contents<T>(&self, act: impl FnOnce(&mut Contents) -> T) -> T {
        act(&mut self.behind().contents())
    }
}

fn check_length(data: &Bytes) -> Result<(), VolumeError> {
    let (length, bytes_max) = (data.len() as u64, WRITE_BYTES_MAX);
    if length > bytes_max {
        Err(ObjectError::from(FileError::TooLong { length, bytes_max }).into())
    } else {
        Ok(())
    }
}

/// What a content knows of itself; none if nothing was ever written to it, or it is gone.
fn known_of(stat: Result<Stat, VolumeError>) -> Result<Option<Stat>, VolumeError> {
    match stat {
        Ok(stat) => Ok(Some(stat)),
        Err(VolumeError::Object(ObjectError::NoSuchObject | ObjectError::Refused(FileError::Removed))) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
