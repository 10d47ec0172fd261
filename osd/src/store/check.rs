//! Looks at everything that a stopped daemon keeps, and changes nothing.
//!
//! What the next start would make of the journal is asked of the same code that the start asks. The index is opened by its engine
//! through a view of its file that keeps in memory what the engine writes ([`MediaView`]), or, where an engine has files of its own, in
//! a copy. The lock is held meanwhile, so no daemon starts.
//!
//! What cannot be found: bytes to which nothing refers, for they are free; and, without the memo, that the end of the journal is gone
//! if nothing was written behind it.

mod finding;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base::{ObjectId, StoreId};
use node::{Memo, StoreFound};

pub use self::finding::{Finding, Problem, Severity};
use super::contents::CONTENT_FILE;
use super::contents::survey::{self, Holder, Survey};
use super::disk::{Disk, NEW_SUFFIX};
use super::index::{Change, Engine, Index, IndexError, REDB_NEW, RedbIndex, SLED_NEW, SledIndex, Visit};
use super::journal::{JournalReadError, Search, is_segment};
use super::media::{Blob, Media, MediaView, RealMedia};
use super::memo::{MemoError, MemoFile};
use super::record::{Damage, Kind};
use super::tables::{Ceiling, Losses, Orders, Peers, Starts, Table, TimeMark};
use super::{OpenError, Owner, directory, has_served, read};

/// Where files are kept within the data directory.
pub const FILES_DIR: &str = "files";
/// More findings than this are counted only.
const FINDINGS_MAX: usize = 1_000;

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// The store's own name, if any of its small files tells it.
    pub store: Option<StoreId>,
    /// Whose it is.
    pub owner: Option<Owner>,
    /// How often it was opened.
    pub starts: u32,
    /// Whether the last start ended cleanly.
    pub stopped_cleanly: bool,
    /// What keeps the index.
    pub engine: Option<Engine>,
    /// How many files are kept.
    pub files: u64,
    /// How many chunks they have.
    pub chunks: u64,
    /// How many parts the trees of volumes have.
    pub names: u64,
    /// Records of the journal that are not in the index yet.
    pub records: u64,
    /// How much content there is.
    pub content_bytes: u64,
    /// How much of the file of contents is free for other content.
    pub free_bytes: u64,
    /// In epochs up to this one the node may have lost what it had not synced, as an earlier start has found.
    pub forgot_at: Option<u64>,
    /// What is not as a clean stop leaves it.
    pub findings: Vec<Finding>,
    /// How many more findings there were.
    pub left_out: u64,
    worst: Option<Severity>,
}

/// How far a check has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something new is looked at, which has so many bytes.
    Begin(&'static str, u64),
    /// So many of them were.
    Done(u64),
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Nothing is there.
    #[error("{0} is no data directory: nothing is there; name the folder of a daemon, or its data directory")]
    Nothing(String),
    /// Something else is there.
    #[error("{dir} holds `{entry}` and no store; name the folder of a daemon, or its data directory")]
    NotAStore {
        /// The directory.
        dir: String,
        /// One of the things in it.
        entry: String,
    },
    /// A daemon runs.
    #[error("{dir} is in use{}; stop its daemon first, with `fleasefs down` or as it was started", by(*holder))]
    InUse {
        /// The directory.
        dir: String,
        /// The daemon's process, if it is known.
        holder: Option<u32>,
    },
    /// It belongs to somebody else, is newer, or cannot be read.
    #[error(transparent)]
    Open(OpenError),
    /// The memo.
    #[error(transparent)]
    Memo(#[from] MemoError),
    /// A copy of the index cannot be made.
    #[error("the index cannot be copied to look at it: {0}; set TMPDIR to a directory with more space")]
    Copy(#[source] io::Error),
}

impl From<OpenError> for CheckError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Locked { dir, holder } => Self::InUse { dir: dir.display().to_string(), holder },
            OpenError::NotAStore { dir, entry } => Self::NotAStore { dir: dir.display().to_string(), entry },
            error => Self::Open(error),
        }
    }
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |id| format!(" by process {id}"))
}

/// The small files of a store, as far as they can be read.
struct Small {
    store: Option<StoreId>,
    time: TimeMark,
    ceiling: Ceiling,
    peers: Peers,
    losses: Losses,
}

/// A check under way.
struct Check<'a> {
    report: Report,
    told: &'a mut dyn FnMut(Step),
}

/// Checks the data directory at `path`, of `wanted` if that is known. The memo of its store is in the directory `memo`.
pub fn check(
    path: &Path,
    memo: &Path,
    wanted: Option<Owner>,
    told: &mut dyn FnMut(Step),
) -> Result<Report, CheckError> {
    let nothing = || CheckError::Nothing(path.display().to_string());
    let mut directory = directory::look(path)?.ok_or_else(nothing)?;
    let mut check = Check { report: Report::default(), told };
    let small = check.small_files(&mut directory)?;
    if let (Some(found), Some(wanted)) = (check.report.owner, wanted)
        && found != wanted
    {
        return Err(OpenError::Owner { found, wanted }.into());
    }
    check.names(path)?;
    if let Some(store) = small.store {
        let memo = MemoFile::look(memo, store)?;
        let dir = path.join(FILES_DIR);
        if dir.is_dir() {
            let view = MediaView::new(Arc::new(RealMedia::read_only(dir.clone())));
            check.files(&view, &dir, (&small, memo))?;
        } else if small.has_served() {
            check.add(Finding::of(FILES_DIR, Problem::Missing));
        }
    }
    Ok(check.report)
}

impl Report {
    /// How bad the worst of it is.
    pub const fn worst(&self) -> Option<Severity> {
        self.worst
    }
}

impl Small {
    fn has_served(&self) -> bool {
        has_served(&self.time, &self.ceiling, &self.peers)
    }
}

impl Check<'_> {
    fn add(&mut self, finding: Finding) {
        self.report.worst = self.report.worst.max(Some(finding.problem.severity()));
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        } else {
            self.report.left_out += 1;
        }
    }

    /// Reads the small files. An error if a newer program has written one: it knows more of all the others, too.
    fn small_files(&mut self, disk: &mut dyn Disk) -> Result<Small, CheckError> {
        (self.told)(Step::Begin("small files", 0));
        let mut ids = Vec::new();
        self.report.owner = self.small(disk, &mut ids)?;
        if let Some(starts) = self.small::<Starts>(disk, &mut ids)? {
            self.report.starts = starts.chain.incarnation().0;
            self.report.stopped_cleanly = starts.stopped_cleanly;
        }
        let time = self.small(disk, &mut ids)?.unwrap_or_default();
        let ceiling = self.small(disk, &mut ids)?.unwrap_or_default();
        let peers = self.small(disk, &mut ids)?.unwrap_or_default();
        let losses: Losses = self.small(disk, &mut ids)?.unwrap_or_default();
        match read::<Orders>(disk) {
            Err(OpenError::Damaged { damage: Damage::Missing, .. }) => {}
            _ => drop(self.small::<Orders>(disk, &mut ids)?),
        }
        // That of the identity, if that can be read.
        let store = ids.first().map(|(_, id)| *id);
        for (kind, _) in ids.iter().filter(|(_, id)| Some(*id) != store) {
            self.add(Finding::of(kind.file(), Problem::Small(Damage::Foreign)));
        }
        self.report.store = store;
        self.report.forgot_at = losses.forgot_at;
        Ok(Small { store, time, ceiling, peers, losses })
    }

    fn small<T: Table>(
        &mut self,
        disk: &mut dyn Disk,
        ids: &mut Vec<(Kind, StoreId)>,
    ) -> Result<Option<T>, CheckError> {
        let problem = match read::<T>(disk) {
            Ok(found) => {
                ids.push((T::KIND, found.store));
                if found.copies != super::Copies::Equal {
                    self.add(Finding::of(T::KIND.file(), Problem::OneCopy));
                }
                return Ok(Some(found.table));
            }
            Err(OpenError::Damaged { damage, .. }) => Problem::Small(damage),
            Err(OpenError::Io { source, .. }) => Problem::Unreadable(source.to_string()),
            Err(error) => return Err(error.into()),
        };
        self.add(Finding::of(T::KIND.file(), problem));
        Ok(None)
    }

    /// Whether everything that is there is of a store, and what a crash has left.
    fn names(&mut self, path: &Path) -> Result<(), CheckError> {
        let small = |name: &str| name == "lock" || Kind::ALL.iter().any(|kind| kind.file() == name);
        self.names_in(path, "", &|name| match name.strip_suffix(NEW_SUFFIX) {
            Some(base) if small(base) => Some(Problem::Leftover),
            _ if small(name) => None,
            _ => Some(Problem::Stranger),
        })?;
        let index = |name: &str| [Engine::Redb, Engine::Sled].iter().any(|engine| engine.name() == name);
        self.names_in(&path.join(FILES_DIR), "files/", &|name| {
            let is_known = index(name) || name == CONTENT_FILE || is_segment(name);
            let is_left = [REDB_NEW, SLED_NEW].contains(&name);
            (!is_known).then_some(if is_left { Problem::Leftover } else { Problem::Stranger })
        })
    }

    fn names_in(
        &mut self,
        dir: &Path,
        prefix: &str,
        problem: &dyn Fn(&str) -> Option<Problem>,
    ) -> Result<(), CheckError> {
        let failed = |source| OpenError::Io { path: dir.to_owned(), source };
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = std::fs::metadata(entry.path());
            names.push((name, kind.is_ok_and(|kind| kind.is_file())));
        }
        names.sort();
        for (name, is_file) in names {
            let is_directory = prefix.is_empty() && name == FILES_DIR || name == Engine::Sled.name();
            match problem(&name) {
                _ if is_directory => {}
                Some(problem) => self.add(Finding::of(format!("{prefix}{name}"), problem)),
                None if !is_file => self.add(Finding::of(format!("{prefix}{name}"), Problem::NotAFile)),
                None => {}
            }
        }
        Ok(())
    }

    /// Index, content and journal, in a view of their directory, which is `dir`.
    fn files(
        &mut self,
        view: &MediaView,
        dir: &Path,
        (small, memo): (&Small, Option<Memo>),
    ) -> Result<(), CheckError> {
        if self.report.findings.iter().any(|finding| matches!(finding.problem, Problem::NotAFile)) {
            // To open what is none may take for ever.
            return Ok(());
        }
        let Some((name, index)) = self.open_index(view, dir, small.has_served())? else { return Ok(()) };
        let survey = match index {
            Ok(index) => Survey::of(&*index),
            Err(error) => Err(error),
        };
        match survey {
            Ok(survey) => self.contents(view, &name, survey, (small, memo)),
            Err(error) => self.add(Finding::of(name, Problem::Index(error))),
        }
        Ok(())
    }

    /// The index and its name. None if there is none.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn open_index(
        &mut self,
        view: &MediaView,
        dir: &Path,
        has_served: bool,
    ) -> Result<Option<(String, Result<Box<dyn Index>, IndexError>)>, CheckError> {
        let failed = |source| OpenError::Io { path: dir.to_owned(), source };
        let found = Engine::found(view).map_err(failed)?;
        if let Some(second) = found.get(1) {
            self.add(Finding::of(in_files(second.name()), Problem::SecondIndex));
        }
        let Some(&engine) = found.first() else {
            // A start that ended early has made none.
            if has_served {
                self.add(Finding::of(FILES_DIR.to_owned() + "/index", Problem::Missing));
            }
            return Ok(None);
        };
        self.report.engine = Some(engine);
        let bytes = |name| view.open(name).and_then(|blob| blob.length()).unwrap_or_default();
        let opened: Result<Box<dyn Index>, IndexError> = match engine {
            Engine::Redb => {
                (self.told)(Step::Begin("index", bytes(engine.name())));
                let blob = view.open(engine.name()).map_err(failed)?;
                RedbIndex::open(blob).map(|index| Box::new(index) as Box<dyn Index>)
            }
            Engine::Sled => {
                (self.told)(Step::Begin("index", 0));
                let copy = copy_of(&dir.join(engine.name())).map_err(CheckError::Copy)?;
                SledIndex::open(copy.path())
                    .map(|index| Box::new(Copied { index, _copy: copy }) as Box<dyn Index>)
            }
        };
        Ok(Some((in_files(engine.name()), opened)))
    }

    /// Content and journal, from what the index says.
    fn contents(&mut self, view: &MediaView, index: &str, mut survey: Survey, start: (&Small, Option<Memo>)) {
        let content = match view.open(CONTENT_FILE) {
            Ok(content) => content,
            Err(error) => {
                return self.add(Finding::of(in_files(CONTENT_FILE), Problem::Unreadable(error.to_string())));
            }
        };
        self.journal(view, (&content, &mut survey), start);
        let (content_bytes, end) = survey.content_bytes();
        self.report.files += survey.files();
        (self.report.chunks, self.report.names) = (survey.chunks, survey.names);
        self.report.content_bytes = content_bytes;
        self.report.free_bytes = end.max(content.length().unwrap_or_default()) - content_bytes;
        (self.told)(Step::Begin("content", content_bytes));
        let told = &mut *self.told;
        survey.read_content(&content, &mut |bytes| told(Step::Done(bytes)));
        for (holder, problem) in survey.wrong {
            let is_content = matches!(
                problem,
                Problem::Content { .. }
                    | Problem::CutOff { .. }
                    | Problem::Shared { .. }
                    | Problem::Unreadable(_)
            );
            let file = if is_content { in_files(CONTENT_FILE) } else { index.to_owned() };
            self.add(about(holder, Finding::of(file, problem)));
        }
    }

    /// What the next start would find in the journal, and decide.
    fn journal(
        &mut self,
        view: &MediaView,
        (content, survey): (&Arc<dyn Blob>, &mut Survey),
        (small, memo): (&Small, Option<Memo>),
    ) {
        let store = small.store.expect("it is known when files are looked at");
        (self.told)(Step::Begin("journal", 0));
        let lacking = RefCell::new(Vec::new());
        let has_all = |record: &_| {
            let wrong = survey::lacking(content, record)?;
            let is_whole = wrong.is_none();
            lacking.borrow_mut().extend(wrong);
            io::Result::Ok(is_whole)
        };
        let applied = survey.applied.unwrap_or_default();
        let search = match Search::of(view, (store, applied), has_all) {
            Ok(search) => search,
            Err(error) => return self.unreadable_journal(&error),
        };
        let found = StoreFound {
            memo,
            is_failed: small.losses.has_failed,
            journal: search.found(),
            ceiling: small.ceiling.0,
            forgot_at: small.losses.forgot_at,
        };
        if search.is_empty() && small.has_served() {
            return self.add(Finding::of(in_files("journal"), Problem::Missing));
        }
        self.decision(&search, &found, lacking.into_inner());
        self.records(&search, (content, survey));
    }

    /// Whether the store would open.
    fn decision(&mut self, search: &Search, found: &StoreFound, lacking: Vec<(Option<ObjectId>, Problem)>) {
        let end = search.end();
        let (file, at) = end.map_or((in_files("journal"), 0), |(file, at)| (in_files(&file), at));
        match found.open(node::Rules::default()) {
            Ok(opening) => {
                let journal = found.journal;
                if let Some(unreadable) = journal.unreadable {
                    let records = journal.last + 1 - unreadable;
                    self.add(Finding::of(file.clone(), Problem::Torn { records }));
                }
                match found.memo {
                    None if opening.forgot_at != found.forgot_at => {
                        self.add(Finding::of(in_files("journal"), Problem::Forgotten));
                    }
                    Some(memo) if memo.written > journal.last => {
                        self.add_lacking(lacking, &file);
                        let problem = Problem::Lost { first: journal.last + 1, last: memo.written };
                        self.add(Finding::of(in_files("journal"), problem));
                    }
                    _ => {}
                }
            }
            Err(refusal) => {
                self.add_lacking(lacking, &file);
                let end = format!("{file} at byte {at}");
                self.add(Finding::of(file, Problem::Refused { refusal, end }));
            }
        }
    }

    /// What records refer to, and cannot be read.
    fn add_lacking(&mut self, lacking: Vec<(Option<ObjectId>, Problem)>, journal: &str) {
        for (object, problem) in lacking {
            let is_record = matches!(problem, Problem::Record(_));
            let file = if is_record { journal.to_owned() } else { in_files(CONTENT_FILE) };
            self.add(Finding { object, ..Finding::of(file, problem) });
        }
    }

    /// What can be read of the journal makes sense.
    fn records(&mut self, search: &Search, (content, survey): (&Arc<dyn Blob>, &mut Survey)) {
        let (mut wrong, mut count, mut new) = (Vec::new(), 0, BTreeSet::new());
        let read = search.read(|number, record| {
            count += 1;
            survey.claim_record(number, &record);
            match survey::whole_record(content, &record) {
                Ok(record) => new.extend(Some(record.object).filter(|object| !survey.has(*object))),
                Err(why) => {
                    let finding = Finding::of(in_files("journal"), Problem::Record(why));
                    wrong.push(Finding { record: Some(number), ..finding });
                }
            }
        });
        self.report.records = count;
        self.report.files = new.len() as u64;
        wrong.into_iter().for_each(|finding| self.add(finding));
        if let Err(error) = read {
            self.unreadable_journal(&error);
        }
    }

    fn unreadable_journal(&mut self, error: &JournalReadError) {
        self.add(Finding::of(in_files(&error.file), Problem::Unreadable(error.source.to_string())));
    }
}

/// An index in a copy of its directory.
struct Copied {
    index: SledIndex,
    _copy: tempfile::TempDir,
}

impl Index for Copied {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.index.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], each: &mut Visit<'_>) -> Result<(), IndexError> {
        self.index.scan(from, to, each)
    }

    fn commit(&self, changes: &[Change]) -> Result<(), IndexError> {
        self.index.commit(changes)
    }
}

/// A copy of a directory, which goes with the value.
fn copy_of(dir: &Path) -> io::Result<tempfile::TempDir> {
    fn copy(from: &Path, to: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                std::fs::create_dir(&to)?;
                copy(&entry.path(), &to)?;
            } else {
                std::fs::copy(entry.path(), &to)?;
            }
        }
        Ok(())
    }
    let made = tempfile::tempdir()?;
    copy(dir, made.path())?;
    Ok(made)
}

fn in_files(name: &str) -> String {
    format!("{FILES_DIR}/{name}")
}

/// The finding with what it is about.
fn about(holder: Holder, finding: Finding) -> Finding {
    match holder {
        Holder::Index => finding,
        Holder::Head(object) => Finding { object: Some(object), ..finding },
        Holder::Chunk(object, chunk) => Finding { object: Some(object), chunk: Some(chunk), ..finding },
        Holder::Record(record) => Finding { record: Some(record), ..finding },
    }
}
