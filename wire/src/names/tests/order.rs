//! Keys for an index: their bytes are in their order.

use super::samples::{entry_name, inode_id, name_parts};
use super::*;

/// One of the numbers or of the letters of the name in a key, a little more or less.
fn neighbours(key: &Key) -> Vec<Key> {
    let bytes = encode_name_key(key);
    let changed = (0..bytes.len()).flat_map(|at| {
        [1, 0x80].map(|by: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = bytes[at].wrapping_add(by);
            bytes
        })
    });
    let longer = [1, 2, 255].map(|more| [&bytes[..], &[more]].concat());
    let shorter = bytes.len().checked_sub(1).map(|length| bytes[..length].to_vec());
    changed.chain(longer).chain(shorter).filter_map(|bytes| decode_name_key(&bytes)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes_are_in_the_order_of_their_keys(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        let mut keys = vec![dice.key(), dice.key(), dice.key()];
        keys.extend(neighbours(&keys[0]));
        for a in &keys {
            let (own, first) = (encode_name_key(a), encode_name_key(&keys[0]));
            prop_assert_eq!(a.cmp(&keys[0]), own.cmp(&first), "{:?} and {:?}", a, &keys[0]);
            prop_assert_eq!(decode_name_key(&own), Some(a.clone()));
        }
        keys.sort();
        prop_assert!(keys.is_sorted_by_key(encode_name_key));
    }

    #[test]
    fn bytes_are_those_of_one_key_or_none(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        sort in 0..15_u8,
        cut in 0..64_usize,
    ) {
        let bytes = [&[sort], &bytes[..bytes.len().min(cut)]].concat();
        if let Some(key) = decode_name_key(&bytes) {
            prop_assert_eq!(encode_name_key(&key), bytes);
        }
    }
}

#[test]
fn keys_look_as_documented() {
    let inode = "0000000000000007 0000000000000005 00000001";
    let root = "0000000000000001 0000000000000000 00000000";
    let client = "00000000000000ff 0000000000000001";
    let expected = [
        format!("00 {inode}"),
        "01".to_owned(),
        format!("02 {root} 61206e616d65"),
        format!("03 {inode} 757365722e61"),
        format!("04 {inode}"),
        format!("05 {inode} {client}"),
        format!("06 {inode}"),
        format!("07 {inode}"),
        format!("08 {inode}"),
        format!("09 {client}"),
        format!("0a {client} {inode}"),
        format!("0b {client} {inode}"),
        format!("0c {client} 0000000000000006 0000000000000005 00000001 0000000000000008"),
        "0d".to_owned(),
        format!("0e {client} {inode}"),
    ];
    let keys: Vec<Key> = name_parts().into_iter().map(|(key, ..)| key).collect();
    assert_eq!(keys.len(), expected.len());
    for (key, expected) in keys.iter().zip(expected) {
        let bytes = encode_name_key(key);
        assert_eq!(digits(&bytes), expected.replace(' ', ""), "{key:?}");
        assert_eq!(decode_name_key(&bytes).as_ref(), Some(key));
        let is_name = matches!(key, Key::Entry(..) | Key::Xattr(..));
        assert_eq!(decode_name_key(&[&bytes[..], b"x"].concat()).is_some(), is_name, "{key:?}");
        let numbers = bytes.len() - if is_name { 5 } else { 0 };
        assert!((0..numbers).all(|length| decode_name_key(&bytes[..length]).is_none()), "{key:?}");
    }
    assert_eq!(decode_name_key(&[]), None);
    assert_eq!(decode_name_key(&[15]), None);
}

#[test]
fn no_index_holds_a_name_that_nothing_can_have() {
    let key = encode_name_key(&Key::Entry(inode_id(7), entry_name()));
    let dir = &key[..key.len() - entry_name().as_bytes().len()];
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        assert_eq!(decode_name_key(&[dir, name].concat()), None, "{}", name.escape_ascii());
    }
}
