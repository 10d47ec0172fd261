use base::{Epoch, NodeId, Seq};
use proptest::prelude::*;

use super::*;

const VOLUME: ObjectId = ObjectId::new(1, 2);
const EPOCH: Epoch = Epoch { number: 8, node: NodeId(9) };
const INODE: InodeId = InodeId { number: 7, epoch: EPOCH };
const LEND: Generation = Generation(Born { epoch: Epoch { number: 10, node: NodeId(11) }, seq: Seq(12) });
const SOURCE: Source = Source { volume: VOLUME, inode: INODE, lend: Some(LEND) };
const CLIENT: CertificateId = CertificateId([5; 32]);
const NOW: WallTime = WallTime::from_micros(1_800_000_000_000_000);

fn keys(text: &str) -> CapabilityKeys {
    CapabilityKeys::parse(text).unwrap()
}

fn line(epoch: u32, byte: u8) -> String {
    CapabilityKey::new([byte; 32]).line(KeyEpoch(epoch), None)
}

fn later(secs: u64) -> WallTime {
    NOW + Span::from_secs(secs)
}

fn file() -> ObjectId {
    file_object(VOLUME, INODE)
}

fn open(mode: OpenMode) -> Open {
    Open { file: file(), mode, certificate: CLIENT }
}

/// What the file is open for, by a client.
const MODES: [OpenMode; 3] = [OpenMode::Look, OpenMode::Read, OpenMode::ReadWrite];
const READING: (CertificateId, OpenMode) = (CLIENT, OpenMode::Read);
const WRITING: (CertificateId, OpenMode) = (CLIENT, OpenMode::ReadWrite);

/// A capability for reading and writing, good for a minute, and the keys it was made with.
fn issued() -> (Capability, CapabilityKeys) {
    let keys = keys(&line(7, 1));
    (keys.issue(SOURCE, WRITING, later(60), NOW), keys)
}

#[test]
fn what_was_issued_is_good_for_what_it_was_issued_for() {
    let (capability, keys) = issued();
    assert_eq!(capability.epoch, KeyEpoch(7));
    for mode in MODES {
        assert_eq!(keys.check(&capability, &open(mode), NOW), Ok(()));
    }
}

#[test]
fn each_thing_that_does_not_fit_is_named() {
    let (capability, keys) = issued();
    let wanted = open(OpenMode::ReadWrite);
    let foreign = Open { certificate: CertificateId([6; 32]), ..wanted };
    assert_eq!(keys.check(&capability, &foreign, NOW), Err(CapabilityError::ForeignClient));
    // The number of a client is the beginning of its fingerprint, and not enough.
    let mut alike = CLIENT;
    alike.0[31] ^= 1;
    let alike = Open { certificate: alike, ..wanted };
    assert_eq!(keys.check(&capability, &alike, NOW), Err(CapabilityError::ForeignClient));

    let other = ObjectId::new(3, 5);
    let refused = keys.check(&capability, &Open { file: other, ..wanted }, NOW);
    assert_eq!(refused, Err(CapabilityError::OtherFile { theirs: file(), wanted: other }));

    let reading = keys.issue(SOURCE, READING, later(60), NOW);
    assert_eq!(keys.check(&reading, &open(OpenMode::Read), NOW), Ok(()));
    assert_eq!(keys.check(&reading, &wanted, NOW), Err(CapabilityError::Insufficient));

    let looking = keys.issue(SOURCE, (CLIENT, OpenMode::Look), later(60), NOW);
    assert_eq!(keys.check(&looking, &open(OpenMode::Look), NOW), Ok(()));
    assert_eq!(keys.check(&looking, &open(OpenMode::Read), NOW), Err(CapabilityError::Insufficient));

    let almost = WallTime::from_micros(later(60).as_micros() - 1);
    assert_eq!(keys.check(&capability, &wanted, almost), Ok(()));
    let ago = Span::ZERO;
    assert_eq!(keys.check(&capability, &wanted, later(60)), Err(CapabilityError::Expired { ago }));
    let ago = Span::from_secs(5);
    assert_eq!(keys.check(&capability, &wanted, later(65)), Err(CapabilityError::Expired { ago }));
}

#[test]
fn who_has_no_key_cannot_make_a_capability() {
    let (capability, keys) = issued();
    let wanted = open(OpenMode::ReadWrite);
    let other_cluster = CapabilityKeys::parse(&line(7, 2)).unwrap();
    let forged = other_cluster.issue(SOURCE, WRITING, later(60), NOW);
    assert_eq!(keys.check(&forged, &wanted, NOW), Err(CapabilityError::Forged));
    // What would be refused for another reason says nothing but that it is forged.
    let forged = Capability { expires: NOW, open: open(OpenMode::Read), ..capability };
    assert_eq!(keys.check(&forged, &wanted, NOW), Err(CapabilityError::Forged));
    // Where it was opened is no reason of its own, and yet it is covered.
    let volume = ObjectId::new(1, 3);
    for source in [
        Source { volume, ..SOURCE },
        Source { inode: InodeId::ROOT, ..SOURCE },
        Source { lend: None, ..SOURCE },
    ] {
        let forged = Capability { source, ..capability };
        assert_eq!(keys.check(&forged, &wanted, NOW), Err(CapabilityError::Forged), "{source:?}");
    }
}

#[test]
fn a_key_is_accepted_as_long_as_it_is_there() {
    let (old, before) = issued();
    let wanted = open(OpenMode::ReadWrite);
    let rotated = keys(&(line(7, 1) + &line(8, 2)));
    assert_eq!(rotated.latest(), KeyEpoch(8));
    assert_eq!(rotated.check(&old, &wanted, NOW), Ok(()));
    let new = rotated.issue(SOURCE, WRITING, later(60), NOW);
    assert_eq!(new.epoch, KeyEpoch(8));
    let unknown = CapabilityError::UnknownKey { epoch: KeyEpoch(8), latest: KeyEpoch(7) };
    assert_eq!(before.check(&new, &wanted, NOW), Err(unknown), "a daemon with the old file");
    let unknown = CapabilityError::UnknownKey { epoch: KeyEpoch(7), latest: KeyEpoch(8) };
    assert_eq!(keys(&line(8, 2)).check(&old, &wanted, NOW), Err(unknown), "a key that was taken away");
    // The epoch is covered: the same key under another number makes another tag.
    let renumbered = Capability { epoch: KeyEpoch(8), ..old };
    assert_eq!(keys(&line(8, 1)).check(&renumbered, &wanted, NOW), Err(CapabilityError::Forged));
}

#[test]
fn a_key_is_used_when_its_time_has_come_and_accepted_before() {
    let from_s = later(100).as_micros() / 1_000_000;
    let text = line(1, 1) + &CapabilityKey::new([2; 32]).line(KeyEpoch(2), Some(from_s));
    let keys = keys(&text);
    let wanted = open(OpenMode::Read);
    let epoch = |secs| keys.issue(SOURCE, READING, later(1_000), later(secs)).epoch.0;
    assert_eq!([0, 99, 100, 101].map(epoch), [1, 1, 2, 2]);
    let early = keys.issue(SOURCE, READING, later(1_000), later(100));
    assert_eq!(keys.check(&early, &wanted, NOW), Ok(()), "a daemon whose clock is a little behind");

    let only = CapabilityKeys::parse(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!(only.issue(SOURCE, READING, later(1), NOW).epoch, KeyEpoch(2), "there is no other one");
}

#[test]
fn a_file_of_keys_reads_as_it_is_written() {
    let (a, b) = (CapabilityKey::new([0xa5; 32]), CapabilityKey::new([1; 32]));
    let text = format!(
        "# made by hand\n\n{}  {}# the next one\n",
        a.line(KeyEpoch(3), None),
        b.line(KeyEpoch(9), Some(1_800_000_000)).replace('\n', " ")
    );
    let keys = keys(&text);
    assert_eq!(keys.latest(), KeyEpoch(9));
    assert_eq!((keys.of(KeyEpoch(3)), keys.of(KeyEpoch(9))), (Some(&a), Some(&b)));
    assert_eq!(keys.of(KeyEpoch(4)), None);
    assert_eq!(a.line(KeyEpoch(3), None), format!("3 {}\n", "a5".repeat(32)));
}

#[test]
fn mistakes_name_the_line_and_never_what_stands_there() {
    let key = "5e".repeat(32);
    for (text, expected) in [
        (format!("# keys\n{key}\n"), "line 2 is no key: write an epoch, a key"),
        (format!("1 {key} 5 5"), "line 1 is no key"),
        (format!("{key} 1"), "line 1 does not begin with an epoch"),
        (format!("0 {key}"), "begin it with a number from 1 to 4294967295"),
        (format!("4294967296 {key}"), "line 1 does not begin with an epoch"),
        (format!("1 {key}5"), "the key in line 1 is not 64 hexadecimal digits; copy the line again"),
        (format!("1 {}g", &key[1..]), "the key in line 1 is not 64"),
        (format!("1 {key} {key}"), "line 1 does not say from when on its key is used; write seconds"),
        (format!("1 {key} -5"), "line 1 does not say from when on"),
        (format!("2 {key}\n\n2 {key}"), "line 3 has epoch 2 behind epoch 2; give each key an epoch above"),
        (format!("2 {key}\n1 {key}"), "line 2 has epoch 1 behind epoch 2"),
        ("# none\n\n".to_owned(), "there is no key in it; make one with `fleasefs cert keys`"),
        (
            (1..=65).map(|n| format!("{n} {key}\n")).collect(),
            "there are more than 64 keys in it; remove the first ones",
        ),
    ] {
        let error = CapabilityKeys::parse(&text).unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert!(!format!("{error} {error:?}").contains("5e5e"), "{error:?} tells the key");
    }
    let most: String = (1..=64).map(|n| format!("{n} {key}\n")).collect();
    assert_eq!(keys(&most).latest(), KeyEpoch(64));
}

#[test]
fn no_key_and_no_tag_is_ever_shown() {
    let (capability, keys) = issued();
    let shown = format!("{capability:?} {keys:?} {:?}", CapabilityKey::new([0xa5; 32]));
    let tag: String = capability.tag.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = format!("{:?}", capability.tag.as_bytes());
    for secret in [&tag, &bytes[1..20], "1, 1, 1", "0101", "165, 165", "a5a5"] {
        assert!(!shown.contains(secret), "{shown} shows {secret}");
    }
    assert!(shown.contains("KeyEpoch(7)"), "and the rest is: {shown}");
}

#[test]
fn a_tag_covers_what_the_document_says() {
    let (capability, _) = issued();
    let key = blake3::derive_key("fleasefs 2026 capability of an open file", &[1; 32]);
    let mut covered = Vec::new();
    // Numbers of two widths, as the document has them.
    for (word, bytes) in [(1, 8), (2, 8), (7, 8), (8, 8), (9, 4), (1, 1), (10, 8), (11, 4), (12, 8)] {
        covered.extend(&u64::to_le_bytes(word)[..bytes]);
    }
    covered.extend(file().high.to_le_bytes());
    covered.extend(file().low.to_le_bytes());
    covered.extend((NOW.as_micros() + 60_000_000).to_le_bytes());
    covered.extend([7, 0, 0, 0, 1]);
    covered.extend([5; 32]);
    assert_eq!(covered.len(), 118);
    assert_eq!(capability.tag.as_bytes(), blake3::keyed_hash(&key, &covered).as_bytes());
}

#[test]
fn every_refusal_says_what_to_do() {
    let epoch = KeyEpoch(1);
    for error in [
        CapabilityError::UnknownKey { epoch, latest: epoch },
        CapabilityError::Forged,
        CapabilityError::ForeignClient,
        CapabilityError::OtherFile { theirs: VOLUME, wanted: VOLUME },
        CapabilityError::OtherVolume { theirs: VOLUME, wanted: VOLUME },
        CapabilityError::Insufficient,
        CapabilityError::Expired { ago: Span::from_secs(1) },
    ] {
        assert!(
            ["; open the file", "; show", "; renew"].iter().any(|what| error.to_string().contains(what)),
            "{error}"
        );
    }
}

#[test]
fn who_had_a_file_open_lately_may_have_it_open_on() {
    let (capability, keys) = issued();
    let renewable =
        |capability: &Capability, at| keys.check_renewable(capability, (VOLUME, CLIENT), later(at));
    let lasts = CAPABILITY_LASTS.as_micros() / 1_000_000;
    assert_eq!(renewable(&capability, 60 + lasts - 1), Ok(()), "it expired not so long ago");
    let ago = CAPABILITY_LASTS;
    assert_eq!(renewable(&capability, 60 + lasts), Err(CapabilityError::Expired { ago }));
    let refused = keys.check_renewable(&capability, (VOLUME, CertificateId([6; 32])), NOW);
    assert_eq!(refused, Err(CapabilityError::ForeignClient));
    let wanted = ObjectId::new(1, 3);
    let refused = keys.check_renewable(&capability, (wanted, CLIENT), NOW);
    assert_eq!(refused, Err(CapabilityError::OtherVolume { theirs: VOLUME, wanted }));
    let forged = Capability { expires: later(3_600), ..capability };
    assert_eq!(renewable(&forged, 60), Err(CapabilityError::Forged));
}

fn sources() -> impl Strategy<Value = Source> {
    let born =
        |[number, seq]: [u64; 2], node| Born { epoch: Epoch { number, node: NodeId(node) }, seq: Seq(seq) };
    let ids = (any::<[u64; 2]>(), any::<([u64; 2], u32)>(), any::<Option<([u64; 2], u32)>>());
    ids.prop_map(move |([high, low], (inode, node), lend)| Source {
        volume: ObjectId::new(high, low),
        inode: InodeId::of(born(inode, node)),
        lend: lend.map(|(lend, node)| Generation(born(lend, node))),
    })
}

/// The same with one bit of it changed; of the mode and the lend there are not so many.
fn changed(mut capability: Capability, bit: usize) -> Capability {
    let flip = |word: &mut u64| *word ^= 1 << (bit % 64);
    let flip_node = |node: &mut NodeId| node.0 ^= 1 << (bit % 32);
    let flip_byte = |bytes: &mut [u8; 32]| bytes[bit / 8 % 32] ^= 1 << (bit % 8);
    let Open { file, mode, certificate } = &mut capability.open;
    let Source { volume, inode, lend } = &mut capability.source;
    match bit {
        0..64 => flip(&mut volume.high),
        64..128 => flip(&mut volume.low),
        128..192 => flip(&mut file.high),
        192..256 => flip(&mut file.low),
        256..512 => flip_byte(&mut certificate.0),
        512..768 => {
            let mut tag = *capability.tag.as_bytes();
            flip_byte(&mut tag);
            capability.tag = Tag::from_bytes(tag);
        }
        768..832 => {
            let mut expires = capability.expires.as_micros();
            flip(&mut expires);
            capability.expires = WallTime::from_micros(expires);
        }
        832..896 => flip(&mut inode.number),
        896..960 => flip(&mut inode.epoch.number),
        960..992 => flip_node(&mut inode.epoch.node),
        992..1_120 => {
            let Generation(Born { epoch, seq }) = lend.get_or_insert(LEND);
            match bit {
                992..1_056 => flip(&mut epoch.number),
                1_056..1_088 => flip_node(&mut epoch.node),
                _ => seq.0 ^= 1 << (bit % 32),
            }
        }
        1_120 => *lend = if lend.is_some() { None } else { Some(Generation(Born::default())) },
        _ => {
            let before = *mode;
            let mut others = MODES.into_iter().filter(|other| *other != before);
            *mode = others.nth(bit % 2).expect("there are two");
        }
    }
    capability
}

proptest! {
    #[test]
    fn a_changed_bit_anywhere_is_refused(
        source in sources(),
        (certificate, mode) in (any::<[u8; 32]>(), prop::sample::select(MODES.to_vec())),
        expires in NOW.as_micros() + 1..,
        secret in any::<[u8; 32]>(),
        bit in 0..1_123_usize,
    ) {
        let keys = keys(&CapabilityKey::new(secret).line(KeyEpoch(1), None));
        let expires = WallTime::from_micros(expires);
        let capability = keys.issue(source, (CertificateId(certificate), mode), expires, NOW);
        prop_assert_eq!(keys.check(&capability, &capability.open, NOW), Ok(()));
        let changed = changed(capability, bit);
        prop_assert_ne!(changed, capability);
        // Whoever changed it asks for what it says now.
        prop_assert_eq!(keys.check(&changed, &changed.open, NOW), Err(CapabilityError::Forged));
    }
}
