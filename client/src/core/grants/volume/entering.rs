//! What a client knows of files that it has created by itself, or removed, in directories that are lent to it.

use base::{Seq, WallTime};
use namespace::{Attributes, InodeId, Kind, Lent, Name, Rights, Who};
use node::CacheGrant;

use super::{Kept, Volume};

/// A file that this client has created by itself, or removed, of which its volume may not know yet.
#[derive(Debug)]
pub(in crate::core::grants) struct Entering {
    pub(in crate::core::grants) dir: InodeId,
    pub(in crate::core::grants) name: Name,
    pub(in crate::core::grants) file: InodeId,
    pub(in crate::core::grants) is_removed: bool,
}

impl Volume {
    /// By which lend a directory is lent in which somebody may create what has this name, of which nothing is there.
    pub(in crate::core::grants) fn free_in(&self, who: &Who, (dir, name): (InodeId, &Name)) -> Option<Lent> {
        let (lent, kept) = self.lent_in(who, dir, name)?;
        (kept.find(name) == Some(None)).then_some(lent)
    }

    /// What has a name in such a directory, if it is a file that is somebody's own and has no other.
    pub(in crate::core::grants) fn own_in(
        &self,
        who: &Who,
        (dir, name): (InodeId, &Name),
    ) -> Option<InodeId> {
        let (_, kept) = self.lent_in(who, dir, name)?;
        let (inode, _) = kept.find(name)??;
        self.own(who, inode).map(|_| inode)
    }

    /// How a file is, if that is known, and it is somebody's own and has one name.
    pub(in crate::core::grants) fn own(&self, who: &Who, inode: InodeId) -> Option<&Attributes> {
        let kept = self.inodes.get(&inode).filter(|kept| kept.is_granted && kept.has_same_ids)?;
        let is_busy = self.busy.has_inode(inode) || self.busy.has_rights(inode);
        let attributes = kept.attributes.as_ref().filter(|_| !is_busy)?;
        let is_only = attributes.kind == Kind::File && attributes.links == 1;
        (is_only && attributes.uid == who.uid()).then_some(attributes)
    }

    /// By which lend a directory is lent in which somebody may change what has this name, and nobody does.
    fn lent_in(&self, who: &Who, dir: InodeId, name: &Name) -> Option<(Lent, &Kept)> {
        let is_busy = self.busy.has_name(dir, name) || self.busy.is_leaving(dir, name);
        let may = !is_busy && self.may(who, dir, Rights::CHANGE);
        let kept = self.inodes.get(&dir).filter(|kept| may && kept.is_granted && kept.has_same_ids)?;
        Some((kept.inside.as_ref()?.lent?, &**kept))
    }

    /// This client has created a file by itself in a directory that is lent to it.
    pub(in crate::core::grants) fn enter(
        &mut self,
        who: &Who,
        Entering { dir, name, .. }: &Entering,
        attributes: &Attributes,
    ) {
        self.know_name((*dir, name), Some((attributes.inode, attributes.kind)));
        self.busy.begin_entering(*dir);
        if let Some(dir) = self.inodes.get_mut(dir).and_then(|kept| kept.attributes.as_mut()) {
            (dir.mtime, dir.ctime) = (dir.mtime.max(attributes.btime), dir.ctime.max(attributes.btime));
            dir.size += 1;
        }
        self.rights += 1;
        let rights = self.rights;
        let kept = self.inodes.entry(attributes.inode).or_default();
        (kept.is_granted, kept.has_same_ids, kept.rights, kept.is_bare) = (true, true, rights, true);
        kept.attributes = Some(attributes.clone());
        self.allow_owner(who, attributes);
    }

    /// This client has removed a file by itself in a directory that is lent to it.
    pub(in crate::core::grants) fn leave(
        &mut self,
        Entering { dir, name, file, .. }: &Entering,
        removed: WallTime,
    ) {
        self.know_name((*dir, name), None);
        self.busy.begin_entering(*dir);
        self.busy.leave(*dir, name, true);
        if let Some(dir) = self.inodes.get_mut(dir).and_then(|kept| kept.attributes.as_mut()) {
            (dir.mtime, dir.ctime) = (dir.mtime.max(removed), dir.ctime.max(removed));
            dir.size = dir.size.saturating_sub(1);
        }
        self.drop(*file);
    }

    /// What this client had created or removed by itself was entered at a place in the log. None if it is not there, or nobody knows.
    pub(in crate::core::grants) fn entered(&mut self, entering: &Entering, at: Option<Seq>) {
        let Entering { dir, name, file, is_removed } = entering;
        self.busy.end_entering(*dir);
        if *is_removed {
            self.busy.leave(*dir, name, false);
        }
        match (at, self.inodes.get_mut(dir)) {
            (Some(at), Some(kept)) => kept.floor = kept.floor.max(at),
            (Some(at), None) => self.floor = self.floor.max(at),
            (None, _) => {
                self.forget_name(*dir, name);
                if let Some(kept) = self.inodes.get_mut(dir) {
                    kept.attributes = None;
                }
                self.drop(*file);
            }
        }
    }

    /// A file that this client has created by itself is known here, but counts from now on as long as it is granted. It may have removed it by now.
    pub(super) fn take_in_entered(
        &mut self,
        (dir, name, created): (InodeId, &Name, WallTime),
        attributes: &Attributes,
        grant: &CacheGrant,
    ) {
        if !self.busy.is_leaving(dir, name) && self.may_keep(attributes.inode, grant) {
            self.keep_attributes(attributes, grant);
        } else {
            self.drop(attributes.inode);
        }
        // By the daemon's clock it was at another time, and so its directory was changed at another one, too.
        if attributes.btime != created
            && let Some(kept) = self.inodes.get_mut(&dir)
        {
            kept.attributes = None;
        }
    }

    /// A directory is as this client has it since it has removed something there, unless by the daemon's clock that was at another time.
    pub(super) fn take_in_left(&mut self, (dir, removed): (InodeId, WallTime), grant: &CacheGrant) {
        let is_later = |after: &Attributes| after.inode == dir && after.mtime >= removed;
        if !grant.changed.iter().any(is_later)
            && let Some(kept) = self.inodes.get_mut(&dir)
        {
            kept.attributes = None;
        }
    }
}
