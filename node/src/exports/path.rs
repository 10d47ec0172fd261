//! Which part of a volume is exported.

use std::fmt;

use namespace::{Name, NotAName};

/// No exported path is longer.
pub const EXPORT_PATH_BYTES_MAX: usize = 1_024;

/// A directory of a volume, from the volume's root on: `/` is all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportPath(Vec<Name>);

/// Why a text is no path within a volume.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportPathError {
    /// Far too much text to show it.
    #[error("`path` has {bytes} bytes; shorten it to {EXPORT_PATH_BYTES_MAX}")]
    TooLong {
        /// How many there are.
        bytes: usize,
    },
    /// Relative to nothing.
    #[error("`path` is `{0}`; begin it with a slash: it counts from the volume's root, and `/` is all of it")]
    Relative(String),
    /// A slash too many.
    #[error("`path` is `{0}`; write one slash before each name, and none at the end")]
    Empty(String),
    /// It would not be clear where it leads.
    #[error("`path` is `{0}`; write it without `.` and `..`")]
    Dots(String),
    /// A name that no directory can have.
    #[error("`path` is `{path}`, where {source}; write the path of a directory in the volume")]
    Name {
        /// All of it.
        path: String,
        /// What is wrong.
        source: NotAName,
    },
}

impl ExportPath {
    /// All of a volume.
    pub const ROOT: Self = Self(Vec::new());

    /// The path that this text is.
    pub fn parse(text: &str) -> Result<Self, ExportPathError> {
        if text.len() > EXPORT_PATH_BYTES_MAX {
            return Err(ExportPathError::TooLong { bytes: text.len() });
        }
        let names = text.strip_prefix('/').ok_or_else(|| ExportPathError::Relative(text.to_owned()))?;
        if names.is_empty() {
            return Ok(Self::ROOT);
        }
        let name = |name: &str| {
            Name::new(name.as_bytes()).map_err(|source| match source {
                NotAName::Empty => ExportPathError::Empty(text.to_owned()),
                NotAName::Dots => ExportPathError::Dots(text.to_owned()),
                source => ExportPathError::Name { path: text.to_owned(), source },
            })
        };
        Ok(Self(names.split('/').map(name).collect::<Result<_, _>>()?))
    }

    /// The names to go through from the volume's root.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// Whether what these names lead to from the volume's root is exported: the directory itself, or what is in it at
    /// any depth.
    pub fn contains(&self, names: &[Name]) -> bool {
        names.starts_with(&self.0)
    }
}

impl fmt::Display for ExportPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        // It was made of text, so nothing is lost.
        self.0.iter().try_for_each(|name| write!(f, "/{}", String::from_utf8_lossy(name.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> ExportPath {
        ExportPath::parse(text).unwrap()
    }

    #[test]
    fn paths_read_as_they_are_written() {
        for text in ["/", "/srv", "/srv/a b/größe", "/...", "/a\"b\\c", "/\n"] {
            assert_eq!(path(text).to_string(), text);
        }
        assert_eq!(path("/").names(), []);
        assert_eq!(path("/a/b").names(), [Name::new(b"a").unwrap(), Name::new(b"b").unwrap()]);
    }

    #[test]
    fn what_is_no_path_is_refused_with_what_to_do() {
        let long = format!("/{}", "a".repeat(EXPORT_PATH_BYTES_MAX));
        let long_name = format!("/{}", "a".repeat(256));
        for (text, expected) in [
            ("", "`path` is ``; begin it with a slash"),
            ("srv", "`path` is `srv`; begin it with a slash"),
            ("./srv", "begin it with a slash"),
            ("/srv/", "`path` is `/srv/`; write one slash before each name, and none at the end"),
            ("//srv", "write one slash before each name"),
            ("/a//b", "write one slash before each name"),
            ("/a/../b", "`path` is `/a/../b`; write it without `.` and `..`"),
            ("/..", "write it without `.` and `..`"),
            ("/./a", "write it without `.` and `..`"),
            ("/a\0b", "the name holds a slash, or a zero byte"),
            (&long_name, "the name has 256 bytes"),
            (&long, "`path` has 1025 bytes; shorten it to 1024"),
        ] {
            let error = ExportPath::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_name_that_begins_alike_is_another_one() {
        let srv = path("/srv");
        for (text, is_in) in
            [("/srv", true), ("/srv/a", true), ("/srv2", false), ("/", false), ("/a/srv", false)]
        {
            assert_eq!(srv.contains(path(text).names()), is_in, "{text}");
        }
        assert!(path("/").contains(path("/anything").names()) && path("/").contains(&[]));
    }

    fn names() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab]{1,2}", 0..4)
    }

    proptest! {
        #[test]
        fn what_is_below_an_exported_directory_is_exported(above in names(), below in names()) {
            let parse = |names: &[String]| path(&format!("/{}", names.join("/")));
            let (dir, all) = (parse(&above), parse(&[&above[..], &below].concat()));
            prop_assert!(dir.contains(all.names()));
            prop_assert_eq!(all.contains(dir.names()), below.is_empty());
            prop_assert_eq!(path(&all.to_string()), all);
            let other = parse(&below);
            prop_assert_eq!(dir.contains(other.names()), below.starts_with(&above));
        }
    }
}
