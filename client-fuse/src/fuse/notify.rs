//! What the kernel is told of itself, without having asked: that something it keeps of an inode, or what a name names,
//! is not so any more.
//!
//! The bytes are written here, because fuser does not say whether the kernel knows the inode at all.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use namespace::Name;
use rustix::io::Errno;

/// `FUSE_NOTIFY_INVAL_INODE` of the kernel's `fuse.h`: drop the attributes of an inode, and some of its content.
const INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`: drop a name of a directory.
const INVAL_ENTRY: i32 = 3;
/// With what each begins: the length, the code and a number that stands for no request.
const HEADER_BYTES: usize = 16;
/// An offset before the content: only the attributes are meant.
const NOTHING: i64 = -1;
/// The content from its beginning on.
const EVERYTHING: i64 = 0;

/// The mount's device, for what is written to it beside replies.
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    pub(crate) fn new(device: impl AsFd) -> io::Result<Self> {
        Ok(Self(device.as_fd().try_clone_to_owned()?))
    }

    /// The kernel believes no attributes of an inode any more. It waits for nothing: neither for requests that are under way nor
    /// for what they have locked. False if the kernel does not know the inode.
    pub(crate) fn drop_attributes(&self, number: u64) -> bool {
        // Whatever else goes wrong, the mount is gone, and with it all that the kernel knew.
        self.tell(&inode_message(number, NOTHING))
    }

    /// The kernel keeps no content of an inode any more: what was written through a mapping it has written when this returns, which is
    /// not before somebody has answered its writes.
    pub(crate) fn write_mapped(&self, number: u64) {
        // What it does not know it keeps nothing of.
        self.tell(&inode_message(number, EVERYTHING));
    }

    /// The kernel knows no more what a name of a directory names, when this returns. That waits for whatever is being done to the directory's
    /// names through this mount.
    pub(crate) fn drop_name(&self, dir: u64, name: &Name) {
        // What it does not know it has nothing to drop of.
        self.tell(&name_message(dir, name.as_bytes()));
    }

    fn tell(&self, message: &[u8]) -> bool {
        // The kernel takes all of it or nothing.
        let sent = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, message));
        sent != Err(Errno::NOENT)
    }
}

/// The inode, an offset and a length: 0 for all behind that.
fn inode_message(number: u64, from: i64) -> Vec<u8> {
    framed(INVAL_INODE, &[&number.to_ne_bytes(), &from.to_ne_bytes(), &[0; 8]])
}

/// The directory, the length of the name, no flags, and the name with a zero behind it.
fn name_message(dir: u64, name: &[u8]) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("a name is short");
    framed(INVAL_ENTRY, &[&dir.to_ne_bytes(), &length.to_ne_bytes(), &[0; 4], name, &[0]])
}

fn framed(code: i32, fields: &[&[u8]]) -> Vec<u8> {
    let length = HEADER_BYTES + fields.iter().map(|field| field.len()).sum::<usize>();
    let length = u32::try_from(length).expect("it is short");
    let header: [&[u8]; 3] = [&length.to_ne_bytes(), &code.to_ne_bytes(), &[0; 8]];
    [header.concat(), fields.concat()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_the_kernel_takes() {
        let message = inode_message(0x0102, NOTHING);
        assert_eq!(message[..8], [40_u32.to_ne_bytes(), 2_u32.to_ne_bytes()].concat());
        assert_eq!(message[8..16], [0; 8], "it answers no request");
        assert_eq!(message[16..24], 0x0102_u64.to_ne_bytes());
        assert_eq!(message[24..32], [0xff; 8]);
        assert_eq!(message[32..], [0; 8]);
        let message = name_message(0x0102, b"name");
        assert_eq!(message[..8], [37_u32.to_ne_bytes(), 3_u32.to_ne_bytes()].concat());
        assert_eq!(message[16..24], 0x0102_u64.to_ne_bytes());
        assert_eq!(message[24..32], [4_u32.to_ne_bytes(), [0; 4]].concat());
        assert_eq!(message[32..], *b"name\0");
    }
}
