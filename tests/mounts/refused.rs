//! What keeps a machine from mounting, and what is said about it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::support::{Cluster, is_root, said};

/// Whoever mounts is in a namespace of its own, in which these are defined: `user` and `root` run a program as them, and `FLEASEFS` is a place where both find
/// the program. `mine` is a client's folder of the user's, and a directory; `dev N` gives the machine a `/dev` with a device for FUSE of mode N.
const BEGIN: &str = r#"
    set -e
    touch fleasefs
    mount --bind "$PROGRAM" fleasefs
    cp "$(command -v setpriv)" setpriv
    mkdir -p mine/m theirs
    cp -r cluster/admin mine
    chown -R 65534:65534 mine
    FLEASEFS="$PWD/fleasefs"
    # The helper wants the user to have a name: it is nobody.
    user() { "$PWD/setpriv" --reuid=65534 --regid=65534 --clear-groups "$@"; }
    root() { "$@"; }
    dev() {
        mount -t tmpfs none /dev
        mknod -m 666 /dev/null c 1 3
        test -z "$1" || mknod -m "$1" /dev/fuse c 10 229
    }
"#;

/// What a mount says where a script has prepared something.
fn tried(cluster: &Cluster, prepare: &str, mount: &str) -> Output {
    let script = format!("{BEGIN}\n{prepare}\n{mount}\n");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]).arg(script).stdin(Stdio::null());
    command.env("PROGRAM", env!("CARGO_BIN_EXE_fleasefs")).env_remove("FLEASEFS_CLUSTER");
    command.current_dir(cluster.dir().parent().unwrap()).output().unwrap()
}

fn root_only() -> Option<Cluster> {
    let cluster = is_root().then(Cluster::start).flatten()?;
    // Others have to get to the program.
    fs::set_permissions(cluster.dir().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    Some(cluster)
}

fn assert_refused(cluster: &Cluster, (prepare, mount): (&str, &str), expected: &[&str]) {
    for background in ["", " --background"] {
        let output = tried(cluster, prepare, &format!("{mount}{background}"));
        assert_eq!(output.status.code(), Some(1), "{prepare}; {mount}: {}", said(&output));
        for words in expected {
            assert!(said(&output).contains(words), "{prepare}; {mount}: {}", said(&output));
        }
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    }
}

#[test]
fn a_device_that_is_closed_is_told_from_one_that_is_missing() {
    let Some(cluster) = root_only() else { return };
    let (root, user) = ("root $FLEASEFS mount cluster theirs", "user $FLEASEFS mount mine mine/m");
    let missing = ["/dev/fuse is missing", "modprobe fuse"];
    for mount in [root, user] {
        assert_refused(&cluster, ("dev ''", mount), &missing);
        // Something else is in its place.
        assert_refused(&cluster, ("mount --bind /dev/null /dev/fuse", mount), &missing);
    }
    let closed = ["/dev/fuse is there, but this process may not open it", "run as root, or allow"];
    assert_refused(&cluster, ("dev 600", user), &closed);
    // No device of that file system is one, as where a container may not use it.
    let kept = "dev 666; mkdir -p kept; mount -t tmpfs -o nodev none kept; mknod -m 666 kept/fuse c 10 229; \
                mount --bind kept/fuse /dev/fuse";
    assert_refused(&cluster, (kept, root), &closed);
}

#[test]
fn who_may_not_mount_is_told_what_is_missing() {
    let Some(cluster) = root_only() else { return };
    let mount = "user $FLEASEFS mount mine mine/m";
    // It is not for the folders that the others are refused.
    let output = tried(&cluster, "dev 666", &format!("{mount} --background; $FLEASEFS umount mine/m"));
    assert!(output.status.success(), "{}", said(&output));
    let without = "dev 666; mount -t tmpfs none /usr/bin";
    assert_refused(&cluster, (without, mount), &["needs root, or the program fusermount3", "package fuse3"]);
    let unable =
        "$PWD/setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin $FLEASEFS mount cluster theirs";
    for prepare in ["dev 666", without] {
        assert_refused(&cluster, (prepare, unable), &["CAP_SYS_ADMIN", "give it to the container"]);
    }
    let kept = "user $PWD/setpriv --no-new-privs $FLEASEFS mount mine mine/m";
    assert_refused(&cluster, ("dev 666", kept), &["CAP_SYS_ADMIN"]);
    let said_nothing = "dev 666; test ! -e /etc/fuse.conf || mount --bind /dev/null /etc/fuse.conf";
    let others = format!("{mount} -oallow_other");
    assert_refused(&cluster, (said_nothing, &others), &["user_allow_other", "/etc/fuse.conf"]);
}

/// FUSE lets nobody but its owner ask a mount that is not for others.
#[test]
fn root_waits_for_what_a_user_has_written_and_takes_away_what_a_users_mount_left() {
    let Some(cluster) = root_only() else { return };
    let theirs = cluster.mount("m").join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
    // Its process is known by its arguments, which it has as long as it runs.
    let script = r#"
        process() {
            for each in /proc/[0-9]*; do
                if tr '\0' ' ' 2>&1 <"$each/cmdline" | grep -qF " $PWD/mine/m "; then echo "${each#/proc/}"; fi
            done
        }
        mount_theirs() { user "$FLEASEFS" mount "$PWD/mine" "$PWD/mine/m" --background; }
        mount_theirs
        test -n "$(process)"
        user cp fleasefs mine/m/theirs/a
        root "$FLEASEFS" umount mine/m
        test -z "$(process)"
        mount_theirs
        cmp fleasefs mine/m/theirs/a 2>&1 | grep -qF 'Permission denied'
        kill -KILL $(process)
        while test -n "$(process)"; do sleep 0.01; done
        root "$FLEASEFS" umount mine/m
    "#;
    let output = tried(&cluster, "dev 666", script);
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("had lost its process"), "{output:?}");
    let copied = theirs.join("a");
    assert_eq!(
        fs::metadata(copied).unwrap().len(),
        fs::metadata(env!("CARGO_BIN_EXE_fleasefs")).unwrap().len()
    );
}

#[test]
fn who_may_not_use_a_directory_or_a_key_is_told_which() {
    let Some(cluster) = root_only() else { return };
    let directory = ["/theirs, as who mounts on it has to", "may not read and write"];
    for mode in ["755", "700", "733"] {
        let prepare = format!("dev 666; chmod {mode} theirs");
        assert_refused(&cluster, (&prepare, "user $FLEASEFS mount mine theirs"), &directory);
    }
    let inside = ("dev 666; chmod 700 theirs; mkdir -p theirs/m", "user $FLEASEFS mount mine theirs/m");
    assert_refused(&cluster, inside, &["/theirs/m, as who mounts on it has to"]);
    for (prepare, file) in [
        ("chown 0 mine/admin/key.pem", "/mine/admin/key.pem"),
        ("chown 0 mine/admin; chmod 700 mine/admin", "/mine/admin/client.toml"),
    ] {
        let expected = ["cannot read ", file, "Permission denied", "; check the path and who owns the file"];
        assert_refused(&cluster, (prepare, "user $FLEASEFS mount mine mine/m"), &expected);
    }
    assert_refused(
        &cluster,
        ("chmod 644 mine/admin/key.pem", "user $FLEASEFS mount mine mine/m"),
        &["/mine/admin/key.pem holds a private key", "chmod 600"],
    );
}
