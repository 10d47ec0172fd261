//! Names given and taken away, and what becomes of inodes that have none.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use base::{ClientId, WallTime};

use crate::draft::Draft;
use crate::limits::{HOLDERS_MAX, LINKS_MAX};
use crate::{
    Body, Done, Doomed, Entry, Expect, Fate, Inode, InodeId, Key, Lent, LentTo, Name, NameError, Part,
    Rights, Site, Table, Who, XattrName,
};

/// A name together with what it names.
pub(crate) struct Found {
    pub(crate) dir: Arc<Inode>,
    pub(crate) entry: Option<Entry>,
}

impl<T: Table> Draft<'_, T> {
    /// What a name names, if `who` may look.
    pub(crate) fn find(&self, who: &Who, site: &Site) -> Result<Found, NameError> {
        let dir = self.directory(site.dir)?;
        self.allow((site.dir, &dir), who, Rights::EXECUTE)?;
        let entry = self.entry((site.dir, &site.name));
        Ok(Found { dir, entry })
    }

    /// Gives an inode another name.
    pub(crate) fn link(
        &mut self,
        who: &Who,
        inode: InodeId,
        (dir_id, name): (InodeId, &Name),
    ) -> Result<Done, NameError> {
        let found = self.inode(inode)?;
        let dir = self.directory(dir_id)?;
        self.allow((dir_id, &dir), who, Rights::EXECUTE)?;
        if let Some(Entry { inode, .. }) = self.entry((dir_id, name)) {
            return Err(NameError::Exists { inode });
        }
        self.allow_new_name((dir_id, &dir), who)?;
        match found.links {
            _ if found.is_directory() => return Err(NameError::NotPermitted { inode }),
            0 => return Err(NameError::Orphan { inode }),
            LINKS_MAX.. => return Err(NameError::TooManyLinks { inode }),
            _ => {}
        }
        self.put(Key::Entry(dir_id, name.clone()), Part::Entry(Entry { inode, kind: found.kind() }));
        self.change_entries(dir_id, 1, 0)?;
        let attributes = self.change(inode, |inode, _| inode.links += 1)?;
        Ok(Done::Changed { attributes })
    }

    /// Takes a name away of anything but a directory. Who has done that by itself has done it only as long as its directory is lent to it: since
    /// that is over others have found the name there, and what they did to what it names would go with it.
    pub(crate) fn unlink(
        &mut self,
        (who, client): (&Who, ClientId),
        site: &Site,
        holders: &[ClientId],
        removed: Option<WallTime>,
    ) -> Result<Done, NameError> {
        let Some(removed) = removed else { return self.remove_name(who, site, holders, false) };
        let dir = self.directory(site.dir)?;
        let under = Lent { generation: site.dir.lend_of_dir(), to: LentTo::Client(client) };
        if dir.lent() != Some(under) {
            return Err(NameError::NotLent { inode: site.dir, generation: under.generation });
        }
        let done = self.remove_name(who, site, holders, false)?;
        self.date_entries(site.dir, (dir.mtime, dir.ctime), removed)?;
        Ok(done)
    }

    /// Takes a name away, of a directory or of anything else.
    pub(crate) fn remove_name(
        &mut self,
        who: &Who,
        site: &Site,
        holders: &[ClientId],
        is_directory: bool,
    ) -> Result<Done, NameError> {
        check_holders(holders)?;
        let Found { dir, entry } = self.find(who, site)?;
        let Entry { inode, .. } = entry.ok_or(NameError::NoEntry { dir: site.dir })?;
        site.check(entry)?;
        let found = self.inode(inode)?;
        self.allow_removal((site.dir, &dir), (inode, &found), who)?;
        match found.body {
            Body::Directory { entries: 1.., .. } if is_directory => {
                return Err(NameError::NotEmpty { dir: inode });
            }
            Body::Directory { .. } if !is_directory => return Err(NameError::IsDirectory { inode }),
            Body::Directory { .. } => {}
            _ if is_directory => return Err(NameError::NotDirectory { inode }),
            _ => {}
        }
        self.remove(Key::Entry(site.dir, site.name.clone()));
        self.change_entries(site.dir, -1, -i8::from(is_directory))?;
        let fate = self.lose_name(inode, holders)?;
        Ok(Done::Removed { inode, fate })
    }

    /// An inode has one name less. Without any it lives on for its holders.
    pub(crate) fn lose_name(&mut self, id: InodeId, holders: &[ClientId]) -> Result<Fate, NameError> {
        let links = {
            let left = |inode: &Inode| if inode.is_directory() { 0 } else { inode.links.saturating_sub(1) };
            self.change(id, |inode, _| inode.links = left(inode))?.links
        };
        if links > 0 {
            return Ok(Fate::Named { links });
        }
        let mut count = 0;
        for client in holders.iter().copied().collect::<BTreeSet<_>>() {
            // Who has ended holds nothing any more.
            if self.record(client)? {
                self.put(Key::Hold(id, client), Part::Mark);
                self.put(Key::Held(client, id), Part::Mark);
                count += 1;
            }
        }
        if count == 0 {
            return self.doom(id);
        }
        let mut inode = Inode::clone(&*self.inode(id)?);
        inode.holders = count;
        self.put_inode(id, inode);
        self.put(Key::Orphan(id), Part::Mark);
        Ok(Fate::Orphan { holders: count })
    }

    /// A client comes to hold an orphan.
    pub(crate) fn hold(&mut self, id: InodeId, client: ClientId) -> Result<Done, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        if inode.links > 0 {
            return Err(NameError::NotOrphan { inode: id });
        }
        if !self.record(client)? {
            return Err(NameError::Expired { client });
        }
        if !self.has(&Key::Hold(id, client)) {
            self.put(Key::Hold(id, client), Part::Mark);
            self.put(Key::Held(client, id), Part::Mark);
            inode.holders += 1;
            self.put_inode(id, inode);
        }
        Ok(Done::Held)
    }

    /// A client holds an orphan no more.
    pub(crate) fn release(&mut self, id: InodeId, client: ClientId) -> Result<Fate, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        if !self.has(&Key::Hold(id, client)) {
            return Err(NameError::NotHeld { inode: id, client });
        }
        self.remove(Key::Hold(id, client));
        self.remove(Key::Held(client, id));
        inode.holders = inode.holders.saturating_sub(1);
        let holders = inode.holders;
        self.put_inode(id, inode);
        if holders == 0 { self.doom(id) } else { Ok(Fate::Orphan { holders }) }
    }

    /// Nobody can reach an inode any more. Its data is to be removed everywhere, if it has some.
    fn doom(&mut self, id: InodeId) -> Result<Fate, NameError> {
        let inode = self.inode(id)?;
        if inode.xattrs > 0 {
            let first = Key::Xattr(id, XattrName::first());
            let page = self.page(Bound::Included(&first), inode.xattrs.into());
            let own = page
                .into_iter()
                .map(|(key, _)| key)
                .take_while(|key| matches!(key, Key::Xattr(of, _) if *of == id));
            own.for_each(|key| self.remove(key));
        }
        self.drop_locks(id);
        self.remove(Key::Orphan(id));
        self.remove(Key::Inode(id));
        if let Some(lent) = inode.lent() {
            self.leave_lender(lent, id);
        }
        if let Body::File { size, replicas, lent, last_lend } = &inode.body
            && (lent.is_some() || last_lend.is_some())
        {
            let doomed = Doomed { replicas: replicas.clone(), size: *size };
            self.put(Key::Doomed(id), Part::Doomed(Arc::new(doomed)));
            return Ok(Fate::Doomed);
        }
        // What was never lent has a size only if somebody has set it here.
        self.forget_inode(if let Body::File { size, .. } = inode.body { size } else { 0 });
        Ok(Fate::Gone)
    }

    /// The data of what was doomed is gone.
    pub(crate) fn deleted(&mut self, inode: InodeId) -> Result<Done, NameError> {
        let Some(Part::Doomed(doomed)) = self.get(&Key::Doomed(inode)) else {
            return Err(NameError::NotDoomed { inode });
        };
        self.remove(Key::Doomed(inode));
        self.forget_inode(doomed.size);
        Ok(Done::Deleted)
    }

    fn forget_inode(&mut self, bytes: u64) {
        let mut volume = self.volume();
        volume.inodes = volume.inodes.saturating_sub(1);
        volume.bytes = volume.bytes.saturating_sub(bytes.into());
        self.put_volume(volume);
    }
}

impl Site {
    /// Refuses a name that names something else than it was taken for.
    pub(crate) fn check(&self, entry: Option<Entry>) -> Result<(), NameError> {
        let is_as_expected = match self.expect {
            Expect::Any => true,
            Expect::Nothing => entry.is_none(),
            Expect::Inode(inode) => entry.is_some_and(|entry| entry.inode == inode),
        };
        if is_as_expected { Ok(()) } else { Err(NameError::Stale { dir: self.dir }) }
    }
}

/// An entry has room for so many.
pub(crate) const fn check_holders(holders: &[ClientId]) -> Result<(), NameError> {
    if holders.len() > HOLDERS_MAX {
        return Err(NameError::TooManyHolders { count: holders.len() as u64 });
    }
    Ok(())
}
