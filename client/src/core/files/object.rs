//! One file, as far as a client has to do with it: whom to ask, what waits, and what is not known to be durable.

use std::collections::{BTreeMap, BTreeSet};

use base::{MonoTime, NodeId};
use node::file::Mark;

use super::debts::Debt;
use super::job::{Syncing, Wish};
use super::link::Links;
use super::{Bug, FileTicket, Rules, UNDER_WAY_MAX, UNSYNCED_MAX};

#[derive(Debug)]
pub(super) struct Object {
    /// Who may answer for it: those that the map names, the preferred one first, and then whoever was named by a daemon.
    members: Vec<NodeId>,
    /// Who is believed to.
    turn: usize,
    /// The number of the next change.
    next: u64,
    /// What waits for its turn.
    pub(super) queue: BTreeMap<FileTicket, Wish>,
    /// What was done here already, for which numbers were kept.
    pub(super) entries: BTreeMap<FileTicket, Wish>,
    /// So many numbers are kept for these, and for more that are to come.
    promised: usize,
    /// How many requests are under way, without the sync.
    pub(super) under_way: usize,
    /// The numbers of the changes among them.
    pub(super) open: BTreeSet<u64>,
    /// Whether it was removed. Nothing is owed of it when nobody has it open.
    pub(super) is_removed: bool,
    /// Changes that are not known to be durable, in the order of their acknowledgements.
    pub(super) owed: BTreeMap<u64, (FileTicket, Mark)>,
    /// Another client owes these, too, up to here.
    handed_over: u64,
    /// The sync that is under way.
    pub(super) sync: Option<FileTicket>,
    /// Who waits for the next one.
    pub(super) waiters: BTreeSet<FileTicket>,
}

impl Object {
    /// A file to which this client has not sent a change of the number `next` or above.
    pub(super) const fn new(members: Vec<NodeId>, next: u64) -> Self {
        Self {
            members,
            turn: 0,
            next,
            queue: BTreeMap::new(),
            entries: BTreeMap::new(),
            promised: 0,
            under_way: 0,
            open: BTreeSet::new(),
            is_removed: false,
            owed: BTreeMap::new(),
            handed_over: 0,
            sync: None,
            waiters: BTreeSet::new(),
        }
    }

    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether nothing is to be known of it but the next number.
    pub(super) fn is_idle(&self) -> bool {
        let has_nothing = self.queue.is_empty() && self.owed.is_empty() && self.waiters.is_empty();
        has_nothing && self.under_way == 0 && self.promised == 0 && self.sync.is_none()
    }

    /// The client waits for no reply to a change below this one.
    pub(super) fn settled(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }

    /// It waits for its turn.
    pub(super) fn put(&mut self, ticket: FileTicket, wish: Wish) {
        let is_done_here = matches!(wish, Wish::Enter(..) | Wish::OpenOwn(_));
        let waiting = if is_done_here { &mut self.entries } else { &mut self.queue };
        waiting.insert(ticket, wish);
    }

    /// Whether there is a number for one more change. A daemon keeps the outcomes of all that are not settled.
    pub(super) fn has_number(&self) -> bool {
        let numbers = self.next - self.settled() + self.promised as u64;
        let unsynced = self.owed.len() + self.open.len() + self.promised;
        numbers < UNDER_WAY_MAX as u64 && unsynced < UNSYNCED_MAX
    }

    /// A number is kept for a change that is to come.
    pub(super) const fn promise(&mut self) {
        self.promised += 1;
    }

    /// One that was kept is not wanted any more.
    pub(super) const fn renounce(&mut self) {
        self.promised -= 1;
    }

    /// Takes the next wish, if its turn has come. What has its number goes first: whatever else waits, here or at a daemon, may wait for
    /// that.
    pub(super) fn take_next(&mut self, rules: Rules) -> Option<(FileTicket, Wish)> {
        let waits = rules.breaks(Bug::EntriesWait) && self.under_way >= UNDER_WAY_MAX;
        if !waits && let Some(entry) = self.entries.pop_first() {
            self.promised -= 1;
            self.under_way += 1;
            return Some(entry);
        }
        let (_, wish) = self.queue.first_key_value()?;
        let fits = match wish {
            Wish::Change(..) | Wish::Enter(..) | Wish::Flush(..) => self.has_number(),
            Wish::Create | Wish::Ask(_) | Wish::Open(_) | Wish::OpenOwn(_) => true,
        };
        if !fits || self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        self.under_way += 1;
        self.queue.pop_first()
    }

    /// The number of a change that is about to be sent.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number);
        number
    }

    /// Who is believed to answer for it.
    pub(super) fn target(&self) -> NodeId {
        self.members[self.turn]
    }

    /// Whom to ask: who is believed to answer, else the next that is there, who is believed to from now on.
    pub(super) fn pick(&mut self, links: &Links, now: MonoTime) -> Option<NodeId> {
        if !links.is_up(self.target()) {
            self.turn = self.next_in_turn(links, now);
        }
        Some(self.target()).filter(|&node| links.is_up(node))
    }

    /// The one asked does not answer for it. Only whoever is believed to can change what is believed. Returns whom it has named,
    /// if that makes sense: whoever asked goes there, also if others have come to believe something else meanwhile.
    pub(super) fn pass(
        &mut self,
        asked: NodeId,
        hint: Option<NodeId>,
        (links, now): (&Links, MonoTime),
    ) -> Option<NodeId> {
        let named = hint.filter(|&hint| hint != asked && links.is_up(hint));
        if self.target() == asked {
            self.turn = match named {
                Some(hint) => self.place_of(hint),
                None => self.next_in_turn(links, now),
            };
        }
        named
    }

    /// The members of a file may have changed since the map was all that was known. There are not more of them than daemons
    /// that this client is connected with.
    fn place_of(&mut self, node: NodeId) -> usize {
        self.members.iter().position(|&member| member == node).unwrap_or_else(|| {
            self.members.push(node);
            self.members.len() - 1
        })
    }

    /// The next one that answers, or at least is there.
    fn next_in_turn(&self, links: &Links, now: MonoTime) -> usize {
        let count = self.members.len();
        let in_turn = || (1..=count).map(|step| (self.turn + step) % count);
        let answering = in_turn().find(|&at| links.answers(self.members[at], now));
        let there = || in_turn().find(|&at| links.is_up(self.members[at]));
        answering.or_else(there).unwrap_or((self.turn + 1) % count)
    }

    /// What is owed and was not handed over before.
    pub(super) fn hand_over(&mut self) -> Option<Debt> {
        let debt = self.debt(self.handed_over.saturating_add(1));
        self.handed_over = self.owed.last_key_value().map_or(self.handed_over, |(&order, _)| order);
        debt
    }

    /// What is owed from this one on.
    fn debt(&self, from: u64) -> Option<Debt> {
        let marks = || self.owed.range(from..).map(|(_, &(_, mark))| mark);
        // In which generation something was acknowledged says whether it may be lost; where it stands, what there is
        // to sync.
        let oldest = marks().min_by_key(|mark| (mark.generation, mark.at))?;
        let newest = marks().max_by_key(|mark| mark.at)?;
        Some(Debt { oldest, newest })
    }

    /// What a sync of everything that is owed covers, on behalf of all who wait for one.
    pub(super) fn begin_sync(&mut self) -> Option<Syncing> {
        let upto = *self.owed.last_key_value()?.0;
        let Debt { oldest, newest } = self.debt(0)?;
        let waiters = std::mem::take(&mut self.waiters).into_iter().collect();
        Some(Syncing { oldest, newest, upto, waiters })
    }

    /// What a sync covered is not owed any longer.
    pub(super) fn settle_owed(&mut self, upto: u64) -> Vec<FileTicket> {
        let rest = self.owed.split_off(&upto.saturating_add(1));
        let covered = std::mem::replace(&mut self.owed, rest);
        covered.into_values().map(|(ticket, _)| ticket).collect()
    }
}
