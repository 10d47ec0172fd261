//! The names of volumes.

use std::fmt;
use std::str::FromStr;

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
}
