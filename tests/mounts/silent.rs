//! A mount of which the daemons hear nothing for so long that they take it for dead.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cluster, is_root, said};

/// Set for the process that the test is in.
const ALONE: &str = "FLEASEFS_TEST_ALONE";
/// Longer than daemons wait for a client.
const SILENCE: Duration = Duration::from_secs(130);

const MADE: usize = 8;

/// Does it in a process of its own: a program that another test starts meanwhile would close what is open here, which waits for the frozen mount.
fn alone(test: &str, act: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return act();
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let name = format!("silent::{test}");
    let output = alone.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_mount_that_was_silent_for_long_goes_on_as_somebody_else() {
    alone("a_mount_that_was_silent_for_long_goes_on_as_somebody_else", is_silent_and_goes_on);
}

#[test]
fn a_mount_that_was_silent_for_long_tells_what_is_lost_of_what_was_written() {
    alone("a_mount_that_was_silent_for_long_tells_what_is_lost_of_what_was_written", is_silent_and_tells);
}

#[test]
fn a_mount_that_was_silent_for_long_tells_by_each_descriptor_what_is_lost() {
    alone("a_mount_that_was_silent_for_long_tells_by_each_descriptor_what_is_lost", is_silent_and_tells_each);
}

/// What it was told is written the daemons had in memory alone when their power failed.
fn is_silent_and_tells() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, (b, silent), memos) = (cluster.mount("a"), cluster.mount_in_front("b"), cluster.memos());
    let (file, dir) = (File::create(b.join("written")).unwrap(), File::open(&b).unwrap());
    let other = File::create(b.join("other")).unwrap();
    fs::rename(b.join("other"), b.join("renamed")).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    assert_eq!(fs::read_to_string(a.join("written")).unwrap(), "written", "the daemons have it");
    lose_power_in_silence(&cluster, (&a, silent), &memos);
    for synced in [file.sync_all(), dir.sync_all(), other.sync_all()] {
        assert_io(&synced.unwrap_err());
    }
    // Whoever was told writes it again.
    file.write_all_at(b"written", 0).unwrap();
    [file, dir, other].iter().for_each(|file| file.sync_all().unwrap());
}

fn is_silent_and_tells_each() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, (b, silent), memos) = (cluster.mount("a"), cluster.mount_in_front("b"), cluster.memos());
    let [open, closed, synced] = ["open", "closed", "synced"];
    let open_in =
        |dir: &Path, name: &str| OpenOptions::new().read(true).write(true).open(dir.join(name)).unwrap();
    let all = [open, closed, synced].map(|name| File::create(b.join(name)).unwrap());
    // What several write to goes to the daemons at once, and changes no names.
    let [theirs, ours] = [&a, &b].map(|dir| [open, closed].map(|name| open_in(dir, name)));
    let write_all = || [&theirs, &ours, &theirs, &ours].iter().for_each(|both| write(both));
    write_all();
    all.iter().for_each(|file| file.sync_all().unwrap());
    drop(all);
    write_all();
    let [first, was_closed] = ours;
    let second = open_in(&b, open);
    drop(was_closed);
    lose_power_in_silence(&cluster, (&a, silent), &memos);
    let synced = open_in(&b, synced);
    synced.sync_all().unwrap();
    let told = [open_in(&b, open), open_in(&b, closed), first, second];
    told.iter().for_each(|file| assert_io(&file.sync_all().unwrap_err()));
    told.iter().for_each(|file| file.sync_all().unwrap());
    [open, closed].iter().for_each(|name| open_in(&b, name).sync_all().unwrap());
}

fn write(files: &[File; 2]) {
    files.iter().for_each(|file| file.write_all_at(b"written", 0).unwrap());
}

/// The daemons take a mount for dead, and what they had in memory alone is lost.
fn lose_power_in_silence(cluster: &Cluster, (other, silent): (&Path, Pid), memos: &[PathBuf]) {
    kill_process(silent, Signal::STOP).unwrap();
    cluster.lose_power(memos);
    std::thread::sleep(SILENCE);
    fs::write(other.join("new"), "new").unwrap();
    kill_process(silent, Signal::CONT).unwrap();
}

fn assert_io(error: &std::io::Error) {
    assert_eq!(Errno::from_io_error(error), Some(Errno::IO));
}

/// A user who has a file open that he may not open any more, and writes to it when he is told to.
fn seal(path: &Path) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4001", "--regid=4002", "--clear-groups", "sh", "-ec"]);
    command.arg("exec 3>$0; chmod 0 $0; echo .; read line || true; printf behind >&3");
    let mut user = command.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    user.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    user
}

fn is_silent_and_goes_on() {
    let Some(cluster) = Cluster::start() else { return };
    // Only root can have somebody else use a mount.
    let options: &[&str] = if is_root() { &["-oallow_other"] } else { &[] };
    let (a, (b, silent)) = (cluster.mount("a"), cluster.mount_in_front_with("b", options));
    let sealed = is_root().then(|| {
        let public = fs::Permissions::from_mode(0o777);
        [cluster.dir().parent().unwrap(), &b]
            .iter()
            .for_each(|dir| fs::set_permissions(dir, public.clone()).unwrap());
        seal(&b.join("sealed"))
    });
    let open = |name: &str| {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).open(b.join(name)).unwrap()
    };
    let [named, nameless, locked] = ["named", "nameless", "locked"].map(open);
    let dirs = [&b, &b].map(|dir| File::open(dir).unwrap());
    named.write_all_at(b"before", 0).unwrap();
    named.sync_all().unwrap();
    nameless.write_all_at(b"before", 0).unwrap();
    fs::remove_file(b.join("nameless")).unwrap();
    locked.lock().unwrap();
    let theirs = OpenOptions::new().read(true).write(true).open(a.join("locked")).unwrap();
    assert!(theirs.try_lock().is_err());
    // Of what several write to the size is asked of its content.
    [&locked, &theirs, &locked].iter().for_each(|file| file.write_all_at(b"both", 0).unwrap());
    let unsent = open("unsent");
    unsent.write_all_at(b"unsent", 0).unwrap();
    // It creates these by itself, and may not come to say so.
    fs::create_dir(b.join("made")).unwrap();
    (0..MADE).for_each(|number| drop(File::create(b.join(format!("made/{number}"))).unwrap()));
    kill_process(silent, Signal::STOP).unwrap();
    // Whoever waits for the lock has it when the other one is taken for dead.
    std::thread::scope(|scope| {
        scope.spawn(|| theirs.lock().unwrap());
        std::thread::sleep(SILENCE);
    });
    fs::write(a.join("new"), "new").unwrap();
    kill_process(silent, Signal::CONT).unwrap();
    // What has a name goes on, open or not.
    assert_eq!(fs::read_to_string(b.join("new")).unwrap(), "new");
    fs::write(b.join("mine"), "mine").unwrap();
    assert_eq!(fs::read_to_string(a.join("mine")).unwrap(), "mine");
    named.write_all_at(b"behind", 0).unwrap();
    let had_open = [&dirs[0], &dirs[1], &named];
    let synced = had_open.map(File::sync_all);
    if fs::read_dir(a.join("made")).unwrap().count() < MADE {
        synced.iter().for_each(|synced| assert_io(synced.as_ref().unwrap_err()));
    }
    had_open.iter().for_each(|open| open.sync_all().unwrap());
    assert_eq!(fs::read_to_string(a.join("named")).unwrap(), "behind");
    // What was not sent is lost, and whoever syncs is told so, once.
    if let Err(error) = unsent.sync_all() {
        assert_io(&error);
        unsent.write_all_at(b"unsent", 0).unwrap();
        unsent.sync_all().unwrap();
    }
    assert_eq!(fs::read_to_string(a.join("unsent")).unwrap(), "unsent");
    // Who may write to it was asked when it was opened.
    if let Some(mut sealed) = sealed {
        drop(sealed.stdin.take());
        assert!(sealed.wait().unwrap().success());
        assert_eq!(fs::read_to_string(a.join("sealed")).unwrap(), "behind");
    }
    // What has none is gone.
    let gone = nameless.read_at(&mut [0; 6], 0).unwrap_err();
    assert_eq!(Errno::from_io_error(&gone), Some(Errno::STALE));
    assert_lock_is_lost(&b.join("locked"), locked, &theirs);
}

/// What was locked somebody else may have changed meanwhile.
fn assert_lock_is_lost(path: &Path, locked: File, theirs: &File) {
    let lost = locked.write_at(b"mine", 0).unwrap_err();
    assert_io(&lost);
    // That is for whoever had locked it.
    assert_eq!(fs::metadata(path).unwrap().len(), 4);
    assert_eq!(fs::read_to_string(path).unwrap(), "both");
    drop(locked);
    let again = OpenOptions::new().read(true).write(true).open(path).unwrap();
    assert_eq!(
        again.try_lock().map_err(|error| std::io::Error::from(error).kind()),
        Err(ErrorKind::WouldBlock)
    );
    theirs.unlock().unwrap();
    again.lock().unwrap();
}
