//! Layout: what files, their entries and their states are made of, wherever it is written: to a peer, a client or a disk.

use base::{ClientId, Epoch, Members, NodeId, ObjectId, Seq, View, ViewId, WallTime};
use bytes::Bytes;
use node::RequestId;
use node::file::{Attributes, Change, Chunk, Data, Done, FileError, Key, Mark, Op, Part, Position, Stat};
use replication::{Body, Entry, Request, Rest, Session, Sessions, follow_each_other};

use crate::DecodeError;
use crate::field::{
    Element, Field, Sink, Source, choice, get_data, get_fresh, grow, number, put_data, put_fresh, record,
};

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
record!(Stat { size, modified, changed, allocated });

choice!(Done, "what came of an operation":
    0 Written { offset, stat };
    1 Changed { stat };
);
choice!(FileError, "why a file was not changed":
    0 PastLimit { end };
    1 Overflow { offset, length };
    2 TooLong { length, bytes_max };
    3 BadChunk { length };
);
choice!(Change, "a change of a file":
    0 Write { offset, data };
    1 Append { data };
    2 Truncate { size };
    3 Punch { offset, length };
    4 Touch { modified };
);
choice!(Key, "the name of a part":
    0 Attributes;
    1 Chunk(number);
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
impl Field for Data {
    fn put(&self, out: &mut Sink) {
        put_data([&**self], self.checksum(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (bytes, told) = get_data(from)?;
        Ok(Self::checked(bytes, told)?)
    }
}

/// Data that was never on its way before.
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
        self.change.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let op = Self { time: WallTime::get(from)?, change: Change::get(from)? };
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
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (size, modified, changed) = (u64::get(from)?, WallTime::get(from)?, WallTime::get(from)?);
        Self::new(size, modified, changed).map_err(|_| DecodeError::Impossible("a file of such a size"))
    }
}

impl Field for Chunk {
    fn put(&self, out: &mut Sink) {
        put_fresh(pieces(self), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Self::new(get_fresh(from)?).map_err(|_| DecodeError::Impossible("a chunk of such a length"))
    }
}

/// The content of a chunk, to be sent one piece after the other.
fn pieces(chunk: &Chunk) -> impl Iterator<Item = &Bytes> + Clone {
    std::iter::once(chunk.content())
}

/// The key says what the part is, so no other can stand there.
impl Field for Placed {
    fn put(&self, out: &mut Sink) {
        let (key, part) = self;
        key.put(out);
        part.is_some().put(out);
        if let Some((at, part)) = part {
            assert!(part.is_of(*key), "a part stands under its own name");
            at.put(out);
            match part {
                Part::Attributes(attributes) => attributes.put(out),
                Part::Chunk(chunk) => chunk.put(out),
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
        let part = match key {
            Key::Attributes => Part::Attributes(Attributes::get(from)?),
            Key::Chunk(_) => Part::Chunk(Chunk::get(from)?),
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
        self.outcomes().map(|(number, outcome)| (number, *outcome)).collect::<Vec<_>>().put(out);
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
    const BYTES_MIN: usize = 4;
}

/// A client that is over.
impl Element for (WallTime, ClientId) {
    const COUNT_MAX: usize = 1 << 15;
    const BYTES_MIN: usize = 3;
}
