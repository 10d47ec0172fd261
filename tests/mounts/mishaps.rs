//! Daemons that die or are not there, and a volume that is deleted.

use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cluster, PATIENCE, fleasefs, is_mounted, said, until, until_it_waits};

const BLOCK_BYTES: usize = 40_000;

fn block(number: usize) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| u8::try_from((number * 31 + at / 7) % 251).unwrap()).collect()
}

#[test]
fn no_error_reaches_a_writer_while_daemons_are_killed() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (ends, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::create(a.join("f")).unwrap();
            while !ends.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed);
                file.write_all(&block(number)).unwrap();
                if number.is_multiple_of(8) {
                    file.sync_all().unwrap();
                    fs::write(a.join(format!("n{number}")), "name").unwrap();
                }
                written.store(number + 1, Ordering::Relaxed);
            }
        });
        for node in 1..=3 {
            let before = written.load(Ordering::Relaxed);
            until("something is written", || written.load(Ordering::Relaxed) > before);
            cluster.kill_and_wait(node);
        }
        let before = written.load(Ordering::Relaxed);
        until("something is written", || written.load(Ordering::Relaxed) > before);
        ends.store(true, Ordering::Relaxed);
    });
    let (count, file) = (written.into_inner(), File::open(b.join("f")).unwrap());
    assert_eq!(file.metadata().unwrap().len(), (count * BLOCK_BYTES) as u64);
    let mut read = vec![0; BLOCK_BYTES];
    for number in 0..count {
        file.read_exact_at(&mut read, (number * BLOCK_BYTES) as u64).unwrap();
        assert!(read == block(number), "block {number} of {count}");
        if number.is_multiple_of(8) {
            assert_eq!(fs::read_to_string(b.join(format!("n{number}"))).unwrap(), "name");
        }
    }
}

#[test]
fn a_deleted_volume_is_gone_and_can_be_unmounted() {
    let Some(cluster) = Cluster::start() else { return };
    let point = cluster.mount("m");
    fs::write(point.join("a"), "hello").unwrap();
    let dir = cluster.dir();
    cluster.run(&["volume", "delete", "main", "--force", "--cluster", dir.to_str().unwrap()]);
    for error in [
        fs::metadata(&point).unwrap_err(),
        fs::write(point.join("b"), "hello").unwrap_err(),
        fs::read_dir(&point).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}");
    }
    let umount = cluster.umount(&point);
    assert!(umount.status.success(), "{}", said(&umount));
    assert!(!is_mounted(&point));
}

#[test]
fn a_volume_is_not_deleted_as_long_as_files_in_it_are_open() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b, dir) = (cluster.mount("a"), cluster.mount("b"), cluster.dir());
    fs::write(a.join("f"), "hello").unwrap();
    let mine = File::options().read(true).write(true).open(a.join("f")).unwrap();
    let theirs = File::open(b.join("f")).unwrap();
    let delete = |options: &[&str]| {
        fleasefs().args(["volume", "delete", "main", "--cluster"]).arg(&dir).args(options).output().unwrap()
    };
    let refused = delete(&[]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("is not empty"), "{}", said(&refused));
    assert_eq!(fs::read_to_string(b.join("f")).unwrap(), "hello");
    let refused = delete(&["--force"]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(
        said(&refused).contains("is still used") && said(&refused).contains("close them"),
        "{}",
        said(&refused)
    );
    // Its names are gone, and whoever has it open goes on.
    assert_eq!(fs::metadata(b.join("f")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    mine.write_all_at(b"world", 0).unwrap();
    mine.sync_all().unwrap();
    let mut read = [0; 5];
    theirs.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"world");
    drop((mine, theirs));
    // That it is mounted keeps nobody from deleting it.
    let done = delete(&[]);
    assert!(done.status.success(), "{}", said(&done));
    for error in [fs::metadata(&a).unwrap_err(), File::create(b.join("f")).unwrap_err()] {
        assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}");
    }
}

#[test]
fn where_no_daemon_is_a_mount_says_so_or_waits() {
    let Some(cluster) = Cluster::start() else { return };
    let (dir, point) = (cluster.dir(), cluster.point("m"));
    cluster.run(&["down", dir.to_str().unwrap()]);
    let started = Instant::now();
    let refused = fleasefs().arg("mount").arg(&dir).arg(&point).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("no daemon of the cluster answers"), "{}", said(&refused));
    assert!(said(&refused).contains("--wait"), "{}", said(&refused));
    assert!(started.elapsed() < PATIENCE);
    let mut command = fleasefs();
    command.args(["mount", "--background", "--wait"]).arg(&dir).arg(&point).stderr(Stdio::piped());
    let mut waiting = command.spawn().unwrap();
    let mut told = std::io::BufReader::new(waiting.stderr.take().unwrap());
    until("it says that it waits", || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut told, &mut line).unwrap() > 0 && line.contains("trying again")
    });
    cluster.up();
    assert!(waiting.wait().unwrap().success());
    fs::write(point.join("a"), "hello").unwrap();
}

#[test]
fn who_waits_for_daemons_that_are_away_can_be_killed_or_goes_on() {
    let Some(cluster) = Cluster::start() else { return };
    // What a mount has made itself it knows without a daemon.
    let (point, other) = (cluster.mount("m"), cluster.mount("o"));
    fs::write(other.join("a"), "hello").unwrap();
    cluster.signal_all(Signal::STOP);
    let mut command = Command::new("cat");
    command.arg(point.join("a")).stdout(Stdio::piped()).stderr(Stdio::null());
    let [mut killed, kept] = [(); 2].map(|()| command.spawn().unwrap());
    until_it_waits(&killed);
    kill_process(Pid::from_child(&killed), Signal::TERM).unwrap();
    let started = Instant::now();
    assert!(!killed.wait().unwrap().success());
    let took = started.elapsed();
    cluster.signal_all(Signal::CONT);
    assert!(took < Duration::from_secs(20), "{took:?}");
    let kept = kept.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(kept.stdout).unwrap(), "hello");
}

#[test]
fn a_mount_is_taken_away_although_no_daemon_is_there() {
    let Some(cluster) = Cluster::start() else { return };
    let point = cluster.mount("m");
    fs::write(point.join("a"), "hello").unwrap();
    File::open(point.join("a")).unwrap().sync_all().unwrap();
    cluster.kill_all();
    // By now whoever wants to know how its root is waits.
    std::thread::sleep(Duration::from_secs(2));
    // With a slash behind it, which has it looked into elsewhere.
    let umount = fleasefs().arg("umount").arg(point.join("")).stderr(Stdio::piped()).spawn().unwrap();
    until("it is unmounted", || !is_mounted(&point));
    cluster.up();
    let umount = umount.wait_with_output().unwrap();
    assert!(umount.status.success(), "{}", said(&umount));
}

/// So long that no lease and no connection is left. Whoever comes back first must not be told that there is nothing.
#[test]
fn what_was_not_sent_is_there_after_all_daemons_were_frozen() {
    let Some(cluster) = Cluster::start() else { return };
    let (point, (other, late)) = (cluster.mount("m"), cluster.mount_in_front("o"));
    fs::write(other.join("a"), "hello").unwrap();
    cluster.signal_all(Signal::STOP);
    std::thread::sleep(Duration::from_secs(4));
    kill_process(late, Signal::STOP).unwrap();
    cluster.signal_all(Signal::CONT);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| fs::read_to_string(point.join("a")).unwrap());
        std::thread::sleep(Duration::from_millis(1_500));
        kill_process(late, Signal::CONT).unwrap();
        assert_eq!(read.join().unwrap(), "hello");
    });
}

#[test]
fn what_was_lost_after_a_file_was_closed_is_told_to_whoever_syncs_it_next() {
    let Some(cluster) = Cluster::start() else { return };
    let ((a, silent), b) = (cluster.mount_in_front("a"), cluster.mount("b"));
    fs::write(a.join("f"), "before").unwrap();
    File::open(a.join("f")).unwrap().sync_all().unwrap();
    fs::write(a.join("f"), "mine").unwrap();
    // Before that is sent.
    kill_process(silent, Signal::STOP).unwrap();
    fs::write(b.join("f"), "theirs").unwrap();
    kill_process(silent, Signal::CONT).unwrap();
    assert_eq!(fs::read_to_string(a.join("f")).unwrap(), "theirs");
    let next = File::open(a.join("f")).unwrap();
    assert_eq!(Errno::from_io_error(&next.sync_all().unwrap_err()), Some(Errno::IO));
    next.sync_all().unwrap();
    File::open(a.join("f")).unwrap().sync_all().unwrap();
}

/// An hour, by the clocks of the daemons that come back: longer than anything lasts that could be renewed meanwhile.
#[test]
fn what_was_written_is_sent_and_files_stay_open_however_long_no_daemon_was_there() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let [mine, theirs] = ["mine", "theirs"].map(|name| File::create(a.join(name)).unwrap());
    // What is read and written by two is written through.
    let [read, shared] = ["mine", "theirs"].map(|name| {
        let mut how = File::options();
        how.read(true).write(true).open(b.join(name)).unwrap()
    });
    shared.write_all_at(b"theirs", 0).unwrap();
    theirs.write_all_at(b"shared", 0).unwrap();
    let alone = File::create(a.join("alone")).unwrap();
    alone.write_all_at(b"before", 0).unwrap();
    cluster.kill_all();
    std::thread::scope(|scope| {
        for (file, data) in [(&alone, "behind"), (&mine, "behind"), (&theirs, "behind")] {
            scope.spawn(move || {
                file.write_all_at(data.as_bytes(), 6).unwrap();
                file.sync_all().unwrap();
            });
        }
        cluster.up_after(Duration::from_secs(3_600));
    });
    let mut found = [0; 12];
    shared.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"sharedbehind");
    read.read_exact_at(&mut found[..6], 6).unwrap();
    assert_eq!(&found[..6], b"behind");
    assert_eq!(fs::read(b.join("alone")).unwrap(), b"beforebehind");
}

#[test]
fn a_signal_that_is_handled_interrupts_who_has_waited_for_long() {
    let Some(cluster) = Cluster::start() else { return };
    // What a mount has made itself it knows without a daemon.
    let (point, other) = (cluster.mount("m"), cluster.mount("o"));
    fs::write(other.join("a"), "hello").unwrap();
    cluster.signal_all(Signal::STOP);
    let script = "$SIG{ALRM} = sub {}; $SIG{CHLD} = sub {}; kill 'CHLD', $$; alarm 1; \
                  sysopen(F, $ARGV[0], 0) and die 'it was opened'; print $!{EINTR} ? 'interrupted' : $!";
    let mut command = Command::new("perl");
    command.args(["-e", script]).arg(point.join("a")).stdout(Stdio::piped());
    let started = Instant::now();
    let output = command.output().unwrap();
    cluster.signal_all(Signal::CONT);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "interrupted", "{}", said(&output));
    assert!(started.elapsed() >= Duration::from_secs(10), "what passes by itself is seen by nobody");
    assert_eq!(fs::read_to_string(point.join("a")).unwrap(), "hello");
}

/// What is written to a file that nobody else uses stays with the mount for a while, but not that.
#[test]
fn what_was_to_be_synced_as_it_is_written_outlives_the_mount() {
    let Some(cluster) = Cluster::start() else { return };
    let ((point, process), other) = (cluster.mount_in_front("a"), cluster.mount("b"));
    let open = |name, flags: OFlags| {
        let mut how = File::options();
        how.write(true).create(true).custom_flags(flags.bits().cast_signed());
        how.open(point.join(name)).unwrap()
    };
    let (synced, once, source) =
        (open("synced", OFlags::SYNC), open("once", OFlags::empty()), point.join("source"));
    fs::write(&source, "copied").unwrap();
    synced.write_all_at(b"written, ", 0).unwrap();
    let (mut from, mut to) = (0, 9);
    let source = File::open(source).unwrap();
    assert_eq!(rustix::fs::copy_file_range(source, Some(&mut from), &synced, Some(&mut to), 6), Ok(6));
    once.write_all_at(b"with what was before", 0).unwrap();
    assert_eq!(rustix::io::pwritev2(&once, &[IoSlice::new(b"this")], 0, ReadWriteFlags::DSYNC), Ok(4));
    kill_process(process, Signal::KILL).unwrap();
    for (name, expected) in [("synced", "written, copied"), ("once", "this what was before")] {
        assert_eq!(fs::read_to_string(other.join(name)).unwrap(), expected);
    }
}

/// Of a directory of its own making a mount says a while later what is in it, of any other at once.
#[test]
fn what_was_synced_with_its_directory_has_its_name_though_the_mount_is_killed() {
    const FILES: usize = 300;
    let Some(cluster) = Cluster::start() else { return };
    let ((point, process), other) = (cluster.mount_in_front("a"), cluster.mount("b"));
    fs::create_dir(other.join("theirs")).unwrap();
    fs::create_dir(point.join("mine")).unwrap();
    for dir in ["mine", "theirs"] {
        let path = |name: &str| point.join(dir).join(name);
        fs::create_dir(path("sub")).unwrap();
        std::os::unix::fs::symlink("sub", path("link")).unwrap();
        (0..FILES).for_each(|number| drop(File::create(path(&number.to_string())).unwrap()));
        fs::hard_link(path("0"), path("also 0")).unwrap();
        fs::rename(path("1"), path("was 1")).unwrap();
        fs::remove_file(path("2")).unwrap();
        File::open(point.join(dir)).unwrap().sync_all().unwrap();
    }
    kill_process(process, Signal::KILL).unwrap();
    let mut expected: Vec<_> = (3..FILES).map(|number| number.to_string()).collect();
    expected.extend(["0", "also 0", "link", "sub", "was 1"].map(str::to_owned));
    expected.sort_unstable();
    for dir in ["mine", "theirs"] {
        let listed = fs::read_dir(other.join(dir)).unwrap();
        let mut found: Vec<_> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{dir}");
    }
}
