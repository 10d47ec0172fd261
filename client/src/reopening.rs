//! Opening files again without asking.
//!
//! Whoever opens a file is checked by the volume's primary, given what to show to the content's, and noted as somebody who has it open. All of
//! that stays good when the file is closed for as long as the volume grants that nobody has changed who may do what with it, if only the
//! primary is not told yet that it is closed. So what was closed lately stays open as far as the daemons know, and who opens it again in
//! the same way is answered here.
//!
//! - What somebody was allowed once he is allowed again as long as nobody has changed the rights ([`rights`](crate::core::grants::Cache::rights)). Who
//!   created a file may open it again if he is its owner and the mode lets the owner read and write.
//! - What loses a name is revoked from whoever knows it, and so it is closed at once then if nobody uses it. The client that has taken the last
//!   one away closes it by itself.
//! - No more is kept open than is told to a volume one by one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base::{MonoTime, Span};
use namespace::{Attributes, InodeId, Who};
use node::OpenMode;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::core::content::FileId;
use crate::driver::{Client, Shared};
use crate::source::Source;
use crate::volume_files::VolumeFile;
use crate::volumes::Volume;

/// What nobody has opened for so long is closed.
const RESTS_FOR: Span = Span::from_secs(5);
/// So many are known.
const KNOWN_MAX: usize = 768;
/// How often it looks what is to be closed, and how often at most if something was taken back.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS_APART: Duration = Duration::from_millis(20);
/// The bits of a mode that let the owner read and write.
pub(crate) const OWNER_BOTH: u16 = 0o600;

/// What was opened lately.
#[derive(Debug, Default)]
pub(crate) struct Reopening {
    /// Held for moments only. Nothing is locked while it is, and nothing dropped that closes a file.
    known: Mutex<Known>,
    /// Something may have to be closed.
    look: Notify,
}

#[derive(Debug, Default)]
struct Known {
    files: BTreeMap<FileId, Vec<Opened>>,
    count: usize,
    is_looked_after: bool,
}

/// A file as somebody opened it.
#[derive(Debug)]
struct Opened {
    who: Who,
    mode: OpenMode,
    source: Source,
    rights: u64,
    used_at: MonoTime,
}

impl Reopening {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing names a file any more.
    pub(crate) fn forget(&self, id: FileId) {
        let mut known = self.known();
        let closed = known.files.remove(&id).unwrap_or_default();
        known.count -= closed.len();
        drop(known);
        drop(closed);
    }

    /// Something was taken back.
    pub(crate) fn look(&self) {
        self.look.notify_one();
    }

    /// Nothing is kept open any more.
    pub(crate) fn clear(&self) {
        let known = std::mem::take(&mut self.known().files);
        self.known().count = 0;
        drop(known);
    }

    fn find(
        &self,
        id: FileId,
        (who, mode): (&Who, OpenMode),
        (now, rights): (MonoTime, u64),
    ) -> Option<Source> {
        let mut known = self.known();
        let mut opened = known.files.get_mut(&id)?.iter_mut();
        let found =
            opened.find(|opened| opened.mode >= mode && opened.rights == rights && opened.who == *who)?;
        found.used_at = now;
        Some(found.source.clone())
    }

    /// Whether somebody has to look after what is known from now on.
    fn enter(&self, id: FileId, opened: Opened) -> bool {
        let mut known = self.known();
        if known.count >= KNOWN_MAX {
            return false;
        }
        let Known { files, count, is_looked_after } = &mut *known;
        let of_file = files.entry(id).or_default();
        let is_same = |other: &&mut Opened| (&other.who, other.mode) == (&opened.who, opened.mode);
        let before = match of_file.iter_mut().find(is_same) {
            Some(other) => Some(std::mem::replace(other, opened)),
            None => {
                of_file.push(opened);
                *count += 1;
                None
            }
        };
        let is_first = !std::mem::replace(is_looked_after, true);
        drop(known);
        drop(before);
        is_first
    }

    /// Takes out what is not good any more. Returns whether anything is left.
    fn close(&self, is_good: impl Fn(FileId, &Opened) -> bool) -> (Vec<Opened>, bool) {
        let mut known = self.known();
        let Known { files, count, is_looked_after } = &mut *known;
        let mut closed = Vec::new();
        files.retain(|&id, opened| {
            closed.extend(opened.extract_if(.., |opened| !is_good(id, opened)));
            !opened.is_empty()
        });
        *count -= closed.len();
        *is_looked_after = *count > 0;
        (closed, *is_looked_after)
    }
}

impl Shared {
    /// As long as this is the same nobody has changed who may do what with a file.
    pub(crate) fn rights(&self, id: FileId) -> Option<u64> {
        self.cache().rights(clock::now(), id.volume, id.inode)
    }

    /// Who has opened a file like this may open it again.
    pub(crate) fn keep_open(
        self: &Arc<Self>,
        source: &Source,
        who: &Who,
        (mode, rights): (OpenMode, Option<u64>),
    ) {
        let Some(rights) = rights.filter(|_| self.rights(source.id()) == rights) else { return };
        let opened = Opened { who: who.clone(), mode, source: source.clone(), rights, used_at: clock::now() };
        if self.reopening.enter(source.id(), opened) {
            tokio::spawn(look_after(Arc::downgrade(self)));
        }
    }

    fn close_rested(&self) -> bool {
        let now = clock::now();
        let is_good =
            |id, opened: &Opened| opened.used_at + RESTS_FOR > now && self.rights(id) == Some(opened.rights);
        let (closed, goes_on) = self.reopening.close(is_good);
        drop(closed);
        goes_on
    }
}

impl Client {
    /// Opens a file that was opened in the same way lately, if that is known to be allowed still. Nobody waits. Needs a running tokio runtime.
    pub fn open_again(
        &self,
        volume: &Volume,
        who: &Who,
        (inode, mode): (InodeId, OpenMode),
    ) -> Option<VolumeFile> {
        let id = FileId { volume: volume.object(), inode };
        let (now, shared) = (clock::now(), volume.tree().shared());
        if !volume.is_present() {
            return None;
        }
        let source = shared.reopening.find(id, (who, mode), (now, shared.rights(id)?))?;
        VolumeFile::again(&source)
    }

    /// A file was opened by who was allowed to by these rights.
    pub(crate) fn opened(&self, file: &VolumeFile, who: &Who, by: (OpenMode, Option<u64>)) {
        file.source().shared().keep_open(file.source(), who, by);
    }

    /// A file was created. Its owner may open it again.
    pub(crate) fn created(&self, file: &VolumeFile, who: &Who, attributes: &Attributes) {
        let (id, shared) = (file.source().id(), file.source().shared());
        let rights = shared.rights(id);
        let now = shared.cache().attributes(clock::now(), id.volume, id.inode);
        let is_same = now.is_some_and(|now| (now.mode, now.uid) == (attributes.mode, attributes.uid));
        if is_same && attributes.uid == who.uid() && attributes.mode & OWNER_BOTH == OWNER_BOTH {
            self.opened(file, who, (OpenMode::ReadWrite, rights));
        }
    }
}

/// Closes what is not used any more, as long as there is something.
async fn look_after(shared: Weak<Shared>) {
    loop {
        sleep(LOOKS_APART).await;
        let Some(there) = shared.upgrade() else { return };
        if !there.close_rested() {
            return;
        }
        let reopening = there.reopening.clone();
        drop(there);
        let _ = timeout(LOOK_EVERY, reopening.look.notified()).await;
    }
}
