//! The lock of a data directory and other processes. A test program of its own: a child that is just being started
//! holds every lock of its parent for an instant, and would disturb other tests.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use base::{ClusterId, NodeId};
use osd::store::{Owner, Store};

#[test]
fn the_lock_passes_to_no_child() {
    let owner = Owner { cluster: ClusterId([1; 16]), node: NodeId(1) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let store = Store::open(&path, owner).unwrap();
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"running\n").unwrap();
    let mut echo = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut echo).unwrap();
    assert_eq!(echo, "running\n");

    // Had the child inherited the lock, the directory would stay locked as long as it runs.
    drop(store);
    let again = Store::open(&path, owner);
    drop(input);
    child.wait().unwrap();
    assert!(again.is_ok(), "{:?}", again.err());
}
