//! Trees under test: short ways to say what is done to them, and what holds of every one.

mod agree;
mod asking;
mod attributes;
mod clients;
mod costs;
mod empty;
mod lent_dirs;
mod locks;
mod names;
mod orphans;
mod permissions;
mod random;
mod rename;
mod sound;
mod times;
mod xattrs;

use base::{ClientId, Epoch, Members, NodeId, Seq, WallTime};

use crate::*;

/// A tree and how far its history has come; an entry's time is its number.
#[derive(Clone, Default)]
struct World {
    tree: Tree<Memory>,
    seq: u64,
}

const EPOCH: Epoch = Epoch { number: 7, node: NodeId(1) };

fn at(seq: u64) -> Born {
    Born { epoch: EPOCH, seq: Seq(seq) }
}

fn id(seq: u64) -> InodeId {
    InodeId::of(at(seq))
}

fn time(micros: u64) -> WallTime {
    WallTime::from_micros(micros)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn xattr(text: &str) -> XattrName {
    XattrName::new(text.as_bytes()).unwrap()
}

fn user(uid: u32) -> Who {
    Who::new(uid, uid, &[]).unwrap()
}

fn client(program: u64) -> ClientId {
    ClientId { certificate: 1, program }
}

fn replicas() -> Members {
    Members::new([NodeId(1), NodeId(2), NodeId(3)]).unwrap()
}

fn file() -> Make {
    Make::File { replicas: replicas() }
}

fn site(dir: InodeId, text: &str) -> Site {
    Site::new(dir, name(text))
}

fn create(dir: InodeId, text: &str, make: Make, mode: u16) -> Change {
    Change::Create { dir, name: name(text), make, mode, umask: 0, is_exclusive: true, lends: false }
}

fn unlink(dir: InodeId, text: &str) -> Change {
    Change::Unlink { site: site(dir, text), holders: vec![], removed: None }
}

fn rename(from: Site, to: Site, how: RenameHow) -> Change {
    Change::Rename { from, to, how, holders: vec![] }
}

fn set(inode: InodeId, set: SetAttributes) -> Change {
    Change::SetAttributes { inode, set }
}

fn chmod(inode: InodeId, mode: u16) -> Change {
    set(inode, SetAttributes { mode: Some(mode), ..SetAttributes::default() })
}

fn chown(inode: InodeId, uid: u32, gid: u32) -> Change {
    set(inode, SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() })
}

fn set_xattr(inode: InodeId, text: &str, value: &[u8]) -> Change {
    Change::SetXattr { inode, name: xattr(text), value: value.to_vec().into(), how: XattrHow::Any }
}

impl World {
    /// Does something as a client, and says what came of it.
    fn try_for(&mut self, client: ClientId, who: &Who, change: Change) -> Result<Done, NameError> {
        self.seq += 1;
        let op = Op { time: time(self.seq), who: who.clone(), client, change };
        let done = self.tree.apply(at(self.seq), &op);
        sound::check(&self.tree);
        done
    }

    fn try_as(&mut self, who: &Who, change: Change) -> Result<Done, NameError> {
        self.try_for(client(0), who, change)
    }

    fn run_as(&mut self, who: &Who, change: Change) -> Done {
        let shown = format!("{change:?}");
        self.try_as(who, change).unwrap_or_else(|error| panic!("{shown}: {error}"))
    }

    /// Does something as root.
    fn run(&mut self, change: Change) -> Done {
        self.run_as(&Who::root(), change)
    }

    fn error(&mut self, change: Change) -> NameError {
        self.try_as(&Who::root(), change).unwrap_err()
    }

    fn create(&mut self, dir: InodeId, text: &str, make: Make, mode: u16) -> InodeId {
        let done = self.run(create(dir, text, make, mode));
        let Done::Created { attributes, is_new: true } = done else { panic!("{done:?}") };
        attributes.inode
    }

    /// A file that was lent, and is not any more.
    fn file(&mut self, dir: InodeId, text: &str) -> InodeId {
        let inode = self.create(dir, text, file(), 0o644);
        self.run(Change::Lend { inode, to: LentTo::Content });
        self.give_back(inode, 0);
        inode
    }

    fn dir(&mut self, dir: InodeId, text: &str) -> InodeId {
        self.create(dir, text, Make::Directory, 0o755)
    }

    fn give_back(&mut self, inode: InodeId, size: u64) {
        let generation = self.get(inode).lent.unwrap().generation;
        let now = time(self.seq + 1);
        self.run(Change::GiveBack {
            inode,
            generation,
            given: Some(Given { size, mtime: now, ctime: now }),
            accessed: None,
            mode: None,
            changed: None,
        });
    }

    fn ask_as(&self, who: &Who, ask: Ask) -> Result<Answer, NameError> {
        self.tree.answer(&Query { who: who.clone(), ask })
    }

    fn ask(&self, ask: Ask) -> Answer {
        self.ask_as(&Who::root(), ask).unwrap()
    }

    fn get(&self, inode: InodeId) -> Attributes {
        match self.ask(Ask::Attributes { inode }) {
            Answer::Attributes(attributes) => attributes,
            other => panic!("{other:?}"),
        }
    }

    fn is_there(&self, inode: InodeId) -> bool {
        self.ask_as(&Who::root(), Ask::Attributes { inode }).is_ok()
    }

    fn lookup(&self, dir: InodeId, text: &str) -> Option<InodeId> {
        match self.ask_as(&Who::root(), Ask::Lookup { dir, name: name(text) }) {
            Ok(Answer::Attributes(attributes)) => Some(attributes.inode),
            Err(NameError::NoEntry { .. }) => None,
            other => panic!("{other:?}"),
        }
    }

    fn may(&self, who: &Who, inode: InodeId, bits: u16) -> bool {
        self.ask_as(who, Ask::Access { inode, rights: Rights::from_bits(bits) }).is_ok()
    }

    fn volume(&self) -> Volume {
        match self.ask(Ask::Statfs) {
            Answer::Volume(volume) => volume,
            other => panic!("{other:?}"),
        }
    }
}
