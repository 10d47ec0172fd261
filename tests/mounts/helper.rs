//! The link `mount.fleasefs`: how `mount -t fleasefs` and `/etc/fstab` mount a volume.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Cluster, is_mounted, is_root, said, until};

/// `mount` was called wrongly.
const USAGE: i32 = 1;
/// Nothing is mounted.
const FAILED: i32 = 32;

/// The link, as it is installed.
fn link(cluster: &Cluster) -> PathBuf {
    let link = cluster.dir().join("mount.fleasefs");
    symlink(env!("CARGO_BIN_EXE_fleasefs"), &link).unwrap();
    link
}

fn helper(link: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(link);
    command.args(args).stdin(Stdio::null()).env_remove("FLEASEFS_CLUSTER");
    command
}

#[test]
fn the_helper_returns_when_the_mount_answers() {
    let Some(cluster) = Cluster::start() else { return };
    let (link, point) = (link(&cluster), cluster.point("m"));
    let (spec, path) = (format!("{}:main", cluster.dir().display()), point.to_str().unwrap());
    let fake = helper(&link, &[&spec, path, "-f"]).output().unwrap();
    assert_eq!((fake.status.code(), is_mounted(&point)), (Some(0), false), "{}", said(&fake));
    let options = ["-sn", "-v", "-o", "rw,quick", "-o", "ro,nofail,_netdev,user", "-t", "fleasefs"];
    let done = helper(&link, &[[&spec, path].as_slice(), &options].concat()).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(is_mounted(&point));
    let refused = fs::write(point.join("a"), "hello").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let again = helper(&link, &[&spec, path]).output().unwrap();
    assert_eq!(again.status.code(), Some(FAILED));
    assert!(said(&again).contains("is mounted at"), "{}", said(&again));
}

#[test]
fn the_helper_tells_a_wrong_call_from_a_mount_that_failed() {
    let Some(cluster) = Cluster::start() else { return };
    let (link, point, dir) = (link(&cluster), cluster.point("m"), cluster.dir());
    let [dir, path] = [&dir, &point].map(|path| path.to_str().unwrap());
    let (unknown, nowhere) = (format!("{dir}:unknown"), format!("{path}/nowhere"));
    for (args, code, expected) in [
        (vec![], USAGE, "Usage: mount.fleasefs"),
        (vec![dir], USAGE, "<DIR>"),
        (vec![dir, path, "-x"], USAGE, "'-x'"),
        (vec![dir, path, "-o"], USAGE, "'-o <OPTIONS>'"),
        (vec![dir, path, "-o", "rw,quick"], USAGE, "there is no mount option `quick`"),
        (vec![dir, path, "-f", "-o", "quick"], USAGE, "there is no mount option `quick`"),
        (vec![path, path], FAILED, "no cluster at"),
        (vec![path, path, "-f"], FAILED, "no cluster at"),
        (vec![&unknown, path], FAILED, "there is no volume `unknown`"),
        (vec![dir, &nowhere], FAILED, "is not there; make it"),
    ] {
        let output = helper(&link, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{args:?}: {}", said(&output));
    }
    assert!(!is_mounted(&point));
}

#[test]
fn the_helper_waits_for_daemons_if_it_is_to() {
    let Some(cluster) = Cluster::start() else { return };
    let (link, point, dir) = (link(&cluster), cluster.point("m"), cluster.dir());
    let [dir, path] = [&dir, &point].map(|path| path.to_str().unwrap());
    cluster.run(&["down", dir]);
    let refused = helper(&link, &[dir, path]).output().unwrap();
    assert_eq!(refused.status.code(), Some(FAILED));
    assert!(said(&refused).contains("no daemon of the cluster answers"), "{}", said(&refused));
    let mut waiting = helper(&link, &[dir, path, "-o", "rw,wait"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(waiting.stderr.take().unwrap());
    until("it says that it waits", || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut told, &mut line).unwrap() > 0 && line.contains("trying again")
    });
    cluster.up();
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    fs::write(point.join("a"), "hello").unwrap();
}

/// Runs a script as whoever installs the link would, in a namespace that ends with it.
fn as_installed(cluster: &Cluster, script: &str) -> Output {
    let begin = "set -e; mount -t tmpfs none /sbin/; ln -s \"$FLEASEFS\" /sbin/mount.fleasefs\n";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]).arg(format!("{begin}{script}"));
    command.env("FLEASEFS", env!("CARGO_BIN_EXE_fleasefs")).env_remove("FLEASEFS_CLUSTER");
    command.current_dir(cluster.dir().parent().unwrap()).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn mount_finds_its_helper() {
    let Some(cluster) = is_root().then(Cluster::start).flatten() else { return };
    let point = cluster.point("m");
    let script = r#"
        mount -t fleasefs "$PWD/cluster:main" m -o allow_other,nodev
        test "$(findmnt -n -o FSTYPE,SOURCE m)" = "fuse.fleasefs $PWD/cluster:main"
        echo hello >m/a
        umount m
        mount -f -t fleasefs "$PWD/cluster:main" m
        if mountpoint -q m; then exit 9; fi
        mount -r -t fleasefs "$PWD/cluster" m
        cat m/a
        umount m
        code=0; mount -t fleasefs "$PWD/cluster:unknown" m || code=$?
        test $code = 32
        code=0; mount -t fleasefs "$PWD/cluster" m -o quick || code=$?
        test $code = 1
    "#;
    let output = as_installed(&cluster, script);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"hello\n", "{}", said(&output));
    assert!(said(&output).contains("there is no volume `unknown`"), "{}", said(&output));
    assert!(said(&output).contains("there is no mount option `quick`"), "{}", said(&output));
    assert!(!is_mounted(&point));
}

#[test]
fn fstab_says_what_is_mounted() {
    let Some(cluster) = is_root().then(Cluster::start).flatten() else { return };
    let (point, _) = (cluster.point("m"), cluster.point("other"));
    let folder = cluster.dir().parent().unwrap().display().to_string();
    let line = |point: &str, options: &str| {
        format!("{folder}/cluster:main {folder}/{point} fleasefs {options} 0 0\n")
    };
    let table = line("m", "ro,allow_other,_netdev,nofail,x-systemd.automount,wait")
        + &line("other", "noauto,user,suid,comment=more");
    fs::write(format!("{folder}/fstab"), table).unwrap();
    // What is mounted already is not mounted again.
    let script = r#"
        mount --fstab fstab --all
        mount --fstab fstab --all
        test "$(findmnt -n -o OPTIONS m | cut -d, -f1)" = ro
        mount --fstab fstab "$PWD/other"
        echo hello >other/a
        cat m/a
        umount m other
    "#;
    let output = as_installed(&cluster, script);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, b"hello\n", "{}", said(&output));
    assert!(!is_mounted(&point));
}
