//! What has to be known of a node to judge the world: found out once for each state of a node.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use base::Seq;
use replication::{Config, Output, Position, Standing, Ticket};

use crate::node::{NOW, Node, index, small};
use crate::tiny;

/// A node as the properties see it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) standing: Standing,
    /// The number of its tenure; zero if it has none.
    pub(crate) tenure: u8,
    /// What it would answer: a bit for each operation. None if it would not.
    pub(crate) answer: Option<u8>,
    /// The loss generation of what is committed.
    pub(crate) generation: u8,
    /// Whether a request took effect twice in what is committed.
    pub(crate) twice: bool,
    /// The number of the last epoch that it has promised on disk.
    pub(crate) promised: u8,
    /// The committed view: its members, a bit each.
    pub(crate) members: u8,
    /// Its log: the position of each entry, and what is in it.
    pub(crate) log: Vec<(Position, u64)>,
    /// Up to where that is committed, and what it has made. None if there is no state that makes sense.
    pub(crate) committed: Option<(Position, u64)>,
    pub(crate) is_whole: bool,
    pub(crate) has_unwritten: bool,
    pub(crate) has_unsynced: bool,
    pub(crate) is_busy: bool,
}

impl Facts {
    pub(crate) fn of(node: &Node, config: &Arc<Config>, hasher: &RandomState) -> Self {
        let replica = &node.replica;
        let standing = replica.standing();
        let entries = (1..=replica.tail().seq.0).filter_map(|seq| replica.entry(Seq(seq)));
        // What is lacking is in no state.
        let whole = replica.is_sound().then(|| {
            let made = hasher.hash_one((replica.machine(), replica.rest()));
            (replica.rest().at, made)
        });
        let members = replica.view().members.as_slice().iter();
        let lists = replication::Machine::answer(replica.machine(), &());
        Self {
            standing,
            tenure: small(node.tenure),
            answer: answer(node),
            generation: small(replica.rest().generation.number),
            twice: whole.is_some() && tiny::executed(lists).1,
            promised: small(node.promised_on_disk(config)),
            members: members.fold(0, |bits, &member| bits | 1 << index(member)),
            log: entries.map(|entry| (entry.at, hasher.hash_one(&entry.body))).collect(),
            committed: whole,
            is_whole: replica.is_whole(),
            has_unwritten: node.has_unwritten(),
            has_unsynced: node.has_unsynced(),
            is_busy: replica.poll_timeout().is_some(),
        }
    }
}

/// What the node would answer now.
fn answer(node: &Node) -> Option<u8> {
    if !matches!(node.replica.standing(), Standing::Serving | Standing::Recovering) {
        return None;
    }
    let mut replica = node.replica.clone();
    replica.ask(NOW, Ticket(u64::MAX), ()).ok()?;
    let outputs = std::iter::from_fn(|| replica.poll_output());
    let answers = outputs.filter_map(|output| match output {
        Output::Answer { answer, .. } => Some(tiny::executed(answer).0),
        _ => None,
    });
    answers.last()
}
