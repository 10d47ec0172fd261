//! Programs that use files and a directory through mounts at the same time, and what each of their calls came to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use base::Random;
use rustix::fs::OFlags;
use sim::check::file::{FileModel, FileOp, FileOutcome};
use sim::check::{Moment, Operation, Specification, Verdict, check};

use crate::support::until;
use crate::tree::{NameOp, NameOutcome, Names};

const FILES: usize = 2;
/// How long they are at most.
const BYTES: usize = 32;
/// Names that all use, and for each mount one that only its own program moves: a kernel that finds the same file under both names of a
/// renaming believes that there is nothing to do.
const SHARED: [char; 3] = ['a', 'b', 'c'];
const OWN: [char; 3] = ['x', 'y', 'z'];
/// The mount that is not trusted to keep what it has not sent.
const POOR: usize = 2;
/// No search for an order may take more steps.
const STEPS_MAX: u64 = 30_000_000;

/// What a player is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Reads and writes files.
    Files,
    /// Changes names.
    Changes,
    /// Looks at them.
    Looks,
}

const PARTS: [Part; 4] = [Part::Files, Part::Files, Part::Changes, Part::Looks];

type FileHistory = Mutex<Vec<Operation<FileOp, FileOutcome>>>;
type NameHistory = Mutex<Vec<Operation<NameOp, NameOutcome>>>;

/// What happens to two files and a directory that nobody has used before.
pub(crate) struct Recorder {
    points: [PathBuf; 3],
    round: usize,
    now: AtomicU64,
    files: [FileHistory; FILES],
    names: NameHistory,
    /// Calls that were answered.
    pub(crate) done: AtomicU64,
    /// Of each player.
    calls: Vec<AtomicU64>,
    ends: AtomicBool,
    /// Odd while calls of the poor mount may fail. What was opened before stays so.
    life: AtomicU64,
}

/// Ends all play when it goes.
pub(crate) struct Ends<'a>(&'a Recorder);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

impl Recorder {
    pub(crate) fn new(points: [PathBuf; 3], round: usize) -> Self {
        let recorder = Self {
            points,
            round,
            now: AtomicU64::new(0),
            files: std::array::from_fn(|_| Mutex::default()),
            names: Mutex::default(),
            done: AtomicU64::new(0),
            calls: (0..PARTS.len() * 3).map(|_| AtomicU64::new(0)).collect(),
            ends: AtomicBool::new(false),
            life: AtomicU64::new(0),
        };
        fs::create_dir(recorder.dir(0)).unwrap();
        (0..FILES).for_each(|file| _ = File::create(recorder.file(0, file)).unwrap());
        recorder
    }

    fn dir(&self, mount: usize) -> PathBuf {
        self.points[mount].join(format!("names {}", self.round))
    }

    fn file(&self, mount: usize, file: usize) -> PathBuf {
        self.points[mount].join(format!("file {} {file}", self.round))
    }

    pub(crate) fn ends_when_dropped(&self) -> Ends<'_> {
        Ends(self)
    }

    /// Starts all players.
    pub(crate) fn play<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, random: &mut Random) {
        for mount in 0..self.points.len() {
            for (place, part) in PARTS.into_iter().enumerate() {
                let random = Random::new(random.next_u64());
                let number = mount * PARTS.len() + place;
                scope.spawn(move || Player { recorder: self, mount, number, random }.play(part));
            }
        }
    }

    /// Everybody goes on.
    pub(crate) fn wait_for_all(&self) {
        let calls = || self.calls.iter().map(|calls| calls.load(Ordering::Relaxed));
        let before: Vec<u64> = calls().collect();
        until("all programs go on", || calls().zip(&before).all(|(now, before)| now >= before + 2));
    }

    /// Meanwhile calls of the poor mount may fail, or nobody hears what came of them.
    pub(crate) fn while_poor(&self, act: impl FnOnce()) {
        self.life.fetch_add(1, Ordering::SeqCst);
        act();
        self.life.fetch_add(1, Ordering::SeqCst);
    }

    fn tick(&self) -> Moment {
        Moment(self.now.fetch_add(1, Ordering::SeqCst))
    }

    /// All that happened has an order, and all mounts show the same in the end. Says how much it was.
    pub(crate) fn judge(self) -> String {
        for (file, history) in self.files.iter().enumerate() {
            for mount in 0..self.points.len() {
                let op = FileOp::Read { offset: 0, length: BYTES };
                let called = self.tick();
                let data = fs::read(self.file(mount, file)).unwrap();
                let returned = Some((self.tick(), FileOutcome::Data(data)));
                let read = Operation { client: mount as u64, called, op, returned };
                history.lock().unwrap().push(read);
            }
        }
        let counts = self.files.iter().map(|history| judge(&FileModel::default(), history));
        let counts: Vec<usize> = counts.chain([judge(&Names, &self.names)]).collect();
        format!(
            "there is an order of {} and {} calls to files, and {} to a directory",
            counts[0], counts[1], counts[2]
        )
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

/// A program.
struct Player<'a> {
    recorder: &'a Recorder,
    mount: usize,
    number: usize,
    random: Random,
}

impl Player<'_> {
    fn play(mut self, part: Part) {
        let (mut life, mut files) = (None, Vec::new());
        while !self.recorder.ends.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(self.random.between(4, 40)));
            let present = self.recorder.life.load(Ordering::SeqCst);
            if part == Part::Files && (life != Some(present) || files.is_empty()) {
                files = match (0..FILES).map(|file| self.open(file)).collect::<io::Result<_>>() {
                    Ok(files) => files,
                    Err(error) => {
                        self.may_fail(present, &error);
                        continue;
                    }
                };
                life = Some(present);
            }
            match part {
                Part::Files => {
                    let place = self.random.index(FILES);
                    self.use_file((present, place), &files[place]);
                }
                Part::Changes | Part::Looks => self.use_names(present, part == Part::Changes),
            }
            self.recorder.calls[self.number].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is acknowledged through the poor mount is to outlive it.
    fn open(&self, file: usize) -> io::Result<File> {
        let flags = if self.mount == POOR { OFlags::DSYNC.bits().cast_signed() } else { 0 };
        let path = self.recorder.file(self.mount, file);
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
    }

    /// Whether this is the poor mount in a bad moment, or was since a call began.
    fn is_bad(&self, life: u64) -> bool {
        self.mount == POOR && (life % 2 == 1 || self.recorder.life.load(Ordering::SeqCst) != life)
    }

    fn may_fail(&self, life: u64, error: &io::Error) {
        assert!(self.is_bad(life), "a program has an error from mount {}: {error}", self.mount);
    }

    fn use_file(&mut self, (life, place): (u64, usize), file: &File) {
        let random = &mut self.random;
        let offset = random.index(BYTES - 8);
        let op = match random.below(100) {
            0..40 => FileOp::Read { offset: 0, length: BYTES },
            40..75 => {
                let data = (0..random.between(1, 8)).map(|_| random.next_u64().to_le_bytes()[0]).collect();
                FileOp::Write { offset, data }
            }
            75..83 => FileOp::Truncate { size: offset },
            _ => FileOp::Stat,
        };
        let act = |op: &FileOp| {
            Ok(match op {
                FileOp::Read { offset, length } => {
                    let mut data = vec![0; *length];
                    let count = file.read_at(&mut data, *offset as u64)?;
                    data.truncate(count);
                    FileOutcome::Data(data)
                }
                FileOp::Write { offset, data } => {
                    file.write_all_at(data, *offset as u64)?;
                    FileOutcome::Done
                }
                FileOp::Truncate { size } => {
                    file.set_len(*size as u64)?;
                    if self.mount == POOR {
                        file.sync_data()?;
                    }
                    FileOutcome::Done
                }
                _ => FileOutcome::Size(usize::try_from(file.metadata()?.len()).unwrap()),
            })
        };
        self.call(life, &self.recorder.files[place], op, act);
    }

    fn use_names(&mut self, life: u64, changes: bool) {
        let random = &mut self.random;
        let (name, own) = (SHARED[random.index(SHARED.len())], OWN[self.mount]);
        let op = match (changes, random.below(6)) {
            (true, 0) => NameOp::Create(name),
            (true, 1) => NameOp::Unlink(name),
            (true, 2 | 3) => NameOp::Create(own),
            (true, _) => NameOp::Rename(own, name),
            (false, 0 | 1) => NameOp::List,
            (false, _) => NameOp::Look(name),
        };
        let dir = self.recorder.dir(self.mount);
        self.call(life, &self.recorder.names, op, |op| act_on_names(&dir, op));
    }

    /// Does something, and notes what came of it.
    fn call<O, R>(
        &self,
        life: u64,
        history: &Mutex<Vec<Operation<O, R>>>,
        op: O,
        act: impl FnOnce(&O) -> io::Result<R>,
    ) {
        let called = self.recorder.tick();
        let returned = match act(&op) {
            // It may have been said of the folder on which nothing is mounted.
            Ok(_) if self.is_bad(life) => None,
            Ok(outcome) => {
                self.recorder.done.fetch_add(1, Ordering::Relaxed);
                Some((self.recorder.tick(), outcome))
            }
            Err(error) => {
                self.may_fail(life, &error);
                None
            }
        };
        let client = self.number as u64;
        history.lock().unwrap().push(Operation { client, called, op, returned });
    }
}

fn act_on_names(dir: &Path, op: &NameOp) -> io::Result<NameOutcome> {
    let path = |name: &char| dir.join(name.to_string());
    let done = match op {
        NameOp::Create(name) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path(name));
            file.and_then(|file| Ok(NameOutcome::Is(file.metadata()?.ino())))
        }
        NameOp::Unlink(name) => fs::remove_file(path(name)).map(|()| NameOutcome::Done),
        NameOp::Rename(from, to) => fs::rename(path(from), path(to)).map(|()| NameOutcome::Done),
        NameOp::Look(name) => fs::symlink_metadata(path(name)).map(|found| NameOutcome::Is(found.ino())),
        NameOp::List => {
            let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().into_string().unwrap()));
            let mut names = names.collect::<io::Result<Vec<String>>>()?;
            names.sort();
            Ok(NameOutcome::Names(names.concat()))
        }
    };
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(NameOutcome::Absent),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(NameOutcome::Exists),
        done => done,
    }
}
