//! Other names for what there is.

use std::sync::Arc;

use base::ClientId;

use crate::draft::Draft;
use crate::limits::{DEPTH_MAX, LINKS_MAX};
use crate::remove::{Found, check_holders};
use crate::{
    Body, Done, Entry, Inode, InodeId, Key, Kind, NameError, Part, RenameHow, Rights, Site, Table, Who,
};

/// A renaming whose names were looked up.
struct Renaming<'o> {
    from: &'o Site,
    to: &'o Site,
    from_dir: Arc<Inode>,
    to_dir: Arc<Inode>,
    source: Entry,
    target: Option<Entry>,
    is_exchange: bool,
}

impl Renaming<'_> {
    fn is_within(&self) -> bool {
        self.from.dir == self.to.dir
    }

    fn moves_directory(&self) -> bool {
        self.source.kind == Kind::Directory
    }

    fn meets_directory(&self) -> bool {
        self.target.is_some_and(|target| target.kind == Kind::Directory)
    }
}

impl<T: Table> Draft<'_, T> {
    /// Gives something another name.
    pub(crate) fn rename(
        &mut self,
        who: &Who,
        (from, to): (&Site, &Site),
        how: RenameHow,
        holders: &[ClientId],
    ) -> Result<Done, NameError> {
        check_holders(holders)?;
        let renaming = self.look_up(who, (from, to), how)?;
        let (source, target) = (renaming.source, renaming.target);
        self.check_loops(&renaming)?;
        if target.is_some_and(|target| target.inode == source.inode) {
            return Ok(Done::Renamed { moved: source.inode, other: None, fate: None });
        }
        self.check_names(&renaming, who)?;
        self.check_kinds(&renaming)?;
        self.check_moves(&renaming, who)?;

        let other = target.map(|target| target.inode);
        let fate = if renaming.is_exchange {
            self.exchange(&renaming)?;
            None
        } else {
            self.replace(&renaming, holders)?
        };
        Ok(Done::Renamed { moved: source.inode, other, fate })
    }

    fn look_up<'o>(
        &self,
        who: &Who,
        (from, to): (&'o Site, &'o Site),
        how: RenameHow,
    ) -> Result<Renaming<'o>, NameError> {
        let Found { dir: from_dir, entry: source } = self.find(who, from)?;
        let Found { dir: to_dir, entry: target } = self.find(who, to)?;
        let source = source.ok_or(NameError::NoEntry { dir: from.dir })?;
        match (how, target) {
            (RenameHow::NoReplace, Some(Entry { inode, .. })) => return Err(NameError::Exists { inode }),
            (RenameHow::Exchange, None) => return Err(NameError::NoEntry { dir: to.dir }),
            // It is in no other directory any more, so that nobody can ask whether it is below what is moved.
            (_, None) if to_dir.links == 0 => return Err(NameError::NoEntry { dir: to.dir }),
            _ => {}
        }
        from.check(Some(source))?;
        to.check(target)?;
        let is_exchange = how == RenameHow::Exchange;
        Ok(Renaming { from, to, from_dir, to_dir, source, target, is_exchange })
    }

    /// No directory comes to be below itself.
    fn check_loops(&self, renaming: &Renaming<'_>) -> Result<(), NameError> {
        let Renaming { from, to, source, target, .. } = renaming;
        if renaming.is_within() {
            return Ok(());
        }
        if renaming.moves_directory() {
            self.check_not_below(to.dir, source.inode)?;
        }
        match target {
            Some(target) if renaming.is_exchange && target.kind == Kind::Directory => {
                self.check_not_below(from.dir, target.inode)
            }
            _ => Ok(()),
        }
    }

    fn check_not_below(&self, dir: InodeId, moved: InodeId) -> Result<(), NameError> {
        let mut above = dir;
        for _ in 0..DEPTH_MAX {
            if above == moved {
                return Err(NameError::Loop { dir: moved });
            }
            match self.inode(above)?.body {
                Body::Directory { parent, .. } if parent != above => above = parent,
                _ => return Ok(()),
            }
        }
        Err(NameError::TooDeep { dir })
    }

    /// The names may be changed.
    fn check_names(&self, renaming: &Renaming<'_>, who: &Who) -> Result<(), NameError> {
        let Renaming { from, to, from_dir, to_dir, source, target, .. } = renaming;
        let moved = self.inode(source.inode)?;
        self.allow_removal((from.dir, from_dir), (source.inode, &moved), who)?;
        match target {
            Some(target) => {
                let other = self.inode(target.inode)?;
                self.allow_removal((to.dir, to_dir), (target.inode, &other), who)
            }
            None => self.allow_new_name((to.dir, to_dir), who),
        }
    }

    /// Only an empty directory gives way to a directory, and only something else to something else.
    fn check_kinds(&self, renaming: &Renaming<'_>) -> Result<(), NameError> {
        let Some(Entry { inode, .. }) = renaming.target.filter(|_| !renaming.is_exchange) else {
            return Ok(());
        };
        match (renaming.moves_directory(), &self.inode(inode)?.body) {
            (true, Body::Directory { entries: 0, .. }) => Ok(()),
            (true, Body::Directory { .. }) => Err(NameError::NotEmpty { dir: inode }),
            (true, _) => Err(NameError::NotDirectory { inode }),
            (false, Body::Directory { .. }) => Err(NameError::IsDirectory { inode }),
            (false, _) => Ok(()),
        }
    }

    /// A directory that gets another parent is changed itself, and its new parent has room for it.
    fn check_moves(&self, renaming: &Renaming<'_>, who: &Who) -> Result<(), NameError> {
        if renaming.is_within() {
            return Ok(());
        }
        let Renaming { from, to, from_dir, to_dir, source, target, is_exchange } = renaming;
        let mut moved = vec![];
        if renaming.moves_directory() {
            moved.push((source.inode, to.dir, to_dir));
        }
        if let Some(target) = target.filter(|target| *is_exchange && target.kind == Kind::Directory) {
            moved.push((target.inode, from.dir, from_dir));
        }
        let is_swap = renaming.moves_directory() && renaming.meets_directory();
        for (id, parent_id, parent) in moved {
            self.allow((id, &*self.inode(id)?), who, Rights::WRITE)?;
            if !is_swap && parent.links >= LINKS_MAX {
                return Err(NameError::TooManyLinks { inode: parent_id });
            }
        }
        Ok(())
    }

    fn replace(
        &mut self,
        renaming: &Renaming<'_>,
        holders: &[ClientId],
    ) -> Result<Option<crate::Fate>, NameError> {
        let Renaming { from, to, source, target, .. } = renaming;
        let (came, went) = (i8::from(renaming.moves_directory()), i8::from(renaming.meets_directory()));
        let lost = i8::from(target.is_some());
        self.remove(Key::Entry(from.dir, from.name.clone()));
        self.put(Key::Entry(to.dir, to.name.clone()), Part::Entry(*source));
        if renaming.is_within() {
            self.change_entries(from.dir, -lost, -went)?;
        } else {
            self.change_entries(from.dir, -1, -came)?;
            self.change_entries(to.dir, 1 - lost, came - went)?;
        }
        self.move_to(source.inode, to.dir)?;
        target.map(|target| self.lose_name(target.inode, holders)).transpose()
    }

    fn exchange(&mut self, renaming: &Renaming<'_>) -> Result<(), NameError> {
        let Renaming { from, to, source, target, .. } = renaming;
        let Some(target) = target else { return Ok(()) };
        self.put(Key::Entry(from.dir, from.name.clone()), Part::Entry(*target));
        self.put(Key::Entry(to.dir, to.name.clone()), Part::Entry(*source));
        if renaming.is_within() {
            self.change_entries(from.dir, 0, 0)?;
        } else {
            let (goes, comes) = (i8::from(renaming.moves_directory()), i8::from(renaming.meets_directory()));
            self.change_entries(from.dir, 0, comes - goes)?;
            self.change_entries(to.dir, 0, goes - comes)?;
        }
        self.move_to(source.inode, to.dir)?;
        self.move_to(target.inode, from.dir)
    }

    /// An inode has another name, in this directory.
    fn move_to(&mut self, inode: InodeId, dir: InodeId) -> Result<(), NameError> {
        self.change(inode, |inode, _| {
            if let Body::Directory { parent, .. } = &mut inode.body {
                *parent = dir;
            }
        })?;
        Ok(())
    }
}
