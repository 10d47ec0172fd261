//! The names of volumes.

use std::fmt;
use std::str::FromStr;

use base::ObjectId;

/// No volume has a longer name.
pub const VOLUME_NAME_BYTES_MAX: usize = 64;

/// The name of a volume: 1 to [`VOLUME_NAME_BYTES_MAX`] of `a-z 0-9 . _ -`, a letter or digit first. So it fits into a
/// path, a command line and a metric as it is, and no two names differ in case alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeName(String);

/// Why a text is no name of a volume.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeNameError {
    /// There is no text.
    #[error("the name of a volume is empty; use 1 to {VOLUME_NAME_BYTES_MAX} characters")]
    Empty,
    /// Far too much text to show it.
    #[error("the name of a volume has {bytes} bytes; shorten it to {VOLUME_NAME_BYTES_MAX}")]
    TooLong {
        /// How many there are.
        bytes: usize,
    },
    /// It could be taken for an option, or a hidden file.
    #[error("`{0}` is no name of a volume: begin it with a letter from a to z or a digit")]
    Start(String),
    /// Other characters.
    #[error("`{0}` is no name of a volume: use letters from a to z, digits, dots, dashes and underscores")]
    Characters(String),
}

impl VolumeName {
    /// The name that this text is.
    pub fn parse(text: &str) -> Result<Self, VolumeNameError> {
        let is_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_allowed = |byte: u8| is_start(byte) || b"._-".contains(&byte);
        match text.as_bytes() {
            [] => Err(VolumeNameError::Empty),
            bytes if bytes.len() > VOLUME_NAME_BYTES_MAX => {
                Err(VolumeNameError::TooLong { bytes: bytes.len() })
            }
            bytes if !bytes.iter().all(|&byte| is_allowed(byte)) => {
                Err(VolumeNameError::Characters(text.to_owned()))
            }
            [first, ..] if !is_start(*first) => Err(VolumeNameError::Start(text.to_owned())),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The object that the volume's tree is. It is never a lock, nor a file that was named by the same text.
    pub fn object(&self) -> ObjectId {
        let hash = blake3::derive_key("fleasefs 2026 name of a volume", self.0.as_bytes());
        let word = |at: usize| u64::from_le_bytes(hash[at..at + 8].try_into().expect("eight of 32 bytes"));
        // Locks alone have the highest bit set.
        ObjectId::new(word(0) >> 1, word(8))
    }
}

impl FromStr for VolumeName {
    type Err = VolumeNameError;

    fn from_str(text: &str) -> Result<Self, VolumeNameError> {
        Self::parse(text)
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::is_lock;
    use crate::{lock_cell, object_named};

    #[test]
    fn names_read_as_they_are_written() {
        let longest = "a".repeat(VOLUME_NAME_BYTES_MAX);
        for text in ["a", "0", "home", "build-7", "2026.11_old", &longest] {
            assert_eq!(VolumeName::parse(text).unwrap().to_string(), text);
            assert_eq!(text.parse(), VolumeName::parse(text));
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_what_to_do() {
        for (text, expected) in [
            ("", "is empty; use 1 to 64"),
            (&*"a".repeat(65), "has 65 bytes; shorten it to 64"),
            ("-rf", "`-rf` is no name of a volume: begin it with a letter"),
            (".hidden", "begin it with a letter"),
            ("_a", "begin it with a letter"),
            ("Home", "`Home` is no name of a volume: use letters from a to z"),
            ("a/b", "use letters from a to z"),
            ("*", "use letters from a to z"),
            ("a b", "use letters from a to z"),
            ("größe", "use letters from a to z"),
            ("a\0", "use letters from a to z"),
        ] {
            let error = VolumeName::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_volume_is_an_object_of_its_own() {
        let names = ["a", "b", "home", "home2"].map(|text| VolumeName::parse(text).unwrap());
        for (index, name) in names.iter().enumerate() {
            assert!(!is_lock(name.object()), "{name}");
            assert_ne!(name.object(), object_named(name.as_str()), "a file may go by the same name");
            assert_ne!(name.object(), lock_cell(name.as_str()));
            assert!(names[..index].iter().all(|other| other.object() != name.object()));
        }
        // A volume that there is must be found for ever.
        assert_eq!(format!("{:?}", names[2].object()), "306bd43e7c01a8cb:fa69828830ab3d0");
    }
}
