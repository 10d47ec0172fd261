//! The corpus of the fuzz targets, replayed: what a decoder once stood it stands still.
//!
//! Seeds are made from the sample of each kind of frame, and the first test finds any that are out of date. With
//! `FLEASEFS_WRITE_CORPUS=1` it writes them instead.

#[expect(unreachable_pub, reason = "the fuzz targets reach it")]
#[path = "../../fuzz/src/checks.rs"]
mod checks;
#[path = "../../fuzz/src/memory.rs"]
mod memory;
#[path = "../../wire/tests/frames/name_samples.rs"]
mod name_samples;
#[path = "../../wire/tests/frames/samples.rs"]
mod samples;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use base::{ClusterId, NodeId};
use checks::CHECKS;
use namespace::{Key, Part};
use net::Peer;
use node::{
    CapabilityKey, CapabilityKeys, ClientFrame, ClusterMap, DaemonFrame, KeyEpoch, PeerMessage, Reply,
    Request,
};
use samples::{Sample, samples};
use wire::{HEADER_BYTES, Kind, Lane, Message, encode, encode_name_key, encode_name_part, encode_stored};

const CLUSTER_MAP: &str = "cluster = \"7369787465656e20627974652069642e\"\nversion = 3\nreplicas = 3\n\n[lease]\n\
    algorithm = \"paxoslease\"\nt_max_ms = 2000\nepsilon_ms = 100\nsession_ms = 800\nrate_error_ppm = 120000\n\n\
    [[osds]]\nid = 1\naddress = \"[::1]:7001\"\n\n[[osds]]\nid = 2\naddress = \"osd-2.example:7001\"\n\n\
    [[osds]]\nid = 3\naddress = \"192.0.2.3:7001\"\n";

/// What a map may say about volumes, every key of it.
const EXPORTS: &str = "\n[[exports]]\nvolume = \"home\"\nclients = [\"build\", \"admin/anna\"]\npath = \"/a b/\\\"c\\\"\"\n\
    access = \"ro\"\nsquash = \"all\"\nanonymous_uid = 99\nanonymous_gid = 98\n\
    map_uids = [{ from = 1000, to = 2000, count = 10 }, { from = 0, to = 5, count = 1 }]\n\
    map_gids = [{ from = 4294967294, to = 100, count = 1 }]\n\n\
    [[exports]]\nvolume = \"*\"\nclients = [\"*\"]\naccess = \"rw\"\n";

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name)
}

fn frame<M: Message>(message: &M) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(message, &mut frame);
    frame
}

fn metadata<M: Message>(message: &M) -> Vec<u8> {
    frame(message).split_off(HEADER_BYTES)
}

/// The length of a frame's metadata, itself, and the tail.
fn both_parts(frame: &[u8]) -> Vec<u8> {
    assert_eq!(frame[6..8], [0, 0], "a sample is short");
    [&frame[4..6], &frame[HEADER_BYTES..]].concat()
}

/// The configurations that `fleasefs init` writes.
fn configs() -> [(&'static str, String); 2] {
    let client = client::commented(&"client/a".parse().unwrap());
    [
        ("client_config", client),
        ("daemon_config", osd::config::commented(NodeId(1), osd::store::index::Engine::Redb)),
    ]
}

/// Two keys, the second of which is used from some time on.
fn capability_keys() -> String {
    let [first, second] = [0x0f, 0xa1].map(|byte| CapabilityKey::new([byte; 32]));
    let second = second.line(KeyEpoch(12), Some(1_800_000_000));
    format!("# shared\n{}\n{} # next\n", first.line(KeyEpoch(1), None), second.trim_end())
}

/// A configuration whose defaults, which stand there as comments without a space, are in force.
fn spelled_out(commented: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with([' ', '#']) => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    commented.lines().map(line).collect()
}

/// The seeds of each decoder that follow from the samples: a name and a content each.
fn seeds() -> BTreeMap<&'static str, Vec<(String, Vec<u8>)>> {
    let mut seeds: BTreeMap<_, Vec<_>> = CHECKS.map(|(name, _)| (name, Vec::new())).into();
    let mut add = |target: &str, name: String, bytes: Vec<u8>| {
        seeds.get_mut(target).expect("a decoder of this name").push((name, bytes));
    };
    for Sample { kind, role, frame } in samples() {
        let name = kind.to_string().replace(' ', "_");
        let choice = role
            .to_string()
            .bytes()
            .next()
            .and_then(|first| b"nsca".iter().position(|&letter| letter == first));
        let choice = choice.and_then(|choice| u8::try_from(choice).ok()).expect("a role");
        match kind.lane() {
            Lane::Datagram => add("datagram", name.clone(), [&[choice], &frame[..]].concat()),
            Lane::Stream => add("stream", name.clone(), [&[choice, 7], &frame[..], &frame[..]].concat()),
        }
        match kind {
            Kind::Lease => add("lease", "sample".to_owned(), frame),
            Kind::Welcome | Kind::StatusRequest => {}
            Kind::FilePeer | Kind::FileRequest | Kind::FileReply => {
                add(&name, "sample".to_owned(), both_parts(&frame));
            }
            _ => add(&name, "sample".to_owned(), frame[HEADER_BYTES..].to_vec()),
        }
    }
    for (index, message) in samples::peer().into_iter().enumerate() {
        add("peer", format!("message_{index}"), metadata::<Vec<PeerMessage>>(&vec![message]));
    }
    for (index, request) in samples::client().requests.into_iter().enumerate() {
        let requests: Vec<Request> = vec![request];
        add("client", format!("request_{index}"), metadata(&ClientFrame { number: 1, requests }));
    }
    for (index, reply) in samples::daemon().replies.into_iter().enumerate() {
        let replies: Vec<Reply> = vec![reply];
        add("daemon", format!("reply_{index}"), metadata(&DaemonFrame { acked: 1, replies }));
    }
    file_seeds(&mut add);
    name_seeds(&mut add);
    add("cluster_map", "sample".to_owned(), CLUSTER_MAP.as_bytes().to_vec());
    add("cluster_map", "exports".to_owned(), [CLUSTER_MAP, EXPORTS].concat().into_bytes());
    for (target, text) in configs() {
        add(target, "commented".to_owned(), text.clone().into_bytes());
        add(target, "spelled_out".to_owned(), spelled_out(&text).into_bytes());
    }
    for (choice, (name, file)) in (0..).zip(checks::fresh_store()) {
        // The checksum at the end is added by the check.
        add("store", name, [&[choice], &file[..file.len() - 4]].concat());
    }
    let denied = format!("# stolen\n{}  # laptop\n\n{}\n", "0f".repeat(32), "a1".repeat(32));
    add("deny_list", "sample".to_owned(), denied.into_bytes());
    add("capability_keys", "sample".to_owned(), capability_keys().into_bytes());
    seeds
}

/// What is said about files, ordered and kept.
fn file_seeds(add: &mut impl FnMut(&str, String, Vec<u8>)) {
    for (index, message) in samples::file_messages().into_iter().enumerate() {
        add("file_peer", format!("message_{index}"), both_parts(&frame(&vec![message])));
    }
    for (index, request) in samples::file_requests().into_iter().enumerate() {
        add("file_request", format!("request_{index}"), both_parts(&frame(&vec![request])));
    }
    for (index, reply) in samples::file_replies().into_iter().enumerate() {
        add("file_reply", format!("reply_{index}"), both_parts(&frame(&vec![reply])));
    }
    for (index, order) in samples::orders().into_iter().enumerate() {
        add("order", format!("order_{index}"), metadata(&order));
    }
    add("errand", "sample".to_owned(), metadata(&samples::errands()));
    for (index, reply) in samples::order_replies().into_iter().enumerate() {
        add("order_reply", format!("reply_{index}"), metadata(&reply));
    }
    for (index, record) in samples::records().into_iter().enumerate() {
        add("stored_record", format!("record_{index}"), encode_stored(&record).concat());
    }
    for (name, head) in [("whole", samples::head()), ("mixed", samples::mixed())] {
        add("stored_head", name.to_owned(), encode_stored(&head).concat());
    }
    add("stored_attributes", "sample".to_owned(), encode_stored(&samples::attributes()).concat());
    add("stored_chunk", "sample".to_owned(), encode_stored(&samples::chunk()).concat());
}

/// What is kept of a tree: the length of the key, the key, and the part.
fn name_seeds(add: &mut impl FnMut(&str, String, Vec<u8>)) {
    let id = name_samples::inode_id(7);
    let other =
        |body| (Key::Inode(id), name_samples::born(10), Part::Inode(name_samples::inode(body).into()));
    let parts = name_samples::name_parts().into_iter().chain(name_samples::bodies().map(other));
    for (index, (key, at, part)) in parts.enumerate() {
        let key = encode_name_key(&key);
        let length = u16::try_from(key.len()).expect("a key is short");
        let bytes = [&length.to_le_bytes(), &key[..], &encode_name_part(at, &part).concat()].concat();
        add("stored_name", format!("part_{index}"), bytes);
    }
}

#[test]
fn seeds_are_up_to_date() {
    let is_writing = env::var_os("FLEASEFS_WRITE_CORPUS").is_some();
    for (target, files) in seeds() {
        for (name, bytes) in files {
            let path = corpus(target).join(&name);
            if is_writing {
                fs::create_dir_all(corpus(target)).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            let found = fs::read(&path).unwrap_or_default();
            assert!(found == bytes, "{} is out of date: run with FLEASEFS_WRITE_CORPUS=1", path.display());
        }
    }
}

#[test]
fn seeds_say_something() {
    // A target whose seeds are all refused would fuzz the first check only.
    assert!(ClusterMap::parse(CLUSTER_MAP).is_ok());
    assert_eq!(ClusterMap::parse(&[CLUSTER_MAP, EXPORTS].concat()).unwrap().exports().rules().len(), 2);
    assert_eq!(CapabilityKeys::parse(&capability_keys()).unwrap().latest(), KeyEpoch(12));
    let certificate = fs::read(corpus("certificate").join("node")).unwrap();
    let peer = Peer::from_certificate(&certificate, ClusterId(*b"sixteen byte id.")).unwrap();
    assert_eq!(peer.role.to_string(), "node/1");
    for (target, text) in configs() {
        for text in [spelled_out(&text), text] {
            let path = Path::new("a.toml");
            let read = match target {
                "client_config" => client::Config::parse(path, &text, |_| Ok(CLUSTER_MAP.to_owned())).is_ok(),
                _ => osd::config::Config::parse(path, &text, |_| Ok(CLUSTER_MAP.to_owned())).is_ok(),
            };
            assert!(read, "{target}: {text}");
        }
    }
    for sample in samples() {
        let frame = samples::arrive(&sample.frame, sample.kind.lane(), &sample.role).unwrap().unwrap();
        assert_eq!(samples::again(&frame).as_ref(), Ok(&sample.frame), "{}", sample.kind);
    }
}

#[test]
fn decoders_stand_their_corpus() {
    for (name, check) in CHECKS {
        let mut count = 0;
        for file in fs::read_dir(corpus(name)).unwrap() {
            check(&fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}

#[test]
fn decoders_stand_every_damaged_byte_of_their_corpus() {
    for (name, check) in CHECKS {
        for file in fs::read_dir(corpus(name)).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            for at in 0..bytes.len() {
                for flip in [0x01, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= flip;
                    check(&damaged);
                }
                check(&bytes[..at]);
            }
        }
    }
}

#[test]
fn every_check_has_a_target() {
    for (name, _) in CHECKS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.contains(&format!("check(\"{name}\", bytes)")), "{} runs no check", path.display());
    }
    let targets = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets")).unwrap();
    assert_eq!(targets.count(), CHECKS.len(), "a target that nothing replays");
    assert!(std::panic::catch_unwind(|| checks::check("nobody", &[])).is_err());
}
