//! How a file is, from whoever has its size and times.

use namespace::Attributes;
use node::file::Stat;

use super::known::{Known, Whose};

/// What is to be done to know how a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookStep {
    /// It is like this.
    Done(Box<Attributes>),
    /// Ask the volume, and tell by [`looked`](Looking::looked).
    Look,
    /// Ask the content for size and times, and tell by [`answered`](Looking::answered).
    Stat,
}

/// One look at a file.
#[derive(Clone, Debug)]
pub struct Looking {
    /// What the tree said, if the content is asked.
    said: Option<Box<Attributes>>,
    /// Whoever asks for what somebody has takes it back, so what the volume says next is so.
    has_asked: bool,
    is_last: bool,
}

impl Default for Looking {
    fn default() -> Self {
        Self::new()
    }
}

impl Looking {
    /// Somebody wants to know how a file is.
    pub const fn new() -> Self {
        Self { said: None, has_asked: false, is_last: false }
    }

    /// The volume says that the file is like this.
    pub fn looked(&mut self, known: &Known<'_>, mut attributes: Attributes) -> LookStep {
        match known.contents.show(known.id.volume, &mut attributes) {
            _ if self.is_last => LookStep::Done(Box::new(attributes)),
            Whose::Tree | Whose::Own => LookStep::Done(Box::new(attributes)),
            Whose::Content(_) => {
                self.said = Some(Box::new(attributes));
                LookStep::Stat
            }
            Whose::Leaving(_) | Whose::Other if std::mem::replace(&mut self.has_asked, true) => {
                LookStep::Done(Box::new(attributes))
            }
            Whose::Leaving(_) | Whose::Other => LookStep::Look,
        }
    }

    /// What the content knows of itself, and by which lend. None if nothing was ever written to it, or it is gone.
    pub fn answered(&mut self, stat: Option<&Stat>) -> LookStep {
        let (Some(said), Some(stat)) = (self.said.take(), stat) else {
            // If it was removed meanwhile the volume says so.
            self.is_last = true;
            return LookStep::Look;
        };
        let lent = said.lent.map(|lent| lent.generation);
        if stat.lend > lent {
            // It has changed hands since. Who has it may have sent some of what he wrote, and not what he wrote before.
            self.has_asked = false;
            return LookStep::Look;
        }
        if stat.lend < lent {
            return LookStep::Done(said);
        }
        let ctime = said.ctime.max(stat.changed);
        LookStep::Done(Box::new(Attributes { size: stat.size, mtime: stat.modified, ctime, ..*said }))
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, MonoTime, NodeId, ObjectId, Seq, WallTime};
    use namespace::{Born, Generation, InodeId, Kind, Lent, LentTo};

    use super::super::{Contents, FileId};
    use super::*;
    use crate::core::grants::Cache;

    const EPOCH: Epoch = Epoch { number: 1, node: NodeId(1) };
    const FILE: InodeId = InodeId { number: 7, epoch: EPOCH };

    const fn lend(seq: u64) -> Generation {
        Generation(Born { epoch: EPOCH, seq: Seq(seq) })
    }

    fn looks(looking: &mut Looking, to: LentTo, generation: Generation) -> LookStep {
        let (mut cache, mut contents) = (Cache::new(), Contents::new(1));
        let id = FileId { volume: ObjectId::new(1, 2), inode: FILE };
        let known = Known { now: MonoTime::default(), id, cache: &mut cache, contents: &mut contents };
        let lent = Some(Lent { generation, to });
        let time = WallTime::ZERO;
        let attributes = Attributes {
            inode: FILE,
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            rdev: 0,
            size: 5,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            lent,
            last_lend: None,
            replicas: None,
            has_acl: false,
        };
        looking.looked(&known, attributes)
    }

    fn stat(size: u64, lend: Option<Generation>) -> Stat {
        Stat { size, modified: WallTime::ZERO, changed: WallTime::ZERO, allocated: 0, lend }
    }

    fn size(step: &LookStep) -> Option<u64> {
        match step {
            LookStep::Done(attributes) => Some(attributes.size),
            _ => None,
        }
    }

    #[test]
    fn size_and_times_are_those_of_the_lend_that_the_volume_names() {
        let mut looking = Looking::new();
        assert_eq!(looks(&mut looking, LentTo::Content, lend(2)), LookStep::Stat);
        assert_eq!(size(&looking.clone().answered(Some(&stat(9, Some(lend(2)))))), Some(9));
        assert_eq!(
            size(&looking.answered(Some(&stat(9, Some(lend(1)))))),
            Some(5),
            "nothing has changed since"
        );
    }

    /// A client has the file by now that has sent the last of what it wrote, and not the first: nobody ever saw it like that.
    #[test]
    fn a_size_of_which_its_client_has_not_sent_all_is_not_told() {
        let mut looking = Looking::new();
        assert_eq!(looks(&mut looking, LentTo::Content, lend(2)), LookStep::Stat);
        assert_eq!(looking.answered(Some(&stat(9, Some(lend(3))))), LookStep::Look);
        assert_eq!(looks(&mut looking, LentTo::Content, lend(4)), LookStep::Stat);
        assert_eq!(size(&looking.answered(Some(&stat(12, Some(lend(4)))))), Some(12));
    }
}
