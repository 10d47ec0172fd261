//! Programs that use files and directories through mounts at the same time, and what each of their calls came to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use base::Random;
use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, fallocate, renameat_with};
use sim::check::file::{FileModel, FileOp, FileOutcome};
use sim::check::{Moment, Operation, Specification, Verdict, check};

use crate::ledger::Keeper;
use crate::machines::{MOUNTS, POOR, THROUGH};
use crate::support::until;
use crate::tree::{Name, NameOp, NameOutcome, Names};

const FILES: usize = 2;
/// No write goes beyond this, and none but appends makes them longer.
const BYTES: usize = 32;
/// Whoever reads reads all.
const READ_BYTES: usize = 4_096;
const DIRS: usize = 2;
/// Names that all use, and for each mount one that only its own program moves: a kernel that finds the same file under both names of a
/// renaming believes that there is nothing to do.
const SHARED: [char; 4] = ['a', 'b', 'c', DIRECTORY];
/// What is made here may be a directory. It is not moved: a kernel that finds one under another name, and cannot lock both places at once, says
/// `ESTALE`.
const DIRECTORY: char = 'd';
const OWN: [char; MOUNTS] = ['x', 'y', 'z'];
/// No search for an order may take more steps.
const STEPS_MAX: u64 = 30_000_000;

/// What a player is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Reads and writes files that all use.
    Files,
    /// Changes names.
    Changes,
    /// Looks at them.
    Looks,
    /// Keeps a file of its own.
    Keeps,
}

const PARTS: [Part; 5] = [Part::Files, Part::Files, Part::Changes, Part::Looks, Part::Keeps];
const CHANGES: usize = 2;

type FileHistory = Mutex<Vec<Operation<FileOp, FileOutcome>>>;
type NameHistory = Mutex<Vec<Operation<NameOp, NameOutcome>>>;

/// What calls may come to. Numbers are odd as long as that lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Troubles {
    /// Those of the poor mount may fail.
    pub(crate) poor: u64,
    /// There may be no space.
    pub(crate) full: u64,
}

impl Troubles {
    pub(crate) const fn are_over(self) -> bool {
        self.poor.is_multiple_of(2) && self.full.is_multiple_of(2)
    }
}

/// What happens to files and directories that nobody has used before.
pub(crate) struct Recorder {
    points: [PathBuf; MOUNTS],
    round: usize,
    now: AtomicU64,
    files: [FileHistory; FILES],
    names: NameHistory,
    /// Calls that were answered.
    pub(crate) done: AtomicU64,
    /// Bytes that were compared with what was written.
    pub(crate) verified: AtomicU64,
    /// Calls for which there was no space.
    pub(crate) refused: AtomicU64,
    /// Of each player.
    calls: Vec<AtomicU64>,
    ends: AtomicBool,
    poor: AtomicU64,
    full: AtomicU64,
}

/// Ends all play when it goes.
pub(crate) struct Ends<'a>(&'a Recorder);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

impl Recorder {
    pub(crate) fn new(points: [PathBuf; MOUNTS], round: usize) -> Self {
        let recorder = Self {
            points,
            round,
            now: AtomicU64::new(0),
            files: std::array::from_fn(|_| Mutex::default()),
            names: Mutex::default(),
            done: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            calls: (0..PARTS.len() * MOUNTS).map(|_| AtomicU64::new(0)).collect(),
            ends: AtomicBool::new(false),
            poor: AtomicU64::new(0),
            full: AtomicU64::new(0),
        };
        (0..DIRS).for_each(|dir| fs::create_dir(recorder.dir(0, dir)).unwrap());
        (0..FILES).for_each(|file| _ = File::create(recorder.file(0, file)).unwrap());
        (0..MOUNTS).for_each(|mount| _ = File::create(recorder.kept(mount, mount)).unwrap());
        recorder
    }

    fn dir(&self, mount: usize, dir: usize) -> PathBuf {
        self.points[mount].join(format!("names {} {dir}", self.round))
    }

    fn file(&self, mount: usize, file: usize) -> PathBuf {
        self.points[mount].join(format!("file {} {file}", self.round))
    }

    /// What the program of a mount keeps, through any mount.
    pub(crate) fn kept(&self, via: usize, mount: usize) -> PathBuf {
        self.points[via].join(format!("kept {} {mount}", self.round))
    }

    pub(crate) fn ends_when_dropped(&self) -> Ends<'_> {
        Ends(self)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Starts all players.
    pub(crate) fn play<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, random: &mut Random) {
        for mount in 0..MOUNTS {
            for (place, part) in PARTS.into_iter().enumerate() {
                let random = Random::new(random.next_u64());
                let number = mount * PARTS.len() + place;
                scope.spawn(move || match part {
                    Part::Keeps => Keeper::new(self, (mount, number), random).play(),
                    part => Player { recorder: self, mount, number, random }.play(part),
                });
            }
        }
    }

    pub(crate) fn count(&self, player: usize) {
        self.calls[player].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_verified(&self, bytes: usize) {
        self.verified.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How often names were changed through a mount, or could not be.
    pub(crate) fn changes(&self, mount: usize) -> u64 {
        self.calls[mount * PARTS.len() + CHANGES].load(Ordering::Relaxed)
    }

    /// Everybody goes on.
    pub(crate) fn wait_for_all(&self) {
        let calls = || self.calls.iter().map(|calls| calls.load(Ordering::Relaxed));
        let before: Vec<u64> = calls().collect();
        until("all programs go on", || calls().zip(&before).all(|(now, before)| now >= before + 2));
    }

    /// Meanwhile calls of the poor mount may fail, or nobody hears what came of them.
    pub(crate) fn while_poor(&self, act: impl FnOnce()) {
        self.poor.fetch_add(1, Ordering::SeqCst);
        act();
        self.poor.fetch_add(1, Ordering::SeqCst);
    }

    /// Meanwhile there may be no space for what programs write.
    pub(crate) fn while_full(&self, act: impl FnOnce()) {
        self.full.fetch_add(1, Ordering::SeqCst);
        // Whoever writes behind has sent what all use, and writes no more of that: what a mount has not sent is lost when it is refused.
        self.wait_for_all();
        act();
        self.full.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn troubles(&self) -> Troubles {
        Troubles { poor: self.poor.load(Ordering::SeqCst), full: self.full.load(Ordering::SeqCst) }
    }

    /// Whether this is the poor mount in a bad moment, or was since then.
    fn is_bad(&self, mount: usize, since: Troubles) -> bool {
        mount == POOR && (since.poor % 2 == 1 || self.troubles().poor != since.poor)
    }

    pub(crate) fn may_fail(&self, mount: usize, since: Troubles, error: &io::Error) {
        let was_full = since.full % 2 == 1 || self.troubles().full != since.full;
        let is_refused = error.kind() == ErrorKind::StorageFull && was_full;
        self.refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
        assert!(
            is_refused || self.is_bad(mount, since),
            "a program has an error from mount {mount}: {error}"
        );
    }

    fn tick(&self) -> Moment {
        Moment(self.now.fetch_add(1, Ordering::SeqCst))
    }

    /// All that happened has an order, and all mounts show the same in the end. Says how much it was.
    pub(crate) fn judge(self) -> String {
        for mount in 0..MOUNTS {
            for (file, history) in self.files.iter().enumerate() {
                let op = FileOp::Read { offset: 0, length: READ_BYTES };
                let data = || FileOutcome::Data(fs::read(self.file(mount, file)).unwrap());
                self.look(mount, history, (op, data));
            }
            for dir in 0..DIRS {
                let op = NameOp::List(dir);
                self.look(mount, &self.names, (op.clone(), || self.act_on_names(mount, &op).unwrap()));
            }
        }
        let counts = self.files.iter().map(|history| judge(&FileModel::default(), history));
        let counts: Vec<usize> = counts.chain([judge(&Names, &self.names)]).collect();
        format!(
            "there is an order of {} and {} calls to files, and {} to directories; {} bytes were as they were written, {} calls found no space",
            counts[0],
            counts[1],
            counts[2],
            self.verified.into_inner(),
            self.refused.into_inner()
        )
    }

    fn look<O, R>(
        &self,
        mount: usize,
        history: &Mutex<Vec<Operation<O, R>>>,
        (op, act): (O, impl FnOnce() -> R),
    ) {
        let called = self.tick();
        let outcome = act();
        let returned = Some((self.tick(), outcome));
        history.lock().unwrap().push(Operation { client: mount as u64, called, op, returned });
    }

    fn act_on_names(&self, mount: usize, op: &NameOp) -> io::Result<NameOutcome> {
        let path = |(dir, letter): &Name| self.dir(mount, *dir).join(letter.to_string());
        let done = match op {
            NameOp::Create(name, _) => {
                let file = OpenOptions::new().write(true).create_new(true).open(path(name));
                file.and_then(|file| Ok(NameOutcome::Is(file.metadata()?.ino())))
            }
            NameOp::MakeDir(name, _) => fs::create_dir(path(name)).map(|()| NameOutcome::Done),
            NameOp::Link(from, to) => fs::hard_link(path(from), path(to)).map(|()| NameOutcome::Done),
            NameOp::Unlink(name) => fs::remove_file(path(name)).map(|()| NameOutcome::Done),
            NameOp::RemoveDir(name) => fs::remove_dir(path(name)).map(|()| NameOutcome::Done),
            NameOp::Rename(from, to) => fs::rename(path(from), path(to)).map(|()| NameOutcome::Done),
            NameOp::Exchange(one, other) => {
                let done = renameat_with(CWD, path(one), CWD, path(other), RenameFlags::EXCHANGE);
                done.map(|()| NameOutcome::Done).map_err(io::Error::from)
            }
            NameOp::Look(name) => fs::symlink_metadata(path(name)).map(|found| {
                if found.is_dir() {
                    NameOutcome::Directory(found.ino())
                } else {
                    NameOutcome::Is(found.ino())
                }
            }),
            NameOp::List(dir) => {
                let names = fs::read_dir(self.dir(mount, *dir))?;
                let names = names.map(|entry| Ok(entry?.file_name().into_string().unwrap()));
                let mut names = names.collect::<io::Result<Vec<String>>>()?;
                names.sort();
                Ok(NameOutcome::Names(names.concat()))
            }
        };
        match done {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(NameOutcome::Absent),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(NameOutcome::Exists),
            Err(error) if error.kind() == ErrorKind::IsADirectory => Ok(NameOutcome::IsDirectory),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(NameOutcome::NotDirectory),
            done => done,
        }
    }
}

fn judge<S: Specification>(model: &S, history: &Mutex<Vec<Operation<S::Op, S::Outcome>>>) -> usize {
    let history = history.lock().unwrap();
    match check(model, &history, STEPS_MAX) {
        Verdict::Linearizable => history.len(),
        Verdict::Violation(found) => panic!("no single copy could have told this:\n{found}"),
        Verdict::Undecided => panic!("no order of {} calls was found in {STEPS_MAX} steps", history.len()),
    }
}

/// A file that is open for two uses.
struct Opened {
    /// Where something is put is said.
    file: File,
    /// It goes to the end.
    end: File,
}

/// A program.
struct Player<'a> {
    recorder: &'a Recorder,
    mount: usize,
    number: usize,
    random: Random,
}

impl Player<'_> {
    fn play(mut self, part: Part) {
        let mut opened = None;
        while !self.recorder.is_over() {
            thread::sleep(Duration::from_millis(self.random.between(4, 40)));
            let now = self.recorder.troubles();
            match part {
                Part::Files => match self.open_all(opened.take(), now) {
                    Ok(files) => {
                        let place = self.random.index(FILES);
                        self.use_file((now, place), &files[place]);
                        opened = Some((now, files));
                    }
                    Err(error) => {
                        self.recorder.may_fail(self.mount, now, &error);
                        continue;
                    }
                },
                _ => self.use_names(now, part == Part::Changes),
            }
            self.recorder.count(self.number);
        }
    }

    /// What is open stays so while nothing happens to mounts.
    fn open_all(&self, opened: Option<(Troubles, Vec<Opened>)>, now: Troubles) -> io::Result<Vec<Opened>> {
        let Some((then, files)) = opened.filter(|(then, _)| then.poor == now.poor) else {
            return (0..FILES).map(|file| self.open(file)).collect();
        };
        if then.full != now.full {
            files.iter().try_for_each(|opened| opened.file.sync_data())?;
        }
        Ok(files)
    }

    /// What is acknowledged through the poor mount is to outlive it.
    fn open(&self, file: usize) -> io::Result<Opened> {
        let flags = if self.mount == POOR { OFlags::DSYNC.bits().cast_signed() } else { 0 };
        let path = self.recorder.file(self.mount, file);
        let open = |how: &mut OpenOptions| how.custom_flags(flags).open(&path);
        let file = open(OpenOptions::new().read(true).write(true))?;
        Ok(Opened { file, end: open(OpenOptions::new().append(true))? })
    }

    fn use_file(&mut self, (now, place): (Troubles, usize), opened: &Opened) {
        let random = &mut self.random;
        let offset = random.index(BYTES - 8);
        let may_write = self.mount == THROUGH || now.full.is_multiple_of(2);
        let data = |random: &mut Random, most| {
            (0..random.between(1, most)).map(|_| random.next_u64().to_le_bytes()[0]).collect()
        };
        let op = match random.below(100) {
            40..65 if may_write => FileOp::Write { offset, data: data(random, 8) },
            65..73 if may_write => FileOp::Append { data: data(random, 4) },
            73..78 if may_write => FileOp::Punch { offset, length: random.index(8) + 1 },
            78..85 if may_write => FileOp::Truncate { size: offset },
            85.. => FileOp::Stat,
            _ => FileOp::Read { offset: 0, length: READ_BYTES },
        };
        let act = |op: &FileOp| self.act_on_file(opened, op);
        self.call(now, &self.recorder.files[place], (op, FileOutcome::NoSpace), act);
    }

    fn act_on_file(&self, Opened { file, end }: &Opened, op: &FileOp) -> io::Result<FileOutcome> {
        match op {
            FileOp::Read { offset, length } => {
                let mut data = vec![0; *length];
                let count = file.read_at(&mut data, *offset as u64)?;
                data.truncate(count);
                return Ok(FileOutcome::Data(data));
            }
            FileOp::Write { offset, data } => file.write_all_at(data, *offset as u64)?,
            FileOp::Append { data } => {
                let mut end = end;
                end.write_all(data)?;
            }
            FileOp::Punch { offset, length } => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, how, *offset as u64, *length as u64)?;
            }
            FileOp::Truncate { size } => {
                file.set_len(*size as u64)?;
                if self.mount == POOR {
                    file.sync_data()?;
                }
            }
            _ => return Ok(FileOutcome::Size(usize::try_from(file.metadata()?.len()).unwrap())),
        }
        Ok(FileOutcome::Done)
    }

    fn use_names(&mut self, now: Troubles, changes: bool) {
        let random = &mut self.random;
        let (name, own) = (SHARED[random.index(SHARED.len())], OWN[self.mount]);
        let (dir, other) = (random.index(DIRS), random.index(DIRS));
        let made = self.recorder.tick().0;
        let op = match (changes, random.below(12)) {
            (true, 0) => NameOp::Create((dir, name), made),
            (true, 1) => NameOp::Unlink((dir, name)),
            (true, 2..5) => NameOp::Create((dir, own), made),
            (true, 5) => NameOp::Link((dir, own), (other, name)),
            (true, 6 | 7) if name != DIRECTORY => NameOp::Exchange((dir, own), (other, name)),
            (true, 8) => NameOp::MakeDir((dir, DIRECTORY), made),
            (true, 9) => NameOp::RemoveDir((dir, DIRECTORY)),
            (true, _) => NameOp::Rename((dir, own), (other, name)),
            (false, 0..4) => NameOp::List(dir),
            (false, _) => NameOp::Look((dir, name)),
        };
        let act = |op: &NameOp| self.recorder.act_on_names(self.mount, op);
        self.call(now, &self.recorder.names, (op, NameOutcome::NoSpace), act);
    }

    /// Does something, and notes what came of it.
    fn call<O, R>(
        &self,
        since: Troubles,
        history: &Mutex<Vec<Operation<O, R>>>,
        (op, no_space): (O, R),
        act: impl FnOnce(&O) -> io::Result<R>,
    ) {
        let called = self.recorder.tick();
        let outcome = match act(&op) {
            Ok(outcome) => outcome,
            Err(error) => {
                self.recorder.may_fail(self.mount, since, &error);
                no_space
            }
        };
        // It may have been said of the folder on which nothing is mounted, or of what was never sent.
        let is_known = !self.recorder.is_bad(self.mount, since);
        let returned = is_known.then(|| {
            self.recorder.done.fetch_add(1, Ordering::Relaxed);
            (self.recorder.tick(), outcome)
        });
        let client = self.number as u64;
        history.lock().unwrap().push(Operation { client, called, op, returned });
    }
}
