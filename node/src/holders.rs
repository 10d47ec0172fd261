//! Who has which files of a volume open, as the volume's primary knows it.
//!
//! To open a file costs no entry. A client is on record in the volume once, before it opens its first file; from then on it tells the
//! primary now and then what it has open. A primary notes beside that what it has opened itself, so that it knows at least
//! all that a client has open which has told it something in this tenure. Of others it takes everything to be open. So whoever
//! takes a file's last name away needs to ask nobody: the entry that does it records as holders whoever may have the file open.
//! Whoever turns out not to have it open, or no longer, gives it up by an entry.
//!
//! Rules:
//!
//! - A client counts its openings. What it tells is true of all up to one of them; a later one stays noted, however late
//!   that comes. What it tells is of one tenure, and means nothing in another one: it may have opened something in between.
//! - A hold goes by what its own client says, or with that client. A client goes by an entry: by its own, or when it was silent for
//!   [`client_gone`](crate::ShardConfig::client_gone). A new primary has heard of everybody when it began.
//! - Who has a file open keeps it open however long no daemon was there to renew what is shown for it: who that is is known here.
//! - While the entry is under way that may take a file's last name or a holder away, nobody opens the file.

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, Epoch, ObjectId, Span, WallTime};
use lease::Algorithm;
use namespace::limits::{CLIENTS_MAX, PAGE_MAX};
use namespace::{
    Answer as TreeAnswer, Ask, Change as TreeChange, ClientState, Done as TreeDone, Entry, Expect, InodeId,
    Key, Kind, NameError, Op as TreeOp, Part, Query as TreeQuery, RenameHow, Site, Who,
};
use replication::Position;

use crate::access::About;
use crate::file::{Change, Done, FileError, FileReplyBody, Names, Query};
use crate::files::{Asker, Hosted};
use crate::{Bug, CapabilityError, Rules, Shard, Unavailable};

/// So many entries about clients are made at a time.
const TENDED_AT_ONCE: usize = 64;
/// So many openings of a client are noted; of one with more everything is taken to be open.
const NOTED_MAX: usize = 2 * PAGE_MAX;
/// While no more clients are on record, those that have ended stay there, so that they are told.
const KEPT_MAX: u32 = CLIENTS_MAX / 2;
/// How often in the time after which a client is gone its volume is looked at.
const VISITS_PER_GONE: u64 = 8;

/// What a client tells the primary of a volume about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attendance {
    /// To which tenure. None if it knows none yet, or what it says would not be all.
    pub tenure: Option<Epoch>,
    /// It counts its openings: this is of all up to that one.
    pub stamp: u64,
    /// What it has open, or may be about to. None if that is too much to be told.
    pub open: Option<Vec<InodeId>>,
}

/// What a primary knows of a volume's clients in its tenure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    /// What clients have open, each by the last opening that is known.
    noted: BTreeMap<ClientId, BTreeMap<InodeId, u64>>,
    /// Who has told all that it had open.
    told: BTreeSet<ClientId>,
    /// What may lose its last name, or a holder, by the entry there.
    removing: BTreeMap<InodeId, Position>,
    /// The last entry about clients that nobody asked for.
    own: Option<Position>,
    /// Who was there when everybody was looked at first, and has not told since: whoever comes later opens everything here. None before that.
    untold: Option<BTreeSet<ClientId>>,
    /// For whom there may be something to do, perhaps for everybody, and when everybody was looked at last.
    due: Due,
    looked_at: WallTime,
    /// Whether it is known when the volume is looked at next.
    is_visited: bool,
    /// Whether somebody is on record who may have something open: then somebody has to lead the volume.
    pub(crate) is_needed: bool,
}

/// Clients to look at.
#[derive(Clone, Debug, Default)]
struct Due {
    all: bool,
    some: BTreeSet<ClientId>,
}

impl Due {
    const ALL: Self = Self { all: true, some: BTreeSet::new() };

    fn is_any(&self) -> bool {
        self.all || !self.some.is_empty()
    }
}

impl Holders {
    /// At the beginning of a tenure nothing is known, and everything is to be looked at.
    pub(crate) fn begin() -> Self {
        Self { due: Due::ALL, ..Self::default() }
    }

    /// There may be something to do for a client.
    pub(crate) fn look_at(&mut self, client: ClientId) {
        self.due.some.insert(client);
    }

    /// A client opens something.
    fn note(&mut self, client: ClientId, (inode, stamp): (InodeId, u64)) {
        let noted = self.noted.entry(client).or_default();
        let last = noted.entry(inode).or_default();
        *last = stamp.max(*last);
        if noted.len() > NOTED_MAX {
            self.noted.remove(&client);
            self.is_untold(client);
        }
    }

    /// Of a client everything is to be taken to be open.
    fn is_untold(&mut self, client: ClientId) {
        self.told.remove(&client);
        if let Some(untold) = &mut self.untold {
            untold.insert(client);
        }
    }

    /// A client says what it has open.
    fn hear(&mut self, client: ClientId, (stamp, open): (u64, Option<&[InodeId]>), rules: Rules) {
        self.due.some.insert(client);
        let Some(open) = open else { return self.is_untold(client) };
        let noted = self.noted.entry(client).or_default();
        let forgets_later = rules.breaks(Bug::LaterOpeningForgotten);
        noted.retain(|_, opening| *opening > stamp && !forgets_later);
        for &inode in open {
            noted.entry(inode).or_insert(stamp);
        }
        self.told.insert(client);
        if let Some(untold) = &mut self.untold {
            untold.remove(&client);
        }
    }

    /// These are on record, and may have something open. What is known of others is forgotten.
    fn keep(&mut self, alive: &BTreeSet<ClientId>) {
        self.noted.retain(|client, _| alive.contains(client));
        self.told.retain(|client| alive.contains(client));
        let told = &self.told;
        let untold = self.untold.get_or_insert_with(|| alive.difference(told).copied().collect());
        untold.retain(|client| alive.contains(client));
    }

    /// Who may have an inode open.
    fn who_may_hold(&self, inode: InodeId, tree: &Names, rules: Rules) -> Vec<ClientId> {
        let told = &self.told;
        let is_untold = |(client, state): &_| *state == ClientState::Alive && !told.contains(client);
        let scan = || clients(tree).filter(is_untold).map(|(client, _)| client).collect();
        let mut all: BTreeSet<_> = self.untold.clone().unwrap_or_else(scan);
        all.extend(
            self.noted.iter().filter(|(_, noted)| noted.contains_key(&inode)).map(|(&client, _)| client),
        );
        all.retain(|&client| tree.client(client) == Some(ClientState::Alive));
        all.into_iter().filter(|&client| self.may_hold(client, inode, rules)).collect()
    }

    /// Whether a client may have an inode open.
    fn may_hold(&self, client: ClientId, inode: InodeId, rules: Rules) -> bool {
        let is_noted = self.noted.get(&client).is_some_and(|noted| noted.contains_key(&inode));
        is_noted || !self.told.contains(&client) && !rules.breaks(Bug::UntoldHoldNothing)
    }

    /// Whether a client is known to have it open; planted bugs ask.
    pub(crate) fn is_open_somewhere(&self, inode: InodeId) -> bool {
        self.noted.values().any(|noted| noted.contains_key(&inode))
    }

    /// Says in a change that may take a last name away who may have open what has it, and that it is that which has it.
    pub(crate) fn enter(&self, change: &mut TreeChange, tree: &Names, rules: Rules) {
        let (site, holders) = match change {
            TreeChange::Unlink { site, holders, .. } => (Some(site), holders),
            TreeChange::Rename { to, how: RenameHow::Replace, holders, .. } => (Some(to), holders),
            TreeChange::Rename { holders, .. } | TreeChange::RemoveDirectory { holders, .. } => {
                (None, holders)
            }
            _ => return,
        };
        holders.clear();
        let Some(site) = site else { return };
        let named = target(tree, site);
        if site.expect == Expect::Any {
            site.expect = named.map_or(Expect::Nothing, |named| Expect::Inode(named.inode));
        }
        // The entry takes away what it says, which a change before it may have put there.
        let Expect::Inode(inode) = site.expect else { return };
        let is_file = named.is_none_or(|named| named.inode != inode || named.kind == Kind::File);
        if is_file && !rules.breaks(Bug::HoldersInMemory) {
            holders.extend(self.who_may_hold(inode, tree, rules));
        }
    }

    /// The entry there does this.
    pub(crate) fn note_removal(&mut self, change: &Change, at: Position) {
        if let Change::Tree(op) = change
            && let TreeChange::Unlink { site, .. } | TreeChange::Rename { to: site, .. } = &op.change
            && let Expect::Inode(inode) = site.expect
        {
            self.removing.insert(inode, at);
        }
    }
}

impl Hosted {
    fn tree(&self) -> &Names {
        self.replica.machine().tree()
    }

    /// Refuses what a client must not open, and notes what it opens otherwise.
    fn note_opening(
        &mut self,
        client: ClientId,
        (inode, stamp): (InodeId, u64),
    ) -> Result<(), FileReplyBody> {
        let refused = |error: NameError| Err(FileReplyBody::Refused(FileError::Tree(error)));
        match self.tree().client(client) {
            None | Some(ClientState::Caching) => return refused(NameError::NoClient { client }),
            Some(ClientState::Ending | ClientState::Ended) => return refused(NameError::Expired { client }),
            Some(ClientState::Alive) => {}
        }
        if self.holders.removing.contains_key(&inode) {
            return Err(FileReplyBody::Unavailable(Unavailable::Overloaded));
        }
        if is_orphan(self.tree(), inode) && self.tree().part(&Key::Hold(inode, client)).is_none() {
            return refused(NameError::NoInode { inode });
        }
        self.holders.note(client, (inode, stamp));
        Ok(())
    }
}

impl<A: Algorithm> Shard<A> {
    /// A tenure begins.
    pub(crate) fn begin_holders(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.holders = Holders::begin();
        self.visit_again(now, object);
    }

    /// A client says that it is there, and what it has open.
    pub(crate) fn attend(&mut self, now: WallTime, object: ObjectId, asker: Asker, said: &Attendance) {
        let rules = self.config.rules();
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let Asker { client, .. } = asker;
        let tenure = hosted.replica.promised();
        let body = match hosted.tree().client(client) {
            None | Some(ClientState::Caching) => {
                FileReplyBody::Refused(NameError::NoClient { client }.into())
            }
            Some(ClientState::Ending | ClientState::Ended) => {
                FileReplyBody::Refused(NameError::Expired { client }.into())
            }
            Some(ClientState::Alive) => {
                hosted.heard.insert(client, now);
                if said.tenure == Some(tenure) || said.tenure.is_some() && rules.breaks(Bug::AnyTenureTold) {
                    hosted.holders.hear(client, (said.stamp, said.open.as_deref()), rules);
                }
                FileReplyBody::Attended { tenure, is_told: hosted.holders.told.contains(&client) }
            }
        };
        let until = self.lease.valid_until(now, object);
        let unknown = FileReplyBody::Unavailable(Unavailable::NoMajority);
        self.files.reply(asker, if until.is_some() { body } else { unknown }, until);
        self.visit_again(now, object);
        self.drain_replica(now, object);
    }

    /// What a client opens is noted before it is answered. Who has ended opens nothing.
    pub(crate) fn opens(
        &mut self,
        object: ObjectId,
        asker: Asker,
        (query, about): (&Query, About),
    ) -> Result<(), FileReplyBody> {
        let (About::Open(_), Query::Tree(query)) = (about, query) else { return Ok(()) };
        let (Ask::Attributes { inode } | Ask::Access { inode, .. }) = query.ask else { return Ok(()) };
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return Ok(()) };
        if let Some(stamp) = asker.holds {
            return hosted.note_opening(asker.client, (inode, stamp));
        }
        match hosted.tree().client(asker.client) {
            Some(ClientState::Ending | ClientState::Ended) => {
                Err(FileReplyBody::Refused(NameError::Expired { client: asker.client }.into()))
            }
            Some(ClientState::Alive | ClientState::Caching) | None => Ok(()),
        }
    }

    /// Whether a client may go on with a file for which what it shows expired so long ago: if it is one that may have it open.
    pub(crate) fn keeps_open(
        &self,
        object: ObjectId,
        (client, inode): (ClientId, InodeId),
        ago: Span,
    ) -> Result<(), FileError> {
        let rules = self.config.rules();
        let may_hold = |hosted: &Hosted| match hosted.tree().client(client) {
            None | Some(ClientState::Caching) => Ok(false),
            Some(ClientState::Ending | ClientState::Ended) => Err(NameError::Expired { client }),
            Some(ClientState::Alive) => Ok(hosted.holders.may_hold(client, inode, rules)),
        };
        let keeps = self.files.hosted.get(&object).map_or(Ok(false), |hosted| may_hold(hosted))?;
        if keeps || rules.breaks(Bug::ClosedRenewed) {
            return Ok(());
        }
        Err(CapabilityError::Expired { ago }.into())
    }

    /// What a client has created it has open, unless somebody has taken it away meanwhile.
    pub(crate) fn created_open(
        &mut self,
        object: ObjectId,
        asker: Asker,
        outcome: &Result<Done, FileError>,
    ) -> Asker {
        let (Some(stamp), Ok(Done::Tree(done))) = (asker.holds, outcome) else { return asker };
        let TreeDone::Created { attributes, .. } = &**done else { return asker };
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return asker };
        let is_open = hosted.note_opening(asker.client, (attributes.inode, stamp)).is_ok();
        Asker { is_shown: asker.is_shown && is_open, ..asker }
    }

    /// When a client has ended there may be nobody left for whom the volume has to be led.
    pub(crate) fn note_end(&mut self, object: ObjectId, outcome: &Result<Done, FileError>) {
        if let Ok(Done::Tree(done)) = outcome
            && let TreeDone::Expired { .. } = **done
            && let Some(hosted) = self.files.hosted.get_mut(&object)
        {
            hosted.holders.due.all = true;
        }
    }

    /// Looks after a volume's clients now and then, as long as there are any.
    pub(crate) fn visit_volumes(&mut self, now: WallTime) {
        while let Some(&(at, object)) = self.files.visits.first().filter(|&&(at, _)| at <= now) {
            self.files.visits.remove(&(at, object));
            let Some(hosted) = self.files.hosted.get_mut(&object).filter(|hosted| hosted.serves()) else {
                continue;
            };
            let every = self.config.client_gone / VISITS_PER_GONE;
            if hosted.holders.looked_at + every <= now {
                (hosted.holders.due, hosted.holders.looked_at) = (Due::ALL, now);
                hosted.holders.is_visited = false;
                self.visit_again(now, object);
            }
            self.drain_replica(now, object);
        }
    }

    /// A volume is looked at for as long as it is one.
    fn visit_again(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let is_volume = hosted.replica.machine().volume_name().is_ok();
        if is_volume && !std::mem::replace(&mut hosted.holders.is_visited, true) {
            self.files.visits.insert((now + self.config.client_gone / VISITS_PER_GONE, object));
        }
    }

    /// Makes entries of what follows from what is known of a volume's clients. Whether there is something new to be done.
    pub(crate) fn tend_volume(&mut self, now: WallTime, object: ObjectId) -> bool {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let committed = hosted.replica.committed();
        hosted.holders.removing.retain(|_, at| committed < *at);
        if hosted.replica.machine().volume_name().is_err() {
            // What is removed has no clients.
            hosted.holders.is_needed = false;
            return false;
        }
        if hosted.holders.own.is_some_and(|at| committed < at) {
            return false;
        }
        let mut due = Due::default();
        let wanted = if hosted.tree().is_unsettled() {
            vec![TreeChange::Settle]
        } else if hosted.holders.due.is_any() {
            due = std::mem::take(&mut hosted.holders.due);
            self.wanted_of_clients(now, object, &due)
        } else {
            return false;
        };
        // What is refused for now is looked at again, and what is not is once more, when this has come to something.
        let (mut last, is_any) = (None, !wanted.is_empty());
        for change in wanted {
            let (released, forgotten) = match change {
                TreeChange::Release { inode, .. } => (Some(inode), None),
                TreeChange::Forget { client } => (None, Some(client)),
                _ => (None, None),
            };
            let op = Change::Tree(TreeOp::wanted(Who::root(), change).into());
            let Some(at) = self.propose_own(now, object, op) else { break };
            last = Some(at);
            let Some(hosted) = self.files.hosted.get_mut(&object) else { break };
            hosted.holders.removing.extend(released.map(|inode| (inode, at)));
            forgotten.into_iter().for_each(|client| hosted.grants.leaves(client, at.seq));
        }
        if let Some(hosted) = self.files.hosted.get_mut(&object).filter(|_| is_any) {
            // Too much may be under way: then that has to be over first.
            hosted.holders.own = Some(last.unwrap_or_else(|| hosted.replica.tail()));
            hosted.holders.due.all |= due.all;
            hosted.holders.due.some.append(&mut due.some);
        }
        last.is_some()
    }

    /// Whose end is to be an entry, and who holds what it has not open.
    fn wanted_of_clients(&mut self, now: WallTime, object: ObjectId, due: &Due) -> Vec<TreeChange> {
        let mut here = self.sessions.clients();
        // What is granted to them counts as long as they may count on it.
        here.extend(self.granting.counting());
        let (rules, gone) = (self.config.rules(), self.config.client_gone);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return Vec::new() };
        let tree = hosted.replica.machine().tree();
        let (is_crowded, has_begun) = (counts(tree) > KEPT_MAX, hosted.grants.have_begun());
        let looked_at: Vec<_> = if due.all {
            clients(tree).collect()
        } else {
            due.some.iter().filter_map(|&client| Some((client, tree.client(client)?))).collect()
        };
        let (mut wanted, mut lenders) = (Vec::new(), Vec::new());
        // Who ends does so over several entries.
        let is_there = |state: &ClientState| matches!(state, ClientState::Alive | ClientState::Ending);
        let is_needed = looked_at.iter().any(|(_, state)| is_there(state));
        for &(client, state) in &looked_at {
            let heard = hosted.heard.get(&client).copied().unwrap_or(hosted.led_since);
            let grace = if rules.breaks(Bug::UntoldEnded) { Span::ZERO } else { gone };
            let is_gone = heard + grace <= now && !here.contains(&client);
            let is_told = hosted.holders.told.contains(&client);
            match state {
                // What is lent to it goes back first.
                ClientState::Ending if !tree.lent_to(client, 1).is_empty() => lenders.push(client),
                ClientState::Ending => wanted.push(TreeChange::Expire { client }),
                ClientState::Alive if is_gone && !rules.breaks(Bug::SilentKept) => {
                    wanted.push(TreeChange::Expire { client });
                }
                ClientState::Alive if is_told => {
                    let held = held_by(tree, client).into_iter();
                    let closed = held.filter(|&inode| !hosted.holders.may_hold(client, inode, rules));
                    wanted.extend(closed.flat_map(|inode| releases(tree, (inode, client), rules)));
                }
                ClientState::Ended if is_gone && is_crowded => wanted.push(TreeChange::Forget { client }),
                // Of its cache it cannot count on anything any more.
                ClientState::Caching if is_gone && has_begun => wanted.push(TreeChange::Forget { client }),
                ClientState::Alive | ClientState::Caching | ClientState::Ended => {}
            }
            if wanted.len() >= TENDED_AT_ONCE {
                break;
            }
        }
        hosted.holders.is_needed = is_needed || !due.all && hosted.holders.is_needed;
        if due.all {
            let alive = looked_at.iter().filter(|(_, state)| *state == ClientState::Alive);
            hosted.holders.keep(&alive.map(|&(client, _)| client).collect());
        }
        lenders.retain(|_| !rules.breaks(Bug::ClientLendForgotten));
        lenders.into_iter().for_each(|client| self.recall_from(now, object, client));
        wanted
    }
}

/// What a name names.
fn target(tree: &Names, site: &Site) -> Option<Entry> {
    match tree.part(&Key::Entry(site.dir, site.name.clone()))? {
        Part::Entry(entry) => Some(entry),
        _ => None,
    }
}

fn is_orphan(tree: &Names, inode: InodeId) -> bool {
    match tree.part(&Key::Inode(inode)) {
        Some(Part::Inode(found)) => found.links == 0,
        _ => false,
    }
}

fn ask(tree: &Names, ask: Ask) -> Option<TreeAnswer> {
    tree.answer(&TreeQuery { who: Who::root(), ask }).ok()
}

fn counts(tree: &Names) -> u32 {
    match ask(tree, Ask::Statfs) {
        Some(TreeAnswer::Volume(volume)) => volume.clients,
        _ => 0,
    }
}

/// All clients on record.
fn clients(tree: &Names) -> impl Iterator<Item = (ClientId, ClientState)> {
    let mut after = None;
    let pages = std::iter::from_fn(move || match ask(tree, Ask::Clients { after }) {
        Some(TreeAnswer::Clients(page)) => {
            after = Some(page.last()?.0);
            Some(page)
        }
        _ => None,
    });
    pages.flatten()
}

/// Some of the orphans that a client holds.
fn held_by(tree: &Names, client: ClientId) -> Vec<InodeId> {
    match ask(tree, Ask::Holds { client, after: None }) {
        Some(TreeAnswer::Inodes(inodes)) => inodes,
        _ => Vec::new(),
    }
}

/// What ends a client's hold.
fn releases(tree: &Names, (inode, client): (InodeId, ClientId), rules: Rules) -> Vec<TreeChange> {
    let release = |client| TreeChange::Release { inode, client };
    if !rules.breaks(Bug::OthersReleased) {
        return vec![release(client)];
    }
    let holders = clients(tree).map(|(other, _)| other);
    holders.filter(|other| tree.part(&Key::Hold(inode, *other)).is_some()).map(release).collect()
}
