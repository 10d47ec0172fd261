//! What the kernel believes without asking, and what becomes of that when another mount changes it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Cluster;

/// A session's length, by default.
const SESSION: Duration = Duration::from_millis(900);
/// Time for everything else, on a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(4);

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Looks so often that the kernel has something to believe.
fn look(path: &Path) {
    for _ in 0..4 {
        let _ = fs::symlink_metadata(path);
    }
}

#[test]
fn what_the_kernel_believes_ends_before_another_mount_has_changed_it() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.join("f"), "").unwrap();
    fs::create_dir(a.join("d")).unwrap();
    // What is written to is lent for a while, and nothing of it is believed.
    std::thread::sleep(Duration::from_secs(2));
    let open = File::open(b.join("f")).unwrap();
    for round in 0..100_u32 {
        ["f", "d", "gone", "d/gone"].iter().for_each(|name| look(&b.join(name)));
        let bits = 0o400 | (round & 0o77);
        fs::set_permissions(a.join("f"), Permissions::from_mode(bits)).unwrap();
        assert_eq!(mode(&b.join("f")), bits);
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o7777, bits);
        // A name that was not there, and one that is not any more; and the directory that it is in.
        let before = fs::metadata(b.join("d")).unwrap().mtime_nsec();
        fs::hard_link(a.join("f"), a.join("d/gone")).unwrap();
        assert_eq!(fs::metadata(b.join("d/gone")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(b.join("f")).unwrap().nlink(), 2);
        assert_ne!(fs::metadata(b.join("d")).unwrap().mtime_nsec(), before);
        fs::rename(a.join("d/gone"), a.join("gone")).unwrap();
        assert!(fs::metadata(b.join("d/gone")).is_err());
        assert_eq!(fs::read_dir(b.join("d")).unwrap().count(), 0);
        assert_eq!(fs::metadata(b.join("gone")).unwrap().ino(), open.metadata().unwrap().ino());
        fs::remove_file(a.join("gone")).unwrap();
        assert!(fs::metadata(b.join("gone")).is_err());
        assert_eq!(open.metadata().unwrap().nlink(), 1);
    }
}

#[test]
fn a_link_leads_where_it_leads_now() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for round in 0..20 {
        let target = format!("target {round}");
        symlink(&target, a.join("new")).unwrap();
        fs::rename(a.join("new"), a.join("link")).unwrap();
        for _ in 0..3 {
            assert_eq!(fs::read_link(b.join("link")).unwrap(), Path::new(&target));
        }
    }
}

/// One mount changes as fast as it can, the other looks as fast as it can: what was done before a look began it shows.
#[test]
fn under_load_nothing_is_seen_that_was_over_when_it_was_looked_for() {
    const LASTS: Duration = Duration::from_secs(15);
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let place = |mount: &Path, round: u64| mount.join(format!("name {round}"));
    fs::write(a.join("mode"), "").unwrap();
    fs::write(a.join("content"), 0_u64.to_le_bytes()).unwrap();
    fs::write(place(&a, 0), "").unwrap();
    let [modes, names, contents] = [(); 3].map(|()| AtomicU64::new(0));
    let (ends, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let goes_on = || !ends.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on() {
                let next = modes.load(Ordering::SeqCst) + 1;
                let bits = u32::try_from(next % 0o400).unwrap() | 0o400;
                fs::set_permissions(a.join("mode"), Permissions::from_mode(bits)).unwrap();
                modes.store(next, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(next % 7));
            }
        });
        scope.spawn(|| {
            while goes_on() {
                let next = names.load(Ordering::SeqCst) + 1;
                fs::write(place(&a, next), "").unwrap();
                names.store(next, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(next % 11));
            }
        });
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(a.join("content")).unwrap();
            while goes_on() {
                let next = contents.load(Ordering::SeqCst) + 1;
                file.write_all_at(&next.to_le_bytes(), 0).unwrap();
                contents.store(next, Ordering::SeqCst);
                // Now and then it is given back, and may be believed.
                std::thread::sleep(Duration::from_millis(if next.is_multiple_of(8) { 1_500 } else { 3 }));
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let file = File::open(b.join("content")).unwrap();
                while goes_on() {
                    let before = modes.load(Ordering::SeqCst);
                    let seen = u64::from(mode(&b.join("mode"))) & 0o377;
                    let after = modes.load(Ordering::SeqCst) + 1;
                    assert!(
                        (before..=after).any(|one| one % 0o400 == seen || before == 0),
                        "mode {seen}: {before}..={after}"
                    );
                    // What comes next is absent as a rule, and known to be.
                    let before = names.load(Ordering::SeqCst);
                    let _ = fs::metadata(place(&b, before + 1));
                    let before = names.load(Ordering::SeqCst);
                    assert!(fs::metadata(place(&b, before)).is_ok(), "{before} is there");
                    let before = contents.load(Ordering::SeqCst);
                    let mut text = [0; 8];
                    file.read_exact_at(&mut text, 0).unwrap();
                    let seen = u64::from_le_bytes(text);
                    let after = contents.load(Ordering::SeqCst) + 1;
                    assert!((before..=after).contains(&seen), "content {seen}: {before}..={after}");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(LASTS);
        ends.store(true, Ordering::Relaxed);
    });
    assert!(looks.into_inner() > 100);
    assert!([modes, names, contents].into_iter().all(|count| count.into_inner() > 10));
}

/// The kernel believes names of directories for a moment.
#[test]
fn where_a_directory_is_ends_before_another_mount_has_moved_it() {
    const ROUNDS: u32 = 60;
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::create_dir_all(a.join("d/e")).unwrap();
    fs::write(a.join("d/e/f"), "").unwrap();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        look(&b.join("d/e/f"));
        // What is made there changes nothing of that.
        fs::write(a.join(format!("d/e/{round}")), "").unwrap();
        assert!(fs::metadata(b.join("d/e").join(round.to_string())).is_ok());
        fs::rename(a.join("d"), a.join("moved")).unwrap();
        assert!(fs::metadata(b.join("d/e/f")).is_err());
        assert!(fs::metadata(b.join("moved/e/f")).is_ok());
        // What was moved through this mount it knows by its new name.
        fs::rename(b.join("moved"), b.join("d")).unwrap();
        look(&b.join("d/e/f"));
        assert!(fs::metadata(a.join("moved")).is_err());
        fs::rename(a.join("d/e"), a.join("e")).unwrap();
        assert!(fs::metadata(b.join("d/e/f")).is_err());
        fs::create_dir(a.join("d/e")).unwrap();
        assert!(fs::metadata(b.join("d/e/f")).is_err());
        look(&b.join("d/e"));
        fs::remove_dir(a.join("d/e")).unwrap();
        assert!(fs::metadata(b.join("d/e")).is_err());
        fs::rename(a.join("e"), a.join("d/e")).unwrap();
    }
    assert!(begun.elapsed() < SESSION * ROUNDS, "nobody waits until it is not believed any more");
}

/// One mount works in a directory in which, and in whose parent, the other makes and removes things.
#[test]
fn who_is_in_a_directory_stays_there_whatever_others_do_around() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::create_dir_all(a.join("d/e")).unwrap();
    let here = "for i in $(seq 150); do /bin/pwd -P >/dev/null || exit 1; done";
    let mut within = Command::new("sh").args(["-c", here]).current_dir(b.join("d/e")).spawn().unwrap();
    let mut round = 0;
    let status = loop {
        if let Some(status) = within.try_wait().unwrap() {
            break status;
        }
        look(&b.join("d/e"));
        for dir in ["d/e", "d", "."] {
            fs::write(a.join(dir).join(format!("f{round}")), "").unwrap();
        }
        fs::create_dir(a.join("d/other")).unwrap();
        look(&b.join("d/other"));
        fs::remove_dir(a.join("d/other")).unwrap();
        round += 1;
    };
    assert!(status.success() && round > 0);
}

/// Each has to drop what the other one removes, while it removes something from the same directory.
#[test]
fn mounts_that_remove_directories_beside_each_other_go_on() {
    const EACH: u32 = 40;
    let Some(cluster) = Cluster::start() else { return };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let name = |mount: usize, round: u32| format!("{mount} {round}");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (number, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..EACH {
                    let own = mount.join(name(number, round));
                    fs::create_dir(&own).unwrap();
                    look(&mount.join(name(1 - number, round)));
                    look(&own);
                    let moved = mount.join(format!("moved {number}"));
                    fs::rename(&own, &moved).unwrap();
                    fs::remove_dir(moved).unwrap();
                }
            });
        }
    });
    assert!(begun.elapsed() < SESSION * EACH, "{:?}", begun.elapsed());
    assert!(mounts.iter().all(|mount| fs::read_dir(mount).unwrap().count() == 0));
}

#[test]
fn a_mount_that_is_frozen_delays_others_by_a_session_and_shows_nothing_old() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, (b, frozen)) = (cluster.mount("a"), cluster.mount_in_front("b"));
    for round in 0..3 {
        let name = format!("f{round}");
        fs::write(a.join(&name), "").unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        let open = File::open(b.join(&name)).unwrap();
        look(&b.join(&name));
        kill_process(frozen, Signal::STOP).unwrap();
        let begun = Instant::now();
        fs::set_permissions(a.join(&name), Permissions::from_mode(0o601)).unwrap();
        assert!(begun.elapsed() < SESSION + SLACK, "{:?}", begun.elapsed());
        std::thread::scope(|scope| {
            // The kernel does not believe it any more, and waits for the mount.
            let looks = scope.spawn(|| (open.metadata().unwrap().mode() & 0o7777, mode(&b.join(&name))));
            std::thread::sleep(Duration::from_millis(100));
            kill_process(frozen, Signal::CONT).unwrap();
            assert_eq!(looks.join().unwrap(), (0o601, 0o601));
        });
        // Nobody else waits for what it does not have any more.
        assert_eq!(mode(&b.join(&name)), 0o601);
    }
}

#[test]
fn a_mapping_shows_what_was_written_elsewhere_before_it_was_made() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let text = |round: u32| format!("{round:0>9999}");
    for round in 0..4 {
        fs::write(a.join("f"), text(round)).unwrap();
        for wait_ms in [0, 1_300, 0] {
            std::thread::sleep(Duration::from_millis(wait_ms));
            assert_eq!(mapped(&b.join("f"), text(round).len()), text(round).as_bytes());
            assert_eq!(fs::read_to_string(b.join("f")).unwrap(), text(round));
        }
    }
}

/// The content of a file as a mapping shows it.
fn mapped(path: &Path, length: usize) -> Vec<u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let file = File::open(path).unwrap();
    // SAFETY: nothing else is mapped there, the file is that long, and what is read is copied before it is unmapped.
    unsafe {
        let start = mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap();
        let copied = std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec();
        munmap(start, length).unwrap();
        copied
    }
}

/// How often threads of the client's runtime have begun to wait.
fn waits(process: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|thread| thread.unwrap().path());
    let waits = threads.filter_map(|thread| {
        let status = fs::read_to_string(thread.join("status")).ok()?;
        let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let is_of_runtime = value("Name:").is_some_and(|name| name.starts_with("tokio"));
        value("voluntary_ctxt_switches:").filter(|_| is_of_runtime)?.parse::<u64>().ok()
    });
    waits.sum()
}

#[test]
fn who_opens_a_file_again_has_no_thread_woken_up_that_does_nothing_for_it() {
    const OPENED: u64 = 200;
    const ROUNDS: usize = 20;
    let Some(cluster) = Cluster::start() else { return };
    let (point, mount) = cluster.mount_in_front("a");
    let file = point.join("f");
    fs::write(&file, "content").unwrap();
    let round = |_| {
        let before = waits(mount);
        (0..OPENED).for_each(|_| assert_eq!(fs::read(&file).unwrap(), b"content"));
        waits(mount) - before
    };
    // On a busy machine a round may take so long that they wait for other reasons.
    let fewest = (0..ROUNDS).map(round).min().unwrap();
    assert!(fewest < OPENED / 2, "{fewest} times for {OPENED} openings");
}
