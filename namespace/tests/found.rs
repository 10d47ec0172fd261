//! What the model has found wrong, each told as a story.

use base::{ClientId, Epoch, Members, NodeId, Seq, WallTime};
use namespace::{
    Born, Change, Done, InodeId, Lock, LockKind, LockMode, Make, Memory, Name, NameError, Op, Owner,
    RenameHow, SetAttributes, SetTime, Site, Stretch, Ticket, Tree, Who,
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

    fn at(&self) -> Born {
        Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(self.seq) }
    }

    fn run(&mut self, who: &Who, change: Change) -> Result<Done, NameError> {
        self.seq += 1;
        let at = self.at();
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
        let created =
            self.run(who, Change::Create { dir, name, make, mode, umask, is_exclusive: true, lends: false });
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

/// A removed directory was still taken to be where it had been: what had contained it was in the way (`EINVAL`), or gone
/// (`ESTALE`). It is no place for anything, which is `ENOENT`.
#[test]
fn nothing_is_moved_into_a_removed_directory_wherever_that_was() {
    let (mut world, root) = (World::new(), Who::root());
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let mut directory = |dir, text| {
        let (name, make) = (name(text), Make::Directory);
        let change =
            Change::Create { dir, name, make, mode: 0o777, umask: 0, is_exclusive: true, lends: false };
        let Ok(Done::Created { attributes, .. }) = world.run(&root, change) else { panic!("it is free") };
        attributes.inode
    };
    let above = directory(InodeId::ROOT, "above");
    let removed = directory(above, "removed");
    directory(InodeId::ROOT, "moved");
    let holders = vec![ClientId { certificate: 1, program: 1 }];
    let remove = |dir, text, holders| Change::RemoveDirectory { site: Site::new(dir, name(text)), holders };
    let rename = |text| Change::Rename {
        from: Site::new(InodeId::ROOT, name(text)),
        to: Site::new(removed, name("new")),
        how: RenameHow::Replace,
        holders: Vec::new(),
    };
    let refused = Err(NameError::NoEntry { dir: removed });
    world.run(&root, remove(above, "removed", holders)).unwrap();
    assert_eq!(world.run(&root, rename("above")), refused);
    world.run(&root, remove(InodeId::ROOT, "above", Vec::new())).unwrap();
    assert_eq!(world.run(&root, rename("moved")), refused);
}

/// A handle that gave its lock up to wait let another pass, which wanted all of the file and then less. So its own request was
/// granted by the same entry, and it was told to wait for it.
#[test]
fn who_has_a_lock_at_once_is_not_told_to_wait() {
    let mut world = World::new();
    let (inode, _) = world.create(&Who::root(), 0o600, 0);
    let mut flock = |number, mode| {
        let owner = Owner { client: ClientId { certificate: 1, program: 1 }, number };
        let lock = Lock { owner, kind: LockKind::Flock, mode, stretch: Stretch::ALL };
        let done = world.run(&Who::root(), Change::Lock { inode, lock, wait: true });
        let Ok(Done::Locked { waits, granted }) = done else { panic!("{done:?}") };
        (waits, granted.all.len(), Some(Ticket(world.at())))
    };
    assert_eq!(flock(1, LockMode::Exclusive).0, None);
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        let (waits, _, ticket) = flock(2, mode);
        assert_eq!(waits, ticket);
    }
    let (waits, others, _) = flock(1, LockMode::Shared);
    assert_eq!((waits, others), (None, 2));
}
