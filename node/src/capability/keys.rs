//! The keys of capabilities, and the text that they are kept as.
//!
//! A line is an epoch and a key, and perhaps from when on the key is used; what follows a `#` is a comment:
//!
//! ```text
//! 1 8f3c… (64 hexadecimal digits)
//! 2 02d7… 1800000000   # used from this second since 1970 on
//! ```
//!
//! No error repeats what stands in the file.

use std::fmt;

use base::{Span, WallTime};

use super::KeyEpoch;

/// More than are ever good at a time: capabilities live for hours, and keys for months.
pub const CAPABILITY_KEYS_MAX: usize = 64;

/// One key, known to the daemons of a cluster and to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct CapabilityKey {
    /// What stands in the file.
    secret: [u8; 32],
    /// What tags are made with: whatever else is ever made with the secret, it says nothing about tags.
    for_tags: [u8; 32],
    /// What proofs are made with.
    for_proofs: [u8; 32],
}

/// The keys of a cluster. There is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapabilityKeys {
    /// In the order of their epochs.
    keys: Vec<Line>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    epoch: KeyEpoch,
    key: CapabilityKey,
    /// Not used before.
    from: WallTime,
}

/// Why a text holds no keys. Nothing of the text is repeated: it may be a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeysError {
    /// Not two or three words.
    #[error(
        "line {line} is no key: write an epoch, a key and perhaps from when on it is used, with blanks between; what follows \
         a `#` is a comment"
    )]
    Words {
        /// Counted from 1.
        line: usize,
    },
    /// The first word.
    #[error("line {line} does not begin with an epoch; begin it with a number from 1 to 4294967295")]
    Epoch {
        /// Counted from 1.
        line: usize,
    },
    /// The second word.
    #[error(
        "the key in line {line} is not 64 hexadecimal digits; copy the line again from another daemon's file"
    )]
    Key {
        /// Counted from 1.
        line: usize,
    },
    /// The third word.
    #[error(
        "line {line} does not say from when on its key is used; write seconds since 1970, or nothing for always"
    )]
    From {
        /// Counted from 1.
        line: usize,
    },
    /// An epoch that is not above the one before.
    #[error(
        "line {line} has epoch {epoch} behind epoch {before}; give each key an epoch above those before it"
    )]
    Order {
        /// Counted from 1.
        line: usize,
        /// The epoch there.
        epoch: KeyEpoch,
        /// The epoch before it.
        before: KeyEpoch,
    },
    /// No key at all.
    #[error("there is no key in it; make one with `fleasefs cert keys`, or copy another daemon's file")]
    Empty,
    /// The list is bounded, as everything is.
    #[error(
        "there are more than {CAPABILITY_KEYS_MAX} keys in it; remove the first ones, which nothing was made with for long"
    )]
    TooMany,
}

impl CapabilityKey {
    /// The key with these 32 random bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        let key = |context| blake3::derive_key(context, &secret);
        let for_tags = key("fleasefs 2026 capability of an open file");
        Self { secret, for_tags, for_proofs: key("fleasefs 2026 proof of an exported inode") }
    }

    pub(super) const fn for_tags(&self) -> &[u8; 32] {
        &self.for_tags
    }

    pub(super) const fn for_proofs(&self) -> &[u8; 32] {
        &self.for_proofs
    }

    /// The line of a file that says this key, with what ends it. It is the secret itself.
    pub fn line(&self, epoch: KeyEpoch, from_s: Option<u64>) -> String {
        let hex: String = self.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let from = from_s.map_or(String::new(), |from_s| format!(" {from_s}"));
        format!("{epoch} {hex}{from}\n")
    }
}

impl CapabilityKeys {
    /// Reads the text of a file of keys.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys: Vec<Line> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let said = text.split_once('#').map_or(text, |(said, _)| said);
            if said.trim().is_empty() {
                continue;
            }
            let key = Line::parse(said, line)?;
            if let Some(before) = keys.last().map(|last| last.epoch).filter(|&before| before >= key.epoch) {
                return Err(KeysError::Order { line, epoch: key.epoch, before });
            }
            if keys.len() == CAPABILITY_KEYS_MAX {
                return Err(KeysError::TooMany);
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(KeysError::Empty) } else { Ok(Self { keys }) }
    }

    /// The highest epoch, whether its key is used already or not.
    pub fn latest(&self) -> KeyEpoch {
        self.keys.last().expect("there is at least one key").epoch
    }

    /// What capabilities are made with: the latest key whose time has come, or the first if none's has.
    pub(super) fn used_at(&self, now: WallTime) -> (KeyEpoch, &CapabilityKey) {
        let used = self.keys.iter().rfind(|line| line.from <= now).or(self.keys.first());
        let Line { epoch, key, .. } = used.expect("there is at least one key");
        (*epoch, key)
    }

    /// The key of an epoch.
    pub(super) fn of(&self, epoch: KeyEpoch) -> Option<&CapabilityKey> {
        let at = self.keys.binary_search_by_key(&epoch, |line| line.epoch).ok()?;
        Some(&self.keys[at].key)
    }
}

impl Line {
    fn parse(text: &str, line: usize) -> Result<Self, KeysError> {
        let mut words = text.split_whitespace();
        let (Some(epoch), Some(key), from, None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(KeysError::Words { line });
        };
        let epoch = epoch.parse().ok().filter(|&epoch| epoch > 0).ok_or(KeysError::Epoch { line })?;
        let secret = blake3::Hash::from_hex(key).map_err(|_| KeysError::Key { line })?;
        let from_s = from.map_or(Ok(0), str::parse).map_err(|_| KeysError::From { line })?;
        let from = WallTime::default() + Span::from_secs(from_s);
        Ok(Self { epoch: KeyEpoch(epoch), key: CapabilityKey::new(secret.into()), from })
    }
}

impl fmt::Debug for CapabilityKey {
    /// Whoever reads a log must not find a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CapabilityKey(…)")
    }
}
