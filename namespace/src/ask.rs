//! Answers.

use std::ops::Bound;

use base::ClientId;

use crate::draft::Draft;
use crate::limits::{ATTRIBUTES_BYTES, LISTED_BYTES, PAGE_BYTES_MAX, PAGE_MAX};
use crate::{
    Answer, Ask, Body, Entry, InodeId, Key, Listed, Name, NameError, Page, Part, Query, Rights, Space, Table,
    Who, Wish, XattrName,
};

/// A listing reads the table in runs of so many.
const RUN: usize = 64;

impl<T: Table> Draft<'_, T> {
    /// Answers a question.
    pub(crate) fn answer(&self, Query { who, ask }: &Query) -> Result<Answer, NameError> {
        match ask {
            Ask::Lookup { dir, name } => self.lookup(who, *dir, name),
            Ask::Attributes { inode } => self.attributes(*inode),
            Ask::List { dir, after, entries_max, with_attributes } => {
                self.list(*dir, after.as_ref(), (*entries_max, *with_attributes))
            }
            Ask::Readlink { inode } => match &self.inode(*inode)?.body {
                Body::Symlink { target } => Ok(Answer::Target(target.clone())),
                _ => Err(NameError::WrongKind { inode: *inode }),
            },
            Ask::GetXattr { inode, name } => self.get_xattr(who, *inode, name),
            Ask::ListXattrs { inode } => self.list_xattrs(who, *inode),
            Ask::Access { inode, rights } => {
                let found = self.inode(*inode)?;
                self.allow((*inode, &found), who, *rights)?;
                Ok(Answer::Attributes(found.attributes(*inode)))
            }
            Ask::Statfs => Ok(Answer::Volume(self.volume())),
            Ask::TestLock { inode, lock } => {
                let lock = lock.checked()?;
                self.inode(*inode)?;
                let locks = self.locks(*inode);
                Ok(Answer::InTheWay(locks.and_then(|locks| locks.in_the_way(&lock).copied())))
            }
            Ask::Wish { inode, lock, ticket } => {
                let lock = lock.checked()?;
                self.inode(*inode)?;
                self.check_client(lock.owner.client)?;
                let locks = self.locks(*inode);
                Ok(Answer::Wish(locks.map_or(Wish::Gone, |locks| locks.wish(*ticket, &lock))))
            }
            Ask::Locks { inode } => self.inode(*inode).map(|_| Answer::Locks(self.locks(*inode))),
            Ask::Orphans { .. } | Ask::Doomed { .. } | Ask::Clients { .. } | Ask::Holds { .. } => {
                Ok(self.answer_page(ask))
            }
        }
    }

    fn attributes(&self, inode: InodeId) -> Result<Answer, NameError> {
        Ok(Answer::Attributes(self.inode(inode)?.attributes(inode)))
    }

    fn lookup(&self, who: &Who, dir: InodeId, name: &Name) -> Result<Answer, NameError> {
        let found = self.directory(dir)?;
        self.allow((dir, &found), who, Rights::EXECUTE)?;
        let Entry { inode, .. } = self.entry((dir, name)).ok_or(NameError::NoEntry { dir })?;
        self.attributes(inode)
    }

    fn list(
        &self,
        dir: InodeId,
        after: Option<&Name>,
        (entries_max, with_attributes): (u32, bool),
    ) -> Result<Answer, NameError> {
        self.directory(dir)?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut last = Key::Entry(dir, after.cloned().unwrap_or_else(Name::first));
        loop {
            let run = self.page(Bound::Excluded(&last), RUN);
            let is_end = run.len() < RUN;
            for (key, part) in run {
                last = key;
                let (Key::Entry(of, name), Part::Entry(Entry { inode, kind })) = (&last, part) else {
                    return Ok(Answer::Page(Page { entries, is_last: true }));
                };
                if *of != dir {
                    return Ok(Answer::Page(Page { entries, is_last: true }));
                }
                bytes += LISTED_BYTES + name.as_bytes().len();
                bytes += if with_attributes { ATTRIBUTES_BYTES } else { 0 };
                if entries.len() as u64 >= u64::from(entries_max) || bytes > PAGE_BYTES_MAX {
                    return Ok(Answer::Page(Page { entries, is_last: false }));
                }
                let found = if with_attributes { Some(self.inode(inode)?.attributes(inode)) } else { None };
                entries.push(Listed { name: name.clone(), inode, kind, attributes: found });
            }
            if is_end {
                return Ok(Answer::Page(Page { entries, is_last: true }));
            }
        }
    }

    fn get_xattr(&self, who: &Who, inode: InodeId, name: &XattrName) -> Result<Answer, NameError> {
        let found = self.inode(inode)?;
        self.allow_xattr((inode, &found), who, name, false)?;
        let value = self.value(inode, name.clone()).ok_or(NameError::NoXattr { inode })?;
        Ok(Answer::Value((*value).clone()))
    }

    fn list_xattrs(&self, who: &Who, inode: InodeId) -> Result<Answer, NameError> {
        let count = self.inode(inode)?.xattrs.into();
        let from = Key::Xattr(inode, XattrName::first());
        let names = self.page(Bound::Included(&from), count).into_iter().map_while(|(key, _)| match key {
            Key::Xattr(of, name) if of == inode => Some(name),
            _ => None,
        });
        let seen = names.filter(|name| who.is_root() || name.space() != Space::Trusted);
        Ok(Answer::Names(seen.collect()))
    }

    /// A page of the inodes or clients that there are of a sort.
    fn answer_page(&self, ask: &Ask) -> Answer {
        match ask {
            Ask::Orphans { after } => Answer::Inodes(self.keys(
                after.map_or(Bound::Included(Key::Orphan(InodeId::FIRST)), |after| {
                    Bound::Excluded(Key::Orphan(after))
                }),
                |key, _| if let Key::Orphan(inode) = key { Some(inode) } else { None },
            )),
            Ask::Doomed { after } => Answer::Doomed(self.keys(
                after.map_or(Bound::Included(Key::Doomed(InodeId::FIRST)), |after| {
                    Bound::Excluded(Key::Doomed(after))
                }),
                |key, part| match (key, part) {
                    (Key::Doomed(inode), Part::Doomed(doomed)) => Some((inode, doomed.replicas.clone())),
                    _ => None,
                },
            )),
            Ask::Holds { client, after } => Answer::Inodes(self.keys(
                after.map_or(Bound::Included(Key::Held(*client, InodeId::FIRST)), |after| {
                    Bound::Excluded(Key::Held(*client, after))
                }),
                |key, _| match key {
                    Key::Held(of, inode) if of == *client => Some(inode),
                    _ => None,
                },
            )),
            Ask::Clients { after } => Answer::Clients(self.keys(
                after.map_or(Bound::Included(Key::Client(FIRST_CLIENT)), |after| {
                    Bound::Excluded(Key::Client(after))
                }),
                |key, part| match (key, part) {
                    (Key::Client(client), Part::Client(state)) => Some((client, state)),
                    _ => None,
                },
            )),
            _ => Answer::Inodes(Vec::new()),
        }
    }

    /// A page of what `read` makes of parts, up to the first that it makes nothing of.
    fn keys<R>(&self, from: Bound<Key>, read: impl Fn(Key, Part) -> Option<R>) -> Vec<R> {
        let page = self.page(from.as_ref(), PAGE_MAX);
        page.into_iter().map_while(|(key, part)| read(key, part)).collect()
    }
}

const FIRST_CLIENT: ClientId = ClientId { certificate: 0, program: 0 };
