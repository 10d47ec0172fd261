//! Which operations might change the answer to a question.

use std::iter::once;

use crate::draft::Draft;
use crate::{Ask, Body, Change, Expect, InodeId, LentTo, Name, Query, Site, Space, Table};

/// What an operation might change.
#[derive(Default)]
struct Touched<'o> {
    names: Vec<(InodeId, &'o Name)>,
    /// Inodes that may look different, or be gone.
    inodes: Vec<InodeId>,
    /// Those of them of which more or less may be allowed.
    rights: Vec<InodeId>,
}

impl<T: Table> Draft<'_, T> {
    /// Whether `change` might change the answer to a question. When in doubt: yes.
    pub(crate) fn overlaps(&self, change: &Change, Query { ask, .. }: &Query) -> bool {
        let touched = self.touched(change);
        let meets = |inode: &InodeId| touched.inodes.contains(inode);
        let ends_client = matches!(change, Change::Expire { .. });
        // What has no name any more may be gone with whoever holds it.
        let may_end = |inode| ends_client && self.inode(inode).is_ok_and(|found| found.links == 0);
        match ask {
            Ask::Lookup { dir, name } => {
                let target = self.entry((*dir, name)).map(|entry| entry.inode);
                touched.names.contains(&(*dir, name))
                    || touched.rights.contains(dir)
                    || may_end(*dir)
                    || target.is_some_and(|target| meets(&target))
            }
            Ask::List { dir, with_attributes, .. } => {
                touched.names.iter().any(|(of, _)| of == dir)
                    || touched.rights.contains(dir)
                    || may_end(*dir)
                    || *with_attributes && touched.inodes.iter().any(|inode| self.may_be_in(*inode, *dir))
            }
            Ask::Attributes { inode }
            | Ask::Readlink { inode }
            | Ask::GetXattr { inode, .. }
            | Ask::ListXattrs { inode }
            | Ask::Access { inode, .. } => meets(inode) || may_end(*inode),
            Ask::TestLock { inode, .. } | Ask::Wish { inode, .. } | Ask::Locks { inode } => {
                ends_client
                    || matches!(change, Change::Settle)
                    || locks(change) == Some(*inode)
                    || meets(inode)
            }
            Ask::Statfs => changes_counts(change),
            Ask::Orphans { .. } | Ask::Holds { .. } | Ask::Doomed { .. } | Ask::Clients { .. } => {
                changes_lists(change)
            }
        }
    }

    fn touched<'o>(&self, change: &'o Change) -> Touched<'o> {
        let mut touched = Touched::default();
        match change {
            Change::Create { dir, name, .. } | Change::Enter { dir, name, .. } => {
                touched.names.push((*dir, name));
                touched.inodes.push(*dir);
            }
            Change::Link { inode, dir, name } => {
                touched.names.push((*dir, name));
                touched.inodes.extend([*inode, *dir]);
            }
            Change::Unlink { site, .. } | Change::RemoveDirectory { site, .. } => {
                self.touch(&mut touched, site)
            }
            Change::Rename { from, to, .. } => {
                [from, to].iter().for_each(|site| self.touch(&mut touched, site))
            }
            Change::SetAttributes { inode, .. } => {
                touched.inodes.push(*inode);
                touched.rights.push(*inode);
            }
            Change::SetXattr { inode, name, .. } | Change::RemoveXattr { inode, name } => {
                touched.inodes.push(*inode);
                touched.rights.extend(once(*inode).filter(|_| name.space() == Space::AclAccess));
            }
            Change::Lend { inode, .. } | Change::Return { inode, .. } | Change::GiveBack { inode, .. } => {
                touched.inodes.push(*inode);
            }
            Change::Release { inode, .. } => {
                touched.inodes.push(*inode);
                touched.rights.push(*inode);
            }
            Change::Hold { .. }
            | Change::Deleted { .. }
            | Change::Lock { .. }
            | Change::Unlock { .. }
            | Change::Cancel { .. }
            | Change::Settle
            | Change::Welcome { .. }
            | Change::Expire { .. }
            | Change::Forget { .. }
            | Change::Limit { .. } => {}
        }
        touched
    }

    /// A name may name something else, and what it names may be gone.
    fn touch<'o>(&self, touched: &mut Touched<'o>, site: &'o Site) {
        let named = self.entry((site.dir, &site.name)).map(|entry| entry.inode);
        let expected = if let Expect::Inode(inode) = site.expect { Some(inode) } else { None };
        touched.names.push((site.dir, &site.name));
        touched.inodes.push(site.dir);
        touched.inodes.extend(named.into_iter().chain(expected));
        touched.rights.extend(named.into_iter().chain(expected));
    }

    /// Whether an inode may have a name in a directory.
    fn may_be_in(&self, inode: InodeId, dir: InodeId) -> bool {
        match self.inode(inode).map(|found| found.body.clone()) {
            Ok(Body::Directory { parent, .. }) => parent == dir,
            _ => true,
        }
    }
}

/// Of which file the operation changes locks.
const fn locks(change: &Change) -> Option<InodeId> {
    match change {
        Change::Lock { inode, .. } | Change::Unlock { inode, .. } | Change::Cancel { inode, .. } => {
            Some(*inode)
        }
        _ => None,
    }
}

/// Whether the operation may change how much there is of something.
const fn changes_counts(change: &Change) -> bool {
    !matches!(
        change,
        Change::SetXattr { .. }
            | Change::RemoveXattr { .. }
            | Change::Lend { to: LentTo::Content, .. }
            | Change::Return { .. }
            | Change::Unlock { .. }
            | Change::Cancel { .. }
            | Change::Settle
    )
}

/// Whether the operation may change which orphans, doomed inodes or clients there are.
const fn changes_lists(change: &Change) -> bool {
    matches!(
        change,
        Change::Unlink { .. }
            | Change::RemoveDirectory { .. }
            | Change::Rename { .. }
            | Change::Create { lends: true, .. }
            | Change::Enter { .. }
            | Change::Lend { to: LentTo::Client(_), .. }
            | Change::Hold { .. }
            | Change::Release { .. }
            | Change::Deleted { .. }
            | Change::Lock { .. }
            | Change::Welcome { .. }
            | Change::Expire { .. }
            | Change::Forget { .. }
    )
}
