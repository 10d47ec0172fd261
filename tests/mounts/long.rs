//! What is promised for long, or of much: with `FLEASEFS_LONG` all of it, and without some.

#![expect(clippy::print_stdout, reason = "what it took is a result")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, mpsc};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};

use crate::support::{Cluster, PATIENCE, fleasefs, said};

/// A turn is so long in the log.
const LINE_BYTES: usize = 9;

fn is_long() -> bool {
    std::env::var_os("FLEASEFS_LONG").is_some()
}

/// Takes over from the other mount: a log, a lock, a name and what it stands for. All that was done before is there.
fn take_turn(mount: &Path, turn: u64) {
    let mut log = OpenOptions::new().read(true).append(true).create(true).open(mount.join("log")).unwrap();
    flock(&log, FlockOperation::LockExclusive).unwrap();
    let bytes = |turns: u64| turns * LINE_BYTES as u64;
    assert_eq!(log.metadata().unwrap().len(), bytes(turn));
    let line = |turn: u64| format!("{turn:08}\n").into_bytes();
    let here = mount.join(format!("dir/{turn}"));
    match turn.checked_sub(1) {
        None => fs::create_dir(mount.join("dir")).and_then(|()| fs::write(&here, line(turn))).unwrap(),
        Some(before) => {
            let mut last = [0; LINE_BYTES];
            log.read_exact_at(&mut last, bytes(before)).unwrap();
            assert_eq!(last.as_slice(), line(before));
            let there = mount.join(format!("dir/{before}"));
            assert_eq!(fs::read(&there).unwrap(), line(before));
            if turn.is_multiple_of(16) {
                fs::write(&here, line(turn)).unwrap();
                fs::remove_file(&there).unwrap();
            } else {
                fs::rename(&there, &here).unwrap();
                OpenOptions::new().write(true).open(&here).unwrap().write_all_at(&line(turn), 0).unwrap();
            }
            assert!(fs::metadata(&there).is_err(), "it has another name");
        }
    }
    let listed: Vec<_> =
        fs::read_dir(mount.join("dir")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(listed, [here]);
    log.write_all(&line(turn)).unwrap();
}

#[test]
fn two_mounts_hand_files_and_names_to_and_fro() {
    let lasts = Duration::from_secs(if is_long() { 600 } else { 5 });
    let Some(cluster) = Cluster::start() else { return };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let (begun, turn, over) = (Instant::now(), Mutex::new((0_u64, Duration::ZERO)), Condvar::new());
    scope(|scope| {
        for (who, mount) in (0..).zip(&mounts) {
            let (turn, over) = (&turn, &over);
            scope.spawn(move || {
                loop {
                    let mut now = over.wait_while(turn.lock().unwrap(), |now| now.0 % 2 != who).unwrap();
                    let is_over = begun.elapsed() > lasts;
                    if !is_over {
                        let started = Instant::now();
                        take_turn(mount, now.0);
                        now.1 = now.1.max(started.elapsed());
                    }
                    now.0 += 1;
                    over.notify_all();
                    if is_over {
                        return;
                    }
                }
            });
        }
    });
    let (turns, slowest) = turn.into_inner().unwrap();
    println!("{turns} turns in {lasts:?}, the slowest in {slowest:?}");
    assert!(turns > 20 && slowest < PATIENCE, "{turns} {slowest:?}");
}

/// Of a process: what it keeps in memory, and the most that it ever did.
fn memory_mib(process: Pid) -> [u64; 2] {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    ["VmRSS:", "VmHWM:"].map(|key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
    })
}

/// That a mount answers for files without any daemon.
fn assert_known(cluster: &Cluster, point: &Path, files: &[PathBuf]) {
    /// So many at a time that their volume's session, which begins with each answer from its primary, outlasts them.
    const AT_A_TIME: usize = 1_000;
    for some in files.chunks(AT_A_TIME) {
        // What is created and removed at once no daemon is asked about.
        File::create(point.join("asked")).and_then(|asked| asked.sync_all()).unwrap();
        fs::remove_file(point.join("asked")).unwrap();
        cluster.signal_all(Signal::STOP);
        let (done, told) = mpsc::channel();
        let known = scope(|scope| {
            scope.spawn(move || {
                some.iter().for_each(|path| assert!(fs::metadata(path).unwrap().is_file()));
                let _ = done.send(());
            });
            let known = told.recv_timeout(PATIENCE);
            // Who waits for them could not end.
            cluster.signal_all(Signal::CONT);
            known
        });
        assert!(known.is_ok(), "daemons were asked for what was looked at before");
    }
}

/// Of a process: the time that processors spent on it, in hundredths of a second.
fn processor_time(process: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn who_knows_many_names_is_small_and_who_does_nothing_costs_nothing() {
    let (names, watched_s) = if is_long() { (100_000, 30) } else { (3_000, 2) };
    let Some(cluster) = Cluster::start() else { return };
    let paths = |point: &Path| -> Vec<PathBuf> {
        (0..names).map(|name| point.join(format!("dir/a name that is not short {name}"))).collect()
    };
    let look = |point: &Path| {
        assert_eq!(fs::read_dir(point.join("dir")).unwrap().count(), names);
        paths(point).iter().for_each(|path| assert!(fs::metadata(path).unwrap().is_file()));
    };
    let (point, maker) = cluster.mount_in_front("maker");
    fs::create_dir(point.join("dir")).unwrap();
    paths(&point).iter().for_each(|path| drop(File::create(path).unwrap()));
    look(&point);
    let made = memory_mib(maker);
    // What is on its way back from who has made it is known to nobody.
    assert!(cluster.umount(&point).status.success());
    let (point, mount) = cluster.mount_in_front("a");
    look(&point);
    assert_known(&cluster, &point, &paths(&point));
    let looked = memory_mib(mount);
    // What was used is given up when it is not used any more.
    sleep(Duration::from_secs(if is_long() { 60 } else { 0 }));
    let processes = [mount, cluster.daemon(1), cluster.daemon(2), cluster.daemon(3)];
    let before = processes.map(processor_time);
    sleep(Duration::from_secs(watched_s));
    let after = processes.map(processor_time);
    let percent = [0, 1, 2, 3].map(|at| (after[at] - before[at]) as f64 / watched_s as f64);
    println!(
        "{names} names, MiB now and at most: {made:?} made, {looked:?} looked at; idle: {percent:?} % of a processor, the mount first"
    );
    assert!(made[0] < 100 && looked[0] < 100, "{made:?} {looked:?}");
    assert!(!is_long() || percent.iter().all(|percent| *percent < 1.0), "{percent:?}");
}

#[test]
fn a_mount_of_three_daemons_begins_within_seconds() {
    let Some(cluster) = Cluster::start() else { return };
    let (dir, point) = (cluster.dir().with_file_name("another"), cluster.point("m"));
    let started = Instant::now();
    let up = fleasefs().arg("up").arg(&dir).arg("--mount").arg(&point).output().unwrap();
    let took = started.elapsed();
    let written = fs::write(point.join("f"), "hello");
    let down = fleasefs().arg("down").arg(&dir).output().unwrap();
    assert!(up.status.success() && written.is_ok() && down.status.success(), "{}{}", said(&up), said(&down));
    println!("up and mounted after {took:?}");
    assert!(took < if is_long() { Duration::from_secs(5) } else { PATIENCE }, "{took:?}");
}
