//! Layout: what files, their entries and their states are made of, wherever it is written: to a peer, a client or a disk.

use base::{ClientId, Epoch, Members, NodeId, ObjectId, Seq, View, ViewId, WallTime};
use bytes::Bytes;
use node::RequestId;
use node::file::{
    Attributes, CHUNK_BYTES, Change, Chunk, Data, Done, Extent, FileError, FileOf, Key, Lend, LendStage,
    Mark, Op, Part, Payload, Piece, Position, Stat,
};
use replication::{Body, Entry, Request, Rest, Session, Sessions, follow_each_other};

use crate::DecodeError;
use crate::field::{
    Element, Field, Sink, Source, choice, get_data, get_fresh, grow, number, put_data, put_fresh, record,
};
use crate::names::{get_part, put_part};

/// What came of an operation.
type Outcome = Result<Done, FileError>;

/// A part of a state, as it travels: none is to be taken away.
pub(crate) type Placed = (Key, Option<(Position, Part)>);

number!(NodeId, Seq, RequestId);
record!(Epoch { number, node });
record!(ObjectId { high, low });
record!(ClientId { certificate, program });
record!(ViewId { epoch, seq });
record!(View { id, members });
record!(Position { epoch, seq });
record!(Mark { at, generation });
record!(Request { client, number, settled });
record!(Extent { start, end });
record!(Stat { size, modified, changed, allocated, lend });
record!(FileOf { volume, inode });
record!(Lend { of, lent, stage });
choice!(LendStage, "how far a lend is":
    0 Open;
    1 Ended;
    2 Unused;
);

choice!(Done, "what came of an operation":
    0 Written { offset, stat };
    1 Changed { stat };
    2 Tree(done);
    3 Returned { stat };
);
choice!(FileError, "why a file was not changed":
    0 PastLimit { end };
    1 Overflow { offset, length };
    2 TooLong { length, bytes_max };
    3 BadChunk;
    4 Removed;
    5 NoSpace;
    6 IsTree;
    7 IsFile;
    8 NoTree;
    9 NotEmpty;
    10 NotForClients;
    11 Tree(error);
    12 Access(error);
    13 Capability(error);
    14 NotLent;
);
choice!(Change, "a change of a file":
    0 Write { offset, data };
    1 Append { data };
    2 Truncate { size };
    3 Punch { offset, length };
    4 Touch { modified };
    5 Remove;
    6 Begin;
    7 NoSpace;
    8 Plant(root);
    9 Tree(op);
    10 Borrow { of, lent, modified, changed };
    11 Return { of, lent, modified };
    12 Extend { size };
);
choice!(Key, "the name of a part":
    0 Attributes;
    1 Chunk(number);
    2 Tree(key);
);
choice!(Body<Op>, "what an entry does":
    0 Barrier { generation };
    1 Op { request, op };
    2 Expire { client, since, forget };
    3 View(members);
    4 Settled(view);
);
record!(Entry<Op> { at, lease, body });

impl Field for WallTime {
    fn put(&self, out: &mut Sink) {
        self.as_micros().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        u64::get(from).map(Self::from_micros)
    }
}

/// In ascending order, each once.
impl Field for Members {
    fn put(&self, out: &mut Sink) {
        (self.as_slice().len() as u64).put(out);
        self.as_slice().iter().for_each(|node| node.put(out));
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let nodes = Vec::<NodeId>::get(from)?;
        if !grow(nodes.iter()) {
            return Err(DecodeError::BadMembers);
        }
        Self::new(nodes).map_err(|_| DecodeError::BadMembers)
    }
}

/// With the checksum that whoever had the data first has made.
impl Field for Payload {
    fn put(&self, out: &mut Sink) {
        put_data([&**self], self.checksum(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (bytes, told) = get_data(from)?;
        Ok(Self::checked(bytes, told)?)
    }
}

/// Data that was never on its way before. What of it lay on a disk was fetched, or it would not leave.
impl Field for Data {
    fn put(&self, out: &mut Sink) {
        let held = self.held().expect("content is fetched before it leaves");
        put_fresh(held.iter(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        get_fresh(from).map(Self::from)
    }
}

impl Field for Bytes {
    fn put(&self, out: &mut Sink) {
        put_fresh(std::iter::once(self), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        get_fresh(from)
    }
}

/// In an entry it is one that can be done: what cannot be is refused before it becomes an entry.
impl Field for Op {
    fn put(&self, out: &mut Sink) {
        self.time.put(out);
        self.under.put(out);
        self.change.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (time, under) = (WallTime::get(from)?, Field::get(from)?);
        let op = Self { time, under, change: Change::get(from)? };
        match op.change.check() {
            Ok(()) => Ok(op),
            Err(_) => Err(DecodeError::Impossible("an entry with a change that no file can take")),
        }
    }
}

impl Field for Attributes {
    fn put(&self, out: &mut Sink) {
        self.size().put(out);
        self.modified().put(out);
        self.changed().put(out);
        self.is_removed().put(out);
        self.lend().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (size, modified, changed) = (u64::get(from)?, WallTime::get(from)?, WallTime::get(from)?);
        let is_removed = bool::get(from)?;
        match (is_removed, size, Option::<Lend>::get(from)?) {
            (false, _, lend) => {
                let attributes = Self::new(size, modified, changed);
                let attributes = attributes.map_err(|_| DecodeError::Impossible("a file of such a size"))?;
                Ok(lend.map_or(attributes, |lend| attributes.lent(lend)))
            }
            (true, 0, None) => Ok(Self::removed(modified, changed)),
            (true, ..) => Err(DecodeError::Impossible("a file that was removed and has a size or a lend")),
        }
    }
}

/// Pieces that are close become one, with the zeros between them: so a chunk never takes much more than the blocks that it
/// has, in however many pieces it is kept.
impl Field for Chunk {
    fn put(&self, out: &mut Sink) {
        u64::from(self.blocks()).put(out);
        let pieces: Vec<(usize, &Bytes)> =
            self.pieces().map(|(start, piece)| (start as usize, held(piece))).collect();
        let runs: Vec<_> =
            pieces.chunk_by(|(start, bytes), (next, _)| next - start - bytes.len() < GAP_MIN).collect();
        (runs.len() as u64).put(out);
        for run in runs {
            let mut at = run[0].0;
            (at as u64).put(out);
            let mut filled = Vec::with_capacity(2 * run.len());
            for (start, bytes) in run {
                filled.push(Bytes::from_static(&ZEROS[..start - at]));
                filled.push(Bytes::clone(bytes));
                at = start + bytes.len();
            }
            put_fresh(filled.iter(), out);
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let impossible = DecodeError::Impossible("a chunk with such pieces");
        let blocks = u16::try_from(u64::get(from)?).map_err(|_| impossible)?;
        let runs = Vec::<Run>::get(from)?;
        let ends = runs.iter().map(|Run(start, bytes)| *start as usize + bytes.len());
        let is_apart = |(end, Run(next, _)): (usize, &Run)| *next as usize >= end + GAP_MIN;
        if !ends.zip(&runs[runs.len().min(1)..]).all(is_apart) {
            return Err(impossible);
        }
        let pieces = runs.into_iter().map(|Run(start, bytes)| (start, Piece::Held(bytes))).collect();
        Self::new(blocks, pieces).map_err(|_| impossible)
    }
}

/// Pieces of a chunk that stand closer together than this are sent as one.
const GAP_MIN: usize = 32;
static ZEROS: [u8; GAP_MIN] = [0; GAP_MIN];

/// Some content of a chunk, and where it begins.
struct Run(u32, Bytes);
const _: () = assert!(CHUNK_BYTES == 64 << 10);

impl Field for Run {
    fn put(&self, out: &mut Sink) {
        self.0.put(out);
        put_fresh(std::iter::once(&self.1), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok(Self(u32::get(from)?, get_fresh(from)?))
    }
}

impl Element for Run {
    // One byte each, and as little as may be between them.
    const COUNT_MAX: usize = (64 << 10) / (GAP_MIN + 1) + 1;
    const BYTES_MIN: usize = 6;
}

/// The bytes of a piece. What lay on a disk was fetched, or it would not leave.
fn held(piece: &Piece) -> &Bytes {
    match piece {
        Piece::Held(bytes) => bytes,
        Piece::Stored(_) => panic!("content is fetched before it leaves"),
    }
}

/// The key says what the part is, so no other can stand there.
impl Field for Placed {
    fn put(&self, out: &mut Sink) {
        let (key, part) = self;
        key.put(out);
        part.is_some().put(out);
        if let Some((at, part)) = part {
            assert!(part.is_of(key), "a part stands under its own name");
            at.put(out);
            match part {
                Part::Attributes(attributes) => attributes.put(out),
                Part::Chunk(chunk) => chunk.put(out),
                Part::Tree(part) => put_part(part, out),
            }
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let key = Key::get(from)?;
        if !key.is_possible() {
            return Err(DecodeError::Impossible("a chunk behind the longest file"));
        }
        if !bool::get(from)? {
            return Ok((key, None));
        }
        let at = Position::get(from)?;
        let part = match &key {
            Key::Attributes => Part::Attributes(Attributes::get(from)?),
            Key::Chunk(_) => Part::Chunk(Chunk::get(from)?),
            Key::Tree(key) => Part::Tree(get_part(key, from)?),
        };
        Ok((key, Some((at, part))))
    }
}

impl Field for Rest<Outcome> {
    fn put(&self, out: &mut Sink) {
        (self.at, self.generation).put(out);
        self.view.put(out);
        (self.before, self.settled).put(out);
        self.former.iter().copied().collect::<Vec<NodeId>>().put(out);
        self.home.put(out);
        self.sessions.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (at, generation) = Field::get(from)?;
        let view = Field::get(from)?;
        let (before, settled) = Field::get(from)?;
        let former = Vec::<NodeId>::get(from)?;
        if !grow(former.iter()) {
            return Err(DecodeError::BadMembers);
        }
        let former = former.into_iter().collect();
        let (home, sessions) = (Field::get(from)?, Field::get(from)?);
        Ok(Self { at, generation, view, before, settled, former, home, sessions })
    }
}

impl Field for Sessions<Outcome> {
    fn put(&self, out: &mut Sink) {
        let clients: Vec<(ClientId, Session<Outcome>)> =
            self.known().map(|(client, session)| (client, session.clone())).collect();
        clients.put(out);
        self.over().collect::<Vec<(WallTime, ClientId)>>().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let clients = Vec::<(ClientId, Session<Outcome>)>::get(from)?;
        let over = Vec::<(WallTime, ClientId)>::get(from)?;
        if !grow(clients.iter().map(|(client, _)| client)) {
            return Err(DecodeError::Impossible("a client that is listed twice"));
        }
        Self::new(clients, over).ok_or(DecodeError::Impossible("a client that is listed twice"))
    }
}

impl Field for Session<Outcome> {
    fn put(&self, out: &mut Sink) {
        self.settled().put(out);
        self.outcomes().map(|(number, outcome)| (number, outcome.clone())).collect::<Vec<_>>().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (settled, outcomes) = (u64::get(from)?, Vec::<(u64, Outcome)>::get(from)?);
        if !grow(outcomes.iter().map(|(number, _)| number)) {
            return Err(DecodeError::Impossible("a request that is listed twice"));
        }
        Self::new(settled, outcomes).ok_or(DecodeError::Impossible("the outcome of a settled request"))
    }
}

/// Whether entries can stand behind `after`, and under `epoch`.
pub(crate) fn check_entries(after: Position, entries: &[Entry<Op>], epoch: Epoch) -> Result<(), DecodeError> {
    let is_later = entries.last().is_some_and(|last| last.at.epoch > epoch);
    if is_later || !follow_each_other(after, entries) {
        return Err(DecodeError::Impossible("an entry that does not follow the one before it"));
    }
    Ok(())
}

/// Whether parts are in the order of their names, each once.
pub(crate) fn check_parts<T>(parts: &[(Key, T)]) -> Result<(), DecodeError> {
    let is_sound = grow(parts.iter().map(|(key, _)| key)) && parts.iter().all(|(key, _)| key.is_possible());
    if is_sound { Ok(()) } else { Err(DecodeError::Impossible("parts that are not in their order")) }
}

/// A list of nodes: how many there are in a map.
impl Element for NodeId {
    const COUNT_MAX: usize = 1_000;
    const BYTES_MIN: usize = 1;
}

impl Element for Entry<Op> {
    const COUNT_MAX: usize = 1 << 15;
    const BYTES_MIN: usize = 7;
}

impl Element for Placed {
    const COUNT_MAX: usize = 1 << 12;
    const BYTES_MIN: usize = 2;
}

/// The version of a part.
impl Element for (Key, Position) {
    const COUNT_MAX: usize = 1 << 12;
    const BYTES_MIN: usize = 4;
}

impl Element for (ClientId, Session<Outcome>) {
    const COUNT_MAX: usize = 1 << 14;
    const BYTES_MIN: usize = 4;
}

impl Element for (u64, Outcome) {
    const COUNT_MAX: usize = 1 << 14;
    // A refusal that needs no words.
    const BYTES_MIN: usize = 3;
}

/// A client that is over.
impl Element for (WallTime, ClientId) {
    const COUNT_MAX: usize = 1 << 15;
    const BYTES_MIN: usize = 3;
}
