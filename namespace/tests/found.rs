//! What the model has found wrong, each told as a story.

use base::{ClientId, Epoch, Members, NodeId, Seq, WallTime};
use namespace::{
    Born, Change, Done, InodeId, Make, Memory, Name, NameError, Op, SetAttributes, SetTime, Tree, Who,
};

/// A tree, and how far it has come.
struct World {
    tree: Tree<Memory>,
    seq: u64,
}

impl World {
    fn new() -> Self {
        Self { tree: Tree::default(), seq: 0 }
    }

    fn run(&mut self, who: &Who, change: Change) -> Result<Done, NameError> {
        self.seq += 1;
        let at = Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(self.seq) };
        let client = ClientId { certificate: 1, program: 1 };
        let time = WallTime::from_micros(self.seq);
        self.tree.apply(at, &Op { time, who: who.clone(), client, change })
    }

    fn set(&mut self, who: &Who, inode: InodeId, set: SetAttributes) -> Result<Done, NameError> {
        self.run(who, Change::SetAttributes { inode, set })
    }

    fn create(&mut self, who: &Who, mode: u16, umask: u16) -> (InodeId, u16) {
        let make = Make::File { replicas: Members::new([NodeId(1)]).unwrap() };
        let (dir, name) = (InodeId::ROOT, Name::new(b"file").unwrap());
        let created = self.run(who, Change::Create { dir, name, make, mode, umask, is_exclusive: true });
        let Ok(Done::Created { attributes, .. }) = created else { panic!("{created:?}") };
        (attributes.inode, attributes.mode)
    }
}

/// The umask took the group's right to execute first, so that set-group-ID seemed harmless and stayed: with the group of the
/// directory, which the user does not belong to.
#[test]
fn a_umask_lets_nobody_make_a_file_set_group_id_for_a_foreign_group() {
    let mut world = World::new();
    let mode = Some(0o2777);
    world.set(&Who::root(), InodeId::ROOT, SetAttributes { mode, ..SetAttributes::default() }).unwrap();
    let user = Who::new(1001, 100, &[]).unwrap();
    assert_eq!(world.create(&user, 0o2770, 0o077).1, 0o700);
}

/// Who could write a file could set one of its times to now and keep the other. POSIX lets such users set both or
/// none, as by reading and writing.
#[test]
fn who_may_write_does_not_set_one_time_alone() {
    let mut world = World::new();
    let mode = Some(0o777);
    world.set(&Who::root(), InodeId::ROOT, SetAttributes { mode, ..SetAttributes::default() }).unwrap();
    let (_, now) = (world.create(&Who::root(), 0o666, 0), Some(SetTime::Now));
    let user = Who::new(1001, 100, &[]).unwrap();
    let mut set = |atime, mtime| {
        world.set(&user, InodeId::ROOT, SetAttributes { atime, mtime, ..SetAttributes::default() }).is_ok()
    };
    assert_eq!((set(now, None), set(None, now), set(now, now)), (false, false, true));
}
