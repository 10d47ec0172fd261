//! How a mount begins and ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cluster, PATIENCE, fleasefs, is_dead, is_mounted, said, until};

#[test]
fn one_command_leads_from_nothing_to_a_mount_and_one_back() {
    // For its folder and its end.
    let Some(cluster) = Cluster::start() else { return };
    cluster.run(&["down", cluster.dir().to_str().unwrap()]);
    let point = cluster.point("m");
    let up = || fleasefs().arg("up").arg(cluster.dir()).arg("--mount").arg(&point).output().unwrap();
    let first = up();
    assert!(first.status.success(), "{}", said(&first));
    fs::write(point.join("a"), "hello").unwrap();
    // What is mounted already stays so.
    let again = up();
    assert!(again.status.success(), "{}", said(&again));
    let open = File::open(point.join("a")).unwrap();
    let down = || fleasefs().arg("down").arg(cluster.dir()).output().unwrap();
    let refused = down();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("is in use by"), "{}", said(&refused));
    assert_eq!(fs::read_to_string(point.join("a")).unwrap(), "hello");
    drop(open);
    let done = down();
    assert!(done.status.success(), "{}", said(&done));
    assert!(!is_mounted(&point));
    assert!(up().status.success());
    assert_eq!(fs::read_to_string(point.join("a")).unwrap(), "hello");
    // What is left of one that was killed is taken away before.
    let mut text = [0; 16];
    let length = rustix::fs::getxattr(&point, "system.fleasefs.process", &mut text).unwrap();
    let process = str::from_utf8(&text[..length]).unwrap().parse().unwrap();
    let process = Pid::from_raw(process).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    until("it has ended", || is_dead(process));
    let again = up();
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(fs::read_to_string(point.join("a")).unwrap(), "hello");
}

#[test]
fn what_is_unmounted_is_all_written_and_its_process_has_ended() {
    let Some(cluster) = Cluster::start() else { return };
    let point = cluster.mount("m");
    let content = [b'a'; 1 << 20].repeat(48);
    fs::write(point.join("a"), &content).unwrap();
    let done = cluster.umount(&point);
    assert!(done.status.success(), "{}", said(&done));
    // Had it not ended it could not be right: nobody else knows what is left to be written.
    let is_its = |line: &String| line.contains(point.to_str().unwrap());
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    assert_eq!(lines.filter(is_its).count(), 0);
    let point = cluster.mount("m");
    assert!(fs::read(point.join("a")).unwrap() == content);
}

#[test]
fn a_mount_in_use_stays_and_says_who_uses_it() {
    let Some(cluster) = Cluster::start() else { return };
    let point = cluster.mount("m");
    fs::write(point.join("a"), "hello").unwrap();
    let open = File::open(point.join("a")).unwrap();
    let refused = cluster.umount(&point);
    assert_eq!(refused.status.code(), Some(1));
    let us = format!("(process {})", std::process::id());
    assert!(said(&refused).contains("is in use by") && said(&refused).contains(&us), "{}", said(&refused));
    assert!(is_mounted(&point));
    drop(open);
    let done = cluster.umount(&point);
    assert!(done.status.success(), "{}", said(&done));
    assert!(!is_mounted(&point));
    let twice = cluster.umount(&point);
    assert!(said(&twice).contains("no volume is mounted at"), "{}", said(&twice));
}

/// Writes to a file through a mapping, so that only the kernel of this machine has it.
fn write_mapped(path: &std::path::Path, text: &[u8]) {
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    file.set_len(text.len() as u64).unwrap();
    map(&file, text);
}

/// Puts a text at the begin of a file that is no shorter, through a mapping.
pub(crate) fn map(file: &File, text: &[u8]) {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    // SAFETY: nobody else has the mapping, which is as long as the text and goes before this returns; the file keeps its size.
    unsafe {
        let (flags, rights) = (MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE);
        let mapped = mmap(std::ptr::null_mut(), text.len(), rights, flags, file, 0).unwrap();
        std::ptr::copy_nonoverlapping(text.as_ptr(), mapped.cast(), text.len());
        munmap(mapped, text.len()).unwrap();
    }
}

#[test]
fn what_is_written_through_a_mapping_has_its_place_though_the_file_is_appended_to() {
    let Some(cluster) = Cluster::start() else { return };
    let (point, other) = (cluster.mount("m"), cluster.mount("other"));
    fs::write(point.join("f"), "0123456789").unwrap();
    let mut file = OpenOptions::new().read(true).append(true).open(point.join("f")).unwrap();
    map(&file, b"abc");
    file.sync_all().unwrap();
    file.write_all(b"end").unwrap();
    assert_eq!(fs::read(other.join("f")).unwrap(), b"abc3456789end");
}

#[test]
fn a_signal_ends_a_mount_when_all_is_written() {
    let Some(cluster) = Cluster::start() else { return };
    for (name, signal) in [("a", Signal::TERM), ("b", Signal::INT)] {
        let (point, process) = cluster.mount_in_front(name);
        let text = name.repeat(300_000);
        write_mapped(&point.join(name), text.as_bytes());
        kill_process(process, signal).unwrap();
        assert!(cluster.wait_for(process).success());
        assert!(!is_mounted(&point));
        let again = cluster.mount(&format!("{name} again"));
        assert!(fs::read_to_string(again.join(name)).unwrap() == text);
    }
}

#[test]
fn what_one_writes_through_a_mapping_the_other_reads() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    write_mapped(&a.join("f"), b"mapped");
    // Who maps says when the others are to have it.
    File::open(a.join("f")).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(b.join("f")).unwrap(), b"mapped");
}

#[test]
fn a_signal_lets_who_has_files_open_close_them() {
    let Some(cluster) = Cluster::start() else { return };
    let (point, process) = cluster.mount_in_front("m");
    let file = File::create(point.join("a")).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    until("nobody finds it any more", || !is_mounted(&point));
    (&file).write_all(b"late").unwrap();
    drop(file);
    assert!(cluster.wait_for(process).success());
    assert_eq!(fs::read_to_string(cluster.mount("again").join("a")).unwrap(), "late");
}

#[test]
fn a_dead_mount_is_taken_away() {
    let Some(cluster) = Cluster::start() else { return };
    let (point, process) = cluster.mount_in_front("m");
    fs::write(point.join("a"), "hello").unwrap();
    let open = File::open(point.join("a")).unwrap();
    open.sync_all().unwrap();
    kill_process(process, Signal::KILL).unwrap();
    cluster.wait_for(process);
    assert_eq!(fs::metadata(&point).unwrap_err().raw_os_error(), Some(107), "ENOTCONN");
    let refused = fleasefs().arg("mount").arg(cluster.dir()).arg(&point).output().unwrap();
    assert!(said(&refused).contains("a mount whose process has gone"), "{}", said(&refused));
    let umount = cluster.umount(&point);
    assert!(umount.status.success(), "{}", said(&umount));
    drop(open);
    assert!(fs::metadata(&point).unwrap().is_dir());
    assert_eq!(fs::read_to_string(cluster.mount("m").join("a")).unwrap(), "hello");
}

#[test]
fn what_cannot_be_mounted_is_said_clearly() {
    let Some(cluster) = Cluster::start() else { return };
    let (dir, point) = (cluster.dir(), cluster.mount("m"));
    let file = dir.join("cluster.toml");
    let foreign = foreign(&cluster);
    let free = cluster.point("free");
    let [dir, point, file, free] = [&dir, &point, &file, &free].map(|path| path.to_str().unwrap());
    let (unknown, nowhere) = (format!("{dir}:unknown"), format!("{free}/nowhere"));
    for (args, expected) in [
        ([dir, &nowhere, "-oro"], "is not there; make it"),
        ([dir, file, "-oro"], "is no directory"),
        ([dir, point, "-oro"], "is mounted at"),
        ([&unknown, free, "-oro"], "there is no volume `unknown`"),
        ([dir, free, "-oquick"], "there is no mount option `quick`"),
        ([free, free, "-oro"], "no cluster at"),
        ([&foreign, free, "-oro"], "do not accept each other's certificates"),
    ] {
        for background in [None, Some("--background")] {
            let started = Instant::now();
            let output = fleasefs().arg("mount").args(args).args(background).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
            assert!(said(&output).contains(expected), "{args:?}: {}", said(&output));
            assert!(started.elapsed() < PATIENCE);
        }
    }
    assert!(!is_mounted(free.as_ref()));
}

/// The client of this cluster with a certificate of another authority.
fn foreign(cluster: &Cluster) -> String {
    let (own, other) = (cluster.dir(), cluster.dir().join("other"));
    cluster.run(&["init", other.to_str().unwrap(), "--osds", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"]);
    // Who does not look at the certificate would let it in.
    let text = fs::read_to_string(own.join("admin/cluster.toml")).unwrap();
    let id = |text: &str| text.lines().find(|line| line.starts_with("cluster")).unwrap().to_owned();
    let theirs = fs::read_to_string(other.join("admin/cluster.toml")).unwrap();
    fs::write(other.join("admin/cluster.toml"), text.replace(&id(&text), &id(&theirs))).unwrap();
    other.to_str().unwrap().to_owned()
}

#[test]
fn a_mount_of_which_no_daemon_is_left_ends_by_a_second_signal_and_says_what_is_lost() {
    [true, false].into_iter().for_each(ends_though_no_daemon_is_left);
}

fn ends_though_no_daemon_is_left(has_mapped: bool) {
    let Some(cluster) = Cluster::start() else { return };
    let (point, process) = cluster.mount_in_front("m");
    if has_mapped {
        write_mapped(&point.join("a"), b"in the kernel");
    }
    fs::write(point.join("b"), "in the mount's process").unwrap();
    cluster.kill_all();
    kill_process(process, Signal::TERM).unwrap();
    // The mount's process waits for the daemons meanwhile, and its helpers for it.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!is_dead(process));
    let second = Instant::now();
    kill_process(process, Signal::TERM).unwrap();
    assert_eq!(cluster.wait_for(process).code(), Some(1));
    assert!(second.elapsed() < Duration::from_secs(20), "{:?}", second.elapsed());
    until("nobody finds it any more", || !is_mounted(&point));
}

#[test]
fn a_second_signal_ends_a_mount_in_use_with_all_that_was_written() {
    let Some(cluster) = Cluster::start() else { return };
    let (point, process) = cluster.mount_in_front("m");
    let file = File::create(point.join("a")).unwrap();
    (&file).write_all(b"written").unwrap();
    kill_process(process, Signal::TERM).unwrap();
    until("nobody finds it any more", || !is_mounted(&point));
    std::thread::sleep(Duration::from_secs(1));
    kill_process(process, Signal::INT).unwrap();
    assert!(cluster.wait_for(process).success());
    drop(file);
    assert_eq!(fs::read_to_string(cluster.mount("again").join("a")).unwrap(), "written");
}
