//! What users name: entries of directories, extended attributes, where a symbolic link leads.
//!
//! Bytes become a name once, here, and are a possible one ever after. Names are bytes, in order of their bytes; no
//! encoding is asked for.

use std::cmp::Ordering;
use std::fmt;

use bytes::Bytes;

/// No entry has a longer name.
pub const NAME_BYTES_MAX: usize = 255;
/// No extended attribute does.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// No symbolic link leads further: a path and its terminating zero fit into 4 KiB.
pub const TARGET_BYTES_MAX: usize = 4095;

/// The access ACL, as an extended attribute.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that what is created in a directory begins with, as an extended attribute.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// What a program may do beyond its user. It is taken away when the file changes.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The name of an entry in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Short);

/// The name of an extended attribute, its namespace in front.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XattrName(Short);

/// Where a symbolic link leads.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target(Bytes);

/// Which rules an extended attribute is under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// `user.`: whatever users like, on files and directories.
    User,
    /// `trusted.`: seen and changed by root only.
    Trusted,
    /// `security.`: seen by all, changed by root.
    Security,
    /// The access ACL, which is in step with the mode.
    AclAccess,
    /// The default ACL of a directory.
    AclDefault,
}

/// Why bytes are no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAName {
    /// There are none, or none behind an extended attribute's namespace. `ENOENT`; for an extended attribute `EINVAL`.
    #[error("the name is empty")]
    Empty,
    /// `ENAMETOOLONG`; for an extended attribute `ERANGE`.
    #[error("the name has {bytes} bytes; shorten it to {bytes_max}")]
    TooLong {
        /// How many there are.
        bytes: usize,
        /// How many may be.
        bytes_max: usize,
    },
    /// `EINVAL`.
    #[error("the name holds a slash, or a zero byte")]
    Separator,
    /// `.` and `..` are in every directory and are no entries. `EINVAL`, or what POSIX says of the call.
    #[error("`.` and `..` name no entry of their own")]
    Dots,
    /// An extended attribute whose name begins with none of the namespaces, or has nothing behind it. `EOPNOTSUPP`.
    #[error("no extended attribute has this name; begin it with `user.`, `trusted.` or `security.`")]
    NoSpace,
}

impl Name {
    /// The name that these bytes are.
    pub fn new(bytes: &[u8]) -> Result<Self, NotAName> {
        within(bytes, NAME_BYTES_MAX)?;
        if bytes.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(NotAName::Separator);
        }
        if matches!(bytes, b"." | b"..") { Err(NotAName::Dots) } else { Ok(Self(Short::new(bytes))) }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// What is before all names, and none itself.
    pub(crate) fn first() -> Self {
        Self(Short::new(b""))
    }
}

impl XattrName {
    /// The name that these bytes are.
    pub fn new(bytes: &[u8]) -> Result<Self, NotAName> {
        within(bytes, XATTR_NAME_BYTES_MAX)?;
        if bytes.contains(&0) {
            return Err(NotAName::Separator);
        }
        match space(bytes) {
            Some(_) => Ok(Self(Short::new(bytes))),
            None if SPACES.iter().any(|&(prefix, _)| prefix == bytes) => Err(NotAName::Empty),
            None => Err(NotAName::NoSpace),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Which rules it is under.
    pub fn space(&self) -> Space {
        space(self.as_bytes()).expect("no other name is made")
    }

    /// What is before all names, and none itself.
    pub(crate) fn first() -> Self {
        Self(Short::new(b""))
    }

    /// The access ACL's.
    pub fn acl_access() -> Self {
        Self(Short::new(ACL_ACCESS))
    }

    /// The default ACL's.
    pub fn acl_default() -> Self {
        Self(Short::new(ACL_DEFAULT))
    }

    /// That of a program's capabilities.
    pub fn capability() -> Self {
        Self(Short::new(CAPABILITY))
    }
}

impl Target {
    /// Where these bytes lead.
    pub fn new(bytes: Bytes) -> Result<Self, NotAName> {
        within(&bytes, TARGET_BYTES_MAX)?;
        if bytes.contains(&0) { Err(NotAName::Separator) } else { Ok(Self(bytes)) }
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

fn within(bytes: &[u8], bytes_max: usize) -> Result<(), NotAName> {
    match bytes.len() {
        0 => Err(NotAName::Empty),
        bytes if bytes > bytes_max => Err(NotAName::TooLong { bytes, bytes_max }),
        _ => Ok(()),
    }
}

/// What names begin with that are under these rules.
const SPACES: [(&[u8], Space); 3] =
    [(b"user.", Space::User), (b"trusted.", Space::Trusted), (b"security.", Space::Security)];

fn space(bytes: &[u8]) -> Option<Space> {
    match bytes {
        ACL_ACCESS => Some(Space::AclAccess),
        ACL_DEFAULT => Some(Space::AclDefault),
        _ => SPACES
            .iter()
            .find(|(prefix, _)| bytes.len() > prefix.len() && bytes.starts_with(prefix))
            .map(|&(_, space)| space),
    }
}

/// How many bytes stand in a name itself: most names are no longer, and need no memory elsewhere.
const INLINE_BYTES: usize = 22;
const _: () = assert!(size_of::<Short>() == 24);

/// Bytes that are mostly few.
#[derive(Clone)]
enum Short {
    Here { bytes: u8, all: [u8; INLINE_BYTES] },
    There(Box<[u8]>),
}

impl Short {
    fn new(bytes: &[u8]) -> Self {
        match u8::try_from(bytes.len()) {
            Ok(count) if bytes.len() <= INLINE_BYTES => {
                let mut all = [0; INLINE_BYTES];
                all[..bytes.len()].copy_from_slice(bytes);
                Self::Here { bytes: count, all }
            }
            _ => Self::There(bytes.into()),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Here { bytes, all } => &all[..usize::from(*bytes)],
            Self::There(bytes) => bytes,
        }
    }
}

impl PartialEq for Short {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Short {}

impl PartialOrd for Short {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Short {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl std::hash::Hash for Short {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_posix_allows() {
        let long = [b'x'; 256];
        let table: &[(&[u8], Option<NotAName>)] = &[
            (b"a", None),
            (b"...", None),
            (b"a b\n\xff", None),
            (&long[..255], None),
            (b"", Some(NotAName::Empty)),
            (b".", Some(NotAName::Dots)),
            (b"..", Some(NotAName::Dots)),
            (b"a/b", Some(NotAName::Separator)),
            (b"a\0", Some(NotAName::Separator)),
            (&long, Some(NotAName::TooLong { bytes: 256, bytes_max: 255 })),
        ];
        for (bytes, error) in table {
            assert_eq!(Name::new(bytes).err(), *error, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn extended_attributes_are_in_a_namespace() {
        let long = [b"user.".as_slice(), &[b'x'; 251]].concat();
        let table: &[(&[u8], Result<Space, NotAName>)] = &[
            (b"user.a", Ok(Space::User)),
            (b"trusted.a", Ok(Space::Trusted)),
            (b"security.capability", Ok(Space::Security)),
            (ACL_ACCESS, Ok(Space::AclAccess)),
            (ACL_DEFAULT, Ok(Space::AclDefault)),
            (b"user.", Err(NotAName::Empty)),
            (b"system.other", Err(NotAName::NoSpace)),
            (b"a", Err(NotAName::NoSpace)),
            (b"user.\0", Err(NotAName::Separator)),
            (b"", Err(NotAName::Empty)),
            (&long, Err(NotAName::TooLong { bytes: 256, bytes_max: 255 })),
        ];
        for (bytes, space) in table {
            assert_eq!(XattrName::new(bytes).map(|name| name.space()), *space, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn names_are_in_order_of_their_bytes_however_they_are_kept() {
        let mut names: Vec<Vec<u8>> = (1..=30).map(|count| vec![b'b'; count]).collect();
        names.extend([b"a".to_vec(), vec![b'a'; 40], vec![b'c'; 23], vec![b'c'; 22]]);
        let mut sorted: Vec<Name> = names.iter().map(|name| Name::new(name).unwrap()).collect();
        names.sort();
        sorted.sort();
        assert_eq!(sorted.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>(), names);
    }

    #[test]
    fn a_link_leads_somewhere_and_not_too_far() {
        let target = |count| Target::new(vec![b'/'; count].into()).err();
        assert_eq!((target(1), target(TARGET_BYTES_MAX)), (None, None));
        assert_eq!(target(0), Some(NotAName::Empty));
        assert_eq!(target(4096), Some(NotAName::TooLong { bytes: 4096, bytes_max: 4095 }));
        assert_eq!(Target::new(Bytes::from_static(b"a\0")), Err(NotAName::Separator));
    }
}
