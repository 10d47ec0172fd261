//! Files and directories in memory, what changes them, and a recorder of every change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::workload::Known;

/// The number of a file or a directory. None is used twice.
pub(crate) type Inode = u64;

pub(crate) const ROOT: Inode = 1;

/// A file or a directory.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    File(Vec<u8>),
    Dir(BTreeMap<String, Inode>),
}

/// What reaches the file system, in order; and between it what the store had said by then.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write { file: Inode, at: usize, bytes: Bytes },
    Resize { file: Inode, bytes: usize },
    Create { dir: Inode, name: String, node: Inode, is_dir: bool },
    Remove { dir: Inode, name: String },
    Rename { dir: Inode, from: String, to: String },
    Sync { node: Inode },
    Said(Box<Known>),
}

/// A tree of them.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<Inode, Node>,
}

/// A tree that notes what is done to it.
pub(crate) struct Recorder(Mutex<Recording>);

pub(crate) struct Recording {
    pub(crate) tree: Tree,
    pub(crate) ops: Vec<Op>,
    next: Inode,
}

impl Node {
    pub(crate) fn empty(is_dir: bool) -> Self {
        if is_dir { Self::Dir(BTreeMap::new()) } else { Self::File(Vec::new()) }
    }

    /// What an operation does to this node, which it is about.
    pub(crate) fn apply(&mut self, op: &Op) {
        match (self, op) {
            (Self::File(content), Op::Write { at, bytes, .. }) => put(content, *at, bytes),
            (Self::File(content), Op::Resize { bytes, .. }) => content.resize(*bytes, 0),
            (Self::Dir(names), Op::Create { name, node, .. }) => _ = names.insert(name.clone(), *node),
            (Self::Dir(names), Op::Remove { name, .. }) => _ = names.remove(name),
            (Self::Dir(names), Op::Rename { from, to, .. }) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
            (node, op) => panic!("{op:?} is not for {node:?}"),
        }
    }
}

/// Puts bytes into a file, which grows if it ends there.
pub(crate) fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Op {
    /// What it changes.
    pub(crate) const fn target(&self) -> Option<Inode> {
        match self {
            Self::Write { file: node, .. }
            | Self::Resize { file: node, .. }
            | Self::Create { dir: node, .. }
            | Self::Remove { dir: node, .. }
            | Self::Rename { dir: node, .. } => Some(*node),
            Self::Sync { .. } | Self::Said(_) => None,
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, Node::empty(true))]) }
    }
}

impl Tree {
    pub(crate) fn apply(&mut self, op: &Op) {
        if let Op::Create { node, is_dir, .. } = op {
            self.nodes.insert(*node, Node::empty(*is_dir));
        }
        if let Some(node) = op.target().and_then(|node| self.nodes.get_mut(&node)) {
            node.apply(op);
        }
    }

    pub(crate) fn names(&self, dir: Inode) -> Option<&BTreeMap<String, Inode>> {
        match self.nodes.get(&dir)? {
            Node::Dir(names) => Some(names),
            Node::File(_) => None,
        }
    }

    /// Writes it into an empty directory of the machine.
    pub(crate) fn write_to(&self, path: &Path) -> io::Result<()> {
        self.write_dir(ROOT, path)
    }

    fn write_dir(&self, dir: Inode, path: &Path) -> io::Result<()> {
        for (name, node) in self.names(dir).into_iter().flatten() {
            let path = path.join(name);
            match &self.nodes[node] {
                Node::File(content) => fs::write(path, content)?,
                Node::Dir(_) => {
                    fs::create_dir(&path)?;
                    self.write_dir(*node, &path)?;
                }
            }
        }
        Ok(())
    }

    /// The same without what has no name any more.
    pub(crate) fn reachable(mut self) -> Self {
        let (mut seen, mut next) = (BTreeSet::new(), vec![ROOT]);
        while let Some(node) = next.pop() {
            seen.insert(node);
            next.extend(self.names(node).into_iter().flat_map(BTreeMap::values));
        }
        self.nodes.retain(|node, _| seen.contains(node));
        self
    }
}

impl Recorder {
    pub(crate) fn new(tree: Tree) -> Self {
        let next = tree.nodes.keys().next_back().map_or(ROOT, |last| last + 1);
        Self(Mutex::new(Recording { tree, ops: Vec::new(), next }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has said this by now.
    pub(crate) fn say(&self, known: &Known) {
        self.lock().ops.push(Op::Said(Box::new(known.clone())));
    }
}

impl Recording {
    /// Does it, and notes it.
    pub(crate) fn note(&mut self, op: Op) {
        self.tree.apply(&op);
        self.ops.push(op);
    }

    /// Makes something new under a name that nothing has.
    pub(crate) fn create(&mut self, dir: Inode, name: String, is_dir: bool) -> Inode {
        let node = self.next;
        self.next += 1;
        self.note(Op::Create { dir, name, node, is_dir });
        node
    }
}
