//! The null file system through the kernel, or, where the machine does not let us mount, the message that says so.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use client_fuse::{BIG_FILE_BYTES, BIG_FILE_NAME, MountError, NullMount};

/// What the kernel has mounted, one per line.
fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

fn use_every_operation(root: &Path) {
    let path = root.join("new");
    let mut file = fs::File::create_new(&path).unwrap();
    file.write_all(&[1; 5000]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 5000);
    drop(file);

    assert!(fs::File::create_new(&path).is_err(), "a name that exists cannot be new");
    let names: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [BIG_FILE_NAME, "new"]);
    assert_eq!(fs::File::create(&path).unwrap().metadata().unwrap().len(), 0, "opening truncated it");

    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);

    let mut big = Vec::new();
    fs::File::open(root.join(BIG_FILE_NAME)).unwrap().read_to_end(&mut big).unwrap();
    assert_eq!(big.len() as u64, BIG_FILE_BYTES);
    assert!(big.iter().all(|byte| *byte == 0));
}

/// Why mounting is impossible must be one of the causes we know how to cure, and it must be true.
fn check_excuse(error: &MountError) {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    match error {
        MountError::NoDevice => assert!(!Path::new("/dev/fuse").exists()),
        MountError::NotPermitted => assert!(device.is_err()),
        MountError::NoHelper => assert!(error.to_string().contains("fuse3"), "{error}"),
        MountError::Point(_) | MountError::Refused(_) => {
            panic!("no clear reason: {error}")
        }
        // The device was opened, so it is the kernel that says no.
        MountError::NoCapability => assert!(device.is_ok()),
        MountError::NoPoint(_)
        | MountError::NotDirectory(_)
        | MountError::Busy { .. }
        | MountError::NoRight(_)
        | MountError::Dead(_) => {
            panic!("it has a directory of its own: {error}")
        }
    }
}

#[test]
fn the_null_file_system_works_and_leaves_nothing_or_says_why_not() {
    let mount = match NullMount::new() {
        Ok(mount) => mount,
        Err(error) => return check_excuse(&error),
    };
    let path = mount.path().to_owned();
    let name = path.display().to_string();
    assert!(mounts().contains(&name));
    use_every_operation(&path);
    drop(mount);
    assert!(!mounts().contains(&name), "still mounted");
    assert!(!path.exists(), "the mount point stayed");
}

#[test]
fn a_mount_in_use_goes_away_too() {
    let mount = match NullMount::new() {
        Ok(mount) => mount,
        Err(error) => return check_excuse(&error),
    };
    let path = mount.path().to_owned();
    let mut open = fs::File::create_new(path.join("open")).unwrap();
    // The mount leaves the tree at once; the open file is served until it is closed.
    drop(mount);
    assert!(!mounts().contains(&path.display().to_string()), "still mounted");
    open.write_all(b"still served").unwrap();
    assert!(!path.exists(), "the mount point stayed");
}
