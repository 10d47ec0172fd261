//! What a disk may hold after its power was cut: what is assumed of it is said in `main.rs`.

use std::collections::{BTreeMap, BTreeSet};

use base::Random;

use crate::tree::{Inode, Node, Op, Tree};

/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// What may be lost as a whole while it is written to.
const BLOCK: usize = 4_096;

/// A disk that was told all up to some point.
#[derive(Clone)]
pub(crate) struct Disk {
    durable: Tree,
    /// What no sync of its node has confirmed, in order.
    pending: BTreeMap<Inode, Vec<Op>>,
    /// Files and directories of an index, and the directory of each.
    indexes: BTreeMap<Inode, Inode>,
}

/// How much of what is pending is there.
#[derive(Clone, Copy)]
struct Luck {
    /// Of what there is a choice about, so many eighths are as new as can be.
    new: u64,
    /// And so many are as old.
    old: u64,
    /// Of the blocks that were written to, so many sixteenths hold anything.
    garbage: u64,
}

impl Disk {
    /// A disk on which all of this is durable.
    pub(crate) fn new(durable: Tree) -> Self {
        let mut disk = Self { durable, pending: BTreeMap::new(), indexes: BTreeMap::new() };
        // A directory has a lower number than what is in it, but for those that were there before.
        let dirs: Vec<Inode> = disk.durable.nodes.keys().copied().collect();
        for _ in 0..3 {
            for dir in &dirs {
                let names = disk.durable.names(*dir).cloned().unwrap_or_default();
                names.iter().for_each(|(name, node)| disk.note_name(*dir, name, *node));
            }
        }
        disk
    }

    fn note_name(&mut self, dir: Inode, name: &str, node: Inode) {
        if name.starts_with("index.") || self.indexes.contains_key(&dir) {
            self.indexes.insert(node, dir);
        }
    }

    /// The next thing happens.
    pub(crate) fn take(&mut self, op: &Op) {
        match op {
            Op::Sync { node } => self.settle(*node),
            Op::Said(_) => {}
            op => {
                if let Op::Create { dir, name, node, is_dir } = op {
                    self.note_name(*dir, name, *node);
                    self.durable.nodes.insert(*node, Node::empty(*is_dir));
                }
                // sled takes it for granted.
                if let Op::Write { file, .. } = op
                    && let Some(dir) = self.indexes.get(file).filter(|dir| self.indexes.contains_key(dir))
                {
                    self.settle(*dir);
                }
                self.pending.entry(op.target().expect("it changes something")).or_default().push(op.clone());
            }
        }
    }

    /// All that was done to a node is durable.
    fn settle(&mut self, node: Inode) {
        let pending = self.pending.remove(&node).unwrap_or_default();
        if let Some(durable) = self.durable.nodes.get_mut(&node) {
            pending.iter().for_each(|op| durable.apply(op));
        }
    }

    /// What a start may find if the power is cut now.
    pub(crate) fn cut(&self, random: &mut Random) -> Tree {
        let all = Luck::draw(random);
        let mut found = self.durable.clone();
        for (inode, pending) in &self.pending {
            // Each node may fare in its own way.
            let luck = if random.chance(1, 2) { all } else { Luck::draw(random) };
            let garbage = if self.indexes.contains_key(inode) { 0 } else { luck.garbage };
            match found.nodes.get_mut(inode) {
                Some(Node::File(content)) => cut_file(content, pending, Luck { garbage, ..luck }, random),
                Some(dir) => cut_dir(dir, pending, luck, random),
                None => {}
            }
        }
        found.reachable()
    }

    /// How much is pending, for whoever reads of a failure.
    pub(crate) fn describe(&self) -> String {
        let count =
            |(inode, pending): (&Inode, &Vec<Op>)| format!("{}: {}", self.name(*inode), pending.len());
        self.pending.iter().map(count).collect::<Vec<_>>().join(", ")
    }

    fn name(&self, inode: Inode) -> String {
        let created = self.pending.values().flatten().find_map(|op| match op {
            Op::Create { name, node, .. } if *node == inode => Some(name.clone()),
            _ => None,
        });
        let names = self.durable.nodes.keys().filter_map(|dir| self.durable.names(*dir));
        let durable = || names.flatten().find(|(_, node)| **node == inode).map(|(name, _)| name.clone());
        created.or_else(durable).unwrap_or_else(|| inode.to_string())
    }
}

impl Luck {
    fn draw(random: &mut Random) -> Self {
        let (new, old) = [(8, 0), (0, 8), (4, 4), (4, 2), (7, 1), (1, 7), (2, 2)][random.index(7)];
        Self { new, old, garbage: [0, 0, 1, 4][random.index(4)] }
    }

    /// How many of `count` things that happened to one place it is as new as.
    fn reach(self, count: usize, random: &mut Random) -> usize {
        match random.below(8) {
            drawn if drawn < self.new => count,
            drawn if drawn < self.new + self.old => 0,
            _ => random.index(count + 1),
        }
    }
}

/// Of the changes of a directory any may be there, or only the first ones.
fn cut_dir(dir: &mut Node, pending: &[Op], luck: Luck, random: &mut Random) {
    if random.chance(1, 2) {
        let count = luck.reach(pending.len(), random);
        return pending[..count].iter().for_each(|op| dir.apply(op));
    }
    for op in pending {
        if luck.reach(1, random) == 1 {
            dir.apply(op);
        }
    }
}

/// Each sector is as new as it happens to be, and so is the length.
fn cut_file(content: &mut Vec<u8>, pending: &[Op], luck: Luck, random: &mut Random) {
    let mut length = content.len();
    let mut lengths = vec![length];
    let mut reached: BTreeMap<usize, usize> = BTreeMap::new();
    let mut reach = |sector: usize, random: &mut Random| {
        *reached.entry(sector).or_insert_with(|| luck.reach(pending.len(), random))
    };
    for (count, op) in (1..).zip(pending) {
        match op {
            Op::Write { at, bytes, .. } => {
                length = length.max(at + bytes.len());
                grow(content, length);
                for (from, to) in sectors(*at, at + bytes.len()) {
                    if reach(from / SECTOR, random) >= count {
                        content[from..to].copy_from_slice(&bytes[from - at..to - at]);
                    }
                }
            }
            Op::Resize { bytes, .. } => {
                length = *bytes;
                grow(content, length);
                for (from, to) in sectors(length, content.len()) {
                    if reach(from / SECTOR, random) >= count {
                        content[from..to].fill(0);
                    }
                }
            }
            op => panic!("{op:?} of a file"),
        }
        lengths.push(length);
    }
    let blocks: BTreeSet<usize> = reached.keys().map(|sector| sector * SECTOR / BLOCK).collect();
    content.resize(lengths[luck.reach(pending.len(), random)], 0);
    for block in blocks {
        if random.below(16) < luck.garbage {
            let end = content.len().min((block + 1) * BLOCK);
            let start = end.min(block * BLOCK);
            let garbage = random.next_u64().to_le_bytes();
            content[start..end]
                .iter_mut()
                .zip(garbage.into_iter().cycle())
                .for_each(|(byte, any)| *byte = any);
        }
    }
}

fn grow(content: &mut Vec<u8>, length: usize) {
    if content.len() < length {
        content.resize(length, 0);
    }
}

/// The sectors between two places, or what of them is between.
fn sectors(from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    let first = (from < to).then_some(from);
    let next = move |at: &usize| Some((at / SECTOR + 1) * SECTOR).filter(|next| *next < to);
    std::iter::successors(first, next).map(move |at| (at, to.min((at / SECTOR + 1) * SECTOR)))
}
