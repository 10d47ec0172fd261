//! Two mounts of one volume.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use crate::support::Cluster;

/// What `ls` shows.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_one_mount_does_the_other_sees_at_once() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    // A name that is not there is not remembered.
    assert!(fs::metadata(b.join("new")).is_err());
    let mut new = File::create(a.join("new")).unwrap();
    let mut seen = File::open(b.join("new")).unwrap();
    for round in 0..20_u32 {
        let text = format!("{round:04}");
        new.write_all(text.as_bytes()).unwrap();
        let mut read = String::new();
        seen.read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
        assert_eq!(fs::metadata(b.join("new")).unwrap().len(), u64::from(round + 1) * 4);
    }
    // What was read before is read anew.
    new.write_all_at(b"mine", 0).unwrap();
    let mut start = [0; 4];
    seen.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"mine");
    fs::rename(b.join("new"), b.join("old")).unwrap();
    assert_eq!(names(&a), ["old"]);
    fs::remove_file(a.join("old")).unwrap();
    assert!(fs::metadata(b.join("old")).is_err());
    assert!(names(&b).is_empty());
}

#[test]
fn what_sets_size_and_time_back_is_seen_all_the_same() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let write = |text: &[u8]| {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(a.join("f")).unwrap();
        file.write_all_at(text, 0).unwrap();
        file.set_modified(time).unwrap();
    };
    write(b"before");
    let mut seen = File::open(b.join("f")).unwrap();
    let read = |file: &mut File| {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(read(&mut seen), "before");
    write(b"behind");
    assert_eq!(read(&mut seen), "behind");
    assert_eq!(seen.metadata().unwrap().modified().unwrap(), time);
}

/// `git` takes a file for changed whose `ctime` is another one, and `tar` says so of it.
#[test]
fn nobody_sees_times_change_when_what_was_written_goes_back_to_the_daemons() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let times = |path: &Path| {
        let shown = fs::metadata(path).unwrap();
        [shown.mtime(), shown.mtime_nsec(), shown.ctime(), shown.ctime_nsec()]
    };
    let earlier = SystemTime::now() - Duration::from_secs(100);
    let files = ["written", "set", "permitted", "wanted"];
    let mut shown = Vec::new();
    for name in files {
        fs::write(a.join(name), "content").unwrap();
        match name {
            "set" => File::open(a.join(name)).unwrap().set_modified(earlier).unwrap(),
            "permitted" => fs::set_permissions(a.join(name), Permissions::from_mode(0o640)).unwrap(),
            _ => {}
        }
        shown.push(times(&a.join(name)));
    }
    // One is wanted at once, the others have nothing done to them for a while.
    assert_eq!(times(&b.join("wanted")), shown[3]);
    for mount in [&a, &a, &a, &a, &b, &a] {
        let seen: Vec<_> = files.iter().map(|name| times(&mount.join(name))).collect();
        assert_eq!(seen, shown);
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn what_both_append_is_all_there_and_whole() {
    const EACH: usize = 150;
    let Some(cluster) = Cluster::start() else { return };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    File::create(mounts[0].join("log")).unwrap();
    std::thread::scope(|scope| {
        for (who, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(mount.join("log")).unwrap();
                for count in 0..EACH {
                    log.write_all(format!("{who} {count:05} {}\n", "x".repeat(90)).as_bytes()).unwrap();
                }
            });
        }
    });
    for mount in &mounts {
        let log = fs::read_to_string(mount.join("log")).unwrap();
        for who in 0..mounts.len() {
            let of: Vec<&str> = log.lines().filter(|line| line.starts_with(&format!("{who} "))).collect();
            let expected: Vec<String> =
                (0..EACH).map(|count| format!("{who} {count:05} {}", "x".repeat(90))).collect();
            assert_eq!(of, expected);
        }
        assert_eq!(log.lines().count(), EACH * mounts.len());
    }
}

#[test]
fn whether_a_descriptor_appends_may_change_after_it_was_opened() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.join("log"), "begin\n").unwrap();
    let placed = OpenOptions::new().append(true).open(a.join("log")).unwrap();
    fcntl_setfl(&placed, OFlags::empty()).unwrap();
    placed.write_all_at(b"B", 0).unwrap();
    let mut appending = File::options().write(true).open(a.join("log")).unwrap();
    fcntl_setfl(&appending, OFlags::APPEND).unwrap();
    let mut theirs = OpenOptions::new().append(true).open(b.join("log")).unwrap();
    theirs.write_all(b"theirs\n").unwrap();
    appending.write_all(b"mine\n").unwrap();
    theirs.write_all(b"theirs\n").unwrap();
    assert_eq!(fs::read_to_string(b.join("log")).unwrap(), "Begin\ntheirs\nmine\ntheirs\n");
}

#[test]
fn a_file_takes_the_place_of_another_in_one_step() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for round in 0..10 {
        fs::write(a.join("tmp"), format!("round {round}")).unwrap();
        fs::rename(a.join("tmp"), a.join("f")).unwrap();
        assert_eq!(fs::read_to_string(b.join("f")).unwrap(), format!("round {round}"));
        assert_eq!(names(&b), ["f"]);
    }
    // One link, one inode, the same on both.
    fs::hard_link(b.join("f"), b.join("g")).unwrap();
    let (of_a, of_b) = (fs::metadata(a.join("f")).unwrap(), fs::metadata(b.join("g")).unwrap());
    assert_eq!((of_a.ino(), of_a.nlink()), (of_b.ino(), 2));
}

/// Whoever looks a name up asks for what it has found there, which may be gone by then.
#[test]
fn who_looks_at_what_another_mount_takes_away_finds_it_or_finds_nothing() {
    const ROUNDS: usize = 300;
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.join("replaced"), "").unwrap();
    let (tried, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let there = |found: std::io::Result<Metadata>| match found {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{error}"),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                fs::write(a.join("new"), vec![0; round]).unwrap();
                fs::rename(a.join("new"), a.join("replaced")).unwrap();
                fs::create_dir(a.join("dir")).unwrap();
                fs::write(a.join("dir/removed"), "").unwrap();
                fs::remove_file(a.join("dir/removed")).unwrap();
                fs::remove_dir(a.join("dir")).unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        for name in ["replaced", "dir", "dir/removed"] {
            let (b, tried, is_over) = (&b, &tried, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let is_there = there(fs::metadata(b.join(name)));
                    assert!(is_there || name != "replaced", "something has this name all the time");
                    tried.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(tried.into_inner() > ROUNDS);
}

/// As on one machine: whoever stands in a directory that is gone is still there, and finds nothing.
#[test]
fn in_a_directory_that_another_mount_has_removed_there_is_nothing_and_nothing_can_be_made() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::create_dir(a.join("dir")).unwrap();
    let here = File::open(b.join("dir")).unwrap();
    fs::remove_dir(a.join("dir")).unwrap();
    assert_eq!(here.metadata().unwrap().nlink(), 0);
    let flags = [OFlags::RDONLY, OFlags::RDONLY | OFlags::CREATE];
    for flags in flags {
        let opened = rustix::fs::openat(&here, "file", flags, Mode::RWXU);
        assert_eq!(opened.unwrap_err(), Errno::NOENT, "{flags:?}");
    }
    assert_eq!(rustix::fs::mkdirat(&here, "dir", Mode::RWXU), Err(Errno::NOENT));
    assert_eq!(rustix::fs::unlinkat(&here, "file", AtFlags::empty()), Err(Errno::NOENT));
    let listed = rustix::fs::openat(&here, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    assert!(
        rustix::fs::Dir::read_from(listed)
            .unwrap()
            .all(|entry| entry.unwrap().file_name().to_bytes()[0] == b'.')
    );
}

#[test]
fn a_listing_shows_what_stays_once_whatever_comes_and_goes() {
    const STAY: usize = 1_500;
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let dir = a.join("d");
    fs::create_dir(&dir).unwrap();
    for number in 0..STAY {
        File::create(dir.join(format!("stays {number:06}"))).unwrap();
    }
    for number in 0..100 {
        File::create(dir.join(format!("goes {number:06}"))).unwrap();
    }
    let mut listing = fs::read_dir(b.join("d")).unwrap();
    let mut seen: Vec<String> = Vec::new();
    let mut next = |seen: &mut Vec<String>| {
        let entry = listing.next().transpose().unwrap();
        entry.map(|entry| seen.push(entry.file_name().into_string().unwrap())).is_some()
    };
    for _ in 0..700 {
        assert!(next(&mut seen));
    }
    for number in 0..100 {
        fs::remove_file(dir.join(format!("goes {number:06}"))).unwrap();
        File::create(dir.join(format!("comes {number:06}"))).unwrap();
    }
    while next(&mut seen) {}
    let stayed: Vec<&String> = seen.iter().filter(|name| name.starts_with("stays")).collect();
    let expected: Vec<String> = (0..STAY).map(|number| format!("stays {number:06}")).collect();
    assert_eq!(stayed, expected.iter().collect::<Vec<_>>());
}

#[test]
fn what_one_mount_has_open_goes_on_when_the_other_removes_its_name() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let mut how = OpenOptions::new();
    let file = how.read(true).write(true).create_new(true).open(a.join("f")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    fs::remove_file(b.join("f")).unwrap();
    assert!(fs::metadata(a.join("f")).is_err());
    fs::write(b.join("f"), "another").unwrap();
    file.write_all_at(b" and after", 6).unwrap();
    file.sync_all().unwrap();
    let mut read = [0; 16];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"before and after");
    let found = file.metadata().unwrap();
    assert_eq!((found.nlink(), found.len()), (0, 16));
    assert_eq!(fs::read_to_string(a.join("f")).unwrap(), "another");
}

/// In a directory of its own making a mount removes files by itself, and says so some 10 ms later. If it is frozen between these the file is
/// there for others, and stays theirs.
#[test]
fn what_is_written_to_a_file_that_a_frozen_mount_has_removed_stays() {
    const ROUNDS: usize = 40;
    let Some(cluster) = Cluster::start() else { return };
    let ((a, frozen), b) = (cluster.mount_in_front("a"), cluster.mount("b"));
    let here = File::open(&a).unwrap();
    let found = (0..ROUNDS).find_map(|round| {
        let path = format!("d{round}/f");
        fs::create_dir(a.join(&path).parent().unwrap()).unwrap();
        let mut file = File::create(a.join(&path)).unwrap();
        file.write_all(b"mine").unwrap();
        file.sync_all().unwrap();
        drop(file);
        // The kernel says some time later that it is closed, and what is open is not removed like this.
        std::thread::sleep(Duration::from_millis(100));
        fs::remove_file(a.join(&path)).unwrap();
        kill_process(frozen, Signal::STOP).unwrap();
        match OpenOptions::new().append(true).open(b.join(&path)) {
            Ok(file) => Some((path, file)),
            // It was told in time.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                kill_process(frozen, Signal::CONT).unwrap();
                None
            }
        }
    });
    let (path, mut file) = found.expect("it is frozen in time once");
    file.write_all(b" and theirs").unwrap();
    file.sync_all().unwrap();
    kill_process(frozen, Signal::CONT).unwrap();
    let synced = here.sync_all().map_err(|error| Errno::from_io_error(&error).unwrap());
    assert_eq!(synced, Err(Errno::IO), "it is there again, and whoever syncs is told so, once");
    here.sync_all().unwrap();
    for mount in [&a, &b] {
        assert_eq!(fs::read_to_string(mount.join(&path)).unwrap(), "mine and theirs");
        assert_eq!(names(mount.join(&path).parent().unwrap()), ["f"]);
    }
    // And who asks first may remove it.
    fs::remove_file(a.join(&path)).unwrap();
    assert!(fs::metadata(b.join(&path)).is_err());
}

/// Opens a file for reading and writing around the page cache.
fn direct(path: &Path) -> File {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    how.open(path).unwrap()
}

#[test]
fn a_file_is_cut_by_its_name_and_by_whoever_has_it_open() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let written = File::create(a.join("f")).unwrap();
    let seen = OpenOptions::new().append(true).open(b.join("f")).unwrap();
    let length = || [&written, &seen].map(|file| file.metadata().unwrap().len());
    written.write_all_at(&[1; 10_000], 0).unwrap();
    assert_eq!(length(), [10_000; 2]);
    written.set_len(5_000).unwrap();
    assert_eq!(length(), [5_000; 2]);
    seen.set_len(5).unwrap();
    assert_eq!(length(), [5; 2]);
    written.set_len(6_000).unwrap();
    assert_eq!(fs::read(b.join("f")).unwrap(), [&[1; 5][..], &[0; 5_995]].concat());
    File::create(b.join("f")).unwrap();
    assert_eq!(length(), [0; 2]);
}

/// Who has it open has it, though its name is another file's by then, and waits for nobody.
#[test]
fn what_is_replaced_while_it_is_opened_is_whole() {
    let Some(cluster) = Cluster::start() else { return };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let (name, other) = (mounts[0].join("f"), mounts[0].join("other"));
    let put = |number: u8| fs::write(&other, [number; 800]).and_then(|()| fs::rename(&other, &name)).unwrap();
    put(0);
    let is_over = Arc::new(AtomicBool::new(false));
    let (done, all_done) = mpsc::channel();
    for mount in &mounts {
        let (path, is_over, done) = (mount.join("f"), is_over.clone(), done.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                look_at_whole(&path);
            }
            done.send(())
        });
    }
    drop(done);
    for number in 0..=u8::MAX {
        (0..4).for_each(|_| put(number));
        fs::remove_file(&name).unwrap();
        put(number);
    }
    is_over.store(true, Ordering::Relaxed);
    for _ in mounts {
        all_done.recv_timeout(Duration::from_secs(60)).expect("it has what it asked for, and that is whole");
    }
}

fn look_at_whole(path: &Path) {
    let mut file = match File::open(path) {
        // It was taken away twice while it was looked for.
        Err(error) if [ErrorKind::NotFound, ErrorKind::StaleNetworkFileHandle].contains(&error.kind()) => {
            return;
        }
        file => file.unwrap(),
    };
    let length = file.metadata().unwrap().len();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert_eq!((length, content.len()), (800, 800));
    assert!(content.iter().all(|byte| *byte == content[0]));
}

/// After an asynchronous one Linux by itself cuts the file to the size that it knew last.
#[test]
fn after_a_direct_write_that_has_failed_a_file_is_cut_when_that_is_asked_for_again() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (first, second) = (direct(&a.join("f")), direct(&b.join("f")));
    first.write_all_at(&[1; 4_096], 0).unwrap();
    second.write_all_at(&[2; 4_096], 4_096).unwrap();
    second.sync_all().unwrap();
    let failed = first.write_all_at(&[3; 4_096], i64::MAX as u64 - 8_191).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::FileTooLarge, "{failed}");
    let both = [[1; 4_096], [2; 4_096]].concat();
    assert_eq!(fs::read(a.join("f")).unwrap(), both);
    // Before 6.6 Linux cuts by itself after this one, too, and is not told twice.
    if let Err(error) = rustix::fs::ftruncate(&first, 4_096) {
        assert_eq!(error, Errno::INTR);
        assert_eq!(fs::read(a.join("f")).unwrap(), both);
        rustix::fs::ftruncate(&first, 4_096).unwrap();
    }
    assert_eq!(fs::read(b.join("f")).unwrap(), [1; 4_096]);
}

#[test]
fn who_goes_around_the_page_cache_reads_and_writes_the_same_file() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (first, second) = (direct(&a.join("f")), direct(&b.join("f")));
    let mut block = [0; 4_096];
    for round in 1..=4 {
        first.write_all_at(&[round; 4_096], 4_096).unwrap();
        second.read_exact_at(&mut block, 4_096).unwrap();
        assert_eq!(block, [round; 4_096]);
        second.write_all_at(&[round + 100; 4_096], 0).unwrap();
        first.read_exact_at(&mut block, 0).unwrap();
        assert_eq!(block, [round + 100; 4_096]);
    }
    assert_eq!(fs::metadata(a.join("f")).unwrap().len(), 8_192);
}

#[test]
fn names_of_a_directory_that_was_synced_outlive_all_daemons() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::create_dir(a.join("d")).unwrap();
    for name in ["x", "y"] {
        File::create(a.join("d").join(name)).unwrap();
    }
    fs::rename(a.join("d/y"), a.join("d/z")).unwrap();
    File::open(a.join("d")).unwrap().sync_all().unwrap();
    cluster.kill_all();
    cluster.up();
    assert_eq!(names(&b.join("d")), ["x", "z"]);
}

#[test]
fn what_is_too_long_is_refused_by_its_number() {
    let Some(cluster) = Cluster::start() else { return };
    let point = cluster.mount("a");
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    fs::write(point.join(&longest), "").unwrap();
    let refused = |done: std::io::Result<()>| Errno::from_io_error(&done.unwrap_err()).unwrap();
    assert_eq!(refused(fs::write(point.join(&longer), "")), Errno::NAMETOOLONG);
    assert_eq!(refused(fs::create_dir(point.join(&longer))), Errno::NAMETOOLONG);
    assert_eq!(refused(fs::rename(point.join(&longest), point.join(&longer))), Errno::NAMETOOLONG);
    assert_eq!(refused(fs::metadata(point.join(&longer)).map(drop)), Errno::NAMETOOLONG);
    assert_eq!(refused(symlink("t".repeat(4_096), point.join("l"))), Errno::NAMETOOLONG);
    let set = |name: &str, bytes: usize| {
        rustix::fs::setxattr(point.join(&longest), name, &vec![1; bytes], XattrFlags::empty())
    };
    assert_eq!(set("user.a", 1_000), Ok(()));
    assert_eq!(set("user.b", 65_537), Err(Errno::TOOBIG));
    assert_eq!(set(&format!("user.{longest}"), 1), Err(Errno::RANGE));
}
