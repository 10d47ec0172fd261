//! What the kernel is told of itself, without having asked: that something it keeps of an inode is not so any more.
//!
//! The bytes are written here, because fuser does not say whether the kernel knows the inode at all.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

/// `FUSE_NOTIFY_INVAL_INODE` of the kernel's `fuse.h`: drop the attributes of an inode, and some of its content.
const INVAL_INODE: i32 = 2;
/// What it consists of: the length, the code and a number that stands for no request; and the inode, an offset and a length.
const MESSAGE_BYTES: usize = 16 + 24;
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
        self.tell(&message(number, NOTHING))
    }

    /// The kernel keeps no content of an inode any more: what was written through a mapping it has written when this returns, which is
    /// not before somebody has answered its writes.
    pub(crate) fn write_mapped(&self, number: u64) {
        // What it does not know it keeps nothing of.
        self.tell(&message(number, EVERYTHING));
    }

    fn tell(&self, message: &[u8]) -> bool {
        // The kernel takes all of it or nothing.
        let sent = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, message));
        sent != Err(Errno::NOENT)
    }
}

fn message(number: u64, from: i64) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    let length = u32::try_from(MESSAGE_BYTES).expect("it is short");
    message[0..4].copy_from_slice(&length.to_ne_bytes());
    message[4..8].copy_from_slice(&INVAL_INODE.to_ne_bytes());
    message[16..24].copy_from_slice(&number.to_ne_bytes());
    message[24..32].copy_from_slice(&from.to_ne_bytes());
    // To the end: a length of 0.
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_the_kernel_takes() {
        let message = message(0x0102, NOTHING);
        assert_eq!(message[..8], [40_u32.to_ne_bytes(), 2_u32.to_ne_bytes()].concat());
        assert_eq!(message[8..16], [0; 8], "it answers no request");
        assert_eq!(message[16..24], 0x0102_u64.to_ne_bytes());
        assert_eq!(message[24..32], [0xff; 8]);
        assert_eq!(message[32..], [0; 8]);
    }
}
