//! Where a start happens: which machine, which run of its kernel, and whether the disk is the machine's own.

use std::fs;
use std::os::fd::AsFd;

use super::tables::Boot;

/// What a start knows of the machine it happens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// The machine's id, zeros if it has none.
    pub machine: [u8; 16],
    /// The id of this run of its kernel, zeros if unknown.
    pub boot: [u8; 16],
    /// The device and the inode of the data directory's lock file, which tell it from that of a copy.
    pub lock: [u64; 2],
    /// Whether only this machine can have the data directory open, so that its lock excludes everybody.
    pub is_local: bool,
}

const UNKNOWN: [u8; 16] = [0; 16];
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE_IDS: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// File systems on a disk or in the memory of one machine: ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs.
///
/// A file system that is missing here costs time after a crash, one that is wrong here costs safety. An overlay is
/// missing on purpose: a lock on it does not exclude those who open the layer below.
const LOCAL_MAGIC: [u32; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e, 0x0102_1994];

impl Host {
    /// This machine, as it sees the lock file of a data directory.
    pub(super) fn of(lock: impl AsFd) -> Self {
        let stat = rustix::fs::fstat(&lock);
        let machine = MACHINE_IDS.iter().find_map(|path| read_id(path));
        let magic = rustix::fs::fstatfs(lock).ok().and_then(|stat| u32::try_from(stat.f_type).ok());
        Self {
            machine: machine.unwrap_or(UNKNOWN),
            boot: read_id(BOOT_ID).unwrap_or(UNKNOWN),
            lock: stat.map_or([0; 2], |stat| [stat.st_dev, stat.st_ino]),
            is_local: magic.is_some_and(|magic| LOCAL_MAGIC.contains(&magic)),
        }
    }

    pub(super) fn boot(self) -> Boot {
        Boot { machine: self.machine, boot: self.boot, lock: self.lock }
    }

    /// Whether a start at `earlier` that held the same lock can have survived until now. `false` is certain.
    pub(super) fn may_survive(self, earlier: Boot) -> bool {
        let is_known = self.machine != UNKNOWN && self.boot != UNKNOWN;
        !(is_known && self.is_local && self.boot() == earlier)
    }
}

/// An id of 32 hexadecimal digits, with or without dashes.
fn read_id(path: &str) -> Option<[u8; 16]> {
    parse_id(&fs::read_to_string(path).ok()?)
}

fn parse_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(&digits, 16).ok().filter(|_| is_id).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_with_and_without_dashes() {
        let plain = parse_id("0123456789abcdef0123456789abcdef\n").unwrap();
        assert_eq!(plain[..2], [0x01, 0x23]);
        assert_eq!(parse_id("01234567-89ab-cdef-0123-456789abcdef\n"), Some(plain));
        for text in ["", "uninitialized\n", "+123456789abcdef0123456789abcdef", "0123"] {
            assert_eq!(parse_id(text), None, "{text}");
        }
    }

    #[test]
    fn death_is_certain_only_on_the_same_run_of_the_same_machine() {
        let here = Host { machine: [1; 16], boot: [2; 16], lock: [3, 4], is_local: true };
        assert!(!here.may_survive(here.boot()));
        assert!(here.may_survive(Boot { boot: [3; 16], ..here.boot() }));
        assert!(here.may_survive(Boot { machine: [3; 16], ..here.boot() }));
        assert!(here.may_survive(Boot { lock: [3, 5], ..here.boot() }), "the lock of a copy excludes nobody");
        let remote = Host { is_local: false, ..here };
        assert!(remote.may_survive(remote.boot()));
        let nameless = Host { machine: UNKNOWN, ..here };
        assert!(nameless.may_survive(nameless.boot()));
        let bootless = Host { boot: UNKNOWN, ..here };
        assert!(bootless.may_survive(bootless.boot()));
    }

    #[test]
    fn this_kernel_has_a_boot_id() {
        let host = Host::of(fs::File::open(".").unwrap());
        assert_ne!(host.boot, UNKNOWN);
    }
}
