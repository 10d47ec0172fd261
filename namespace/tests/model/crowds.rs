//! Histories that are too long to come about by chance: many who wait, and a client that has much.

use base::WallTime;
use namespace::{
    Ask, Change, Expect, InodeId, Lock, LockKind, LockMode, Make, Name, Op, Owner, Query, Site, Stretch, Who,
    limits,
};

use crate::dice::{born, client};
use crate::run::Run;
use crate::tally::Tally;

/// So many files there are, or clients that wait: more than an entry clears up or grants.
const MANY: usize = 40;

/// Two replicas and the model, and how far they have come.
struct Crowd<'t> {
    run: Run,
    now: u64,
    tally: &'t mut Tally,
}

impl Crowd<'_> {
    fn step(&mut self, by: usize, change: Change) -> Result<(), String> {
        let time = WallTime::from_micros(self.now);
        let op = Op { time, who: Who::root(), client: client(by), change };
        self.now += 1;
        self.run.step(self.now, &op, &Query { who: Who::root(), ask: Ask::Statfs }, self.tally)
    }

    fn file(&mut self, number: usize) -> Result<InodeId, String> {
        let replicas = base::Members::new([base::NodeId(1)]).expect("a node");
        let (name, make) = (name(number), Make::File { replicas });
        let (dir, mode, umask) = (InodeId::ROOT, 0o600, 0);
        self.step(0, Change::Create { dir, name, make, mode, umask, is_exclusive: true, lends: false })?;
        Ok(InodeId::of(born(self.now)))
    }

    fn lock(&mut self, inode: InodeId, by: usize, mode: LockMode) -> Result<(), String> {
        let owner = Owner { client: client(by), number: 0 };
        let lock = Lock { owner, kind: LockKind::Fcntl, mode, stretch: Stretch::ALL };
        self.step(by, Change::Lock { inode, lock, wait: true })
    }
}

fn name(number: usize) -> Name {
    Name::new(format!("file {number}").as_bytes()).expect("a name")
}

/// Many wait for one who gives up, and some wait for more than they can.
pub(crate) fn many_wait(tally: &mut Tally) -> Result<(), String> {
    let mut crowd = Crowd { run: Run::new(), now: 0, tally };
    let inode = crowd.file(0)?;
    crowd.lock(inode, 0, LockMode::Exclusive)?;
    for by in 1..MANY {
        crowd.lock(inode, by, LockMode::Shared)?;
    }
    for _ in 0..=limits::WAITS_MAX {
        crowd.lock(inode, MANY, LockMode::Shared)?;
    }
    let owner = Owner { client: client(0), number: 0 };
    crowd.step(0, Change::Unlock { inode, owner, kind: LockKind::Fcntl, stretch: Stretch::ALL })?;
    for _ in 0..MANY {
        crowd.step(0, Change::Settle)?;
    }
    Ok(())
}

/// A client that ends holds many files, and has locks of others that somebody waits for.
pub(crate) fn a_client_has_much(tally: &mut Tally) -> Result<(), String> {
    let mut crowd = Crowd { run: Run::new(), now: 0, tally };
    for number in 0..MANY {
        let inode = crowd.file(number)?;
        crowd.lock(inode, 0, LockMode::Exclusive)?;
        crowd.lock(inode, 1, LockMode::Shared)?;
        if number % 2 == 0 {
            let site = Site { dir: InodeId::ROOT, name: name(number), expect: Expect::Inode(inode) };
            crowd.step(0, Change::Unlink { site, holders: vec![client(number % 4 / 2)], removed: None })?;
        }
    }
    for by in [0, 1] {
        for _ in 0..MANY / 4 {
            crowd.step(2, Change::Expire { client: client(by) })?;
            crowd.step(2, Change::Forget { client: client(by) })?;
        }
    }
    Ok(())
}
