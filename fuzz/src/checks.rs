//! One check for each decoder. Whatever the input: no panic, no more memory than declared, and what is accepted is
//! what our encoder writes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base::{ClusterId, NodeId, Role, StoreId};
use bytes::Bytes;
use net::{Denied, Peer};
use node::file::{Attributes, File, FileReply, FileRequest, Position};
use node::{
    CapabilityKeys, ClientFrame, ClusterMap, DaemonFrame, Errand, FileMessage, Inspection, KeyEpoch, Order,
    OrderReply, PeerMessage, Recent, Status,
};
use osd::store::{Disk, Host, Owner, Store};
use replication::Head;
use wire::{
    ALLOCATED_PER_BYTE_MAX, Admitted, DecodeError, FileRecord, Frame, FrameReader, Heartbeat, Hello, Inspect,
    KeptChunk, Kind, Lane, Message, Notice, NoticeAck, PROTOCOL_VERSION, Refusal, Stored, decode_name_key,
    decode_name_part, decode_stored, encode, encode_lease_frames, encode_name_key, encode_name_part,
    encode_stored,
};

use crate::memory::allocated_by;

/// What decoding may take for any input: errors, and the first steps of buffers that grow.
const ALLOCATED_ALWAYS_MAX: usize = 1_024;
/// What reading a text or a certificate may take for each byte: parsers keep positions and copies.
const ALLOCATED_PER_TEXT_BYTE_MAX: usize = 1_024;
/// What reading a text or a certificate may take for any input.
const ALLOCATED_FOR_TEXT_MAX: usize = 64 * 1_024;

/// A check of one decoder: it panics if the decoder does not stand the input.
pub(crate) type Check = fn(&[u8]);

/// Every decoder, by the name of its fuzz target and its corpus.
pub(crate) const CHECKS: [(&str, Check); 34] = [
    ("capability_keys", capability_keys),
    ("certificate", certificate),
    ("client", |bytes| metadata::<ClientFrame>(bytes, "client/a")),
    ("client_config", client_config),
    ("cluster_map", cluster_map),
    ("daemon", |bytes| metadata::<DaemonFrame>(bytes, "node/1")),
    ("daemon_config", daemon_config),
    ("datagram", datagram),
    ("deny_list", deny_list),
    ("errand", |bytes| metadata::<Vec<Errand>>(bytes, "node/1")),
    ("file_peer", |bytes| both_parts::<Vec<FileMessage>>(bytes, "node/1")),
    ("file_reply", |bytes| both_parts::<Vec<FileReply>>(bytes, "node/1")),
    ("file_request", |bytes| both_parts::<Vec<FileRequest>>(bytes, "client/a")),
    ("heartbeat", |bytes| metadata::<Heartbeat>(bytes, "node/1")),
    ("hello", hello),
    ("inspect", |bytes| metadata::<Inspect>(bytes, "client/a")),
    ("inspection", |bytes| metadata::<Inspection>(bytes, "node/1")),
    ("lease", lease),
    ("notice", |bytes| metadata::<Notice>(bytes, "supervisor/2")),
    ("notice_ack", |bytes| metadata::<NoticeAck>(bytes, "node/1")),
    ("order", |bytes| metadata::<Order>(bytes, "admin/a")),
    ("order_reply", |bytes| metadata::<OrderReply>(bytes, "node/1")),
    ("peer", |bytes| metadata::<Vec<PeerMessage>>(bytes, "node/1")),
    ("recent", |bytes| metadata::<Recent>(bytes, "node/1")),
    ("recent_request", |bytes| metadata::<wire::RecentRequest>(bytes, "node/1")),
    ("refusal", refusal),
    ("status", |bytes| metadata::<Status>(bytes, "node/1")),
    ("store", store),
    ("stored_attributes", stored::<(Position, Attributes)>),
    ("stored_chunk", stored::<KeptChunk>),
    ("stored_head", stored::<Head<File>>),
    ("stored_name", stored_name),
    ("stored_record", stored::<FileRecord>),
    ("stream", stream),
];

/// Runs the check of the decoder `name`.
///
/// # Panics
///
/// If there is none, or if the decoder does not stand the input.
pub fn check(name: &str, bytes: &[u8]) {
    let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).expect("a decoder of this name");
    check(bytes);
}

/// Decoders of a kind's metadata get what stands behind a header that is true.
fn metadata<M: Message>(bytes: &[u8], role: &str) {
    parts::<M>(bytes, &[], role);
}

/// The first two bytes say how long the metadata is, which stands before the tail.
fn both_parts<M: Message>(bytes: &[u8], role: &str) {
    let Some((&length, rest)) = bytes.split_first_chunk() else { return };
    let (metadata, tail) = rest.split_at(usize::from(u16::from_le_bytes(length)).min(rest.len()));
    parts::<M>(metadata, tail, role);
}

fn parts<M: Message>(metadata: &[u8], tail: &[u8], role: &str) {
    let len = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes();
    let header = [&[M::KIND as u8, PROTOCOL_VERSION, 0, 0], &len(metadata)[..], &len(tail)].concat();
    let frame = Bytes::from([&header, metadata, tail].concat());
    let role = role.parse().expect("a role");
    let (decoded, allocated) = allocated_by(|| one_frame(M::KIND, frame.clone(), &role)?.decode::<M>().ok());
    within(allocated, frame.len());
    if let Some(message) = decoded {
        let mut again = Vec::new();
        encode(&message, &mut again);
        assert_eq!(again, frame, "what was accepted is not what is written");
    }
}

/// The frame in `bytes`, which hold nothing else.
fn one_frame(kind: Kind, mut bytes: Bytes, role: &Role) -> Option<Admitted> {
    match kind.lane() {
        Lane::Datagram => Frame::from_datagram(bytes).ok()?.admit(role).ok(),
        Lane::Stream => FrameReader::new(role.clone()).next(&mut bytes).ok()?,
    }
}

/// Something that a daemon keeps on its disk.
fn stored<T: Stored>(bytes: &[u8]) {
    let input = Bytes::copy_from_slice(bytes);
    let (decoded, allocated) = allocated_by(|| decode_stored::<T>(input).ok());
    within(allocated, bytes.len());
    if let Some(value) = decoded {
        assert_eq!(encode_stored(&value).concat(), bytes, "what was accepted is not what is written");
    }
}

/// The first two bytes say how long the key is. What is kept under it stands behind it.
fn stored_name(bytes: &[u8]) {
    let Some((&length, rest)) = bytes.split_first_chunk() else { return };
    let (key, part) = rest.split_at(usize::from(u16::from_le_bytes(length)).min(rest.len()));
    let (decoded, allocated) = allocated_by(|| decode_name_key(key));
    within(allocated, key.len());
    let Some(decoded) = decoded else { return };
    assert_eq!(encode_name_key(&decoded), key, "what was accepted is not what is written");
    let input = Bytes::copy_from_slice(part);
    let (kept, allocated) = allocated_by(|| decode_name_part(&decoded, input).ok());
    within(allocated, part.len());
    if let Some((at, kept)) = kept {
        assert!(kept.is_of(&decoded), "a part of another key");
        assert_eq!(encode_name_part(at, &kept).concat(), part, "what was accepted is not what is written");
    }
}

fn hello(bytes: &[u8]) {
    for role in ["node/1", "supervisor/1", "client/a"] {
        metadata::<Hello>(bytes, role);
    }
}

/// The first byte is the reason, and the rest the text.
fn refusal(bytes: &[u8]) {
    let (metadata, tail) = bytes.split_at(bytes.len().min(1));
    parts::<Refusal>(metadata, tail, "node/1");
}

fn lease(bytes: &[u8]) {
    let input = Bytes::copy_from_slice(bytes);
    let (decoded, allocated) = allocated_by(|| {
        let frame = Frame::from_datagram(input).ok()?.admit(&Role::Node(NodeId(1))).ok()?;
        frame.decode_leases().ok()
    });
    within(allocated, bytes.len());
    if let Some(batch) = decoded {
        let mut again = Vec::new();
        encode_lease_frames(&batch, bytes.len() + wire::FRAME_MIN, &mut |frame| {
            again.extend_from_slice(frame)
        });
        assert_eq!(again, bytes, "what was accepted is not what is written");
    }
}

/// The first byte chooses who sends it.
fn datagram(bytes: &[u8]) {
    let Some((&choice, datagram)) = bytes.split_first() else { return };
    let (role, input) = (role_of(choice), Bytes::copy_from_slice(datagram));
    let ((), allocated) = allocated_by(|| {
        if let Ok(frame) = Frame::from_datagram(input).and_then(|frame| frame.admit(&role)) {
            assert_eq!(frame.kind().lane(), Lane::Datagram);
            let _ = decode(&frame);
        }
    });
    within(allocated, datagram.len());
}

/// The first byte chooses who sends it, the second in how long pieces it arrives.
fn stream(bytes: &[u8]) {
    let &[choice, step, ref stream @ ..] = bytes else { return };
    let (role, stream) = (role_of(choice), Bytes::copy_from_slice(stream));
    let (in_pieces, allocated) = allocated_by(|| count_frames(&stream, usize::from(step).max(1), &role));
    within(allocated, stream.len());
    let at_once = count_frames(&stream, stream.len().max(1), &role);
    assert_eq!(in_pieces, at_once, "frames depend on how the stream was cut");
}

/// How many frames a stream has, how many of them say something, and whether it is broken.
fn count_frames(stream: &Bytes, step: usize, role: &Role) -> (usize, usize, bool) {
    let mut reader = FrameReader::new(role.clone());
    let (mut whole, mut sound) = (0, 0);
    for start in (0..stream.len()).step_by(step) {
        let mut piece = stream.slice(start..stream.len().min(start + step));
        loop {
            match reader.next(&mut piece) {
                Ok(Some(frame)) => {
                    assert!(frame.kind().may_come_from(role), "{role} sent a {} frame", frame.kind());
                    whole += 1;
                    sound += usize::from(decode(&frame).is_ok());
                }
                Ok(None) => break,
                Err(_) => return (whole, sound, true),
            }
        }
        let seen = stream.len().min(start + step);
        assert!(piece.is_empty() && reader.pending() <= seen, "the reader keeps what it did not get");
    }
    (whole, sound, false)
}

fn role_of(choice: u8) -> Role {
    let roles = ["node/1", "supervisor/1", "client/a", "admin/a"];
    roles[usize::from(choice) % roles.len()].parse().expect("a role")
}

/// Decodes a frame as what it says it is.
fn decode(frame: &Admitted) -> Result<(), DecodeError> {
    match frame.kind() {
        Kind::Lease => frame.decode_leases().map(drop),
        Kind::Hello => frame.decode::<Hello>().map(drop),
        Kind::Welcome => frame.decode::<wire::Welcome>().map(drop),
        Kind::Refusal => frame.decode::<Refusal>().map(drop),
        Kind::Heartbeat => frame.decode::<Heartbeat>().map(drop),
        Kind::Peer => frame.decode::<Vec<PeerMessage>>().map(drop),
        Kind::Client => frame.decode::<ClientFrame>().map(drop),
        Kind::Daemon => frame.decode::<DaemonFrame>().map(drop),
        Kind::Notice => frame.decode::<Notice>().map(drop),
        Kind::NoticeAck => frame.decode::<NoticeAck>().map(drop),
        Kind::StatusRequest => frame.decode::<wire::StatusRequest>().map(drop),
        Kind::Status => frame.decode::<Status>().map(drop),
        Kind::FilePeer => frame.decode::<Vec<FileMessage>>().map(drop),
        Kind::FileRequest => frame.decode::<Vec<FileRequest>>().map(drop),
        Kind::FileReply => frame.decode::<Vec<FileReply>>().map(drop),
        Kind::Order => frame.decode::<Order>().map(drop),
        Kind::OrderReply => frame.decode::<OrderReply>().map(drop),
        Kind::Errand => frame.decode::<Vec<Errand>>().map(drop),
        Kind::Inspect => frame.decode::<Inspect>().map(drop),
        Kind::Inspection => frame.decode::<Inspection>().map(drop),
        Kind::RecentRequest => frame.decode::<wire::RecentRequest>().map(drop),
        Kind::Recent => frame.decode::<Recent>().map(drop),
    }
}

fn cluster_map(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (map, allocated) = allocated_by(|| ClusterMap::parse(text).ok());
    within_for_text(allocated, bytes.len());
    if let Some(map) = map {
        let again = ClusterMap::parse(&map.to_text()).expect("a map reads what it writes");
        assert_eq!(again, map);
    }
}

fn deny_list(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (denied, allocated) = allocated_by(|| text.parse::<Denied>().ok());
    within_for_text(allocated, bytes.len());
    if let Some(denied) = denied {
        assert!(denied.iter().all(|(fingerprint, _)| denied.contains(fingerprint)));
        assert!(denied.iter().len() <= net::DENIED_MAX);
    }
}

fn capability_keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (keys, allocated) = allocated_by(|| CapabilityKeys::parse(text));
    within_for_text(allocated, bytes.len());
    match keys {
        Ok(keys) => assert!(keys.latest() > KeyEpoch(0), "epochs count from 1"),
        // What is wrong is told without what stands there. Words that short may stand in any sentence.
        Err(error) => {
            let told = error.to_string();
            let mut words = text.split_whitespace();
            assert!(!words.any(|word| word.len() > 16 && told.contains(word)), "{told} tells a key");
        }
    }
}

fn certificate(bytes: &[u8]) {
    let cluster = ClusterId(*b"sixteen byte id.");
    let (peer, allocated) = allocated_by(|| Peer::from_certificate(bytes, cluster).ok());
    within_for_text(allocated, bytes.len());
    if let Some(peer) = peer {
        assert_eq!(peer.role.to_string().parse(), Ok(peer.role));
    }
}

/// The map that every configuration here finds, whatever it calls it.
const CLUSTER_MAP: &str = "cluster = \"7369787465656e20627974652069642e\"\nversion = 1\nreplicas = 1\n\n[[osds]]\nid = 1\n\
    address = \"127.0.0.1:7001\"\n";

fn daemon_config(bytes: &[u8]) {
    let (Ok(text), path) = (std::str::from_utf8(bytes), Path::new("osd-1/osd.toml")) else { return };
    let (config, allocated) =
        allocated_by(|| osd::config::Config::parse(path, text, |_| Ok(CLUSTER_MAP.to_owned())).ok());
    within_for_text(allocated, bytes.len());
    assert!(config.is_none_or(|config| config.node == NodeId(1)), "the map has one daemon");
}

fn client_config(bytes: &[u8]) {
    let (Ok(text), path) = (std::str::from_utf8(bytes), Path::new("client/client.toml")) else { return };
    let (_, allocated) =
        allocated_by(|| client::Config::parse(path, text, |_| Ok(CLUSTER_MAP.to_owned())).map(drop));
    within_for_text(allocated, bytes.len());
}

/// The first byte chooses the file of a store that holds the rest, under a checksum that fits.
fn store(bytes: &[u8]) {
    let Some((&choice, file)) = bytes.split_first() else { return };
    let (owner, mut files) = (STORE_OWNER, Files(fresh_store()));
    let count = files.0.len();
    let damaged = files.0.values_mut().nth(usize::from(choice) % count).expect("one of its files");
    *damaged = [file, &crc32c::crc32c(file).to_le_bytes()].concat();
    let host = Host { machine: [1; 16], boot: [2; 16], lock: [3, 4], is_local: true };
    let (opened, allocated) = allocated_by(|| Store::start_on(Box::new(files), owner, host, 9).ok());
    within_for_text(allocated, bytes.len());
    assert!(opened.is_none_or(|store| store.owner() == owner), "a store belongs to whom it was opened for");
}

const STORE_OWNER: Owner = Owner { cluster: ClusterId(*b"sixteen byte id."), node: NodeId(1) };

/// The files of a store that was just made.
pub(crate) fn fresh_store() -> BTreeMap<String, Vec<u8>> {
    let mut files = Files::default();
    osd::store::format(&mut files, STORE_OWNER, StoreId([7; 16])).expect("memory takes everything");
    files.0
}

/// A directory in memory.
#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Disk for Files {
    fn read(&mut self, file: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(file).map(|bytes| bytes[..bytes.len().min(bytes_max + 1)].to_vec()))
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.insert(file.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn overwrite(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let held = self.0.get_mut(file).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        held.resize(held.len().max(start + bytes.len()), 0);
        held[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let bytes = self.0.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.0.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn within(allocated: usize, input: usize) {
    let allowed = ALLOCATED_ALWAYS_MAX + ALLOCATED_PER_BYTE_MAX * input;
    assert!(allocated <= allowed, "{allocated} bytes of memory for {input} of input, {allowed} are allowed");
}

fn within_for_text(allocated: usize, input: usize) {
    let allowed = ALLOCATED_FOR_TEXT_MAX + ALLOCATED_PER_TEXT_BYTE_MAX * input;
    assert!(allocated <= allowed, "{allocated} bytes of memory for {input} of input, {allowed} are allowed");
}
