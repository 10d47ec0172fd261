//! A disk that fills up under a running cluster: writers are told so, nothing is lost, and all goes on when there is space.
//!
//! The disk is a small file system in memory, in a mount namespace that the test makes for itself and that ends with it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DISK_MIB: usize = 1_024;
const OBJECT_BYTES: usize = 24 << 20;
/// Three daemons share the disk, and no more objects than these could be on it.
const OBJECTS_MAX: usize = DISK_MIB / 3 / 24 + 1;
const PATIENCE: Duration = Duration::from_secs(60);

/// A mount namespace with a disk at `dir`, and a cluster on it; both end with the test, however it ends.
struct Disk {
    holder: Child,
    dir: PathBuf,
    folder: tempfile::TempDir,
}

impl Disk {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("disk");
        fs::create_dir(&dir).unwrap();
        // Reads until the test is gone.
        let script = format!("mount -t tmpfs -o size={DISK_MIB}m disk \"$0\" && echo ready && exec cat");
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        holder.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let disk = Self { holder, dir, folder };
        disk.must(&["up", disk.cluster().to_str().unwrap()]);
        disk
    }

    fn cluster(&self) -> PathBuf {
        self.dir.join("cluster")
    }

    /// A command where the disk is.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let holder = self.holder.id().to_string();
        command.args(["--preserve-credentials", "--user", "--mount", "--target", &holder, program]);
        command.stdin(Stdio::null()).env_remove("FLEASEFS_CLUSTER");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_fleasefs")).args(args).output().unwrap()
    }

    fn must(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        output
    }

    fn object(&self, args: &[&str]) -> Output {
        self.run(&[&["object"], args, &["--cluster", self.cluster().to_str().unwrap()]].concat())
    }

    fn status(&self) -> String {
        let status = self.run(&["status", "--cluster", self.cluster().to_str().unwrap()]);
        String::from_utf8_lossy(&status.stdout).into_owned() + &said(&status)
    }

    /// What operators would read.
    fn told(&self) -> String {
        let logs = [1, 2, 3].map(|node| format!("osd-{node}:\n{}", self.read(&format!("osd-{node}/log"))));
        self.status() + &logs.concat()
    }

    /// The processes of the daemons.
    fn daemons(&self) -> [Pid; 3] {
        [1, 2, 3].map(|node| {
            let note = self.read(&format!("osd-{node}/pid"));
            let supervisor = note.split(' ').next().unwrap();
            let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
            Pid::from_raw(children.unwrap().trim().parse().unwrap()).unwrap()
        })
    }

    /// A file of the cluster.
    fn read(&self, name: &str) -> String {
        let read = self.command("cat").arg(self.cluster().join(name)).output().unwrap();
        String::from_utf8(read.stdout).unwrap()
    }

    /// Writes a file of a mount and syncs it.
    fn write(&self, number: usize) -> Output {
        let from = self.folder.path().join("in");
        fs::write(&from, content(number)).unwrap();
        self.copy(&from, &self.mounted(number))
    }

    fn copy(&self, from: &Path, to: &Path) -> Output {
        let (from, to) = (format!("if={}", from.display()), format!("of={}", to.display()));
        self.command("dd").args([&from, &to, "bs=1M", "conv=fsync,notrunc"]).output().unwrap()
    }

    fn mounted(&self, number: usize) -> PathBuf {
        self.point().join(name(number))
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// A file of the mount is as it was written, or begins like that.
    fn is_written(&self, number: usize, bytes: usize) {
        let read =
            self.command("head").args(["-c", &bytes.to_string()]).arg(self.mounted(number)).output().unwrap();
        assert!(read.stdout == content(number)[..bytes], "file {number}: {}", said(&read));
    }

    fn put(&self, number: usize) -> Output {
        let file = self.folder.path().join("in");
        fs::write(&file, content(number)).unwrap();
        self.object(&["put", &name(number), file.to_str().unwrap()])
    }

    fn check(&self, number: usize) {
        let got = self.object(&["get", &name(number)]);
        assert!(got.status.success(), "{}", said(&got));
        assert!(got.stdout == content(number), "object {number} has {} bytes", got.stdout.len());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Nothing is left to be done if this fails.
        let _ = self.run(&["down", self.cluster().to_str().unwrap()]);
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn name(number: usize) -> String {
    format!("object {number}")
}

fn content(number: usize) -> Vec<u8> {
    (0..OBJECT_BYTES)
        .map(|at| u8::try_from((at / 4_096 * 31 + number * 17 + at % 7) % 251).unwrap())
        .collect()
}

/// Waits until something is so. False if it takes too long.
fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

/// Fills the rest of the disk with a file, but for a little.
fn fill(disk: &Disk, file: &Path) {
    let mut filler = disk.command("sh");
    filler.arg("-c").arg("head -c 2G /dev/zero > \"$0\"").arg(file).stderr(Stdio::null());
    assert!(!filler.status().unwrap().success(), "the disk is not full");
}

/// Whether this machine mounts anything; says so if it does not.
fn mounts() -> bool {
    let mounts = Path::new("/dev/fuse").exists();
    if !mounts {
        let _ =
            std::io::Write::write_all(&mut std::io::stderr(), b"not tested: this machine has no /dev/fuse\n");
    }
    mounts
}

#[test]
fn a_full_disk_refuses_data_loses_none_and_is_survived() {
    let disk = Disk::start();
    let mut put = 0;
    let refused = loop {
        let output = disk.put(put);
        if !output.status.success() {
            break output;
        }
        put += 1;
        assert!(put < OBJECTS_MAX, "there cannot be so many");
    };
    assert!(put > 1, "{}", said(&refused));
    assert!(said(&refused).contains("no space is left"), "{}", said(&refused));
    let told = disk.status();
    assert!(told.contains("disk is nearly full"), "{told}");
    (0..put).for_each(|number| disk.check(number));
    // Somebody else takes the rest: nothing more can be kept, and what is there can be read.
    let rest = disk.dir.join("rest");
    fill(&disk, &rest);
    (0..put).for_each(|number| disk.check(number));
    // For longer than node time is noted in advance.
    let before = disk.daemons();
    std::thread::sleep(Duration::from_secs(13));
    (0..put).for_each(|number| disk.check(number));
    assert_eq!(disk.daemons(), before, "a daemon has ended");
    // One that is started waits for space, and the others go on.
    kill_process(before[0], Signal::KILL).unwrap();
    let log = || disk.read("osd-1/log");
    assert!(comes_true(|| log().contains("starts when there is space")), "{}", log());
    let waiting = disk.daemons();
    (0..put).for_each(|number| disk.check(number));
    assert_eq!((disk.daemons(), waiting[0] == before[0]), (waiting, false), "it does not wait");
    assert!(disk.command("rm").arg(&rest).status().unwrap().success());
    assert!(comes_true(|| !disk.status().contains("does not answer")), "{}", disk.status());
    // What is removed makes space: as much as there was, but for what journals and indexes have grown by.
    for number in 0..=put {
        let removed = disk.object(&["rm", &name(number)]);
        assert!(removed.status.success(), "{}", said(&removed));
    }
    // A disk that was full wants a quarter more than its reserve.
    assert!(put > 1, "{put}");
    let put = put - 1;
    for number in 0..put {
        let mut why = String::new();
        let is_put = || {
            let output = disk.put(number);
            why = said(&output);
            output.status.success()
        };
        assert!(
            comes_true(is_put),
            "there is space for object {number} of {put}, and it is not taken: {why}{}",
            disk.told()
        );
    }
    (0..put).for_each(|number| disk.check(number));
    disk.must(&["down", disk.cluster().to_str().unwrap()]);
    for node in 1..=3 {
        disk.must(&["store", "check", disk.cluster().join(format!("osd-{node}")).to_str().unwrap()]);
    }
    disk.must(&["up", disk.cluster().to_str().unwrap()]);
    (0..put).for_each(|number| disk.check(number));
}

#[test]
fn a_mount_says_that_the_disks_are_full_when_it_syncs_at_the_latest() {
    let disk = Disk::start();
    if !mounts() {
        return;
    }
    fs::create_dir(disk.point()).unwrap();
    let cluster = disk.cluster();
    let cluster = cluster.to_str().unwrap();
    disk.must(&["up", cluster, "--mount", disk.point().to_str().unwrap()]);
    let mut written = 0;
    let refused = loop {
        let output = disk.write(written);
        if !output.status.success() {
            break output;
        }
        written += 1;
        assert!(written < OBJECTS_MAX, "there cannot be so many");
    };
    assert!(written > 1, "{}", said(&refused));
    assert!(said(&refused).contains("No space left on device"), "{}", said(&refused));
    // What was synced is there, also for a mount that knows nothing of it.
    (0..written).for_each(|number| disk.is_written(number, OBJECT_BYTES));
    disk.must(&["umount", disk.point().to_str().unwrap()]);
    disk.must(&["mount", "--background", cluster, disk.point().to_str().unwrap()]);
    (0..written).for_each(|number| disk.is_written(number, OBJECT_BYTES));
    // Nothing is kept back and lost: whoever writes on is told again, by each program and at each sync.
    for _ in 0..2 {
        let output = disk.write(written);
        assert!(said(&output).contains("No space left on device"), "{}", said(&output));
    }
    // Names and attributes are small, but take room, too; they are refused or done, and never half of it.
    let renamed = disk.command("mv").arg(disk.mounted(0)).arg(disk.point().join("renamed")).output().unwrap();
    let there = if renamed.status.success() { disk.point().join("renamed") } else { disk.mounted(0) };
    let kept = disk.command("cat").arg(there).output().unwrap();
    assert!(kept.stdout == content(0), "{}", said(&renamed));
    // What is removed makes room, and all goes on.
    for number in 1..=written {
        let removed = disk.command("rm").arg("-f").arg(disk.mounted(number)).output().unwrap();
        assert!(removed.status.success(), "{}", said(&removed));
    }
    assert!(comes_true(|| disk.write(1).status.success()), "there is room again, and it is not taken");
    disk.is_written(1, OBJECT_BYTES);
    disk.must(&["umount", disk.point().to_str().unwrap()]);
}

#[test]
fn who_closes_a_file_that_no_disk_takes_is_told_so() {
    const BYTES: usize = 3 << 20;
    /// More could not be there.
    const FILES_MAX: usize = OBJECTS_MAX * OBJECT_BYTES / BYTES;
    let disk = Disk::start();
    if !mounts() {
        return;
    }
    fs::create_dir(disk.point()).unwrap();
    let (cluster, point) = (disk.cluster(), disk.point());
    let (cluster, point) = (cluster.to_str().unwrap(), point.to_str().unwrap());
    disk.must(&["up", cluster, "--mount", point]);
    let from = disk.folder.path().join("in");
    // Nothing is synced: what says that it is done is done.
    let mut copies: Vec<bool> = Vec::new();
    while copies.iter().filter(|is_copied| !**is_copied).count() < 10 {
        let number = copies.len();
        fs::write(&from, &content(number)[..BYTES]).unwrap();
        copies
            .push(disk.command("cp").arg(&from).arg(disk.mounted(number)).output().unwrap().status.success());
        assert!(number < FILES_MAX, "there cannot be so many");
    }
    let shell = |script: &str| {
        let file = disk.mounted(0);
        disk.command("sh").args(["-c", script]).arg(file).output().unwrap()
    };
    let appended = shell("head -c 100000 /dev/zero | tr '\\0' x >> \"$0\"");
    assert!(said(&appended).contains("No space left on device"), "{}", said(&appended));
    // Who only reads may lock.
    let locked = shell("flock --shared --nonblock \"$0\" true");
    assert!(locked.status.success(), "{}", said(&locked));
    // A cluster that is full is mounted as any other.
    disk.must(&["down", cluster]);
    disk.must(&["up", cluster, "--mount", point]);
    for (number, _) in copies.iter().enumerate().filter(|(_, is_copied)| **is_copied) {
        disk.is_written(number, BYTES);
    }
    let size = shell("stat --format %s \"$0\"");
    assert_eq!(
        String::from_utf8_lossy(&size.stdout).trim(),
        BYTES.to_string(),
        "what was refused makes it longer"
    );
    disk.must(&["umount", point]);
}
