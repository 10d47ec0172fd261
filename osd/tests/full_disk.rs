//! A store on a file system that is really full.

use std::fs;
use std::io::Write;
use std::path::Path;

use base::{ClusterId, Incarnation, MonoTime, NodeId, StartId, StoreId, WallTime};
use node::Met;
use osd::store::{CEILING_BLOCK, OpenError, Owner, PeerRefusal, Store, WriteError};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

const OWNER: Owner = Owner { cluster: ClusterId([1; 16]), node: NodeId(1) };
/// Room for a store and little else.
const OPTIONS: &std::ffi::CStr = c"size=128k";

/// The same with an injected fault is a unit test of the store, which runs for every user.
#[test]
fn a_full_file_system_keeps_the_old_state() {
    // The mount is seen by one thread only, and goes with it.
    std::thread::spawn(|| {
        let folder = tempfile::tempdir().unwrap();
        if let Err(reason) = mount(folder.path()) {
            assert!(!rustix::process::geteuid().is_root(), "the superuser may not mount: {reason}");
            let note = "only the superuser can mount, so the full file system was not tried";
            return writeln!(std::io::stderr(), "{note}: {reason}").unwrap();
        }
        fill_and_empty(folder.path());
        // Else the folder cannot be removed.
        rustix::mount::unmount(folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    })
    .join()
    .unwrap();
}

fn mount(folder: &Path) -> rustix::io::Result<()> {
    // SAFETY: this thread keeps its descriptors; only its view of mounts and its working directory are its own.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS)? };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    rustix::mount::mount("none", folder, "tmpfs", MountFlags::empty(), OPTIONS)
}

fn fill_and_empty(disk: &Path) {
    let mount_point = Store::open(disk, OWNER).err().expect("a mount point cannot be renamed");
    assert!(matches!(mount_point, OpenError::MountPoint { .. } | OpenError::Io { .. }), "{mount_point}");
    let (data, ballast) = (disk.join("data"), disk.join("ballast"));
    let mut store = Store::open(&data, OWNER).unwrap();
    store.raise_ceiling(1).unwrap();

    fill(&ballast);
    let peer = Met { store: StoreId([2; 16]), start: StartId { incarnation: Incarnation(1), nonce: 1 } };
    let error = store.admit_peer(NodeId(2), peer).unwrap_err();
    assert!(matches!(error, PeerRefusal::Write(WriteError::Full { .. })), "{error}");
    assert_eq!(store.peer(NodeId(2)), None);
    // What is written all the time has its space.
    store.mark_time(WallTime::from_micros(7), MonoTime::from_micros(7)).unwrap();
    store.raise_ceiling(CEILING_BLOCK + 1).unwrap();
    store.note_forgotten(Some(1)).unwrap();
    drop(store);
    let error = Store::open(&data, OWNER).err().expect("a start cannot be noted on a full disk");
    assert!(matches!(error, OpenError::Write(WriteError::Full { .. })), "{error}");

    fs::remove_file(&ballast).unwrap();
    let mut store = Store::open(&data, OWNER).unwrap();
    assert_eq!((store.epoch_ceiling(), store.start_id().incarnation.0), (2 * CEILING_BLOCK, 2));
    assert_eq!(store.forgot_at(), Some(1));
    store.admit_peer(NodeId(2), peer).unwrap();
}

/// Fills the file system with one file, down to the last page.
fn fill(ballast: &Path) {
    let mut size = 0;
    while fs::write(ballast, vec![0; size + 1024]).is_ok() {
        size += 1024;
    }
    assert!(size > 0, "there was no room to begin with");
}
