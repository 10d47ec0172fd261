//! What a client knows of one file, from the volume's grants and from its own content together.

use std::ops::Range;

use base::{ClientId, MonoTime, ObjectId};
use bytes::Bytes;
use namespace::{Attributes, Generation, Kind, LentTo};

use super::{Contents, FileId, Plan, PlanMark, Shown, View};
use crate::core::grants::Cache;

/// Whose a file's size and times are, as the volume says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The tree's.
    Tree,
    /// The content's, which is to be asked.
    Content(Generation),
    /// This client's, and they are shown.
    Own,
    /// This client's, which is about to return them, or does not know of them.
    Leaving(Generation),
    /// Another client's.
    Other,
}

/// A file at some time, with what may be answered of it then. Nobody takes anything back while this is here.
#[derive(Debug)]
pub struct Known<'a> {
    /// When: a reading taken after whatever is wanted was asked for.
    pub now: MonoTime,
    /// Which.
    pub id: FileId,
    /// What volumes grant.
    pub cache: &'a mut Cache,
    /// What is here of content.
    pub contents: &'a mut Contents,
}

impl Known<'_> {
    /// The lend to this client by which the file may be used without asking anybody.
    pub fn lent(&mut self) -> Option<Generation> {
        let attributes = self.cache.attributes(self.now, self.id.volume, self.id.inode)?;
        self.contents.own(&attributes)
    }

    /// How to read without asking the volume, if it may be.
    pub fn plan(&mut self, range: Range<u64>) -> Option<(Plan, View)> {
        let attributes = self.cache.attributes(self.now, self.id.volume, self.id.inode)?;
        let view = match (attributes.lent, self.contents.own(&attributes)) {
            (None, _) => View::Still(attributes.last_lend, attributes.size),
            (Some(_), Some(generation)) => View::Lent(generation),
            (Some(_), None) => return None,
        };
        let plan = self.contents.plan(self.id, view, range)?;
        Some((plan, view))
    }

    /// Whether the volume still grants that nobody has changed the content since this lend.
    pub fn stays(&mut self, tag: Option<Generation>) -> bool {
        let attributes = self.cache.attributes(self.now, self.id.volume, self.id.inode);
        attributes.is_some_and(|attributes| is_still(&attributes, tag))
    }

    /// Keeps blocks that a daemon gave for a plan, where they still are what a daemon would say.
    pub fn keep(&mut self, (view, mark): (View, PlanMark), fetched: &[(u64, Bytes)]) {
        let may_keep = match view {
            View::Lent(_) => true,
            View::Still(tag, _) => self.stays(tag),
        };
        if may_keep {
            fetched.iter().for_each(|(block, data)| self.contents.keep(self.id, mark, (*block, data)));
        }
    }
}

impl Contents {
    /// The lend that attributes speak of, if it is to this client.
    pub fn own(&self, attributes: &Attributes) -> Option<Generation> {
        let lent = attributes.lent?;
        lent.to.client().filter(|&client| self.is_program(client)).map(|_| lent.generation)
    }

    /// Whether a client is this one.
    pub const fn is_program(&self, client: ClientId) -> bool {
        client.program == self.program
    }

    /// Puts in size and times, and what else its owner has set, if they are lent to this client, and says whose they are.
    pub fn show(&self, volume: ObjectId, attributes: &mut Attributes) -> Whose {
        let Some(lent) = attributes.lent else { return Whose::Tree };
        if attributes.kind == Kind::Directory {
            return if self.own(attributes).is_some() { Whose::Tree } else { Whose::Other };
        }
        if lent.to == LentTo::Content {
            return Whose::Content(lent.generation);
        }
        let Some(generation) = self.own(attributes) else { return Whose::Other };
        match self.shows(FileId { volume, inode: attributes.inode }, generation) {
            Some(Shown { size, modified, accessed, mode, changed }) => {
                (attributes.size, attributes.mtime) = (size, modified);
                attributes.atime = accessed.unwrap_or(attributes.atime);
                attributes.mode = mode.unwrap_or(attributes.mode);
                attributes.ctime = attributes.ctime.max(changed);
                Whose::Own
            }
            None => Whose::Leaving(generation),
        }
    }
}

/// Whether nobody has changed the content since a lend, as the volume says.
pub(super) fn is_still(attributes: &Attributes, tag: Option<Generation>) -> bool {
    attributes.lent.is_none() && attributes.last_lend == tag
}
