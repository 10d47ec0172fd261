//! What is kept of one volume.

mod entering;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use base::{Epoch, MonoTime, NodeId, Seq};
use namespace::{
    Answer, Ask, Attributes, Change, Done, Fate, InodeId, Kind, Lent, Listed, Make, Name, NameError, Op,
    Page, RenameHow, Rights, Sorted, Space, Target, Who,
};
use node::{CacheGrant, GrantKind, Named, Revoked};

pub(super) use self::entering::Entering;
use super::busy::{Alone, Busy};
use super::{ASKED_EVERY, Connection, NO_TENURE};

/// Of so many inodes it is known by which revocation they were taken back.
const REVOKED_MAX: usize = 4_096;
/// Of so many it is known what they may do with an inode.
const ALLOWED_MAX: usize = 4;
/// The bits of a mode that are about the owner.
const OWNER_SHIFT: u32 = 6;
/// What became of so many changes may not be known.
const ABANDONED_MAX: usize = 1_024;
/// A page has no more names.
const PAGE_MAX: usize = 512;

/// What is kept of a volume.
#[derive(Debug)]
pub(super) struct Volume {
    /// Over which connection it was granted, and by which tenure.
    pub(super) by: Option<Connection>,
    tenure: Epoch,
    /// What tenures before this one granted is over.
    below: Epoch,
    /// What was read before this is not kept, wherever nothing later is known.
    floor: Seq,
    /// Each by itself: an ordered map keeps room for nearly as many more.
    inodes: BTreeMap<InodeId, Box<Kept>>,
    names: usize,
    /// By the daemon that has revoked it.
    revoked: BTreeMap<NodeId, Revocations>,
    pub(super) busy: Busy,
    /// What is to stay busy until these connections are gone.
    abandoned: Vec<(Named, Vec<Connection>)>,
    /// Nothing is kept before these connections are gone.
    shut: Vec<Connection>,
    /// Where to look for what was not asked for lately.
    hand: Option<InodeId>,
    /// When a question goes to the daemon though its answer is known.
    due: Option<MonoTime>,
    /// Counts whatever may have changed what somebody may do.
    rights: u64,
    /// What was allowed last.
    allowed: Option<Allowed>,
}

/// What is kept of an inode.
#[derive(Debug, Default)]
struct Kept {
    attributes: Option<Attributes>,
    /// Where it leads, if it is a symbolic link. Very many are none.
    target: Option<Box<Target>>,
    /// What is in it, if it is a directory of which anything of that is known. Very many are none.
    inside: Option<Box<Inside>>,
    /// What somebody may do with it, as far as a daemon has said so. None is as nothing. Mostly it is the same of very many.
    allowed: Option<Allowed>,
    /// What was read before this is not kept.
    floor: Seq,
    /// Whether it has no attributes of its own in the space `security`: this client has made it, and nobody has set one since.
    is_bare: bool,
    /// Whether anything but that may be kept, and up to where everything had taken effect when that began.
    is_granted: bool,
    /// Whether users have here the numbers that they have in the volume. Whoever judges rights by itself may believe where it is then, if it
    /// is a directory.
    has_same_ids: bool,
    since: Seq,
    /// As long as this is the same nobody has changed who may do what with it.
    rights: u64,
    was_used: bool,
}

/// What is kept of what is in a directory.
#[derive(Debug, Default)]
struct Inside {
    names: Sorted<Name, Entry>,
    /// Up to where all names are known.
    listed: Listing,
    /// By which lend it is lent, to whomever, if that is known.
    lent: Option<Lent>,
}

/// Users, and what each of them may do.
type Allowed = Arc<[(Who, Rights)]>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Listing {
    #[default]
    Nothing,
    Upto(Name),
    All,
}

/// What a name stands for, if for anything.
type Entry = Option<(InodeId, Kind)>;

/// What was known of the names of a change, and up to where their directories were listed.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    names: Vec<(InodeId, Name, Option<Entry>)>,
    listings: Vec<(InodeId, Listing)>,
}

/// The revocations of a connection, by inode.
#[derive(Debug, Default)]
struct Revocations {
    /// Which connection.
    connection: u64,
    numbers: BTreeMap<InodeId, u64>,
    order: VecDeque<InodeId>,
    /// Of all others.
    floor: u64,
}

impl Default for Volume {
    fn default() -> Self {
        Self {
            by: None,
            tenure: NO_TENURE,
            below: NO_TENURE,
            floor: Seq(0),
            inodes: BTreeMap::new(),
            names: 0,
            revoked: BTreeMap::new(),
            busy: Busy::default(),
            abandoned: Vec::new(),
            shut: Vec::new(),
            hand: None,
            due: None,
            rights: 0,
            allowed: None,
        }
    }
}

impl Revocations {
    fn note(&mut self, inode: InodeId, number: u64) {
        if self.numbers.insert(inode, number).is_none() {
            self.order.push_back(inode);
        }
        while self.order.len() > REVOKED_MAX
            && let Some(number) = self.order.pop_front().and_then(|oldest| self.numbers.remove(&oldest))
        {
            self.floor = self.floor.max(number);
        }
    }

    fn of(&self, inode: InodeId) -> u64 {
        self.numbers.get(&inode).copied().unwrap_or(0).max(self.floor)
    }
}

impl Volume {
    /// How much is kept.
    pub(super) fn kept(&self) -> usize {
        self.inodes.len() + self.names
    }

    /// Nothing is granted any more.
    pub(super) fn drop_all(&mut self) {
        (self.by, self.due) = (None, None);
        let floors = self.inodes.values().map(|kept| kept.floor);
        self.floor = floors.fold(self.floor, Seq::max);
        self.inodes.clear();
        self.names = 0;
    }

    /// Some connection is gone. What these may not have done yet they will not do any more beside what they grant.
    pub(super) fn release(&mut self, is_present: impl Fn(&Connection) -> bool) {
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.abandoned).into_iter().partition(|(_, by)| by.iter().any(&is_present));
        self.abandoned = kept;
        self.shut.retain(is_present);
        gone.iter().for_each(|(named, _)| _ = self.busy.end(named));
    }

    /// The revocations of a connection. Numbers of an earlier one say nothing.
    fn revocations(&mut self, by: Connection) -> &mut Revocations {
        let revoked = self.revoked.entry(by.node).or_default();
        if revoked.connection != by.number {
            *revoked = Revocations { connection: by.number, ..Revocations::default() };
        }
        revoked
    }

    /// This tenure grants something over this connection. Whether that counts.
    pub(super) fn follow(&mut self, by: Connection, tenure: Epoch) -> bool {
        if tenure < self.tenure.max(self.below) || !self.shut.is_empty() {
            return false;
        }
        if (self.by, self.tenure) != (Some(by), tenure) {
            self.drop_all();
            (self.by, self.tenure) = (Some(by), tenure);
        }
        true
    }

    /// Something is taken back.
    pub(super) fn revoke(&mut self, by: Connection, number: u64, what: Revoked) {
        match what {
            Revoked::Inode { number: inode, epoch }
            | Revoked::Place { number: inode, epoch }
            | Revoked::Lend { number: inode, epoch, .. } => {
                let inode = InodeId { number: inode, epoch };
                self.revocations(by).note(inode, number);
                if self.by == Some(by) {
                    self.drop(inode);
                }
            }
            Revoked::All => {
                let revoked = self.revocations(by);
                revoked.floor = revoked.floor.max(number);
                if self.by == Some(by) {
                    self.drop_all();
                }
            }
            Revoked::Before(tenure) => {
                self.below = self.below.max(tenure);
                if self.tenure < self.below {
                    self.drop_all();
                }
            }
        }
    }

    /// Whether it is time for a question to the daemon. Asking again begins anew.
    pub(super) fn is_due(&mut self, now: MonoTime) -> bool {
        let is_due = self.due.is_some_and(|due| now >= due);
        if is_due || self.due.is_none() {
            self.due = Some(now + ASKED_EVERY);
        }
        is_due
    }

    /// The answer to a question, if it is known.
    pub(super) fn answer(&mut self, who: &Who, ask: &Ask) -> Option<Result<Answer, NameError>> {
        match ask {
            Ask::Lookup { dir, name } => self.lookup(who, *dir, name),
            Ask::Attributes { inode } => Some(Ok(Answer::Attributes(self.attributes(*inode)?))),
            Ask::Access { inode, rights } => {
                let may = self.may(who, *inode, *rights);
                may.then(|| Some(Ok(Answer::Attributes(self.attributes(*inode)?))))?
            }
            Ask::Readlink { inode } => {
                let kept = self.inodes.get_mut(inode)?;
                kept.was_used = true;
                Some(Ok(Answer::Target(Target::clone(kept.target.as_deref()?))))
            }
            // The kernel asks that of each file whose owner is set.
            Ask::GetXattr { inode, name }
                if name.space() == Space::Security && !self.busy.has_inode(*inode) =>
            {
                let kept = self.inodes.get(inode).filter(|kept| kept.is_bare)?;
                kept.attributes.is_some().then_some(Err(NameError::NoXattr { inode: *inode }))
            }
            Ask::List { dir, after, entries_max, with_attributes } => {
                let page = self.list(*dir, after.as_ref(), (*entries_max, *with_attributes))?;
                Some(Ok(Answer::Page(page)))
            }
            _ => None,
        }
    }

    /// What a name stands for, if for anything, which may be over.
    pub(super) fn named(&self, dir: InodeId, name: &Name) -> Option<Option<InodeId>> {
        Some(self.inodes.get(&dir)?.find(name)?.map(|(inode, _)| inode))
    }

    fn lookup(&mut self, who: &Who, dir: InodeId, name: &Name) -> Option<Result<Answer, NameError>> {
        if self.busy.has_name(dir, name) || !self.may(who, dir, Rights::EXECUTE) {
            return None;
        }
        let kept = self.inodes.get_mut(&dir)?;
        kept.was_used = true;
        match kept.find(name)? {
            Some((inode, _)) => Some(Ok(Answer::Attributes(self.attributes(inode)?))),
            None => Some(Err(NameError::NoEntry { dir })),
        }
    }

    /// Whether somebody is known to have these rights.
    fn may(&self, who: &Who, inode: InodeId, rights: Rights) -> bool {
        let allows =
            |(of, allowed): &(Who, Rights)| of == who && allowed.bits() & rights.bits() == rights.bits();
        !self.busy.has_rights(inode)
            && self.inodes.get(&inode).is_some_and(|kept| kept.allowed().iter().any(allows))
    }

    pub(super) fn attributes(&mut self, inode: InodeId) -> Option<Attributes> {
        if self.busy.has_inode(inode) {
            return None;
        }
        let kept = self.inodes.get_mut(&inode)?;
        kept.was_used = true;
        kept.attributes.clone()
    }

    /// As long as this is the same nobody has changed who may do what with an inode. None if that is not known.
    pub(super) fn rights(&self, inode: InodeId) -> Option<u64> {
        let kept = self.inodes.get(&inode).filter(|kept| kept.is_granted)?;
        (!self.busy.has_rights(inode)).then_some(kept.rights)
    }

    pub(super) fn has_same_ids(&self, inode: InodeId) -> bool {
        self.inodes.get(&inode).is_some_and(|kept| kept.is_granted && kept.has_same_ids)
    }

    /// What somebody may do with an inode is to be asked anew.
    pub(super) fn forget_rights(&mut self, inode: InodeId) {
        if let Some(kept) = self.inodes.get_mut(&inode) {
            kept.allowed = None;
            self.rights += 1;
            kept.rights = self.rights;
        }
    }

    /// Whether a directory is known to have this name, to whoever judges rights by itself.
    pub(super) fn is_placed(&self, inode: InodeId, (dir, name): (InodeId, &Name)) -> bool {
        let is_busy = self.busy.has_inode(inode) || self.busy.has_name(dir, name);
        !is_busy && self.has_same_ids(inode) && self.named(dir, name) == Some(Some(inode))
    }

    fn list(
        &mut self,
        dir: InodeId,
        after: Option<&Name>,
        (entries_max, with_attributes): (u32, bool),
    ) -> Option<Page> {
        if self.busy.has_names_in(dir) || self.busy.has_rights(dir) {
            return None;
        }
        let kept = self.inodes.get_mut(&dir)?;
        kept.was_used = true;
        let inside = kept.inside.as_ref()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let count = usize::try_from(entries_max).unwrap_or(PAGE_MAX).min(PAGE_MAX);
        let mut there =
            inside.names.range(from).filter_map(|(name, what)| what.map(|what| (name.clone(), what)));
        let found: Vec<(Name, (InodeId, Kind))> = there.by_ref().take(count).collect();
        let is_last = there.next().is_none();
        drop(there);
        let is_known = match (&inside.listed, found.last()) {
            (Listing::All, _) => true,
            (Listing::Upto(upto), Some((last, _))) => !is_last && last <= upto,
            _ => false,
        };
        if !is_known {
            return None;
        }
        let mut entries = Vec::new();
        for (name, (inode, kind)) in found {
            let attributes = if with_attributes { Some(self.attributes(inode)?) } else { None };
            entries.push(Listed { name, inode, kind, attributes });
        }
        Some(Page { entries, is_last })
    }

    /// A daemon has answered a question, and grants this.
    pub(super) fn tell(
        &mut self,
        (who, ask): (&Who, &Ask),
        answer: &Result<Answer, NameError>,
        grant: &CacheGrant,
    ) {
        match (ask, answer) {
            (Ask::Lookup { dir, name }, Ok(Answer::Attributes(attributes))) => {
                self.keep_name((*dir, name), Some((attributes.inode, attributes.kind)), (who, grant));
                self.keep_attributes(attributes, grant);
            }
            (Ask::Lookup { dir, name }, Err(NameError::NoEntry { dir: named })) if dir == named => {
                self.keep_name((*dir, name), None, (who, grant));
            }
            (Ask::Attributes { .. }, Ok(Answer::Attributes(attributes))) => {
                self.keep_attributes(attributes, grant);
            }
            (Ask::Access { inode, rights }, Ok(Answer::Attributes(attributes))) => {
                self.keep_attributes(attributes, grant);
                // What is lent to this client may have other permissions by now, which no daemon knows.
                if attributes.lent.is_none() && self.may_keep(*inode, grant) {
                    self.granted(*inode, grant);
                    self.allow(*inode, who, *rights);
                }
            }
            (Ask::Readlink { inode }, Ok(Answer::Target(target))) if self.may_keep(*inode, grant) => {
                self.granted(*inode, grant).target = Some(Box::new(target.clone()));
            }
            (Ask::List { dir, after, .. }, Ok(Answer::Page(page))) => {
                self.keep_page(*dir, after.as_ref(), (page, grant))
            }
            _ => {}
        }
    }

    /// This client may have given something an extended attribute.
    pub(super) fn dress(&mut self, change: &Change) {
        if let Change::SetXattr { inode, .. } = change
            && let Some(kept) = self.inodes.get_mut(inode)
        {
            kept.is_bare = false;
        }
    }

    /// What a change names is not known any more as it was, and what was read before the change is not to be kept.
    pub(super) fn forget(&mut self, named: &Named, at: Option<Seq>) -> Forgotten {
        for inode in &named.inodes {
            if let Some(at) = at
                && self.by.is_some()
            {
                let kept = self.inodes.entry(*inode).or_default();
                kept.floor = kept.floor.max(at);
            } else {
                self.floor = self.floor.max(at.unwrap_or_default());
            }
            if let Some(kept) = self.inodes.get_mut(inode) {
                kept.attributes = None;
            }
            if named.rights.contains(inode) {
                self.forget_rights(*inode);
            }
        }
        let known = |dir, name: &Name| self.inodes.get(&dir).and_then(|kept| kept.find(name));
        let names = named.names.iter().map(|(dir, name)| (*dir, name.clone(), known(*dir, name))).collect();
        let forget = |(dir, name): &(InodeId, Name)| Some((*dir, self.forget_name(*dir, name)?));
        Forgotten { names, listings: named.names.iter().filter_map(forget).collect() }
    }

    /// A change has come to this, as far as no other one was about the same.
    pub(super) fn take_in(
        &mut self,
        op: &Op,
        done: &Done,
        (alone, forgotten, grant): (&Alone, &Forgotten, &CacheGrant),
    ) {
        let is_alone = |dir: InodeId, name: &Name| alone.names.iter().any(|it| it.0 == dir && it.1 == *name);
        let mut learn = |dir: InodeId, name: &Name, what| {
            if is_alone(dir, name) {
                self.learn((dir, name), what, (&forgotten.listings, grant));
            }
        };
        match (&op.change, done) {
            (Change::Create { dir, name, make, .. }, Done::Created { attributes, is_new }) => {
                learn(*dir, name, Some((attributes.inode, attributes.kind)));
                if !self.busy.has_inode(attributes.inode) {
                    self.keep_attributes(attributes, grant);
                }
                if *is_new {
                    self.keep_new(&op.who, (attributes, make), grant);
                }
            }
            (Change::Enter { dir, name, created, .. }, Done::Created { attributes, .. }) => {
                self.take_in_entered((*dir, name, *created), attributes, grant);
            }
            (Change::Link { inode, dir, name }, Done::Changed { attributes }) => {
                learn(*dir, name, Some((*inode, attributes.kind)));
                if alone.inodes.contains(inode) {
                    self.keep_attributes(attributes, grant);
                }
            }
            (Change::Unlink { site, removed: Some(removed), .. }, _) => {
                self.take_in_left((site.dir, *removed), grant);
            }
            (
                Change::Unlink { site, .. } | Change::RemoveDirectory { site, .. },
                Done::Removed { fate, inode },
            ) => {
                learn(site.dir, &site.name, None);
                if !matches!(fate, Fate::Named { .. }) {
                    self.drop(*inode);
                }
            }
            (Change::Rename { from, to, how, .. }, Done::Renamed { moved, other, .. }) => {
                let places = [(from.dir, &from.name), (to.dir, &to.name)];
                let [was, there] = places.map(|(dir, name)| forgotten.find(dir, name));
                // Both names or none: a directory is listed as it was only if all is known that has changed in it.
                if let (Some(Some((inode, kind))), Some(there)) = (was, there)
                    && inode == *moved
                    && there.map(|(inode, _)| inode) == *other
                    && places.iter().all(|(dir, name)| is_alone(*dir, name))
                {
                    learn(from.dir, &from.name, there.filter(|_| *how == RenameHow::Exchange));
                    learn(to.dir, &to.name, Some((inode, kind)));
                }
            }
            (
                Change::SetAttributes { inode, .. }
                | Change::SetXattr { inode, .. }
                | Change::RemoveXattr { inode, .. }
                | Change::Lend { inode, .. },
                Done::Changed { attributes },
            ) if alone.inodes.contains(inode) => self.keep_attributes(attributes, grant),
            // What is lent is answered by nobody else, and of this lend nothing is answered any more.
            (Change::Return { inode, .. }, Done::Changed { attributes }) if !self.busy.has_inode(*inode) => {
                self.keep_attributes(attributes, grant);
            }
            _ => {}
        }
        let is_known = |directory: &&Attributes| alone.inodes.contains(&directory.inode);
        grant.changed.iter().filter(is_known).for_each(|directory| self.keep_attributes(directory, grant));
    }

    /// What was granted with its number nobody has changed yet, or put anything into.
    fn keep_new(&mut self, who: &Who, (attributes, make): (&Attributes, &Make), grant: &CacheGrant) {
        if !self.may_keep(attributes.inode, grant) {
            return;
        }
        let kept = self.granted(attributes.inode, grant);
        kept.is_bare = true;
        if matches!(make, Make::Directory) {
            kept.inside().listed = Listing::All;
        }
        self.allow_owner(who, attributes);
    }

    /// What a change names stays unknown as long as any of these connections lasts: it may still be done over one of them.
    pub(super) fn abandon(&mut self, named: Named, by: Vec<Connection>) {
        if self.abandoned.len() >= ABANDONED_MAX {
            self.shut.extend(by);
            self.drop_all();
        } else {
            self.abandoned.push((named, by));
        }
    }

    /// Drops inodes that were not asked for lately, until so much less is kept.
    pub(super) fn shrink(&mut self, by: usize) {
        let aim = self.kept().saturating_sub(by);
        let mut looks = self.inodes.len() * 2;
        while self.kept() > aim && looks > 0 {
            looks -= 1;
            let from = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&inode, kept)) = self.inodes.range_mut((from, Bound::Unbounded)).next() else {
                self.hand = None;
                continue;
            };
            self.hand = Some(inode);
            if !std::mem::take(&mut kept.was_used) {
                self.drop(inode);
            }
        }
    }

    pub(super) fn drop(&mut self, inode: InodeId) {
        if let Some(kept) = self.inodes.remove(&inode) {
            self.names -= kept.inside.map_or(0, |inside| inside.names.len());
            self.floor = self.floor.max(kept.floor);
        }
    }

    /// Whether what a reply says of an inode may be kept.
    fn may_keep(&self, inode: InodeId, grant: &CacheGrant) -> bool {
        let floor = self.inodes.get(&inode).map_or(self.floor, |kept| kept.floor.max(self.floor));
        grant.inodes.contains(&inode) && self.is_current(inode, grant) && grant.at >= floor
    }

    /// Whether an inode was not taken back since this was granted.
    fn is_current(&self, inode: InodeId, grant: &CacheGrant) -> bool {
        let by = self.by.and_then(|by| Some((by, self.revoked.get(&by.node)?)));
        let revoked = by.filter(|(by, revoked)| by.number == revoked.connection);
        revoked.is_none_or(|(_, revoked)| grant.revoked >= revoked.of(inode))
    }

    /// An inode of which something may be kept.
    fn granted(&mut self, inode: InodeId, grant: &CacheGrant) -> &mut Kept {
        let kept = self.inodes.entry(inode).or_default();
        kept.has_same_ids = grant.kind == GrantKind::Placed;
        if !std::mem::replace(&mut kept.is_granted, true) {
            kept.since = grant.at;
            self.rights += 1;
            kept.rights = self.rights;
        }
        kept
    }

    /// What a name names since a change of this client.
    fn learn(
        &mut self,
        (dir, name): (InodeId, &Name),
        what: Entry,
        (listings, grant): (&[(InodeId, Listing)], &CacheGrant),
    ) {
        // What others changed between the change and the grant nobody has told.
        let is_granted = self.inodes.get(&dir).is_some_and(|kept| kept.is_granted && kept.since < grant.at);
        if !is_granted || !self.is_current(dir, grant) {
            return;
        }
        self.know_name((dir, name), what);
        let listed = listings.iter().find(|(of, _)| *of == dir);
        if let (Some(kept), Some((_, listed))) = (self.inodes.get_mut(&dir), listed) {
            kept.inside().listed = listed.clone();
        }
    }

    fn keep_attributes(&mut self, attributes: &Attributes, grant: &CacheGrant) {
        if self.may_keep(attributes.inode, grant) {
            let is_entering = self.busy.is_entering(attributes.inode);
            let kept = self.granted(attributes.inode, grant);
            if attributes.kind == Kind::Directory {
                kept.inside().lent = attributes.lent;
            }
            kept.attributes = (!is_entering).then(|| attributes.clone());
        }
    }

    fn keep_name(&mut self, (dir, name): (InodeId, &Name), what: Entry, (who, grant): (&Who, &CacheGrant)) {
        if !self.may_keep(dir, grant) {
            return;
        }
        self.granted(dir, grant);
        self.allow(dir, who, Rights::EXECUTE);
        // It may have been created here since that was so, or removed.
        if what.is_none() && self.busy.is_entering(dir) || self.busy.is_leaving(dir, name) {
            return;
        }
        self.know_name((dir, name), what);
    }

    /// Somebody has these rights to what something is kept of, and those that are known of him already.
    fn allow(&mut self, inode: InodeId, who: &Who, rights: Rights) {
        let Some(kept) = self.inodes.get_mut(&inode) else { return };
        let mut allowed = kept.allowed().to_vec();
        if let Some((_, has)) = allowed.iter_mut().find(|(of, _)| of == who) {
            *has = Rights::from_bits(has.bits() | rights.bits());
        } else {
            allowed.truncate(ALLOWED_MAX - 1);
            allowed.insert(0, (who.clone(), rights));
        }
        let last = self.allowed.take().filter(|last| **last == *allowed).unwrap_or_else(|| allowed.into());
        kept.allowed = Some(Arc::clone(&last));
        self.allowed = Some(last);
    }

    /// Who has made it may do what its mode lets the owner do, if he is that to the daemons, too.
    fn allow_owner(&mut self, who: &Who, attributes: &Attributes) {
        if who.uid() == attributes.uid && !attributes.has_acl {
            self.allow(attributes.inode, who, Rights::from_bits(attributes.mode >> OWNER_SHIFT));
        }
    }

    /// What a name names, in a directory of which something is kept.
    fn know_name(&mut self, (dir, name): (InodeId, &Name), what: Option<(InodeId, Kind)>) {
        let Some(kept) = self.inodes.get_mut(&dir) else { return };
        self.names += usize::from(kept.inside().names.insert(name.clone(), what));
    }

    /// What a name names is not known any more. Up to where the directory was listed is returned.
    fn forget_name(&mut self, dir: InodeId, name: &Name) -> Option<Listing> {
        let inside = self.inodes.get_mut(&dir)?.inside.as_mut()?;
        self.names -= usize::from(inside.names.remove(name));
        Some(std::mem::take(&mut inside.listed))
    }

    fn keep_page(&mut self, dir: InodeId, after: Option<&Name>, (page, grant): (&Page, &CacheGrant)) {
        // What was created here since may be missing, and what was removed may be there.
        if !self.may_keep(dir, grant) || self.busy.is_entering(dir) {
            return;
        }
        self.granted(dir, grant);
        for Listed { name, inode, kind, attributes } in &page.entries {
            self.know_name((dir, name), Some((*inode, *kind)));
            if let Some(attributes) = attributes {
                self.keep_attributes(attributes, grant);
            }
        }
        let Some(inside) = self.inodes.get_mut(&dir).map(|kept| kept.inside()) else { return };
        let follows = match (after, &inside.listed) {
            (None, _) => true,
            (Some(after), Listing::Upto(upto)) => after <= upto,
            (Some(_), _) => false,
        };
        match page.entries.last() {
            _ if !follows => {}
            _ if page.is_last => inside.listed = Listing::All,
            Some(last) => inside.listed = Listing::Upto(last.name.clone()),
            None => {}
        }
    }
}

impl Forgotten {
    /// What a name named, if that was known.
    fn find(&self, dir: InodeId, name: &Name) -> Option<Entry> {
        self.names.iter().find(|(of, other, _)| *of == dir && other == name)?.2
    }
}

impl Kept {
    fn inside(&mut self) -> &mut Inside {
        self.inside.get_or_insert_default()
    }

    fn allowed(&self) -> &[(Who, Rights)] {
        self.allowed.as_deref().unwrap_or_default()
    }

    /// What a name names, if that is known.
    fn find(&self, name: &Name) -> Option<Entry> {
        let Inside { names, listed, .. } = &**self.inside.as_ref()?;
        match names.get(name) {
            Some(what) => Some(*what),
            None if *listed == Listing::All => Some(None),
            None => None,
        }
    }
}
