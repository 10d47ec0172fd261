//! Locks between programs on two mounts of one volume.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cluster, PATIENCE, said, until, until_it_waits};

/// Time enough for whoever waits to have begun to.
const A_WHILE: Duration = Duration::from_millis(300);

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// `fcntl` on all of a file, without waiting.
fn try_fcntl(file: &File) -> Result<(), Errno> {
    fcntl_lock(file, FlockOperation::NonBlockingLockExclusive)
}

fn is_locked(file: &File) -> bool {
    match file.try_lock() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => panic!("{error}"),
    }
}

/// A program of the system's, if it is there.
fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        let told = format!("not tested: this machine has no {name}\n");
        // Said where a passing test says something.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes());
    }
    found
}

/// A process that waits for a lock of a file, and then creates another file.
fn waiter(program: &Path, path: &Path, then: &Path) -> Child {
    Command::new(program).arg(path).arg("touch").arg(then).stdin(Stdio::null()).spawn().unwrap()
}

/// A process that has locked all of a file by `fcntl`, and closes it when its input ends.
fn holder(perl: &Path, path: &Path) -> Child {
    // `F_SETLK` with a `struct flock`: `F_WRLCK` of all.
    let script = "open(F, '+<', $ARGV[0]) or die; $l = pack('s s x4 q q i x4', 1, 0, 0, 0, 0); fcntl(F, 6, $l) or die; \
                  $| = 1; print '.'; <STDIN>; close(F)";
    let mut command = Command::new(perl);
    command.args(["-e", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    holder
}

#[test]
fn flock_and_fcntl_hold_between_mounts_and_do_not_see_each_other() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (on_a, on_b) = (open(&a.join("f")), open(&b.join("f")));
    on_a.lock().unwrap();
    assert!(is_locked(&on_b));
    // The other kind is free, for both.
    assert_eq!(try_fcntl(&on_b), Ok(()));
    assert_eq!(try_fcntl(&on_a), Err(Errno::AGAIN));
    // Each is given up by itself.
    fcntl_lock(&on_b, FlockOperation::Unlock).unwrap();
    assert_eq!(try_fcntl(&on_a), Ok(()));
    assert!(is_locked(&on_b));
    on_a.unlock().unwrap();
    assert!(!is_locked(&on_b));
    assert_eq!(try_fcntl(&on_b), Err(Errno::AGAIN));
    on_b.unlock().unwrap();
    // Several may read.
    on_a.lock_shared().unwrap();
    on_b.lock_shared().unwrap();
    assert!(is_locked(&open(&a.join("f"))));
}

#[test]
fn a_lock_goes_with_the_last_descriptor_or_with_any() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    for _ in 0..20 {
        let (on_a, on_b) = (open(&a.join("f")), open(&b.join("f")));
        // What belongs to a description goes with its last descriptor, and whoever comes next has it at once.
        on_a.lock().unwrap();
        let again = on_a.try_clone().unwrap();
        drop(on_a);
        assert!(is_locked(&on_b));
        drop(again);
        assert!(!is_locked(&open(&a.join("f"))), "on this machine it is closed before");
        // What belongs to a process goes with any.
        let (first, second) = (open(&a.join("f")), open(&a.join("f")));
        try_fcntl(&first).unwrap();
        assert_eq!(try_fcntl(&on_b), Err(Errno::AGAIN));
        drop(second);
        assert_eq!(try_fcntl(&on_b), Ok(()));
        fcntl_lock(&on_b, FlockOperation::Unlock).unwrap();
        // What was locked anew by another descriptor stays when the first one goes.
        try_fcntl(&first).unwrap();
        let third = open(&a.join("f"));
        drop(first);
        try_fcntl(&third).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(try_fcntl(&on_b), Err(Errno::AGAIN));
    }
}

/// The process that has locked the first byte of a file; 0 if nobody says which.
fn who_locked(file: &File) -> Option<i32> {
    use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
    let wanted = Flock {
        start: 0,
        length: 1,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    fcntl_getlk(file, &wanted).unwrap().map(|lock| lock.pid.map_or(0, |pid| pid.as_raw_nonzero().get()))
}

#[test]
fn who_has_locked_a_file_is_named_on_its_own_mount() {
    let Some(cluster) = Cluster::start() else { return };
    let Some(perl) = program("perl") else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let (on_a, on_b) = (open(&a.join("f")), open(&b.join("f")));
    assert_eq!((who_locked(&on_a), who_locked(&on_b)), (None, None));
    let mut holder = holder(&perl, &a.join("f"));
    assert_eq!(who_locked(&on_a), Some(i32::try_from(holder.id()).unwrap()));
    assert_eq!(who_locked(&on_b), Some(0), "it is a process of another mount");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert_eq!((who_locked(&on_a), who_locked(&on_b)), (None, None));
}

#[test]
fn what_a_process_gives_up_is_free_although_it_is_killed_before_daemons_know_it() {
    let Some(cluster) = Cluster::start() else { return };
    let Some(perl) = program("perl") else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let on_b = open(&b.join("f"));
    let mut holder = holder(&perl, &a.join("f"));
    assert_eq!(try_fcntl(&on_b), Err(Errno::AGAIN));
    cluster.kill_all();
    drop(holder.stdin.take());
    until_it_waits(&holder);
    holder.kill().unwrap();
    holder.wait().unwrap();
    cluster.up();
    until("it is given up", || try_fcntl(&on_b).is_ok());
}

#[test]
fn who_waits_for_a_lock_has_it_when_it_is_given_up_and_daemons_may_die_meanwhile() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let on_a = open(&a.join("f"));
    on_a.lock().unwrap();
    let (has, had) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let on_b = open(&b.join("f"));
            on_b.lock().unwrap();
            has.send(()).unwrap();
        });
        cluster.kill_and_wait(1);
        cluster.kill_and_wait(2);
        assert!(had.recv_timeout(A_WHILE).is_err(), "it is somebody else's");
        on_a.unlock().unwrap();
        had.recv_timeout(PATIENCE).unwrap();
    });
}

#[test]
fn a_signal_ends_a_wait_and_nothing_is_locked_by_it() {
    let Some(cluster) = Cluster::start() else { return };
    let Some(flock) = program("flock") else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let on_a = open(&a.join("f"));
    on_a.lock().unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut waits = waiter(&flock, &b.join("f"), &b.join("had"));
        std::thread::sleep(A_WHILE);
        assert!(waits.try_wait().unwrap().is_none());
        kill_process(Pid::from_child(&waits), signal).unwrap();
        let begun = Instant::now();
        waits.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{signal:?}: {:?}", begun.elapsed());
    }
    // Whoever is only stopped goes on waiting afterwards.
    let mut waits = waiter(&flock, &b.join("f"), &b.join("had"));
    std::thread::sleep(A_WHILE);
    kill_process(Pid::from_child(&waits), Signal::STOP).unwrap();
    std::thread::sleep(A_WHILE);
    kill_process(Pid::from_child(&waits), Signal::CONT).unwrap();
    std::thread::sleep(A_WHILE);
    assert!(!b.join("had").exists());
    on_a.unlock().unwrap();
    assert!(waits.wait().unwrap().success());
    assert!(a.join("had").exists());
    assert!(!is_locked(&on_a));
}

/// Who handles a signal goes on without the lock, and is told so.
#[test]
fn a_signal_that_is_handled_interrupts_who_waits_for_a_lock() {
    let Some(cluster) = Cluster::start() else { return };
    let Some(perl) = program("perl") else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let on_a = open(&a.join("f"));
    fcntl_lock(&on_a, FlockOperation::LockExclusive).unwrap();
    // `F_SETLKW` with a `struct flock`: `F_WRLCK` of all. A signal that came before the wait began would interrupt nothing, so there are more.
    let script = "$SIG{ALRM} = sub { alarm 1 }; open(F, '+<', $ARGV[0]) or die; alarm 1; \
                  $l = pack('s s x4 q q i x4', 1, 0, 0, 0, 0); print fcntl(F, 7, $l) ? 'locked' : $!{EINTR} ? 'interrupted' : $!";
    let mut command = Command::new(perl);
    command.args(["-e", script]).arg(b.join("f")).stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "interrupted", "{}", said(&output));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // Nothing of that wait is left.
    fcntl_lock(&on_a, FlockOperation::Unlock).unwrap();
    assert_eq!(try_fcntl(&open(&b.join("f"))), Ok(()));
}

#[test]
fn a_circle_of_waits_is_refused() {
    let Some(cluster) = Cluster::start() else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let [first, second] = ["x", "y"].map(|name| (open(&a.join(name)), open(&b.join(name))));
    let lock = |file: &File| fcntl_lock(file, FlockOperation::LockExclusive);
    lock(&first.0).unwrap();
    lock(&second.1).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock(&second.0));
        std::thread::sleep(A_WHILE);
        assert_eq!(lock(&first.1), Err(Errno::DEADLK));
        fcntl_lock(&second.1, FlockOperation::Unlock).unwrap();
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_mount_that_ends_gives_its_locks_up() {
    let Some(cluster) = Cluster::start() else { return };
    let (b, (a, mount)) = (cluster.mount("b"), cluster.mount_in_front("a"));
    let (on_a, on_b) = (open(&a.join("f")), open(&b.join("f")));
    on_a.lock().unwrap();
    assert!(is_locked(&on_b));
    // The second signal does not wait for who has something open.
    kill_process(mount, Signal::TERM).unwrap();
    until("it is not in the tree", || !crate::support::is_mounted(&a));
    kill_process(mount, Signal::TERM).unwrap();
    cluster.wait_for(mount);
    until("the lock is free", || !is_locked(&on_b));
}

/// What a program has locked by a process, an open description and a stretch of bytes, which the standard library has no words for.
#[test]
fn stretches_and_descriptions_are_locked_as_anywhere_else() {
    const SCRIPT: &str = r"
import fcntl, os, struct, sys
a, b = (os.open(os.path.join(dir, 'f'), os.O_RDWR | os.O_CREAT) for dir in sys.argv[1:])
def lock(fd, kind, start, length, command=fcntl.F_SETLK):
    asked = struct.pack('hhqqi4x', kind, 0, start, length, 0)
    return struct.unpack('hhqqi4x', fcntl.fcntl(fd, command, asked))
def refused(*args):
    try:
        lock(*args)
    except BlockingIOError:
        return True
    return False
W, R, U = fcntl.F_WRLCK, fcntl.F_RDLCK, fcntl.F_UNLCK
lock(a, W, 0, 100)
assert refused(b, W, 50, 100)
lock(b, W, 100, 100)
assert refused(a, R, 150, 0)
kind, _, start, length, _ = lock(b, W, 0, 0, fcntl.F_GETLK)
assert (kind, start, length) == (W, 0, 100), (kind, start, length)
assert lock(b, W, 200, 0, fcntl.F_GETLK)[0] == U
lock(a, U, 0, 50)
lock(b, R, 0, 50)
lock(a, R, 0, 50)
assert refused(a, W, 0, 50)
lock(b, U, 0, 0)
lock(a, W, 0, 0)
# To the end, wherever that is.
assert refused(b, R, 1 << 40, 1)
lock(a, U, 0, 0)
# Of descriptions: two of one process are in each other's way, and closing one does not give up the other's.
OFD = 37
c = os.open(os.path.join(sys.argv[1], 'f'), os.O_RDWR)
lock(a, W, 0, 10, OFD)
assert refused(c, W, 5, 10, OFD) and refused(b, W, 5, 10)
os.close(c)
assert refused(b, W, 5, 10)
fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
# With the last descriptor it goes, and the kernel says so after that is closed.
os.close(a)
lock(b, W, 5, 10, fcntl.F_SETLKW)
";
    let Some(cluster) = Cluster::start() else { return };
    let Some(python) = program("python3") else { return };
    let (a, b) = (cluster.mount("a"), cluster.mount("b"));
    let output = Command::new(python).args(["-c", SCRIPT]).arg(&a).arg(&b).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn two_mounts_share_a_database() {
    const EACH: usize = 40;
    let Some(cluster) = Cluster::start() else { return };
    let Some(sqlite) = program("sqlite3") else { return };
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let run = |mount: &Path, commands: &str| {
        let mut command = Command::new(&sqlite);
        let output = command
            .args(["-bail", "-cmd", ".timeout 60000"])
            .arg(mount.join("db"))
            .arg(commands)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&mounts[0], "CREATE TABLE counts(who, n); INSERT INTO counts VALUES ('all', 0);");
    std::thread::scope(|scope| {
        for (who, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let add = format!(
                    "BEGIN IMMEDIATE; UPDATE counts SET n = n + 1 WHERE who = 'all'; INSERT INTO counts VALUES ('{who}', \
                     (SELECT n FROM counts WHERE who = 'all')); COMMIT;"
                );
                let all: String = std::iter::repeat_n(add, EACH).collect();
                run(mount, &all);
            });
        }
    });
    for mount in &mounts {
        let counts = "SELECT n FROM counts WHERE who = 'all'; SELECT count(DISTINCT n) FROM counts WHERE who != 'all'; PRAGMA integrity_check;";
        assert_eq!(run(mount, counts), format!("{0}\n{0}\nok\n", 2 * EACH));
    }
    assert_eq!(fs::read_dir(&mounts[0]).unwrap().count(), 1, "no journal is left");
}
