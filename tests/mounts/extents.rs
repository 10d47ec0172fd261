//! Room in files, holes in them, their ends, and copies from one to the other.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::life::map;
use crate::support::Cluster;

const BLOCK: u64 = 4 << 10;
const BLOCK_LEN: usize = 4 << 10;
const MIB: u64 = 1 << 20;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn room_is_made_and_reads_as_zeros() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (on_a, on_b) = (a.join("f"), b.join("f"));
    let file = open(&on_a);
    (&file).write_all(b"abc").unwrap();
    fallocate(&file, FallocateFlags::empty(), 1, 9_999).unwrap();
    let mut expected = vec![0; 10_000];
    expected[..3].copy_from_slice(b"abc");
    assert!(fs::read(&on_b).unwrap() == expected);
    // Nothing is cut, and nothing is longer than it was said to be.
    fallocate(&file, FallocateFlags::empty(), 0, 5_000).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 50_000).unwrap();
    assert_eq!((length(&on_a), length(&on_b)), (10_000, 10_000));
    fallocate(&file, FallocateFlags::ZERO_RANGE, 2, 19_998).unwrap();
    expected.resize(20_000, 0);
    expected[2] = 0;
    assert!(fs::read(&on_a).unwrap() == expected && fs::read(&on_b).unwrap() == expected);
    // Where both write it is made by the daemons.
    let other = open(&on_b);
    for round in 0..10_u64 {
        let text = [u8::try_from(round + 1).unwrap(); 7];
        other.write_all_at(&text, 20_000 + round * 100).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 20_050 + round * 100).unwrap();
        fallocate(&other, FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
        assert_eq!((length(&on_a), length(&on_b)), (20_050 + round * 100, 20_050 + round * 100));
        let mut read = [0; 50];
        file.read_exact_at(&mut read, 20_000 + round * 100).unwrap();
        assert!(read[..7] == text && read[7..] == [0; 43]);
    }
    assert_eq!(fallocate(&file, FallocateFlags::empty(), (1 << 63) - 11, 10), Err(Errno::FBIG));
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, BLOCK), Err(Errno::OPNOTSUPP));
}

#[test]
fn what_is_made_room_for_cuts_off_nothing_that_another_appends() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (made, ends) = (open(&a.join("f")), AtomicBool::new(false));
    let appended = std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let mut log = OpenOptions::new().append(true).create(true).open(b.join("f")).unwrap();
            let mut count = 0;
            while !ends.load(Ordering::Relaxed) {
                log.write_all(&[1; 100]).unwrap();
                count += 1;
            }
            count
        });
        for _ in 0..200 {
            let length = length(&a.join("f"));
            fallocate(&made, FallocateFlags::empty(), 0, length + 50).unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        appender.join().unwrap()
    });
    let content = fs::read(b.join("f")).unwrap();
    assert_eq!(content.iter().filter(|&&byte| byte == 1).count(), 100 * appended);
}

/// Where data begins, or a hole, from a place on.
fn data(file: &File, from: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Data(from))
}

fn hole(file: &File, from: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Hole(from))
}

#[test]
fn holes_are_found_by_who_looks_for_them() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let file = open(&a.join("f"));
    assert_eq!((data(&file, 0), hole(&file, 0)), (Err(Errno::NXIO), Err(Errno::NXIO)), "it is empty");
    file.set_len(4 * MIB).unwrap();
    assert_eq!((data(&file, 0), hole(&file, 5)), (Err(Errno::NXIO), Ok(5)));
    // On the first mount it may not be sent yet.
    file.write_all_at(&[1; 2 * BLOCK_LEN], 0).unwrap();
    file.write_all_at(b"some", MIB).unwrap();
    let seen = open(&b.join("f"));
    for file in [&file, &seen, &file] {
        assert_eq!((data(file, 0), hole(file, 0)), (Ok(0), Ok(2 * BLOCK)));
        assert_eq!((data(file, 77), hole(file, 77)), (Ok(77), Ok(2 * BLOCK)));
        assert_eq!((data(file, 2 * BLOCK), hole(file, 2 * BLOCK)), (Ok(MIB), Ok(2 * BLOCK)));
        assert_eq!((data(file, MIB + 2), hole(file, MIB + 2)), (Ok(MIB + 2), Ok(MIB + BLOCK)));
        assert_eq!((data(file, MIB + BLOCK), hole(file, MIB + BLOCK)), (Err(Errno::NXIO), Ok(MIB + BLOCK)));
        assert_eq!((data(file, 4 * MIB), hole(file, 4 * MIB)), (Err(Errno::NXIO), Err(Errno::NXIO)));
    }
    // Where both write.
    seen.write_all_at(&[1; BLOCK_LEN], 3 * MIB).unwrap();
    file.write_all_at(&[1; BLOCK_LEN], 4 * MIB - BLOCK).unwrap();
    fallocate(&seen, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BLOCK).unwrap();
    for file in [&file, &seen] {
        assert_eq!((data(file, 0), hole(file, 0)), (Ok(BLOCK), Ok(0)));
        assert_eq!((data(file, MIB + BLOCK), hole(file, 3 * MIB)), (Ok(3 * MIB), Ok(3 * MIB + BLOCK)));
        // There is always one at the end.
        assert_eq!(hole(file, 4 * MIB - 3), Ok(4 * MIB));
    }
}

#[test]
fn what_was_written_through_a_mapping_is_no_hole() {
    let Some(cluster) = Cluster::start() else { return };
    let a = cluster.mount("a");
    let file = open(&a.join("f"));
    file.set_len(MIB).unwrap();
    map(&file, b"mapped");
    assert_eq!((data(&file, 0), hole(&file, 0)), (Ok(0), Ok(BLOCK)));
}

#[test]
fn copies_are_of_what_the_other_has_written() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (written, seen) = (open(&a.join("f")), open(&b.join("f")));
    for round in 0..20_u8 {
        written.write_all_at(&[round; 10_000], 0).unwrap();
        let copy = open(&b.join(format!("copy {round}")));
        // The kernel copies no further than it knows the file to be, and is told how long that is when somebody asks, as `cp` does.
        assert_eq!(seen.metadata().unwrap().len(), 10_000);
        let (mut from, mut to) = (1, 5);
        let copied = copy_file_range(&seen, Some(&mut from), &copy, Some(&mut to), 20_000).unwrap();
        assert_eq!(copied, 9_999, "what is there");
        let content = fs::read(a.join(format!("copy {round}"))).unwrap();
        assert!(content[..5] == [0; 5] && content[5..] == [round; 9_999]);
    }
    // More than is done at once.
    let long: Vec<u8> = (0..20 * MIB + 77).map(|at| u8::try_from(at / 4_099 % 251).unwrap()).collect();
    fs::write(a.join("long"), &long).unwrap();
    assert_eq!(fs::copy(b.join("long"), b.join("copy of long")).unwrap(), long.len() as u64);
    assert!(fs::read(a.join("copy of long")).unwrap() == long);
}

#[test]
fn the_end_of_a_file_is_where_others_have_put_it() {
    const ROUNDS: u64 = 400;
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    fs::write(a.join("f"), "").unwrap();
    let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = OpenOptions::new().append(true).open(a.join("f")).unwrap();
            for round in 0..ROUNDS {
                log.write_all(b"0123456789").unwrap();
                written.fetch_add(10, Ordering::SeqCst);
                if round % 4 == 0 {
                    // What is not lent is believed, until this ends it.
                    let mode = if round % 8 == 0 { 0o600 } else { 0o644 };
                    fs::set_permissions(a.join("f"), PermissionsExt::from_mode(mode)).unwrap();
                }
            }
            ends.store(true, Ordering::SeqCst);
        });
        // Opening asks for the size, too: of two such questions that are on their way the kernel takes in the first reply, whichever that is. To
        // look for the end it asks one after the other.
        for seen in [File::open(b.join("f")).unwrap(), File::open(b.join("f")).unwrap()] {
            let (written, ends) = (&written, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    let before = written.load(Ordering::SeqCst);
                    let end = seek(&seen, SeekFrom::End(0)).unwrap();
                    // One more append may be under way.
                    let after = written.load(Ordering::SeqCst) + 10;
                    assert!((before..=after).contains(&end), "{end} is not from {before} to {after}");
                }
            });
        }
    });
    assert_eq!(seek(File::open(b.join("f")).unwrap(), SeekFrom::End(-5)), Ok(ROUNDS * 10 - 5));
}
