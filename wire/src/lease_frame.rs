//! Layout: frames of lease messages, small because there are hundreds of thousands of them a second.
//!
//! Not postcard: neighbours in a batch mostly share the view, the ballot's process and half of the cell's id, and
//! a field that is equal to its neighbour's is left out. A frame never depends on another one.

use base::{MEMBERS_MAX, Members, ObjectId, Process, Seq, Span, View, ViewId, WallTime};
use lease::{Ballot, Batch, Body, Ended, Expiry, Given, Lease, LeaseId, Message, Stamp, Watermark, Written};

use crate::bytes::{DecodeError, Reader, Writer};

const KIND: u8 = 1;
const VERSION: u8 = 1;
const COUNT_AT: usize = 2;
const HEADER_BYTES: usize = 24;
/// Tag, low half of the cell, stamp.
const MESSAGE_BYTES_MIN: usize = 1 + 8 + 8;
/// Tag, cell, view, ballot, and the largest body: a view with all its members.
const MESSAGE_BYTES_MAX: usize = 1 + 16 + 20 + 16 + (20 + 1 + 4 * MEMBERS_MAX);

/// The smallest limit on frames that every message fits.
pub const FRAME_MIN: usize = HEADER_BYTES + MESSAGE_BYTES_MAX;
const _: () = assert!(FRAME_MIN <= 1100, "a frame must fit the smallest datagram");

const SAME_VIEW: u8 = 0x80;
const SAME_PROCESS: u8 = 0x40;
const SAME_HIGH: u8 = 0x20;
const SAME_ALL: u8 = SAME_VIEW | SAME_PROCESS | SAME_HIGH;
const BODY_MASK: u8 = 0x1f;

const READ: u8 = 1;
const READ_ACK_EMPTY: u8 = 2;
const READ_ACK: u8 = 3;
const WRITE: u8 = 4;
const WRITE_ACK: u8 = 5;
const NACK: u8 = 6;
const WRONG_VIEW: u8 = 7;
const OFFER: u8 = 8;

const RELATIVE: u8 = 0x80;
const GIVEN: u8 = 0x40;
const SUCCESSOR: u8 = 0x20;
const ENDED_MASK: u8 = 0x1f;

/// What a message may leave out because the one before it said it.
#[derive(Clone, Copy)]
struct Neighbour {
    view: ViewId,
    process: Process,
    high: u64,
}

impl Neighbour {
    /// What the first message of a frame is compared with.
    fn first(sender: Process) -> Self {
        Self { view: ViewId::default(), process: sender, high: 0 }
    }

    /// What may be left out because the message before said it.
    fn flags(self, before: Self) -> u8 {
        let flag = |same: bool, flag: u8| if same { flag } else { 0 };
        flag(self.view == before.view, SAME_VIEW)
            | flag(self.process == before.process, SAME_PROCESS)
            | flag(self.high == before.high, SAME_HIGH)
    }
}

/// Writes a batch as frames of at most `frame_max` bytes and gives each to `emit`.
///
/// # Panics
///
/// If `frame_max` is below [`FRAME_MIN`].
pub fn encode_lease_frames(batch: &Batch, frame_max: usize, emit: &mut dyn FnMut(&[u8])) {
    assert!(frame_max >= FRAME_MIN, "a frame must hold every message");
    let mut writer = Writer { bytes: Vec::with_capacity(frame_max) };
    let mut messages = batch.messages.iter().peekable();
    while messages.peek().is_some() {
        writer.bytes.clear();
        write_header(&mut writer, batch);
        let mut neighbour = Neighbour::first(batch.sender);
        let mut count: u16 = 0;
        while writer.bytes.len() + MESSAGE_BYTES_MAX <= frame_max
            && count < u16::MAX
            && let Some(message) = messages.next()
        {
            write_message(&mut writer, &mut neighbour, message);
            count += 1;
        }
        writer.bytes[COUNT_AT..COUNT_AT + 2].copy_from_slice(&count.to_le_bytes());
        emit(&writer.bytes);
    }
}

/// Reads a frame that came from `peer`, whose identity the connection has proved.
pub fn decode_lease_frame(bytes: &[u8], peer: base::NodeId) -> Result<Batch, DecodeError> {
    let mut reader = Reader::new(bytes);
    match (reader.u8()?, reader.u8()?) {
        (KIND, VERSION) => {}
        (KIND, version) => return Err(DecodeError::UnknownVersion(version)),
        (kind, _) => return Err(DecodeError::UnknownKind(kind)),
    }
    let count = usize::from(reader.u16()?);
    let settings = reader.u32()?;
    let sender = reader.process()?;
    let sent = WallTime::from_micros(reader.u64()?);
    if sender.node != peer {
        return Err(DecodeError::WrongSender { named: sender.node, actual: peer });
    }
    if count == 0 || count * MESSAGE_BYTES_MIN > reader.left() {
        return Err(DecodeError::TooMany(count));
    }
    let mut messages = Vec::with_capacity(count);
    let mut neighbour = Neighbour::first(sender);
    for _ in 0..count {
        messages.push(read_message(&mut reader, &mut neighbour)?);
    }
    match reader.left() {
        0 => Ok(Batch { sender, settings, sent, messages }),
        left => Err(DecodeError::TrailingBytes(left)),
    }
}

fn write_header(writer: &mut Writer, batch: &Batch) {
    writer.u8(KIND);
    writer.u8(VERSION);
    writer.u16(0);
    writer.u32(batch.settings);
    writer.process(batch.sender);
    writer.u64(batch.sent.as_micros());
}

fn write_message(writer: &mut Writer, neighbour: &mut Neighbour, message: &Message) {
    let this = Neighbour { view: message.view, process: message.ballot.process, high: message.cell.high };
    let before = std::mem::replace(neighbour, this);
    let tag = body_tag(&message.body) | this.flags(before);
    writer.u8(tag);
    if tag & SAME_HIGH == 0 {
        writer.u64(this.high);
    }
    writer.u64(message.cell.low);
    if tag & SAME_VIEW == 0 {
        writer.view_id(this.view);
    }
    writer.u64(message.ballot.stamp.0);
    if tag & SAME_PROCESS == 0 {
        writer.process(this.process);
    }
    write_body(writer, &message.body);
}

fn read_message(reader: &mut Reader<'_>, neighbour: &mut Neighbour) -> Result<Message, DecodeError> {
    let before = *neighbour;
    let tag = reader.u8()?;
    if tag & SAME_HIGH == 0 {
        neighbour.high = reader.u64()?;
    }
    let cell = ObjectId { high: neighbour.high, low: reader.u64()? };
    if tag & SAME_VIEW == 0 {
        neighbour.view = reader.view_id()?;
    }
    let stamp = Stamp(reader.u64()?);
    if tag & SAME_PROCESS == 0 {
        neighbour.process = reader.process()?;
    }
    if tag & SAME_ALL != neighbour.flags(before) {
        return Err(DecodeError::NotLeftOut);
    }
    let ballot = Ballot { stamp, process: neighbour.process };
    Ok(Message { cell, view: neighbour.view, ballot, body: read_body(reader, tag & BODY_MASK)? })
}

const fn body_tag(body: &Body) -> u8 {
    match body {
        Body::Read => READ,
        Body::ReadAck(None) => READ_ACK_EMPTY,
        Body::ReadAck(Some(_)) => READ_ACK,
        Body::Write(_) => WRITE,
        Body::WriteAck => WRITE_ACK,
        Body::Nack { .. } => NACK,
        Body::WrongView(_) => WRONG_VIEW,
        Body::Offer => OFFER,
    }
}

fn write_body(writer: &mut Writer, body: &Body) {
    match body {
        Body::Read | Body::ReadAck(None) | Body::WriteAck | Body::Offer => {}
        Body::ReadAck(Some(written)) => {
            write_ballot(writer, written.ballot);
            write_lease(writer, &written.lease);
        }
        Body::Write(lease) => write_lease(writer, lease),
        Body::Nack { highest } => write_ballot(writer, *highest),
        Body::WrongView(view) => write_view(writer, view),
    }
}

fn read_body(reader: &mut Reader<'_>, tag: u8) -> Result<Body, DecodeError> {
    Ok(match tag {
        READ => Body::Read,
        READ_ACK_EMPTY => Body::ReadAck(None),
        READ_ACK => {
            let (ballot, lease) = (read_ballot(reader)?, read_lease(reader)?);
            Body::ReadAck(Some(Box::new(Written { ballot, lease })))
        }
        WRITE => Body::Write(read_lease(reader)?),
        WRITE_ACK => Body::WriteAck,
        NACK => Body::Nack { highest: read_ballot(reader)? },
        WRONG_VIEW => Body::WrongView(Box::new(read_view(reader)?)),
        OFFER => Body::Offer,
        byte => return Err(DecodeError::UnknownByte { field: "a lease message", byte }),
    })
}

fn write_ballot(writer: &mut Writer, ballot: Ballot) {
    writer.u64(ballot.stamp.0);
    writer.process(ballot.process);
}

fn read_ballot(reader: &mut Reader<'_>) -> Result<Ballot, DecodeError> {
    Ok(Ballot { stamp: Stamp(reader.u64()?), process: reader.process()? })
}

fn write_lease(writer: &mut Writer, lease: &Lease) {
    let (relative, expiry) = match lease.expiry {
        Expiry::At(time) => (0, time.as_micros()),
        Expiry::After(span) => (RELATIVE, span.as_micros()),
    };
    let given = match &lease.given {
        None => 0,
        Some(given) if given.successor.is_none() => GIVEN,
        Some(_) => GIVEN | SUCCESSOR,
    };
    writer.u8(ended_byte(lease.ended) | relative | given);
    writer.u64(lease.id.0);
    writer.u64(expiry);
    writer.u64(lease.previous.0);
    if let Some(given) = &lease.given {
        if let Some(successor) = given.successor {
            writer.u32(successor.0);
        }
        writer.epoch(given.watermark.epoch);
        writer.u64(given.watermark.seq.0);
    }
}

fn read_lease(reader: &mut Reader<'_>) -> Result<Lease, DecodeError> {
    let flags = reader.u8()?;
    if flags & (GIVEN | SUCCESSOR) == SUCCESSOR {
        return Err(DecodeError::UnknownByte { field: "the flags of a lease", byte: flags });
    }
    let ended = ended_of(flags & ENDED_MASK)?;
    let (id, expiry, previous) = (LeaseId(reader.u64()?), reader.u64()?, LeaseId(reader.u64()?));
    let expiry = if flags & RELATIVE == 0 {
        Expiry::At(WallTime::from_micros(expiry))
    } else {
        Expiry::After(Span::from_micros(expiry))
    };
    let given = if flags & GIVEN == 0 { None } else { Some(Box::new(read_given(reader, flags)?)) };
    Ok(Lease { id, expiry, previous, ended, given })
}

fn read_given(reader: &mut Reader<'_>, flags: u8) -> Result<Given, DecodeError> {
    let successor = if flags & SUCCESSOR == 0 { None } else { Some(reader.node()?) };
    let watermark = Watermark { epoch: reader.epoch()?, seq: Seq(reader.u64()?) };
    Ok(Given { successor, watermark })
}

const fn ended_byte(ended: Ended) -> u8 {
    match ended {
        Ended::Unknown => 0,
        Ended::Released => 1,
        Ended::Expired => 2,
        Ended::Died => 3,
        Ended::HandedOver => 4,
    }
}

const fn ended_of(byte: u8) -> Result<Ended, DecodeError> {
    Ok(match byte {
        0 => Ended::Unknown,
        1 => Ended::Released,
        2 => Ended::Expired,
        3 => Ended::Died,
        4 => Ended::HandedOver,
        byte => return Err(DecodeError::UnknownByte { field: "how a lease ended", byte }),
    })
}

fn write_view(writer: &mut Writer, view: &View) {
    let members = view.members.as_slice();
    writer.view_id(view.id);
    // At most MEMBERS_MAX, which `Members` guarantees.
    writer.u8(u8::try_from(members.len()).unwrap_or(u8::MAX));
    members.iter().for_each(|member| writer.u32(member.0));
}

fn read_view(reader: &mut Reader<'_>) -> Result<View, DecodeError> {
    let id = reader.view_id()?;
    let count = usize::from(reader.u8()?);
    if count > MEMBERS_MAX {
        return Err(DecodeError::BadMembers);
    }
    let nodes = (0..count).map(|_| reader.node()).collect::<Result<Vec<_>, _>>()?;
    let is_sorted = nodes.is_sorted();
    let members = Members::new(nodes).map_err(|_| DecodeError::BadMembers)?;
    if is_sorted { Ok(View { id, members }) } else { Err(DecodeError::BadMembers) }
}
