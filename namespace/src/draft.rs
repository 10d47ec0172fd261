//! What an operation is about to change. It becomes a part of the table as a whole, or is dropped.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::WallTime;
use bytes::Bytes;

use crate::{Attributes, Body, Born, Entry, Inode, InodeId, Key, NameError, Part, Table, Volume, XattrName};

/// A table as it would be with some changes.
pub(crate) struct Draft<'t, T: Table> {
    table: &'t T,
    changes: BTreeMap<Key, Option<Part>>,
    /// The entry.
    pub(crate) at: Born,
    /// Its time.
    pub(crate) time: WallTime,
}

impl<'t, T: Table> Draft<'t, T> {
    /// The table as it is.
    pub(crate) const fn new(table: &'t T, at: Born, time: WallTime) -> Self {
        Self { table, changes: BTreeMap::new(), at, time }
    }

    /// For questions.
    pub(crate) fn look(table: &'t T) -> Self {
        Self::new(table, Born::default(), WallTime::ZERO)
    }

    pub(crate) fn into_changes(self) -> BTreeMap<Key, Option<Part>> {
        self.changes
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Part> {
        match self.changes.get(key) {
            Some(part) => part.clone(),
            None => self.table.get(key).map(|(_, part)| part),
        }
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn put(&mut self, key: Key, part: Part) {
        self.changes.insert(key, Some(part));
    }

    /// Takes a part away, and says so only if it is there.
    pub(crate) fn remove(&mut self, key: Key) {
        if self.has(&key) {
            self.changes.insert(key, None);
        }
    }

    /// The parts from a key on, as many as `parts_max`.
    pub(crate) fn page(&self, from: Bound<&Key>, parts_max: usize) -> Vec<(Key, Part)> {
        let page = self.table.page(from, parts_max + self.changes.len());
        let kept = page.into_iter().filter(|(key, ..)| !self.changes.contains_key(key));
        let mut all: Vec<_> = kept.map(|(key, _, part)| (key, part)).collect();
        let changed = self.changes.range((from, Bound::Unbounded));
        let before = all.len();
        all.extend(changed.filter_map(|(key, part)| Some((key.clone(), part.clone()?))));
        if all.len() > before {
            all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        }
        all.truncate(parts_max);
        all
    }

    pub(crate) fn inode(&self, inode: InodeId) -> Result<Arc<Inode>, NameError> {
        match self.get(&Key::Inode(inode)) {
            Some(Part::Inode(found)) => Ok(found),
            _ => Err(NameError::NoInode { inode }),
        }
    }

    pub(crate) fn directory(&self, inode: InodeId) -> Result<Arc<Inode>, NameError> {
        let found = self.inode(inode)?;
        if found.is_directory() { Ok(found) } else { Err(NameError::NotDirectory { inode }) }
    }

    pub(crate) fn put_inode(&mut self, inode: InodeId, changed: Inode) {
        self.put(Key::Inode(inode), Part::Inode(Arc::new(changed)));
    }

    pub(crate) fn entry(&self, site: (InodeId, &crate::Name)) -> Option<Entry> {
        match self.get(&Key::Entry(site.0, site.1.clone())) {
            Some(Part::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn value(&self, inode: InodeId, name: XattrName) -> Option<Arc<Bytes>> {
        match self.get(&Key::Xattr(inode, name)) {
            Some(Part::Value(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn volume(&self) -> Volume {
        match self.get(&Key::Volume) {
            Some(Part::Volume(volume)) => *volume,
            _ => Volume::default(),
        }
    }

    pub(crate) fn put_volume(&mut self, volume: Volume) {
        self.put(Key::Volume, Part::Volume(Arc::new(volume)));
    }

    /// When a change of an inode takes place: never before the last.
    pub(crate) fn stamp(&self, inode: &Inode) -> WallTime {
        inode.ctime.max(self.time)
    }

    /// When a change of an inode took place that a client has made before it is known here: not after this, whatever the client's clock says.
    pub(crate) fn stamp_of(&self, inode: &Inode, changed: Option<WallTime>) -> WallTime {
        inode.ctime.max(changed.map_or(self.time, |changed| changed.min(self.time)))
    }

    /// Changes an inode, which is told when.
    pub(crate) fn change(
        &mut self,
        inode: InodeId,
        change: impl FnOnce(&mut Inode, WallTime),
    ) -> Result<Attributes, NameError> {
        let mut changed = Inode::clone(&*self.inode(inode)?);
        changed.ctime = self.stamp(&changed);
        let now = changed.ctime;
        change(&mut changed, now);
        let attributes = changed.attributes(inode);
        self.put_inode(inode, changed);
        Ok(attributes)
    }

    /// The entries of a directory have changed: it has so many more of them, and directories among them.
    pub(crate) fn change_entries(
        &mut self,
        dir: InodeId,
        more: i8,
        more_directories: i8,
    ) -> Result<(), NameError> {
        self.change(dir, |dir, now| {
            dir.mtime = now;
            dir.links = dir.links.saturating_add_signed(more_directories.into());
            if let Body::Directory { entries, .. } = &mut dir.body {
                *entries = entries.saturating_add_signed(more.into());
            }
        })?;
        Ok(())
    }

    /// Entries of a directory that had these times were changed by its client at its own time: so it knows how the directory is before this
    /// comes to it.
    pub(crate) fn date_entries(
        &mut self,
        id: InodeId,
        (mtime, ctime): (WallTime, WallTime),
        changed: WallTime,
    ) -> Result<(), NameError> {
        let dir = Inode::clone(&*self.inode(id)?);
        self.put_inode(id, Inode { mtime: mtime.max(changed), ctime: ctime.max(changed), ..dir });
        Ok(())
    }
}
