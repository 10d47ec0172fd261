//! Volumes as programs see them: directory trees by their names, and what is asked of them.
//!
//! A volume is an object, and so is the list of all volumes: a tree with a directory for each, in whose place the volume
//! stands. What is changed is changed once, however often it is sent, and outlives the daemons' processes when the call
//! returns; [`Volume::sync`] makes it outlive their power.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base::{NodeId, ObjectId, WallTime};
use namespace::{
    Answer, Ask, Attributes, Change, Done, Expect, Generation, InodeId, Make, Name, NameError, Op, Page,
    Query, Root, SetAttributes, SetTime, Site, Volume as Counts, Who,
};
use node::file::{self, FileError};
use node::{AccessError, Capability, CapabilityError, OpenMode, VolumeName, list_of_volumes, volume_object};
use tokio::time::sleep;

use crate::ahead::Removal;
use crate::behind::Behind;
use crate::clock;
use crate::core::content::{FileId, OwnerSet, Whose};
use crate::core::creations::asked_about;
use crate::core::files::FileEvent;
use crate::core::files::Opening;
use crate::driver::{Client, Shared};
use crate::objects::{Created, Object, ObjectError};

/// So many names are asked for at once.
const PAGE_ENTRIES: u32 = 512;
/// The permissions of a volume's root as it begins.
const ROOT_MODE: u16 = 0o755;
/// Set-user-ID and the like.
const SPECIAL_BITS: u16 = 0o7000;
/// How soon a volume that has no names any more is tried again to be removed, and how often.
const DOOMED_RETRY: Duration = Duration::from_millis(20);
const DOOMED_TRIES: u32 = 500;
/// So often a name is looked up anew that others change all the time.
const STALE_TRIES: u32 = 100;
/// Who was told that something is lent to another asks again after so long.
const LENT_PAUSE: Duration = Duration::from_millis(10);
/// On whose behalf the service asks.
static ROOT: LazyLock<Who> = LazyLock::new(Who::root);

/// Why something could not be done to a volume, or in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeError {
    /// Nobody has created it, or it was deleted.
    #[error("there is no volume `{0}`; `fleasefs volume list` shows which there are")]
    NoSuchVolume(VolumeName),
    /// It is there already.
    #[error("there is a volume `{0}` already; choose another name")]
    Exists(VolumeName),
    /// Only an empty one is deleted.
    #[error("volume `{0}` is not empty; remove what is in it first, or use `--force`")]
    NotEmpty(VolumeName),
    /// It has no names any more, and somebody goes on with what he has open.
    #[error(
        "volume `{0}` is still used: nothing in it has a name any more, but files are open; close them, and delete it again"
    )]
    StillOpen(VolumeName),
    /// The daemons have not heard of this client for too long.
    #[error(
        "this client was silent for too long: what it had open and locked in volume `{0}` is gone; connect anew, and open it again"
    )]
    Ended(VolumeName),
    /// The tree refuses. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] NameError),
    /// A file was taken back before all was sent that was written to it.
    #[error(
        "some of what was written to the file since the last sync is lost, because this client was silent or too slow while others wanted \
         the file; write it again"
    )]
    TakenBack,
    /// The object of the tree cannot be reached, or has none.
    #[error(transparent)]
    Object(ObjectError),
}

/// A volume that there is.
#[derive(Clone, Debug)]
pub struct Volume {
    object: Object,
    /// What stands for it in the list of all.
    inode: InodeId,
    name: VolumeName,
}

impl Client {
    /// The volume of this name.
    pub async fn volume(&self, name: &VolumeName) -> Result<Volume, VolumeError> {
        let inode = self.find_volume(name).await?.ok_or_else(|| VolumeError::NoSuchVolume(name.clone()))?;
        Ok(self.volume_at(name, inode))
    }

    /// Creates a volume whose root belongs to a user.
    ///
    /// Its object begins once and is never begun anew: what others do to the same name meanwhile is decided there.
    pub async fn create_volume(
        &self,
        name: &VolumeName,
        (uid, gid): (u32, u32),
    ) -> Result<Volume, VolumeError> {
        loop {
            let volume = self.volume_at(name, self.enter_volume(name).await?);
            let root = Root { time: WallTime::ZERO, uid, gid, mode: ROOT_MODE, name: name.clone() };
            match volume.begin(root).await {
                Ok(()) => {
                    self.list_of_volumes().settle().await?;
                    volume.sync().await?;
                    return Ok(volume);
                }
                Err(VolumeError::Object(ObjectError::Refused(FileError::IsTree))) => {
                    return Err(VolumeError::Exists(name.clone()));
                }
                // Somebody has begun to delete it, and has not come to the end.
                Err(VolumeError::Object(ObjectError::NoSuchObject)) => self.leave_volume(&volume).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The inode of a volume's name in the list, which is made unless it is there.
    async fn enter_volume(&self, name: &VolumeName) -> Result<InodeId, VolumeError> {
        let list = self.list_of_volumes();
        let make = || list.make(&ROOT, (InodeId::ROOT, entry_name(name)), (Make::Directory, ROOT_MODE, 0));
        let made = match make().await {
            // The first volume of the cluster.
            Err(error) if error.says_no_tree() => {
                let name = list.name.clone();
                let root = Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: ROOT_MODE, name };
                match list.begin(root).await {
                    Ok(()) | Err(VolumeError::Object(ObjectError::Refused(FileError::IsTree))) => {}
                    Err(error) => return Err(error),
                }
                make().await
            }
            made => made,
        };
        match made {
            Ok(attributes) => Ok(attributes.inode),
            Err(VolumeError::Refused(NameError::Exists { inode })) => Ok(inode),
            Err(error) => Err(error),
        }
    }

    /// Takes the name of a volume that was removed out of the list, unless it stands for another one by now.
    async fn leave_volume(&self, volume: &Volume) -> Result<(), VolumeError> {
        let list = self.list_of_volumes();
        let site = Site::new(InodeId::ROOT, entry_name(&volume.name)).naming(volume.inode);
        match list.remove_directory(&ROOT, site).await {
            Ok(()) | Err(VolumeError::Refused(NameError::NoEntry { .. } | NameError::Stale { .. })) => {
                list.settle().await
            }
            Err(error) => Err(error),
        }
    }

    /// The names of all volumes, in their order.
    pub async fn volumes(&self) -> Result<Vec<VolumeName>, VolumeError> {
        let list = self.list_of_volumes();
        let mut names = Vec::new();
        let mut after = None;
        loop {
            let page = match list.list(InodeId::ROOT, after.take(), false).await {
                Err(error) if error.says_no_tree() => return Ok(names),
                page => page?,
            };
            let texts = page.entries.iter().filter_map(|listed| str::from_utf8(listed.name.as_bytes()).ok());
            names.extend(texts.filter_map(|text| VolumeName::parse(text).ok()));
            after = page.entries.last().map(|listed| listed.name.clone());
            if page.is_last || after.is_none() {
                return Ok(names);
            }
        }
    }

    /// Deletes a volume in which nothing is.
    pub async fn delete_volume(&self, volume: &Volume) -> Result<(), VolumeError> {
        // Whoever creates it just now must find that it was removed.
        volume.object.create_once().await?;
        let mut tries = 0;
        loop {
            match volume.object.remove().await {
                // Whoever began to delete it may not have come to the end.
                Ok(()) | Err(ObjectError::NoSuchObject) => break,
                Err(ObjectError::Refused(FileError::NotEmpty)) if !volume.has_no_names().await? => {
                    return Err(VolumeError::NotEmpty(volume.name.clone()));
                }
                // The daemons still remove what was unlinked.
                Err(ObjectError::Refused(FileError::NotEmpty)) if tries < DOOMED_TRIES => {
                    tries += 1;
                    sleep(DOOMED_RETRY).await;
                }
                Err(ObjectError::Refused(FileError::NotEmpty)) => {
                    return Err(VolumeError::StillOpen(volume.name.clone()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        volume.sync().await?;
        self.leave_volume(volume).await
    }

    async fn find_volume(&self, name: &VolumeName) -> Result<Option<InodeId>, VolumeError> {
        match self.list_of_volumes().lookup(&ROOT, InodeId::ROOT, entry_name(name)).await {
            Ok(attributes) => Ok(Some(attributes.inode)),
            Err(VolumeError::Refused(NameError::NoEntry { .. })) => Ok(None),
            Err(error) if error.says_no_tree() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn volume_at(&self, name: &VolumeName, inode: InodeId) -> Volume {
        Volume { object: self.object(volume_object(inode)), inode, name: name.clone() }
    }

    fn list_of_volumes(&self) -> Volume {
        let name = VolumeName::parse("volumes").expect("it is one");
        Volume { object: self.object(list_of_volumes()), inode: InodeId::ROOT, name }
    }
}

/// The volume is told to set something that its owner could set here.
struct Judged {
    shared: Arc<Shared>,
    id: FileId,
}

impl Drop for Judged {
    fn drop(&mut self) {
        self.shared.behind.contents().end_judging(self.id);
    }
}

impl Volume {
    /// What it is called.
    pub const fn name(&self) -> &VolumeName {
        &self.name
    }

    /// The object that its tree is.
    pub const fn object(&self) -> ObjectId {
        self.object.id()
    }

    /// The daemon that is believed to be the primary of its tree: whoever has answered for it last, unless it is gone.
    pub fn primary(&self) -> Option<NodeId> {
        let object = self.object();
        self.object.shared().with_objects(|objects| objects.core.believed(object))
    }

    /// Asks a question.
    pub async fn ask(&self, who: &Who, ask: Ask) -> Result<Answer, VolumeError> {
        if let Some(answer) = self.known(who, &ask) {
            return answer;
        }
        if let Some(inode) = asked_about(&ask).filter(|inode| self.is_entering(*inode)) {
            self.await_entered(&[inode]).await?;
            if let Some(answer) = self.known(who, &ask) {
                return answer;
            }
        }
        if let Some(inode) = ask.judged_by() {
            self.prepare_judgement(inode).await?;
        }
        let (start, patience) = (clock::now(), self.object.patience());
        loop {
            let mut answer = self.object.ask_tree(Query { who: who.clone(), ask: ask.clone() }).await?;
            match self.show(&mut answer) {
                None => return Ok(answer),
                Some((inode, generation)) if clock::elapsed(start) < patience => {
                    self.refuse_lend(inode, generation).await?;
                }
                Some(_) => {
                    let why = "the file is on its way back from this client";
                    return Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why }.into());
                }
            }
        }
    }

    /// Puts in what is lent to this client. Returns what it would have to know of that and does not.
    fn show(&self, answer: &mut Answer) -> Option<(InodeId, Generation)> {
        let show = |attributes: &mut Attributes| match self.behind().show(self.object(), attributes) {
            Whose::Leaving(generation) => Some((attributes.inode, generation)),
            Whose::Tree | Whose::Content(_) | Whose::Own | Whose::Other => None,
        };
        match answer {
            Answer::Attributes(attributes) => show(attributes),
            Answer::Page(page) => {
                let listed = page.entries.iter_mut().filter_map(|listed| listed.attributes.as_mut());
                // What is on its way says whose it is, and that is all that a listing says of what others have.
                listed.for_each(|attributes| _ = show(attributes));
                None
            }
            _ => None,
        }
    }

    fn behind(&self) -> &Behind {
        &self.object.shared().behind
    }

    /// The answer to a question, if it is known here. Nobody waits, also where the daemon is asked all the same.
    pub fn known(&self, who: &Who, ask: &Ask) -> Option<Result<Answer, VolumeError>> {
        let (now, id) = (clock::now(), self.object());
        let mut cache = self.object.shared().cache();
        let mut answer = cache.answer(now, id, (who, ask))?;
        let is_due = cache.is_due(now, id);
        drop(cache);
        if is_due {
            let query = file::Query::Tree(Arc::new(Query { who: who.clone(), ask: ask.clone() }));
            self.object.with_files(|files| files.ask(now, id, query));
            self.object.wake();
        }
        if let Ok(answer) = &mut answer
            && self.show(answer).is_some()
        {
            return None;
        }
        Some(answer.map_err(VolumeError::from))
    }

    /// The same place, with what it names as far as that is known here, which may be over.
    pub fn known_site(&self, site: Site) -> Site {
        match self.object.shared().cache().named(self.object(), site.dir, &site.name) {
            Some(Some(inode)) => site.naming(inode),
            Some(None) => site.free(),
            None => site,
        }
    }

    /// Whether a directory has this name, and has it for as long as what is known of the volume is [good](Self::known_for), or until
    /// that is [told](Client::watch) to have ended, whatever else has. Only for whoever judges rights by the numbers that are shown.
    pub fn is_placed(&self, inode: InodeId, place: (InodeId, &Name)) -> bool {
        self.object.shared().cache().is_placed(clock::now(), self.object(), inode, place)
    }

    /// Whether size and times of a file are lent to this client: then what it shows of them is right, and it may change them at any time.
    pub fn has_lent(&self, attributes: &Attributes) -> bool {
        self.behind().own(attributes).is_some()
    }

    /// For how long the attributes of a file that is lent to this client are right, with what is changed through it, unless they are
    /// [told](Client::watch) not to be, or a call about the file has the lend returned. None if it is not lent to it.
    pub fn keeps_for(&self, attributes: &Attributes) -> Option<Duration> {
        let id = FileId { volume: self.object(), inode: attributes.inode };
        let generation = self.behind().own(attributes)?;
        let until = self.behind().contents().rests_until(id, generation)?;
        Some(Duration::from_micros(until.since(clock::now()).as_micros()))
    }

    /// How much longer what is known here of the volume is good, unless that is [told](Client::watch) to have ended before. It is good for
    /// that long from before this is called.
    pub fn known_for(&self) -> Duration {
        self.object.known_for()
    }

    /// Changes something.
    pub async fn change(&self, who: &Who, change: Change) -> Result<Done, VolumeError> {
        self.change_or_create(who, change).await.map(|(done, _)| done)
    }

    async fn change_or_create(&self, who: &Who, change: Change) -> Result<Created, VolumeError> {
        if let Change::SetAttributes { inode, set } = change
            && let Some(attributes) = self.set_own(who, inode, set)
        {
            return Ok((Done::Changed { attributes }, None));
        }
        if let Change::Unlink { site, .. } = &change
            && let Some(done) = self.remove_ahead(who, site)
        {
            return Ok((done, None));
        }
        let _judged = change.minds_lend().map(|inode| self.judged(inode));
        self.prepare(&change).await?;
        let mut removal = self.prepare_names(&change).await?;
        let op = Op::wanted(who.clone(), change);
        op.check_limits()?;
        if let Some(own) = self.removal_of_own(&op) {
            match self.object.change_tree(own).await {
                // The name came to name something else meanwhile.
                Err(ObjectError::Refused(FileError::Tree(
                    NameError::Stale { .. } | NameError::NoEntry { .. },
                ))) => {}
                done => return Ok(self.noted(done?)),
            }
        }
        let (mut tries, start) = (0, clock::now());
        loop {
            removal.iter_mut().for_each(Removal::send);
            let done = self.object.change_tree(op.clone()).await;
            removal.iter_mut().for_each(|removal| removal.end(&done));
            match done {
                // The name came to name something else while it was looked up who has that open.
                Err(ObjectError::Refused(FileError::Tree(NameError::Stale { .. })))
                    if takes_any(&op.change) && tries < STALE_TRIES =>
                {
                    tries += 1;
                }
                // It was lent to somebody at the same time, who gives it back when asked again.
                Err(ObjectError::Refused(FileError::Tree(NameError::Lent { .. })))
                    if op.change.minds_lend().is_some() => {}
                Err(ObjectError::Refused(FileError::Tree(NameError::Lent { .. })))
                    if clock::elapsed(start) < self.object.patience() =>
                {
                    sleep(LENT_PAUSE).await;
                }
                done => return Ok(self.noted(done?)),
            }
        }
    }

    /// The owner of a file that is lent to this client sets its times or its permissions, or an owner that it has already, as who unpacks an
    /// archive does: what that changes is known here alone until the file is returned. None if it is not that. Nobody waits.
    pub fn set_own(&self, who: &Who, inode: InodeId, set: SetAttributes) -> Option<Attributes> {
        let is = self.known_attributes(inode)?;
        if is.uid != who.uid() || !self.has_lent(&is) || !sets_own_alone(&set, &is) {
            return None;
        }
        let id = FileId { volume: self.object(), inode };
        self.object.shared().with_known(id, |known| {
            let generation = known.lent()?;
            let shown = known.contents.shows(id, generation)?;
            if !known.cache.has_same_ids(id.volume, inode) {
                return None;
            }
            let wall = clock::wall();
            let now = shown.changed.max(wall);
            let time = |set: SetTime| match set {
                SetTime::Now => now,
                SetTime::To(time) => time,
            };
            // Whoever returns a time says that something was set.
            let accessed = set.atime.map_or(shown.accessed.unwrap_or(is.atime), time);
            let mode = set.mode.filter(|mode| *mode != is.mode).map(|mode| (mode, who.clone()));
            if mode.is_some() {
                known.cache.forget_rights(id.volume, inode);
            }
            let set = OwnerSet { modified: set.mtime.map(time), accessed: Some(accessed), mode };
            known.contents.set_by_owner((known.now, wall), (id, generation), set)
        })?;
        self.known_attributes(inode)
    }

    fn known_attributes(&self, inode: InodeId) -> Option<Attributes> {
        match self.known(&ROOT, &Ask::Attributes { inode })? {
            Ok(Answer::Attributes(attributes)) => Some(attributes),
            _ => None,
        }
    }

    /// What is lent to this client is returned before somebody sets what is lent with it, or the daemon judges a change by permissions that are
    /// known here alone.
    async fn prepare(&self, change: &Change) -> Result<(), VolumeError> {
        if let Some(inode) = change.wants_back() {
            let id = FileId { volume: self.object(), inode };
            // If that takes too long, whoever sets it has it taken back.
            let _ = self.object.shared().return_lent(id, self.object.patience()).await;
        }
        match change.minds_lend() {
            Some(inode) => self.prepare_judgement(inode).await,
            None => Ok(()),
        }
    }

    /// What is lent to this client is returned before the daemon judges by permissions that are known here alone: from this client it takes
    /// nothing back for that.
    pub(crate) async fn prepare_judgement(&self, inode: InodeId) -> Result<(), VolumeError> {
        if !self.has_own_mode(inode) {
            return Ok(());
        }
        let (id, patience) = (FileId { volume: self.object(), inode }, self.object.patience());
        if self.object.shared().return_lent(id, patience).await || !self.has_own_mode(inode) {
            return Ok(());
        }
        let why = "permissions that were set wait to be taken in";
        Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why }.into())
    }

    /// The volume sets what its owner may set here until this is dropped.
    fn judged(&self, inode: InodeId) -> Judged {
        let (shared, id) = (Arc::clone(self.object.shared()), FileId { volume: self.object(), inode });
        shared.behind.contents().begin_judging(id);
        Judged { shared, id }
    }

    /// Whether permissions of a file are known here alone, so that it is returned before a daemon judges by them.
    pub fn has_own_mode(&self, inode: InodeId) -> bool {
        self.behind().contents().has_own_mode(FileId { volume: self.object(), inode })
    }

    /// The same removal, of a file that is lent to this client, by its number: nobody has to ask this client about it.
    fn removal_of_own(&self, op: &Op) -> Option<Op> {
        let Change::Unlink { site, holders, removed } = &op.change else { return None };
        let Site { dir, name, expect: Expect::Any } = site else { return None };
        let shared = self.object.shared();
        let inode = shared.cache().named(self.object(), *dir, name)??;
        shared.behind.contents().generation(FileId { volume: self.object(), inode })?;
        let (site, holders, removed) = (site.clone().naming(inode), holders.clone(), *removed);
        let change = Change::Unlink { site, holders, removed };
        Some(Op::wanted(op.who.clone(), change))
    }

    /// What was written to a file that is gone need not be sent.
    pub(crate) fn noted(&self, created: Created) -> Created {
        let gone = match &created.0 {
            Done::Removed { inode, fate } => Some((*inode, *fate)),
            Done::Renamed { other: Some(inode), fate: Some(fate), .. } => Some((*inode, *fate)),
            _ => None,
        };
        if let Some((inode, fate)) = gone {
            self.object.shared().note_removed(FileId { volume: self.object(), inode }, fate);
        }
        created
    }

    /// The object with its tree.
    pub(crate) const fn tree(&self) -> &Object {
        &self.object
    }

    /// What has a name in a directory.
    pub async fn lookup(&self, who: &Who, dir: InodeId, name: Name) -> Result<Attributes, VolumeError> {
        attributes_of(self.ask(who, Ask::Lookup { dir, name }).await?)
    }

    /// How an inode is.
    pub async fn attributes(&self, inode: InodeId) -> Result<Attributes, VolumeError> {
        attributes_of(self.ask(&ROOT, Ask::Attributes { inode }).await?)
    }

    /// Some names of a directory, those behind one.
    pub async fn list(
        &self,
        dir: InodeId,
        after: Option<Name>,
        with_attributes: bool,
    ) -> Result<Page, VolumeError> {
        let ask = Ask::List { dir, after, entries_max: PAGE_ENTRIES, with_attributes };
        match self.ask(&ROOT, ask).await? {
            Answer::Page(page) => Ok(page),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    /// What is in the volume, and what it has room for.
    pub async fn counts(&self) -> Result<Counts, VolumeError> {
        match self.ask(&ROOT, Ask::Statfs).await? {
            Answer::Volume(counts) => Ok(counts),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    /// Creates something under a name that nothing has, with these permissions but those of the umask.
    pub async fn make(
        &self,
        who: &Who,
        (dir, name): (InodeId, Name),
        (make, mode, umask): (Make, u16, u16),
    ) -> Result<Attributes, VolumeError> {
        let lends = matches!(make, Make::Directory) && self.may_borrow_dir().await?;
        let change = Change::Create { dir, name, make, mode, umask, is_exclusive: true, lends };
        let (volume, who) = (self.clone(), who.clone());
        let made = async move {
            match volume.change(&who, change).await? {
                Done::Created { attributes, .. } => {
                    volume.adopt_dir(&attributes);
                    Ok(attributes)
                }
                _ => Err(ObjectError::Mismatch.into()),
            }
        };
        if !lends {
            return made.await;
        }
        // What is lent to this client it has to know.
        tokio::spawn(made).await.unwrap_or_else(|_| Err(ObjectError::Closed.into()))
    }

    /// Creates a file under a name that nothing has, and has it open: what to show to read and write it is none only if it is gone
    /// already, or a daemon lacks the keys for that.
    pub async fn create_file(
        &self,
        who: &Who,
        (dir, name): (InodeId, Name),
        (mode, umask): (u16, u16),
    ) -> Result<(Attributes, Option<Capability>), VolumeError> {
        let change =
            Change::Create { dir, name, make: Make::file(), mode, umask, is_exclusive: true, lends: false };
        match self.change_or_create(who, change).await? {
            (Done::Created { attributes, .. }, opened) => Ok((attributes, opened.map(|opened| *opened))),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    /// Opens a file: how it is, and what to show to use it.
    pub async fn open(
        &self,
        who: &Who,
        inode: InodeId,
        mode: OpenMode,
    ) -> Result<(Attributes, Capability), VolumeError> {
        self.await_entered(&[inode]).await?;
        self.prepare_judgement(inode).await?;
        Ok(self.object.open_file(Opening::Open(who.clone(), inode, mode)).await?)
    }

    /// Keeps a file open, whoever may open it by now.
    pub async fn renew(&self, capability: &Capability) -> Result<(Attributes, Capability), VolumeError> {
        Ok(self.object.open_file(Opening::Renew(Box::new(*capability))).await?)
    }

    /// Takes the name of anything but a directory away.
    pub async fn unlink(&self, who: &Who, site: Site) -> Result<(), VolumeError> {
        self.change(who, Change::Unlink { site, holders: Vec::new(), removed: None }).await.map(drop)
    }

    /// Takes an empty directory away.
    pub async fn remove_directory(&self, who: &Who, site: Site) -> Result<(), VolumeError> {
        self.change(who, Change::RemoveDirectory { site, holders: Vec::new() }).await.map(drop)
    }

    /// Makes durable what this client was told is done.
    pub async fn sync(&self) -> Result<(), VolumeError> {
        let event = self.begin_sync().await?;
        self.end_sync(event)
    }

    /// The same for whoever waits for something else, too, and calls [`end_sync`](Self::end_sync) when that has come.
    pub(crate) async fn begin_sync(&self) -> Result<FileEvent, VolumeError> {
        self.await_all_entered().await?;
        Ok(self.object.begin_sync().await?)
    }

    /// What came of it.
    pub(crate) fn end_sync(&self, event: FileEvent) -> Result<(), VolumeError> {
        Ok(self.object.end_sync(event)?)
    }

    /// Whether a sync has anything to make durable.
    pub(crate) fn owes(&self) -> bool {
        let creations = self.tree().shared().ahead.creations();
        let is_pending = creations.has_pending(self.object(), creations.count());
        drop(creations);
        is_pending || self.object.with_files(|files| files.owed(self.object())) > 0
    }

    /// Whether something that this client was told is done may be lost, and no sync has told yet.
    pub fn has_lost(&self) -> bool {
        let creations = self.tree().shared().ahead.creations();
        let is_pending = creations.has_pending(self.object(), creations.count());
        drop(creations);
        is_pending || self.object.has_lost()
    }

    /// Takes over from an earlier client of the program, which has ended. What it was told is done, to this volume or to any file, and does not
    /// know to be durable, a sync makes so, or tells to be lost; and so of what it had not sent.
    pub fn inherit(&self, before: &Self) {
        self.object.inherit_all(&before.object);
    }

    /// Is told of what that one is told.
    pub(crate) fn take_place_of(&self, other: &Self) {
        self.object.take_place_of(&other.object);
    }

    /// The same for somebody who is told of what is lost from now on, and of what nobody was told.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { object: self.object.again(), ..self.clone() }
    }

    /// The same for somebody who is told only of what is lost from now on.
    pub(crate) fn anew(&self) -> Self {
        Self { object: self.object.anew(), ..self.clone() }
    }

    /// Makes the tree. Refused if there is one.
    async fn begin(&self, root: Root) -> Result<(), VolumeError> {
        self.object.create_once().await?;
        Ok(self.object.plant(root).await?)
    }

    /// Makes all durable that is there, whoever did it: what stands before an entry of this client's is as durable as that.
    async fn settle(&self) -> Result<(), VolumeError> {
        self.change(&ROOT, Change::SetAttributes { inode: InodeId::ROOT, set: SetAttributes::default() })
            .await?;
        self.sync().await
    }

    async fn has_no_names(&self) -> Result<bool, VolumeError> {
        Ok(self.list(InodeId::ROOT, None, false).await?.entries.is_empty())
    }
}

impl VolumeError {
    /// Whether there is nothing where a tree should be.
    pub const fn says_no_tree(&self) -> bool {
        matches!(self, Self::Object(ObjectError::NoSuchObject | ObjectError::Refused(FileError::NoTree)))
    }

    /// Whether this client was silent for too long: what it had open and locked in the volume is gone.
    pub const fn says_ended(&self) -> bool {
        use NameError::{Expired, NoClient};
        matches!(self, Self::Ended(_) | Self::Refused(Expired { .. } | NoClient { .. }))
    }

    /// Whether what was shown for a file had expired when a daemon looked at it.
    pub(crate) const fn says_expired(&self) -> bool {
        use CapabilityError::Expired;
        matches!(self, Self::Object(ObjectError::Refused(FileError::Capability(Expired { .. }))))
    }

    /// Whether there is something that no rule exports to this client.
    pub const fn says_not_exported(&self) -> bool {
        use AccessError::{NoExportPath, NotExported};
        matches!(self, Self::Object(ObjectError::Refused(FileError::Access(NotExported | NoExportPath))))
    }
}

impl From<ObjectError> for VolumeError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Refused(FileError::Tree(error)) => Self::Refused(error),
            error => Self::Object(error),
        }
    }
}

fn attributes_of(answer: Answer) -> Result<Attributes, VolumeError> {
    match answer {
        Answer::Attributes(attributes) => Ok(attributes),
        _ => Err(ObjectError::Mismatch.into()),
    }
}

/// Whether this sets nothing but times, an owner that is the same, and permissions that are no more than that.
fn sets_own_alone(set: &SetAttributes, is: &Attributes) -> bool {
    let SetAttributes { mode, uid, gid, size, atime, mtime, is_open: _ } = set;
    let keeps_owner = uid.is_none_or(|uid| uid == is.uid) && gid.is_none_or(|gid| gid == is.gid);
    // Set-user-ID and the like end when an owner is set, and are the volume's to give; an ACL has more to say than the mode.
    let is_plain = (is.mode | mode.unwrap_or_default()) & SPECIAL_BITS == 0 && !is.has_acl;
    let sets_owner_or_mode = mode.is_some() || uid.or(*gid).is_some();
    size.is_none()
        && keeps_owner
        && (!sets_owner_or_mode || is_plain)
        && (sets_owner_or_mode || atime.or(*mtime).is_some())
}

/// Whether a change takes names for whatever they name.
const fn takes_any(change: &Change) -> bool {
    match change {
        Change::Unlink { site, .. } | Change::Rename { to: site, .. } => matches!(site.expect, Expect::Any),
        _ => false,
    }
}

/// What stands for a volume in the list of all.
fn entry_name(name: &VolumeName) -> Name {
    Name::new(name.as_str().as_bytes()).expect("it is short, and begins with a letter or a digit")
}
