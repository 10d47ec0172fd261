//! Making, linking, removing and renaming.

use base::{ClientId, Seq, WallTime};
use namespace::{
    Born, Change, Done, Expect, Fate, Generation, InodeId, Kind, Lent, LentTo, Make, Name, NameError, Op,
    RenameHow, Rights, Site, Who, limits,
};

use crate::state::{Model, Node};

impl Model {
    pub(crate) fn create(&mut self, at: Born, op: &Op) -> Result<Done, NameError> {
        let Change::Create { dir, ref name, ref make, is_exclusive, lends, .. } = op.change else {
            unreachable!("it is asked to create")
        };
        let directory = self.directory(dir)?;
        directory.need(&op.who, Rights::EXECUTE, dir)?;
        let is_file = make.kind() == Kind::File;
        if let Some(&inode) = directory.children.get(name) {
            let attributes = self.attributes(inode)?;
            let is_fine = is_file && !is_exclusive;
            return if is_fine {
                Ok(Done::Created { attributes, is_new: false })
            } else {
                Err(NameError::Exists { inode })
            };
        }
        self.may_add(dir, &op.who)?;
        if matches!(make, Make::CharDevice { .. } | Make::BlockDevice { .. }) && !op.who.is_root() {
            return Err(NameError::NotPermitted { inode: dir });
        }
        self.has_room_for(make.kind())?;
        let inode = InodeId::of(at);
        let mut node = newborn(directory, op);
        let is_lendable = matches!(node.kind, Kind::File | Kind::Directory);
        if lends && is_lendable && node.mode & 0o6000 == 0 && node.default_acl.is_none() {
            self.record(op.client)?;
            node.lent = Some(Lent { generation: Generation(at), to: LentTo::Client(op.client) });
        }
        self.nodes.insert(inode, node);
        self.add(dir, name, inode, op.time);
        Ok(Done::Created { attributes: self.attributes(inode)?, is_new: true })
    }

    /// The sizes of all files together may come to this.
    pub(crate) fn room(&self) -> u128 {
        match self.bytes_max {
            limits::BYTES_MAX_DEFAULT => u128::MAX,
            bytes_max => bytes_max.into(),
        }
    }

    fn has_room_for(&self, kind: Kind) -> Result<(), NameError> {
        let volume = self.volume();
        if kind == Kind::File && volume.bytes >= self.room() {
            return Err(NameError::NoSpace { bytes_max: volume.bytes_max });
        }
        if volume.inodes >= volume.inodes_max {
            return Err(NameError::NoInodes { inodes_max: volume.inodes_max });
        }
        Ok(())
    }

    /// What a client has created by itself gets the number that it says, in a directory that is its alone.
    pub(crate) fn enter(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::Enter { dir, under, number, ref name, ref replicas, mode, created } = op.change else {
            unreachable!("it is asked to enter")
        };
        let lent = Lent { generation: under, to: LentTo::Client(op.client) };
        let directory = self.directory(dir)?;
        let gives_more = directory.mode & 0o2000 != 0 || directory.default_acl.is_some();
        let not_lent = Err(NameError::NotLent { inode: dir, generation: under });
        let Some(inode) = InodeId::under(under, number) else { return not_lent };
        let was_given = self.nodes.contains_key(&inode) || self.doomed.contains_key(&inode);
        if directory.lent != Some(lent) || gives_more || was_given {
            return not_lent;
        }
        directory.need(&op.who, Rights::EXECUTE, dir)?;
        if let Some(&inode) = directory.children.get(name) {
            return Err(NameError::Exists { inode });
        }
        self.may_add(dir, &op.who)?;
        let (mtime, ctime) = (directory.mtime.max(created), directory.ctime.max(created));
        self.has_room_for(Kind::File)?;
        self.record(op.client)?;
        let mut node = Node::new(Kind::File, mode & 0o777, (op.who.uid(), op.who.gid()), created);
        (node.replicas, node.lent) = (Some(replicas.clone()), Some(lent));
        self.nodes.insert(inode, node);
        self.add(dir, name, inode, op.time);
        let directory = self.node_mut(dir);
        (directory.mtime, directory.ctime) = (mtime, ctime);
        Ok(Done::Created { attributes: self.attributes(inode)?, is_new: true })
    }

    /// Who has to know a directory, or would change it, waits until another client has given it back.
    pub(crate) fn knows_dirs(&self, op: &Op) -> Result<(), NameError> {
        let named = |site: &Site| {
            let dir = self.nodes.get(&site.dir);
            dir.and_then(|dir| dir.children.get(&site.name)).copied().unwrap_or(site.dir)
        };
        let all = match op.change {
            Change::Create { dir, .. } | Change::Enter { dir, .. } | Change::Link { dir, .. } => vec![dir],
            Change::Unlink { ref site, .. } => vec![site.dir],
            Change::RemoveDirectory { ref site, .. } => vec![site.dir, named(site)],
            Change::Rename { ref from, ref to, .. } => vec![from.dir, to.dir, named(to)],
            Change::SetAttributes { inode, .. }
            | Change::SetXattr { inode, .. }
            | Change::RemoveXattr { inode, .. } => vec![inode],
            _ => Vec::new(),
        };
        let mut dirs = all.into_iter().filter(|dir| self.nodes.get(dir).is_some_and(Node::is_directory));
        dirs.try_for_each(|dir| self.knows_mode(dir, op))
    }

    /// Nothing comes to be in a directory that has been removed. To add to another takes the rights to write and to search
    /// together: one entry of an ACL has to give both.
    fn may_add(&self, dir: InodeId, who: &Who) -> Result<(), NameError> {
        if self.links(dir) == 0 {
            return Err(NameError::NoEntry { dir });
        }
        self.nodes[&dir].need(who, Rights::CHANGE, dir)
    }

    fn add(&mut self, dir: InodeId, name: &Name, inode: InodeId, time: WallTime) {
        let directory = self.node_mut(dir);
        directory.children.insert(name.clone(), inode);
        directory.mark_content(time);
    }

    fn take(&mut self, site: &Site, time: WallTime) {
        let directory = self.node_mut(site.dir);
        directory.children.remove(&site.name);
        directory.mark_content(time);
    }

    pub(crate) fn link(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::Link { inode, dir, ref name } = op.change else { unreachable!("it is asked to link") };
        self.node(inode)?;
        let directory = self.directory(dir)?;
        directory.need(&op.who, Rights::EXECUTE, dir)?;
        if let Some(&inode) = directory.children.get(name) {
            return Err(NameError::Exists { inode });
        }
        self.may_add(dir, &op.who)?;
        if self.nodes[&inode].is_directory() {
            return Err(NameError::NotPermitted { inode });
        }
        if self.links(inode) == 0 {
            return Err(NameError::Orphan { inode });
        }
        self.add(dir, name, inode, op.time);
        self.node_mut(inode).mark(op.time);
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }

    /// What a name names, for those who may search.
    fn find(&self, site: &Site, who: &Who) -> Result<Option<InodeId>, NameError> {
        let directory = self.directory(site.dir)?;
        directory.need(who, Rights::EXECUTE, site.dir)?;
        Ok(directory.children.get(&site.name).copied())
    }

    /// Whether somebody may take a name away, in a sticky directory too, from what is a directory or is none.
    fn may_take(&self, site: &Site, inode: InodeId, who: &Who, as_directory: bool) -> Result<(), NameError> {
        let (directory, node) = (&self.nodes[&site.dir], &self.nodes[&inode]);
        directory.need(who, Rights::CHANGE, site.dir)?;
        let is_sticky = directory.mode & 0o1000 != 0;
        if is_sticky && !node.is_owned_by(who) && !directory.is_owned_by(who) {
            return Err(NameError::NotPermitted { inode });
        }
        match (as_directory, node.is_directory()) {
            (true, false) => Err(NameError::NotDirectory { inode }),
            (false, true) => Err(NameError::IsDirectory { inode }),
            _ => Ok(()),
        }
    }

    /// Unlinks, or removes a directory.
    pub(crate) fn remove(
        &mut self,
        op: &Op,
        site: &Site,
        holders: &[ClientId],
        as_directory: bool,
    ) -> Result<Done, NameError> {
        few(holders)?;
        let inode = self.find(site, &op.who)?.ok_or(NameError::NoEntry { dir: site.dir })?;
        expected(site, Some(inode))?;
        self.may_take(site, inode, &op.who, as_directory)?;
        if !self.nodes[&inode].children.is_empty() {
            return Err(NameError::NotEmpty { dir: inode });
        }
        self.take(site, op.time);
        self.node_mut(inode).mark(op.time);
        Ok(Done::Removed { inode, fate: self.lost_name(inode, holders)? })
    }

    pub(crate) fn unlink(
        &mut self,
        op: &Op,
        site: &Site,
        holders: &[ClientId],
        removed: Option<WallTime>,
    ) -> Result<Done, NameError> {
        let Some(removed) = removed else { return self.remove(op, site, holders, false) };
        let InodeId { number, epoch } = site.dir;
        let generation = Generation(Born { epoch, seq: Seq(number) });
        let directory = self.directory(site.dir)?;
        if directory.lent != Some(Lent { generation, to: LentTo::Client(op.client) }) {
            return Err(NameError::NotLent { inode: site.dir, generation });
        }
        let (mtime, ctime) = (directory.mtime.max(removed), directory.ctime.max(removed));
        let done = self.remove(op, site, holders, false)?;
        let directory = self.node_mut(site.dir);
        (directory.mtime, directory.ctime) = (mtime, ctime);
        Ok(done)
    }

    pub(crate) fn rename(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::Rename { ref from, ref to, how, ref holders } = op.change else {
            unreachable!("it is asked to rename")
        };
        few(holders)?;
        let moved = self.find(from, &op.who)?;
        let there = self.find(to, &op.who)?;
        let moved = moved.ok_or(NameError::NoEntry { dir: from.dir })?;
        match (how, there) {
            (RenameHow::NoReplace, Some(inode)) => return Err(NameError::Exists { inode }),
            (RenameHow::Exchange, None) => return Err(NameError::NoEntry { dir: to.dir }),
            (_, None) if self.links(to.dir) == 0 => return Err(NameError::NoEntry { dir: to.dir }),
            _ => {}
        }
        expected(from, Some(moved))?;
        expected(to, there)?;
        if self.is_below(to.dir, moved) {
            return Err(NameError::Loop { dir: moved });
        }
        let is_exchange = how == RenameHow::Exchange;
        if let Some(dir) = there.filter(|&there| is_exchange && self.is_below(from.dir, there)) {
            return Err(NameError::Loop { dir });
        }
        if there == Some(moved) {
            return Ok(Done::Renamed { moved, other: None, fate: None });
        }
        self.may_rename(op, moved, there)?;
        let fate = self.swap(op, moved, there)?;
        Ok(Done::Renamed { moved, other: there, fate })
    }

    fn may_rename(&self, op: &Op, moved: InodeId, there: Option<InodeId>) -> Result<(), NameError> {
        let Change::Rename { ref from, ref to, how, .. } = op.change else {
            unreachable!("it is asked to rename")
        };
        let is_directory = |inode: InodeId| self.nodes[&inode].is_directory();
        let is_exchange = how == RenameHow::Exchange;
        self.may_take(from, moved, &op.who, is_directory(moved))?;
        match there {
            None => self.may_add(to.dir, &op.who)?,
            Some(there) => {
                let like = if is_exchange { there } else { moved };
                self.may_take(to, there, &op.who, is_directory(like))?;
            }
        }
        if let Some(dir) = there.filter(|there| !is_exchange && !self.nodes[there].children.is_empty()) {
            return Err(NameError::NotEmpty { dir });
        }
        // What comes to be in another directory has its `..` changed.
        let turned = [Some(moved), there.filter(|_| is_exchange)];
        for inode in turned.into_iter().flatten().filter(|&inode| from.dir != to.dir && is_directory(inode)) {
            self.nodes[&inode].need(&op.who, Rights::WRITE, inode)?;
        }
        Ok(())
    }

    fn swap(&mut self, op: &Op, moved: InodeId, there: Option<InodeId>) -> Result<Option<Fate>, NameError> {
        let Change::Rename { ref from, ref to, how, ref holders } = op.change else {
            unreachable!("it is asked to rename")
        };
        self.take(from, op.time);
        self.add(to.dir, &to.name, moved, op.time);
        self.node_mut(moved).mark(op.time);
        let Some(there) = there else { return Ok(None) };
        self.node_mut(there).mark(op.time);
        if how == RenameHow::Exchange {
            self.add(from.dir, &from.name, there, op.time);
            return Ok(None);
        }
        self.lost_name(there, holders).map(Some)
    }
}

/// What is made in a directory.
fn newborn(directory: &Node, op: &Op) -> Node {
    let Change::Create { ref make, mode, umask, .. } = op.change else {
        unreachable!("it is asked to create")
    };
    let (kind, who) = (make.kind(), &op.who);
    let mut mode = if kind == Kind::Directory { mode & 0o1777 } else { mode & 0o7777 };
    let mut gid = who.gid();
    if directory.mode & 0o2000 != 0 {
        gid = directory.gid;
        if kind == Kind::Directory {
            mode |= 0o2000;
        } else if mode & 0o2010 == 0o2010 && !who.is_root() && !who.is_in(gid) {
            mode &= !0o2000;
        }
    }
    let mut node = Node::new(kind, mode, (who.uid(), gid), op.time);
    match (kind, &directory.default_acl) {
        (Kind::Symlink, _) => node.mode = 0o777,
        (_, None) => node.mode &= !umask,
        (_, Some(default)) => {
            let mut acl = default.clone();
            acl.chmod(default.mode() & mode);
            node.mode = mode & 0o7000 | acl.mode();
            node.acl = acl.unless_mode();
            node.default_acl = (kind == Kind::Directory).then(|| default.clone());
        }
    }
    match make {
        Make::File { replicas } => node.replicas = Some(replicas.clone()),
        Make::Symlink { target } => node.target = Some(target.clone()),
        Make::CharDevice { rdev } | Make::BlockDevice { rdev } => node.rdev = *rdev,
        Make::Directory | Make::Fifo | Make::Socket => {}
    }
    node
}

/// A name must name what it is taken to name.
fn expected(site: &Site, found: Option<InodeId>) -> Result<(), NameError> {
    let is_expected = match site.expect {
        Expect::Any => true,
        Expect::Nothing => found.is_none(),
        Expect::Inode(inode) => found == Some(inode),
    };
    if is_expected { Ok(()) } else { Err(NameError::Stale { dir: site.dir }) }
}

fn few(holders: &[ClientId]) -> Result<(), NameError> {
    let count = holders.len() as u64;
    if holders.len() > limits::HOLDERS_MAX { Err(NameError::TooManyHolders { count }) } else { Ok(()) }
}
