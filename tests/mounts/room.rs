//! How much room a mount shows.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{StatVfs, statvfs};

use crate::support::{Cluster, PATIENCE, until};

const GIB: u64 = 1 << 30;

const fn free(shown: &StatVfs) -> u64 {
    shown.f_bavail * shown.f_frsize
}

const fn used(shown: &StatVfs) -> u64 {
    (shown.f_blocks - shown.f_bfree) * shown.f_frsize
}

#[test]
fn what_is_free_is_what_the_disks_of_the_daemons_take() {
    let Some(cluster) = Cluster::start() else { return };
    let disk = || free(&statvfs(cluster.dir()).unwrap());
    let before = disk();
    let point = cluster.mount("m");
    let shown = statvfs(&point).unwrap();
    // Others use the disk meanwhile, and a daemon keeps some of it for itself.
    let (least, most) = (before.min(disk()), before.max(disk()));
    let of_mount = free(&shown);
    assert!((least.saturating_sub(2 * GIB)..most + GIB).contains(&of_mount), "{of_mount}, {least} to {most}");
    assert_eq!(used(&shown), 0);
    let file = File::create(point.join("f")).unwrap();
    file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
    drop(file);
    until("what was written is used", || used(&statvfs(&point).unwrap()) == 8 << 20);
    fs::remove_file(point.join("f")).unwrap();
    until("what was removed is not", || used(&statvfs(&point).unwrap()) == 0);
}

#[test]
fn nobody_waits_for_daemons_to_be_told_how_much_room_there_is() {
    let Some(cluster) = Cluster::start() else { return };
    let point = cluster.mount("m");
    let before = statvfs(&point).unwrap();
    cluster.kill_all();
    // What was known just before is shown in any case.
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let shown = shown_in_time(&point);
        assert_eq!((used(&shown), shown.f_files), (used(&before), before.f_files));
        assert_eq!((free(&shown), shown.f_blocks), (free(&before), before.f_blocks));
    }
    cluster.up();
    until("daemons are asked again", || used(&statvfs(&point).unwrap()) == 0);
    fs::write(point.join("f"), [1; 4_096]).unwrap();
    until("what was written is used", || used(&statvfs(&point).unwrap()) == 4_096);
}

/// The longest that a file may be: three of them have more bytes than 64 bits count.
#[test]
fn what_has_holes_leaves_room_for_others() {
    const LONGEST: u64 = (1 << 63) - 65_536;
    let Some(cluster) = Cluster::start() else { return };
    let (point, other) = (cluster.mount("m"), cluster.mount("o"));
    for name in ["a", "b", "c"] {
        File::create(point.join(name)).unwrap().set_len(LONGEST).unwrap();
        assert_eq!(fs::metadata(other.join(name)).unwrap().len(), LONGEST);
    }
    for there in [&other, &point] {
        let file = there.join("d");
        fs::write(&file, "hello").unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        assert!(free(&statvfs(there).unwrap()) > 0);
        fs::remove_file(file).unwrap();
    }
}

/// A thread that waits for a mount ends with the mount at the latest.
fn shown_in_time(point: &Path) -> StatVfs {
    let (sender, shown) = mpsc::channel();
    let point = point.to_owned();
    std::thread::spawn(move || sender.send(statvfs(&point)));
    shown.recv_timeout(PATIENCE).expect("it does not wait").unwrap()
}
