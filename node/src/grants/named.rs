//! What a change of a tree touches.

use namespace::{Change, Expect, InodeId, Key, Name, Part, Site};

use crate::file::Names;

/// What a change names, as whoever asks for it can tell without the tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// Names that may name something else afterwards.
    pub names: Vec<(InodeId, Name)>,
    /// Inodes that may be different afterwards.
    pub inodes: Vec<InodeId>,
    /// Those of them about which more or less may be allowed.
    pub rights: Vec<InodeId>,
}

impl Named {
    /// What is named by this change.
    pub fn by(change: &Change) -> Self {
        let mut named = Self::default();
        match change {
            Change::Create { dir, name, .. } | Change::Enter { dir, name, .. } => named.enter(*dir, name),
            Change::Link { inode, dir, name } => {
                named.enter(*dir, name);
                named.inodes.push(*inode);
            }
            Change::Unlink { site, .. } | Change::RemoveDirectory { site, .. } => named.site(site),
            Change::Rename { from, to, .. } => [from, to].into_iter().for_each(|site| named.site(site)),
            Change::SetAttributes { inode, .. }
            | Change::SetXattr { inode, .. }
            | Change::RemoveXattr { inode, .. } => {
                named.inodes.push(*inode);
                named.rights.push(*inode);
            }
            Change::Lend { inode, .. } => named.inodes.push(*inode),
            // What is lent, and what has no name, nobody has in a cache; and locks and clients neither.
            Change::GiveBack { .. }
            | Change::Return { .. }
            | Change::Hold { .. }
            | Change::Release { .. }
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
        named
    }

    fn enter(&mut self, dir: InodeId, name: &Name) {
        self.names.push((dir, name.clone()));
        self.inodes.push(dir);
    }

    fn site(&mut self, Site { dir, name, expect }: &Site) {
        self.enter(*dir, name);
        if let Expect::Inode(inode) = expect {
            self.inodes.push(*inode);
            self.rights.push(*inode);
        }
    }
}

/// All that a change touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) named: Named,
    /// What its session need not know to be touched: what has one of its names.
    pub(crate) found: Vec<InodeId>,
    /// Directories that may be elsewhere afterwards, or gone.
    pub(crate) moved: Vec<InodeId>,
    /// Whether what has the names counts.
    pub(crate) resolves: bool,
}

impl Touched {
    /// What is touched by this change, as long as the names mean what they do.
    pub(crate) fn by(change: &Change, tree: &Names) -> Self {
        let named = Named::by(change);
        let resolves =
            matches!(change, Change::Unlink { .. } | Change::RemoveDirectory { .. } | Change::Rename { .. });
        let found = named.names.iter().filter(|_| resolves).filter_map(|(dir, name)| {
            match tree.part(&Key::Entry(*dir, name.clone())) {
                Some(Part::Entry(entry)) => Some(entry.inode),
                _ => None,
            }
        });
        let found: Vec<InodeId> = found.filter(|inode| !named.inodes.contains(inode)).collect();
        // What loses a name is named with its rights.
        let loses = named.rights.iter().chain(&found).copied();
        let moved = loses.filter(|inode| resolves && is_directory(tree, *inode)).collect();
        Self { named, found, moved, resolves }
    }

    /// What touches a volume as a whole that has nothing but a root.
    pub(crate) fn root() -> Self {
        Self { found: vec![InodeId::ROOT], ..Self::default() }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.named.inodes.is_empty() && self.found.is_empty()
    }

    /// Each inode, and whether whoever asks for the change knows that it is touched.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = (InodeId, bool)> {
        let named = self.named.inodes.iter().map(|&inode| (inode, true));
        named.chain(self.found.iter().map(|&inode| (inode, false)))
    }
}

pub(crate) fn is_directory(tree: &Names, inode: InodeId) -> bool {
    matches!(tree.part(&Key::Inode(inode)), Some(Part::Inode(found)) if found.is_directory())
}
