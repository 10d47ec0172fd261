//! What a daemon keeps on disk: the only part of the product that touches files.
//!
//! A store holds a daemon's *identity*: who it is, how often it started, up to where its time and its
//! epochs may have been used, and which starts of its peers it knows. That is what lets a daemon that remembers
//! no vote take part again without harm, and what keeps an emptied or restored data directory from voting as if
//! it remembered. And it holds what the daemon keeps of *files* ([`files`]).
//!
//! Invariants of the identity:
//! - What a method says is durable was made durable before it returned; what memory holds was read from disk or is
//!   durable there. After a method that failed for want of space the disk has what it had, or what it should have. After any other failure of the
//!   disk the store is closed: it takes no more, because nobody knows what the disk holds.
//! - A start is on disk before anybody hears of it, so nobody knows a start that the store does not.
//!
//! ```text
//! disk       the seam: one directory, real or simulated, and how a file is replaced
//! directory  the real one: found or made, and locked
//! record     header and checksum of every file
//! tables     what is in each file
//! host       the machine that a start happens on
//!
//! media      the seam under what grows: files that are read and written at any offset
//! journal    what was said and must not be forgotten, in order
//! memo       what memory that outlives processes knows of the journal
//! index      ordered rows, changed all or nothing, by one of two engines
//! extents    the content of files
//! contents   index and content: what checkpoints make
//! files      all of that together, and how a start opens it
//! writer     the journal at work: what is written together, and synced
//! checkpoints  when what is put into contents, and when the journal before that goes
//! check      looks at all of a store, and changes nothing
//! bugs       rules that can be broken in a test
//! floor      the floor of the disk, for `fleasefs bench floor`
//! ```

mod bugs;
pub mod check;
pub mod checkpoints;
pub mod contents;
mod directory;
mod disk;
mod error;
pub mod extents;
pub mod files;
pub mod floor;
mod host;
pub mod index;
pub mod journal;
pub mod media;
pub mod memo;
mod record;
mod tables;
pub mod writer;

use std::io;
use std::path::Path;

use base::{Incarnation, MonoTime, NodeId, Span, StartId, StoreId, WallTime};
use node::{Chain, Met, RestoredCopy, Rules};

pub use self::bugs::{Bug, Rules as StoreRules};
pub(crate) use self::disk::is_full;
pub use self::disk::{Disk, Lock, WriteError};
pub use self::error::{OpenError, PeerRefusal};
pub use self::host::Host;
pub use self::record::{Damage, FORMAT};
pub use self::tables::Owner;
use self::tables::{Ceiling, Losses, Orders, PEERS_MAX, Peers, STARTS_MAX, Starts, Table, TimeMark};

/// How often the time mark is to be raised.
pub const MARK_PERIOD: Span = Span::from_secs(2);
/// How far ahead of node time a mark is set. See [`Store::mark_time`].
pub const MARK_LEAD: Span = Span::from_secs(10);
const _: () = assert!(MARK_LEAD.as_micros() >= 3 * MARK_PERIOD.as_micros(), "a slow write is no lost mark");

/// What the epoch ceiling is a multiple of, so that few of those who raise it step by step cost a write.
pub const CEILING_BLOCK: u64 = 4_096;

/// An open store. Its methods wait for the disk.
pub struct Store {
    disk: Box<dyn Disk>,
    is_closed: bool,
    id: StoreId,
    owner: Owner,
    host: Host,
    start: Start,
    /// This start, and the first of its line, as peers are told of them.
    start_id: StartId,
    line: StartId,
    starts: Starts,
    time: TimeMark,
    ceiling: Ceiling,
    peers: Peers,
    losses: Losses,
    orders: Orders,
}

/// Which start of the store this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The very first one: this node cannot have voted before.
    Fresh,
    /// A later one.
    Again(Previous),
}

/// The start before this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Previous {
    /// Its number.
    pub incarnation: Incarnation,
    /// Whether it is certain that no process of it is left: it ran under the same kernel, and this process has
    /// the very lock that it had.
    pub is_proven_dead: bool,
    /// Whether it ended by [`Store::stop`].
    pub stopped_cleanly: bool,
}

/// Random numbers for one opening of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entropy {
    /// For this start.
    pub nonce: u64,
    /// For the store, if it is to be made.
    pub store: StoreId,
}

impl Store {
    /// Opens the data directory at `path` for `owner`, as a new start; makes it if nothing is there.
    pub fn open(path: &Path, owner: Owner) -> Result<Self, OpenError> {
        let entropy = Entropy::draw().map_err(OpenError::Random)?;
        let directory = directory::open(path, |disk| format(disk, owner, entropy.store))?;
        let host = Host::of(directory.lock());
        Self::start_on(Box::new(directory), owner, host, entropy.nonce).map_err(|error| error.within(path))
    }

    /// Opens the store on `disk`, which nobody else uses, as a new start with `nonce` on `host`.
    pub fn start_on(
        mut disk: Box<dyn Disk>,
        owner: Owner,
        host: Host,
        nonce: u64,
    ) -> Result<Self, OpenError> {
        let Found { store: id, table: found, .. } = read::<Owner>(&mut *disk)?;
        if found != owner {
            return Err(OpenError::Owner { found, wanted: owner });
        }
        let starts = read_of::<Starts>(&mut *disk, id)?;
        let time = read_whole(&mut *disk, id)?;
        let ceiling = read_whole(&mut *disk, id)?;
        let peers = read_of(&mut *disk, id)?;
        let losses = read_whole(&mut *disk, id)?;
        let orders = read_if_there(&mut *disk, id)?;
        if starts.chain.nonces().len() >= STARTS_MAX {
            return Err(OpenError::Exhausted);
        }
        let is_proven_dead = !host.may_survive(starts.boot);
        let start = match starts.chain.incarnation() {
            Incarnation(0) => Start::Fresh,
            incarnation => {
                let stopped_cleanly = starts.stopped_cleanly;
                Start::Again(Previous { incarnation, is_proven_dead, stopped_cleanly })
            }
        };
        let chain = starts.chain.begin(nonce, is_proven_dead);
        let (Some(start_id), Some(line)) = (chain.last(), chain.line()) else {
            return Err(OpenError::damaged(Starts::KIND.file(), Damage::Values));
        };
        let next = Starts { boot: host.boot(), stopped_cleanly: false, chain };
        let mut store = Self {
            disk,
            is_closed: false,
            id,
            owner,
            host,
            start,
            start_id,
            line,
            starts,
            time,
            ceiling,
            peers,
            losses,
            orders,
        };
        store.write(&next)?;
        store.starts = next;
        Ok(store)
    }

    /// Whom the store belongs to.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// What keeps others out of the directory as long as it is open, this store or none, if it is a real one.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        self.disk.lock()
    }

    /// The store's own name, random since it was made.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// Which start this is.
    pub fn start(&self) -> Start {
        self.start
    }

    /// This start as peers are told of it.
    pub const fn start_id(&self) -> StartId {
        self.start_id
    }

    /// All starts of this store.
    pub const fn chain(&self) -> &Chain {
        &self.starts.chain
    }

    /// The first start of this start's line: each of the line proves that those before it are gone.
    pub const fn line(&self) -> StartId {
        self.line
    }

    /// What is known of `node`, if it was ever admitted.
    pub fn peer(&self, node: NodeId) -> Option<Met> {
        self.peers.0.get(&node).copied()
    }

    /// The newest start of each peer that was admitted.
    pub fn known_starts(&self) -> impl Iterator<Item = (NodeId, StartId)> {
        self.peers.0.iter().map(|(&node, peer)| (node, peer.start))
    }

    /// Whether a start of `node` may be admitted, and would have to be noted.
    pub fn check_peer(&self, node: NodeId, told: &Met) -> Result<bool, PeerRefusal> {
        if node == self.owner.node {
            return Err(PeerRefusal::Ourselves { node });
        }
        match self.peer(node) {
            Some(known) => Ok(known.admit(node, told, Rules::default())?),
            None if self.peers.0.len() >= PEERS_MAX => Err(PeerRefusal::TooMany),
            None => Ok(true),
        }
    }

    /// Admits a start of `node`, or says why not. Durable before it returns.
    ///
    /// Only a start that has found what it is told of its past in its own chain may be noted. An old copy of a
    /// directory that counts on would otherwise become the newest start that anybody knows.
    pub fn admit_peer(&mut self, node: NodeId, told: Met) -> Result<(), PeerRefusal> {
        if !self.check_peer(node, &told)? {
            return Ok(());
        }
        let mut next = self.peers.clone();
        next.0.insert(node, told);
        self.write(&next)?;
        self.peers = next;
        Ok(())
    }

    /// Whether `known`, the newest start of ours that a peer has seen, is one of this store's.
    pub fn check_own_chain(&self, known: StartId) -> Result<(), RestoredCopy> {
        self.starts.chain.check(known, Rules::default())
    }

    /// Above every epoch that this node has used or promised. After a start the numbers in use begin here.
    pub fn epoch_ceiling(&self) -> u64 {
        self.ceiling.0
    }

    /// Raises the ceiling to `to` or somewhat above; durable before it returns. Below the ceiling it costs nothing.
    pub fn raise_ceiling(&mut self, to: u64) -> Result<(), WriteError> {
        if to <= self.ceiling.0 {
            return Ok(());
        }
        // At the end of the numbers, which nobody reaches by counting, the ceiling no longer rises in blocks.
        let next = Ceiling(to.checked_next_multiple_of(CEILING_BLOCK).unwrap_or(to));
        self.write(&next)?;
        self.ceiling = next;
        Ok(())
    }

    /// In epochs up to this one the node may have lost what it had not synced, as an earlier start has found.
    pub fn forgot_at(&self) -> Option<u64> {
        self.losses.forgot_at
    }

    /// Notes up to which epoch the node may have lost what it had not synced. Durable before it returns.
    pub fn note_forgotten(&mut self, forgot_at: Option<u64>) -> Result<(), WriteError> {
        self.write_losses(Losses { forgot_at, ..self.losses })
    }

    /// Whether a write or a sync has failed, which is final.
    pub fn has_failed(&self) -> bool {
        self.losses.has_failed
    }

    /// Notes that a write or a sync has failed, if the disk takes that.
    pub fn note_failed(&mut self) -> Result<(), WriteError> {
        self.write_losses(Losses { has_failed: true, ..self.losses })
    }

    fn write_losses(&mut self, next: Losses) -> Result<(), WriteError> {
        if next != self.losses {
            self.write(&next)?;
            self.losses = next;
        }
        Ok(())
    }

    /// Whether an operator has drained this node.
    pub fn is_drained(&self) -> bool {
        self.orders.is_drained
    }

    /// Notes whether an operator has drained this node. Durable before it returns.
    pub fn note_drained(&mut self, is_drained: bool) -> Result<(), WriteError> {
        let next = Orders { is_drained };
        if next != self.orders {
            self.write(&next)?;
            self.orders = next;
        }
        Ok(())
    }

    /// What node time must not start below, when the clock since boot reads `since_boot`.
    ///
    /// Under the same kernel the clock since boot has counted on, and so the answer is exact: it is what the node
    /// time of the previous start would be by now. Under another kernel it is the mark.
    pub fn time_floor(&self, since_boot: MonoTime) -> WallTime {
        let TimeMark { written, mark, boot, since_boot: earlier } = self.time;
        // Where the clock since boot went back, somebody gave this process another one.
        let has_counted_on = boot != [0; 16] && boot == self.host.boot && since_boot >= earlier;
        if has_counted_on { written + since_boot.since(earlier) } else { mark }
    }

    /// What node time must not reach before a newer mark is durable.
    pub fn time_mark(&self) -> WallTime {
        self.time.mark
    }

    /// Notes that node time is `now` while the clock since boot reads `since_boot`; to be called every
    /// [`MARK_PERIOD`], the first time before node time is used.
    ///
    /// The mark is set ahead of `now`, not at it. A mark at `now` would be a lower bound: between it and the end
    /// of the process more time is used, and the next start would use it again. Only an upper bound is safe, and
    /// it is one as long as node time stays below [`time_mark`](Self::time_mark); a daemon whose disk is so slow
    /// that it would pass it stands down. A start that finds its clock below the mark must wait for it: to begin
    /// at the mark would be to begin ahead of everybody else.
    pub fn mark_time(&mut self, now: WallTime, since_boot: MonoTime) -> Result<(), WriteError> {
        self.write_mark(now, now + MARK_LEAD, since_boot)
    }

    /// Whether a start has come as far as to serve, which it does only when its files are open: they were there then.
    pub fn has_served(&self) -> bool {
        has_served(&self.time, &self.ceiling, &self.peers)
    }

    /// Notes that this start ends cleanly at `now`, from when on no node time is used.
    pub fn stop(&mut self, now: WallTime, since_boot: MonoTime) -> Result<(), WriteError> {
        self.write_mark(now, now, since_boot)?;
        let next = Starts { stopped_cleanly: true, ..self.starts.clone() };
        self.write(&next)?;
        self.starts = next;
        Ok(())
    }

    fn write_mark(&mut self, now: WallTime, mark: WallTime, since_boot: MonoTime) -> Result<(), WriteError> {
        let next = TimeMark { written: now, mark, boot: self.host.boot, since_boot };
        self.write(&next)?;
        self.time = next;
        Ok(())
    }

    fn write<T: Table>(&mut self, table: &T) -> Result<(), WriteError> {
        if self.is_closed {
            return Err(WriteError::Closed);
        }
        let written = write(&mut *self.disk, self.id, table);
        self.is_closed = matches!(written, Err(WriteError::Io { .. } | WriteError::Closed));
        written
    }
}

impl Entropy {
    /// From the kernel.
    fn draw() -> io::Result<Self> {
        let mut bytes = [0; 24];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(more) => filled += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let (nonce, store) = bytes.split_first_chunk().expect("24 bytes begin with 8");
        Ok(Self {
            nonce: u64::from_le_bytes(*nonce),
            store: StoreId(store.try_into().expect("16 of 24 bytes follow the first 8")),
        })
    }
}

/// Makes an empty directory the store `id` of `owner`.
pub fn format(disk: &mut dyn Disk, owner: Owner, id: StoreId) -> Result<(), WriteError> {
    make(disk, id, &Starts::default())?;
    make(disk, id, &TimeMark::default())?;
    make(disk, id, &Ceiling::default())?;
    make(disk, id, &Peers::default())?;
    make(disk, id, &Losses::default())?;
    make(disk, id, &owner)
}

/// Node time is marked, epochs are used and peers are met by those only who have files.
fn has_served(time: &TimeMark, ceiling: &Ceiling, peers: &Peers) -> bool {
    time.mark > WallTime::ZERO || ceiling.0 > 0 || !peers.0.is_empty()
}

/// Makes the file of a table, or makes it anew.
fn make<T: Table>(disk: &mut dyn Disk, id: StoreId, table: &T) -> Result<(), WriteError> {
    let bytes = record::encode(T::KIND, id, &table.encode());
    let bytes = if T::HAS_TWO_COPIES { record::in_two_copies(&bytes) } else { bytes };
    disk::replace(disk, T::KIND.file(), &bytes)
}

/// Puts a table into its file.
fn write<T: Table>(disk: &mut dyn Disk, id: StoreId, table: &T) -> Result<(), WriteError> {
    if T::HAS_TWO_COPIES {
        let bytes = record::encode(T::KIND, id, &table.encode());
        disk::replace_copies(disk, T::KIND.file(), record::COPIES_AT, &bytes)
    } else {
        make(disk, id, table)
    }
}

fn read<T: Table>(disk: &mut dyn Disk) -> Result<Found<T>, OpenError> {
    let file = T::KIND.file();
    let longest = if T::HAS_TWO_COPIES { record::two_copies_bytes } else { record::file_bytes };
    let bytes = disk
        .read(file, longest(T::BODY_BYTES_MAX))
        .map_err(|source| OpenError::Io { path: file.into(), source })?;
    let found = bytes
        .as_deref()
        .ok_or(Damage::Missing)
        .and_then(|bytes| if T::HAS_TWO_COPIES { decode_copies(bytes) } else { decode(bytes) });
    found.map_err(|damage| OpenError::damaged(file, damage))
}

/// What is in the file of a table.
struct Found<T> {
    store: StoreId,
    table: T,
    copies: Copies,
}

/// Which of two copies can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copies {
    Equal,
    /// Both, and a crash has come between them.
    Different,
    First,
    Second,
}

fn decode<T: Table>(bytes: &[u8]) -> Result<Found<T>, Damage> {
    let (store, body) = record::decode(T::KIND, bytes)?;
    Ok(Found { store, table: T::decode(record::Fields::new(body))?, copies: Copies::Equal })
}

/// What was written first is as new as the other, or newer.
fn decode_copies<T: Table>(bytes: &[u8]) -> Result<Found<T>, Damage> {
    let [first, second] = record::copies(bytes, record::file_bytes(T::BODY_BYTES_MAX))?;
    match decode(first) {
        Err(Damage::Checksum | Damage::Length) => Ok(Found { copies: Copies::Second, ..decode(second)? }),
        found => {
            let copies = match decode::<T>(second) {
                Ok(_) if first == second => Copies::Equal,
                Ok(_) => Copies::Different,
                Err(_) => Copies::First,
            };
            Ok(Found { copies, ..found? })
        }
    }
}

/// Reads a table of the store `id`, and of no other.
fn read_of<T: Table>(disk: &mut dyn Disk, id: StoreId) -> Result<T, OpenError> {
    Ok(found_of(disk, id)?.table)
}

/// Reads a table that says nothing if it is not there.
fn read_if_there<T: Table + Default>(disk: &mut dyn Disk, id: StoreId) -> Result<T, OpenError> {
    match read_of(disk, id) {
        Err(OpenError::Damaged { damage: Damage::Missing, .. }) => Ok(T::default()),
        read => read,
    }
}

/// And sees to it that both copies say what is found, durably: what is read may be in memory only, of a process that was killed before
/// it had synced a copy, or could not. At each step one copy is durable that says this or what nobody was told to be over.
fn read_whole<T: Table>(disk: &mut dyn Disk, id: StoreId) -> Result<T, OpenError> {
    let Found::<T> { table, copies, .. } = found_of(disk, id)?;
    let bytes = record::encode(T::KIND, id, &table.encode());
    let [first, second] = record::COPIES_AT;
    let anew: &[u64] = match copies {
        // It became durable before anything was written to the second.
        Copies::Equal | Copies::First => &[second],
        // The second one is from before, or of somebody who was told nothing.
        Copies::Second => &[first],
        Copies::Different => &[first, second],
    };
    for &offset in anew {
        disk::overwrite(disk, T::KIND.file(), offset, &bytes)?;
    }
    Ok(table)
}

fn found_of<T: Table>(disk: &mut dyn Disk, id: StoreId) -> Result<Found<T>, OpenError> {
    let found = read::<T>(disk)?;
    if found.store == id { Ok(found) } else { Err(OpenError::damaged(T::KIND.file(), Damage::Foreign)) }
}

#[cfg(test)]
mod tests;
