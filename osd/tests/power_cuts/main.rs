//! The power is cut while the real store writes to a real directory: whatever the disk may hold then, all that was said to be durable is
//! there, byte for byte.
//!
//! The store runs as the daemon runs it, with its engines of the index on their own files, on a file system of this test that notes each call
//! that reaches it (`mount.rs`, `tree.rs`). What came of the calls up to some point is what the power leaves (`medium.rs`); it is written
//! into a directory in memory and opened by the same code (`workload.rs`), and what is found is compared with what had been said by that
//! point (`checker.rs`). Some go on from there, and some of these lose their power again.
//!
//! What is assumed of a disk, and nothing else:
//!
//! - What stood in a file when a sync of it returned stays.
//! - Each sector of 512 bytes that was written to since is as it was after one of the writes, or before all of them, whatever the sectors
//!   beside it are. The length is one that the file has had since.
//! - Except in an index, a block of 4,096 bytes that was written to since may hold anything.
//! - A name is durable when its directory was synced, and not by a sync of the file. Of the names that were made, changed or taken away
//!   since then each may be as before or as after, whatever the others are, and a rename is one change.
//! - For an index by sled: names in its directory are durable before anything is that is written to its files afterwards. sled syncs no
//!   directory, and does not open without that.
//! - The memo is gone.

mod checker;
mod medium;
mod mount;
mod tree;
mod workload;

use std::fs;
use std::io::{self, Write};
use std::sync::Arc;

use base::Random;
use osd::store::index::Engine;
use osd::store::{Bug, StoreRules};
use tempfile::TempDir;

use self::medium::Disk;
use self::mount::Mount;
use self::tree::{Op, Recorder, Tree};
use self::workload::{Found, History, How, Known, Process};

/// Where images are put, and memos: in memory.
const MEMORY: &str = "/dev/shm";
/// A planted bug is found in so many images.
const BUG_IMAGES_MAX: usize = 2_000;

/// What is tried.
#[derive(Clone, Copy)]
struct Plan {
    engine: Engine,
    /// The rules in force while the store works. What opens images breaks none.
    rules: StoreRules,
    seed: u64,
    /// How often a process begins, and how long it works.
    lives: usize,
    steps: usize,
    /// At so many points the power is cut, so many times each.
    cuts: usize,
    draws: usize,
    /// After one in so many the store goes on, and the power is cut again.
    again: usize,
}

/// A disk, and what is known of it.
#[derive(Clone, Default)]
struct Kept {
    tree: Tree,
    history: History,
    known: Known,
}

/// What reached the disk of a store at work.
struct Story {
    begin: Kept,
    ops: Vec<Op>,
    history: History,
}

/// What was tried.
#[derive(Default, Debug)]
struct Tried {
    images: usize,
    /// In so many something was gone that had been written, and in so many was something that no sync had confirmed.
    lossy: usize,
    lucky: usize,
    /// In so many was a checkpoint of which nobody had been told.
    checkpoints: usize,
    /// After so many the store went on, and after so many the power was cut again.
    gone_on: usize,
    again: usize,
}

/// Why it was not tried, or what is wrong.
#[derive(Debug)]
enum Wrong {
    NoMount(io::Error),
    Found(String),
}

impl Plan {
    fn new(engine: Engine, seed: u64) -> Self {
        let rules = StoreRules::default();
        Self { engine, rules, seed, lives: 2, steps: 60, cuts: 300, draws: 2, again: 120 }
    }

    fn run(self, tried: &mut Tried) -> Result<(), Wrong> {
        let mut random = Random::new(self.seed);
        let story = self.record(Kept::default(), &mut random)?;
        let later = Self { steps: self.steps / 8, cuts: (self.cuts / 8).max(40), ..self };
        for begin in self.cut(&story, &mut random, tried)? {
            tried.again += 1;
            let story = later.record(begin, &mut random)?;
            later.cut(&story, &mut random, tried)?;
        }
        Ok(())
    }

    /// A store at work: begins with what was kept, works, ends as a process ends, begins again and works.
    fn record(self, begin: Kept, random: &mut Random) -> Result<Story, Wrong> {
        let recorder = Arc::new(Recorder::new(begin.tree.clone()));
        let mount = Mount::new(&recorder).map_err(Wrong::NoMount)?;
        let memo = TempDir::new_in(MEMORY).unwrap();
        let how = How { folder: mount.path(), memo: memo.path(), engine: self.engine, rules: self.rules };
        let (mut history, mut known) = (begin.history.clone(), begin.known.clone());
        for life in 0..self.lives {
            let opened = Process::open(how, known, |known| recorder.say(known));
            let (mut process, found) = opened.map_err(Wrong::Found)?;
            assert!(life == 0 || found.last == process.known.handed, "nothing is lost with a process");
            process.begin(found);
            for _ in 0..self.steps {
                process.step(&mut history, random);
            }
            known = process.end(how);
        }
        drop(mount);
        let ops = std::mem::take(&mut recorder.lock().ops);
        Ok(Story { begin, ops, history })
    }

    /// Cuts the power at many points of a story. Returns what some of the cuts have left.
    fn cut(self, story: &Story, random: &mut Random, tried: &mut Tried) -> Result<Vec<Kept>, Wrong> {
        let mut kept = Vec::new();
        let (mut disk, mut known, mut at) = (Disk::new(story.begin.tree.clone()), &story.begin.known, 0);
        for point in points(&story.ops, self.cuts, random) {
            for op in &story.ops[at..point] {
                disk.take(op);
                if let Op::Said(said) = op {
                    known = said;
                }
            }
            at = point;
            for draw in 0..self.draws {
                let image = disk.cut(random);
                tried.images += 1;
                let examined = self.examine(&image, (known, &story.history), tried);
                let found = examined.map_err(|error| {
                    let (Self { engine, seed, .. }, pending) = (self, disk.describe());
                    let place = format!("{engine}, seed {seed}, draw {draw} after {point} calls");
                    Wrong::Found(format!("{place}: {error}; pending: {pending}; {known:?}"))
                })?;
                if tried.images.is_multiple_of(self.again) {
                    kept.push(Kept { tree: image, ..found });
                }
            }
        }
        Ok(kept)
    }

    /// A start with what the power has left.
    fn examine(
        self,
        image: &Tree,
        (known, history): (&Known, &History),
        tried: &mut Tried,
    ) -> Result<Kept, String> {
        let folder = TempDir::new_in(MEMORY).unwrap();
        let (disk, memo) = (folder.path().join("disk"), folder.path().join("memo"));
        [&disk, &memo].into_iter().try_for_each(fs::create_dir).unwrap();
        image.write_to(&disk).unwrap();
        let how = How { folder: &disk, memo: &memo, engine: self.engine, rules: StoreRules::default() };
        // An index by sled is copied for that, to wherever temporary files are.
        let looks = if self.engine == Engine::Redb { 4 } else { 16 };
        if !known.starts.is_empty() && tried.images.is_multiple_of(looks) {
            checker::look(how)?;
        }
        let (process, found) = checker::open(how, known, history)?;
        let (last, applied) = (found.last, process.known.applied);
        tried.lossy += usize::from(last < known.handed);
        tried.lucky += usize::from(last > known.durable);
        tried.checkpoints += usize::from(applied != known.applied);
        // What was found was not said yet: another cut may take it.
        let known = Known { handed: last, putting: Some(applied), ..known.clone() };
        let history = history.before(last);
        if tried.images % 4 == 1 {
            tried.gone_on += 1;
            go_on(how, (process, found), &mut history.clone(), &mut Random::new(last))?;
        }
        Ok(Kept { tree: Tree::default(), history, known })
    }
}

/// Works a little, ends, and begins again: nothing is lost with a process.
fn go_on(
    how: How<'_>,
    (mut process, found): (Process<'_>, Found),
    history: &mut History,
    random: &mut Random,
) -> Result<(), String> {
    process.begin(found);
    for _ in 0..6 {
        process.step(history, random);
    }
    let known = process.end(how);
    let known = Known { durable: known.handed, ..known };
    let (process, found) = Process::open(how, known.clone(), |_| {})?;
    checker::files(&process.contents, &found, &known, history)
}

/// The points at which the power is cut: half of them beside syncs and changes of names, the others anywhere.
fn points(ops: &[Op], count: usize, random: &mut Random) -> Vec<usize> {
    let is_edge = |at: &usize| !matches!(ops[*at], Op::Write { .. } | Op::Said(_));
    let edges: Vec<usize> = (0..ops.len()).filter(is_edge).flat_map(|at| [at, at + 1]).collect();
    let all: Vec<usize> = (0..=ops.len()).collect();
    let mut points = sample(&edges, count / 2, random);
    points.extend(sample(&all, count / 2, random));
    points.sort_unstable();
    points.dedup();
    points
}

/// Evenly many, from a random one on.
fn sample(from: &[usize], count: usize, random: &mut Random) -> Vec<usize> {
    let step = (from.len() / count).max(1);
    from.iter().skip(random.index(step)).step_by(step).copied().collect()
}

/// Where nobody may mount, that has to be true.
fn excuse(error: &io::Error) {
    let opens = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    let has_no_helper = error.kind() == io::ErrorKind::NotFound;
    assert!(!opens || has_no_helper, "no clear reason: {error}");
    say(&format!("the power was not cut, because nothing can be mounted here: {error}"));
}

fn say(text: &str) {
    // Nobody reads it if not the one who runs the test.
    let _ = writeln!(io::stderr(), "{text}");
}

/// All that is asked of a store whose power was cut. In a long run everywhere, and in stories so long that the engine uses the space of its index again.
fn survives(engine: Engine) {
    let is_long = std::env::var_os("FLEASEFS_LONG").is_some();
    let seed = std::env::var("FLEASEFS_SEED").map_or(1, |seed| seed.parse().expect("a seed is a number"));
    let plan = Plan::new(engine, seed);
    let mut plans = vec![plan];
    if is_long {
        plans.push(Plan { cuts: usize::MAX, draws: 3, ..plan });
        plans.extend((1..5).map(|later| Plan { seed: seed + later, steps: 1_500, cuts: 600, ..plan }));
    }
    for plan in plans {
        let mut tried = Tried::default();
        match plan.run(&mut tried) {
            Ok(()) => {}
            Err(Wrong::NoMount(error)) => return excuse(&error),
            Err(Wrong::Found(error)) => panic!("{error}"),
        }
        say(&format!("{engine}, seed {}, {} steps: {tried:?}", plan.seed, plan.steps));
        let Tried { images, lossy, lucky, checkpoints, gone_on, again } = tried;
        assert!(images > 500 && lossy > 100 && lucky > 50 && checkpoints > 0 && gone_on > 100 && again > 1);
    }
}

#[test]
fn what_is_durable_survives_the_power_with_an_index_by_redb() {
    survives(Engine::Redb);
}

#[test]
fn what_is_durable_survives_the_power_with_an_index_by_sled() {
    survives(Engine::Sled);
}

/// An index by sled whose `conf` was half written never opened.
#[test]
fn a_store_whose_first_start_was_cut_short_opens() {
    for (engine, draws) in [(Engine::Redb, 2), (Engine::Sled, 8)] {
        let plan =
            Plan { lives: 1, steps: 0, cuts: usize::MAX, draws, again: usize::MAX, ..Plan::new(engine, 7) };
        match plan.run(&mut Tried::default()) {
            Ok(()) => {}
            Err(Wrong::NoMount(error)) => return excuse(&error),
            Err(Wrong::Found(error)) => panic!("{error}"),
        }
    }
}

/// A test that does not find these finds nothing.
#[test]
fn planted_bugs_are_found() {
    use Bug::{EarlierSegmentSkipped, IndexBeforeContent, NamesStay, SegmentFreedEarly};
    // A name has to be in one checkpoint, and gone by the next.
    let bugs =
        [(SegmentFreedEarly, 60), (EarlierSegmentSkipped, 60), (IndexBeforeContent, 60), (NamesStay, 240)];
    for (bug, steps) in bugs {
        let (mut tried, mut seed) = (Tried::default(), 0);
        let found = loop {
            seed += 1;
            let rules = StoreRules::without(Some(bug));
            let plan = Plan { rules, lives: 1, steps, again: usize::MAX, ..Plan::new(Engine::Redb, seed) };
            match plan.run(&mut tried) {
                Ok(()) => assert!(tried.images < BUG_IMAGES_MAX, "{bug:?} was not found: {tried:?}"),
                Err(Wrong::NoMount(error)) => return excuse(&error),
                Err(Wrong::Found(error)) => break error,
            }
        };
        say(&format!("{bug:?}: found by image {}: {found}", tried.images));
    }
}
