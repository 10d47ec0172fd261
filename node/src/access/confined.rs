//! Clients to whom a directory of a volume is exported with what is below it, and nothing else.
//!
//! Where a directory is, is known: each says in which one it is. Where anything else is, is not, as it may have many
//! names. So whoever finds such an inode in a directory that it may see is told a [`Proof`] with it, and shows that whenever it asks
//! about the inode. Nobody has to remember that, and any daemon can check it.
//!
//! What a confined client calls the root is the directory that its rule names, whatever directory that is by now. What is moved out
//! of there is out of its reach, but for files that it was told of before.

use std::sync::Arc;

use base::WallTime;
use namespace::limits::DEPTH_MAX;
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Body, Change as TreeChange, Done as TreeDone, Inode, InodeId, Key,
    Kind, Part,
};

use super::AccessError;
use super::admit::Access;
use crate::Proof;
use crate::capability::Proven;
use crate::file::{Answer, Change, Done, FileBody, FileReplyBody, Query};

impl Access<'_> {
    /// Whether all of the volume is exported.
    pub(super) fn is_free(&self) -> bool {
        self.export.path().names().is_empty()
    }

    /// Whether the client's users have the same numbers in the volume.
    pub(super) fn has_same_ids(&self) -> bool {
        self.export.has_same_ids()
    }

    /// Takes the inodes that a change names for what they are in the volume, and refuses those that are not exported.
    pub(super) fn confine_change(
        &self,
        change: &mut TreeChange,
        proof: Option<Proof>,
    ) -> Result<(), AccessError> {
        if self.is_free() {
            return Ok(());
        }
        match change {
            TreeChange::Create { dir, .. } | TreeChange::Enter { dir, .. } => self.enter(dir)?,
            TreeChange::Link { inode, dir, .. } => {
                self.take(inode, proof)?;
                self.enter(dir)?;
            }
            TreeChange::Unlink { site, .. } | TreeChange::RemoveDirectory { site, .. } => {
                self.enter(&mut site.dir)?;
            }
            TreeChange::Rename { from, to, .. } => {
                self.enter(&mut from.dir)?;
                self.enter(&mut to.dir)?;
            }
            TreeChange::SetAttributes { inode, .. }
            | TreeChange::Lend { inode, .. }
            | TreeChange::Return { inode, .. }
            | TreeChange::SetXattr { inode, .. }
            | TreeChange::RemoveXattr { inode, .. }
            | TreeChange::Lock { inode, .. }
            | TreeChange::Unlock { inode, .. }
            | TreeChange::Cancel { inode, .. } => self.take(inode, proof)?,
            // No client asks for these, or they are about no inode.
            TreeChange::GiveBack { .. }
            | TreeChange::Hold { .. }
            | TreeChange::Release { .. }
            | TreeChange::Deleted { .. }
            | TreeChange::Settle
            | TreeChange::Welcome { .. }
            | TreeChange::Expire { .. }
            | TreeChange::Forget { .. }
            | TreeChange::Limit { .. } => {}
        }
        Ok(())
    }

    /// The same for a question.
    pub(super) fn confine_ask(&self, ask: &mut Ask, proof: Option<Proof>) -> Result<(), AccessError> {
        if self.is_free() {
            return Ok(());
        }
        match ask {
            Ask::Lookup { dir, .. } | Ask::List { dir, .. } => self.enter(dir),
            Ask::Attributes { inode }
            | Ask::Readlink { inode }
            | Ask::GetXattr { inode, .. }
            | Ask::ListXattrs { inode }
            | Ask::Access { inode, .. }
            | Ask::TestLock { inode, .. }
            | Ask::Wish { inode, .. } => self.take(inode, proof),
            // No client asks for these, or they are about no inode.
            Ask::Statfs
            | Ask::Locks { .. }
            | Ask::Orphans { .. }
            | Ask::Doomed { .. }
            | Ask::Clients { .. }
            | Ask::Holds { .. } => Ok(()),
        }
    }

    /// A directory that the client names, as the volume does.
    fn enter(&self, dir: &mut InodeId) -> Result<(), AccessError> {
        let root = self.root()?;
        if *dir == InodeId::ROOT {
            *dir = root;
        }
        if self.is_below(root, *dir) { Ok(()) } else { Err(AccessError::Outside) }
    }

    /// An inode that the client names, as the volume does.
    fn take(&self, inode: &mut InodeId, proof: Option<Proof>) -> Result<(), AccessError> {
        let is_directory = self.inode(*inode).is_some_and(|found| found.is_directory());
        if is_directory || *inode == InodeId::ROOT {
            return self.enter(inode);
        }
        let keys = self.config.capability_keys.as_ref().ok_or(AccessError::NoKeys)?;
        let is_proven = proof.is_some_and(|proof| keys.is_proven(self.proven(), *inode, proof));
        if is_proven { Ok(()) } else { Err(AccessError::Outside) }
    }

    /// The directory of the volume that the rule names.
    fn root(&self) -> Result<InodeId, AccessError> {
        let mut dir = InodeId::ROOT;
        for name in self.export.path().names() {
            match self.tree.part(&Key::Entry(dir, name.clone())) {
                Some(Part::Entry(entry)) if entry.kind == Kind::Directory => dir = entry.inode,
                _ => return Err(AccessError::NoExportPath),
            }
        }
        Ok(dir)
    }

    /// Whether this is a directory that is `root`, or somewhere below it.
    fn is_below(&self, root: InodeId, mut dir: InodeId) -> bool {
        for _ in 0..DEPTH_MAX {
            let Some(Body::Directory { parent, .. }) = self.inode(dir).map(|found| found.body.clone()) else {
                return false;
            };
            if dir == root {
                return true;
            }
            if dir == InodeId::ROOT {
                return false;
            }
            dir = parent;
        }
        false
    }

    fn inode(&self, inode: InodeId) -> Option<Arc<Inode>> {
        match self.tree.part(&Key::Inode(inode)) {
            Some(Part::Inode(found)) => Some(found),
            _ => None,
        }
    }

    fn proven(&self) -> Proven<'_> {
        Proven { volume: self.volume, certificate: self.certificate.id, path: self.export.path() }
    }

    /// The proofs that go with what a confined client is told. Without keys there are none.
    pub(super) fn prove(&self, now: WallTime, body: &FileReplyBody) -> Vec<Proof> {
        match &self.config.capability_keys {
            Some(keys) if !self.is_free() => {
                body.told().into_iter().map(|inode| keys.prove(self.proven(), inode, now)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The root as the client names it.
    pub(super) fn show_root(&self, inode: &mut InodeId) {
        if !self.is_free() && self.root() == Ok(*inode) {
            *inode = InodeId::ROOT;
        }
    }
}

impl FileBody {
    /// The inode that it names by its id and that need not be a directory, if there is one: whoever is confined shows a proof
    /// for it.
    pub fn named(&self) -> Option<InodeId> {
        match self {
            Self::Change { change: Change::Tree(op), .. } => match op.change {
                TreeChange::Link { inode, .. }
                | TreeChange::SetAttributes { inode, .. }
                | TreeChange::Lend { inode, .. }
                | TreeChange::Return { inode, .. }
                | TreeChange::SetXattr { inode, .. }
                | TreeChange::RemoveXattr { inode, .. }
                | TreeChange::Lock { inode, .. }
                | TreeChange::Unlock { inode, .. }
                | TreeChange::Cancel { inode, .. } => Some(inode),
                // They name a directory, or no client asks for them, or they are about no inode.
                TreeChange::Create { .. }
                | TreeChange::Enter { .. }
                | TreeChange::Unlink { .. }
                | TreeChange::RemoveDirectory { .. }
                | TreeChange::Rename { .. }
                | TreeChange::GiveBack { .. }
                | TreeChange::Hold { .. }
                | TreeChange::Release { .. }
                | TreeChange::Deleted { .. }
                | TreeChange::Settle
                | TreeChange::Welcome { .. }
                | TreeChange::Expire { .. }
                | TreeChange::Forget { .. }
                | TreeChange::Limit { .. } => None,
            },
            Self::Ask(Query::Tree(query)) => match query.ask {
                Ask::Attributes { inode }
                | Ask::Readlink { inode }
                | Ask::GetXattr { inode, .. }
                | Ask::ListXattrs { inode }
                | Ask::Access { inode, .. }
                | Ask::TestLock { inode, .. }
                | Ask::Wish { inode, .. } => Some(inode),
                _ => None,
            },
            Self::Open { inode, .. } => Some(*inode),
            Self::Create
            | Self::Change { .. }
            | Self::Ask(_)
            | Self::Sync { .. }
            | Self::Renew { .. }
            | Self::Attend(_) => None,
        }
    }
}

impl FileReplyBody {
    /// The inodes that it tells of and that are no directories, in order: a confined client is told a proof with each.
    pub fn told(&self) -> Vec<InodeId> {
        let one = |attributes: &Attributes| {
            if attributes.kind == Kind::Directory { Vec::new() } else { vec![attributes.inode] }
        };
        match self {
            Self::Changed { outcome: Ok(Done::Tree(done)), .. } => match &**done {
                TreeDone::Created { attributes, .. } | TreeDone::Changed { attributes } => one(attributes),
                _ => Vec::new(),
            },
            Self::Answer(Ok(Answer::Tree(answer))) => match &**answer {
                TreeAnswer::Attributes(attributes) => one(attributes),
                TreeAnswer::Page(page) => {
                    let listed = page.entries.iter().filter(|listed| listed.kind != Kind::Directory);
                    listed.map(|listed| listed.inode).collect()
                }
                _ => Vec::new(),
            },
            Self::Opened { attributes, .. } => one(attributes),
            _ => Vec::new(),
        }
    }
}
