//! What is to survive a power cut, and who waits for that.

use base::{NodeId, Seq, WallTime};

use crate::primary::{Peer, majority_of};
use crate::replica::Role;
use crate::{
    AskError, Bug, Machine, Mark, Message, Output, Position, Replica, SyncError, Ticket, Waiting, When,
};

/// Somebody waits until a majority has all up to somewhere for good.
#[derive(Clone, Copy, Hash, Debug)]
pub(crate) struct Sync {
    pub(crate) upto: Position,
    /// Whoever waits for it; nobody if it is for a view.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) asked: WallTime,
}

impl<M: Machine> Replica<M> {
    /// Makes everything up to something that was acknowledged durable at a majority. That it is comes as
    /// [`Output::Durable`].
    ///
    /// `oldest` is what was acknowledged first of all that has not been made durable, and `upto` the last.
    pub fn sync(
        &mut self,
        now: WallTime,
        ticket: Ticket,
        (oldest, upto): (Mark, Mark),
    ) -> Result<(), SyncError> {
        self.check_asking()?;
        let Role::Primary(primary) = &self.role else { return Err(AskError::NotPrimary.into()) };
        // Another has led since, and knows: this one's time has passed, whatever its clock shows.
        let is_later = |mark: Mark| mark.at.epoch > primary.tenure.epoch;
        if is_later(oldest) || is_later(upto) {
            return Err(AskError::NotPrimary.into());
        }
        let is_same = oldest.generation == primary.generation && upto.generation == primary.generation;
        if !is_same && !self.config.breaks(Bug::SyncIgnoresGeneration) || !self.may_contain(upto.at) {
            return Err(SyncError::Lost(oldest.at));
        }
        self.sync_upto(now, ticket, upto.at);
        Ok(())
    }

    /// The same for everything that is committed.
    pub fn sync_committed(&mut self, now: WallTime, ticket: Ticket) -> Result<(), AskError> {
        self.check_asking()?;
        let upto = self.committed();
        self.sync_upto(now, ticket, upto);
        Ok(())
    }

    fn sync_upto(&mut self, now: WallTime, ticket: Ticket, upto: Position) {
        let Role::Primary(primary) = &mut self.role else { return };
        // Who has what is waited for and was asked for it is not asked for this besides.
        let is_asked = primary.syncs.last().is_some_and(|last| {
            let answers = |peer: &Peer| peer.synced >= upto.seq || peer.matched >= last.upto.seq;
            last.upto.seq >= upto.seq && primary.peers.values().all(answers)
        });
        primary.syncs.push(Sync { upto, ticket: Some(ticket), asked: now });
        if !primary.habit.note(upto.seq) && !is_asked {
            self.ask_for_syncs(upto);
        }
        // If it was made durable with something later, nobody has anything to say to it.
        self.conclude_syncs(now);
    }

    /// Where each change is made durable, all are asked for that together with what was proposed last. It saves time if the disk has
    /// nothing else to do, and takes some if it has.
    pub fn sync_ahead(&mut self) {
        let tail = self.log.tail().seq;
        if let Role::Primary(primary) = &mut self.role
            && primary.habit.expects(tail)
        {
            self.sync_with_last();
        }
    }

    /// What was proposed last is to be durable: all are asked for that together with it.
    pub fn sync_with_last(&mut self) {
        let at = self.log.tail();
        let Role::Primary(primary) = &mut self.role else { return };
        // Whoever was not sent the entry yet has nothing to sync, and is asked again when it is committed.
        let is_sent = |(&node, peer): (&NodeId, &Peer)| node == self.me || peer.sent >= at.seq;
        if primary.peers.iter().all(is_sent) {
            primary.habit.asked = at.seq;
        }
        self.ask_for_syncs(at);
    }

    pub(crate) fn ask_for_syncs(&mut self, upto: Position) {
        let Role::Primary(primary) = &self.role else { return };
        let behind = primary.peers.iter().filter(|(_, peer)| peer.synced < upto.seq);
        let behind: Vec<NodeId> = behind.map(|(&node, _)| node).collect();
        behind.into_iter().for_each(|node| self.ask_for_sync(node, upto));
    }

    /// Does again what was not answered.
    pub(crate) fn ask_again_for_syncs(&mut self, now: WallTime) {
        let retry_after = self.config.retry_after;
        let Role::Primary(primary) = &mut self.role else { return };
        if !primary.syncs.iter().any(|sync| now.since(sync.asked) >= retry_after) {
            return;
        }
        // All with one question, or each of many would have its own.
        primary.syncs.iter_mut().for_each(|sync| sync.asked = now);
        // Whoever is behind has nothing to say of what it does not have.
        let has = |(&node, peer): (&NodeId, &Peer)| {
            let all = primary.syncs.iter().map(|sync| sync.upto);
            let upto = all.filter(|upto| upto.seq <= peer.matched).max()?;
            (upto.seq > peer.synced).then_some((node, upto))
        };
        let behind: Vec<(NodeId, Position)> = primary.peers.iter().filter_map(has).collect();
        behind.into_iter().for_each(|(node, upto)| self.ask_for_sync(node, upto));
    }

    fn ask_for_sync(&mut self, node: NodeId, upto: Position) {
        let Role::Primary(primary) = &self.role else { return };
        let epoch = primary.tenure.epoch;
        if node != self.me {
            self.send(node, Message::Sync { epoch, upto }, When::Now);
        } else if self.outlives_a_start() {
            self.send(node, Message::Synced { epoch, upto }, When::Durable(self.last_io()));
        }
    }

    pub(crate) fn conclude_syncs(&mut self, now: WallTime) {
        let committed = self.log.committed();
        let electorates = self.electorates();
        let me = self.me;
        let alone = self.config.breaks(Bug::SyncByPrimaryAlone);
        let Role::Primary(primary) = &mut self.role else { return };
        let until = primary.tenure.until;
        let peers = &primary.peers;
        let by_all = electorates.iter().map(|members| majority_of(members, peers, &|peer| peer.synced)).min();
        let own = peers.get(&me).filter(|_| alone).map(|peer| peer.synced);
        let durable = own.or(by_all).unwrap_or(Seq(0));
        let (done, waiting): (Vec<Sync>, Vec<Sync>) =
            primary.syncs.iter().partition(|sync| sync.upto.seq <= committed.min(durable));
        primary.syncs = waiting;
        for ticket in done.into_iter().filter_map(|sync| sync.ticket) {
            let told = Output::Durable { ticket, until };
            self.tell(now, until, told, Waiting::Ticket(ticket));
        }
    }
}
