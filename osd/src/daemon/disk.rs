//! The disk at work: the journal is written, synced and extended on threads of their own, which tell the driver what is done.
//!
//! ```text
//! driver --jobs--> one of two threads: writes --written--> driver
//!                                      syncs --durable--> driver
//! ```
//!
//! Two threads share the journal. Whoever has something to do takes it, if it is there, and lays it down again before it syncs: then the
//! other one writes. A thread that has synced goes on with what that changes itself. Waking another thread for each step would take as long as a
//! fast disk needs for the sync.
//!
//! What is written when is decided by [`LogWriter`]. Checkpoints and reads run beside that (`files.rs`).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::store::files::FileLog;
use crate::store::journal::{JournalError, Segments, Sync};
use crate::store::writer::{DiskDone, Job, LogWriter};

/// How long after finding the disk full the next segment is tried.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// One of them writes while the other one waits for the disk, and there is one sync at a time.
const THREADS: usize = 2;

/// An open journal, with threads that write it. They end when this goes.
pub(super) struct JournalThreads(Arc<Shared>);

/// What the threads share. It keeps what is open open, the lock of the directory among that, until the last of them has ended.
struct Shared {
    /// Held for moments: nothing is written, told or closed meanwhile.
    state: Mutex<State>,
    /// There is something to do for a thread that has nothing.
    called: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// Here unless a thread has it, or it has failed.
    writer: Option<Box<Writer>>,
    /// Whether a thread was called since the journal was last taken. One is enough: whoever comes back looks at the jobs before it waits.
    has_called: bool,
    /// Nobody has anything more to write.
    is_over: bool,
    has_failed: bool,
}

/// The journal, and who is told of it.
struct Writer {
    log: LogWriter,
    done: UnboundedSender<DiskDone>,
}

impl JournalThreads {
    /// Starts the threads of an open journal.
    pub(super) fn start(
        log: FileLog,
        segments: Segments,
        done: UnboundedSender<DiskDone>,
    ) -> io::Result<Self> {
        let writer = Some(Box::new(Writer { log: LogWriter::new(log, segments), done }));
        let state =
            State { jobs: VecDeque::new(), writer, has_called: false, is_over: false, has_failed: false };
        let threads = Self(Arc::new(Shared { state: Mutex::new(state), called: Condvar::new() }));
        for _ in 0..THREADS {
            let shared = Arc::clone(&threads.0);
            thread::Builder::new().name("journal".into()).spawn(move || shared.run())?;
        }
        Ok(threads)
    }

    /// Something for the journal. Threads that have ended have said why.
    pub(super) fn take(&self, job: Job) {
        self.0.give(job);
    }
}

impl Drop for JournalThreads {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.called.notify_all();
    }
}

impl Shared {
    fn give(&self, job: Job) {
        let mut state = self.state();
        if !state.has_failed {
            state.jobs.push_back(job);
            self.call(state);
        }
    }

    /// Wakes a thread, unless one is at work or comes already.
    fn call(&self, mut state: MutexGuard<'_, State>) {
        if state.writer.is_some() && !std::mem::replace(&mut state.has_called, true) {
            drop(state);
            self.called.notify_one();
        }
    }

    /// One of the threads.
    fn run(self: &Arc<Self>) {
        let mut synced = None;
        while let Some(writer) = self.wait(synced) {
            let sync = self.work(writer);
            synced = sync.map(|sync| Job::Synced(sync.run()));
        }
    }

    /// Waits for something to do, beside what this thread has done. None if it is over.
    fn wait(&self, synced: Option<Job>) -> Option<Box<Writer>> {
        let mut state = self.state();
        if let Some(job) = synced {
            // First: somebody has waited for it since the sync began, and what else is here has just come.
            state.jobs.push_front(job);
        }
        loop {
            if state.has_failed || state.is_over && state.jobs.is_empty() {
                return None;
            }
            if !state.jobs.is_empty()
                && let Some(writer) = state.writer.take()
            {
                state.has_called = false;
                return Some(writer);
            }
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does what there is to do, and lays the journal down. Returns the sync that this thread runs next.
    fn work(self: &Arc<Self>, mut writer: Box<Writer>) -> Option<Sync> {
        loop {
            let turn = writer.turn(self);
            let mut state = self.state();
            match turn {
                Ok(None) if !state.jobs.is_empty() => {}
                Ok(sync) => {
                    state.writer = Some(writer);
                    if !state.jobs.is_empty() {
                        self.call(state);
                    } else if state.is_over {
                        drop(state);
                        self.called.notify_all();
                    }
                    return sync;
                }
                Err(error) => {
                    state.has_failed = true;
                    let jobs = std::mem::take(&mut state.jobs);
                    drop(state);
                    self.called.notify_all();
                    drop(jobs);
                    writer.fail(error);
                    return None;
                }
            }
        }
    }

    fn next(&self) -> Option<Job> {
        self.state().jobs.pop_front()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Takes in what waits, and writes it. Returns a sync that is to be run.
    fn turn(&mut self, shared: &Arc<Shared>) -> Result<Option<Sync>, JournalError> {
        while self.log.may_take()
            && let Some(job) = shared.next()
        {
            self.log.take(job)?;
            self.tell();
        }
        self.log.write()?;
        self.tell();
        let sync = self.log.poll_sync();
        self.extend(shared);
        Ok(sync)
    }

    fn tell(&mut self) {
        while let Some(done) = self.log.poll_done() {
            // A driver that is gone has said so.
            let _ = self.done.send(done);
        }
    }

    /// Has a segment made before it is needed.
    fn extend(&mut self, shared: &Arc<Shared>) {
        let Some((segments, slot)) = self.log.poll_segment() else { return };
        let shared = Arc::clone(shared);
        let made = move || {
            let made = segments.make(slot);
            if made.as_ref().is_err_and(JournalError::is_full) {
                // It is wanted again at once.
                thread::sleep(FULL_RETRY);
            }
            shared.give(Job::Made(made));
        };
        if thread::Builder::new().name("segment".into()).spawn(made).is_err() {
            self.log.handle_not_made();
        }
    }

    /// The store is marked, and takes no more.
    fn fail(mut self, error: JournalError) {
        self.log.fail();
        let _ = self.done.send(DiskDone::Failed(error));
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use bytes::Bytes;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::store::contents::Contents;
    use crate::store::files::tests::{opened, record};
    use crate::store::media::fake::FakeMedia;

    /// With what has to stay open, because to close it is a sync, too.
    fn journal() -> (JournalThreads, UnboundedReceiver<DiskDone>, FakeMedia, Arc<Contents>) {
        let (opened, media) = opened();
        let (done, told) = unbounded_channel();
        let journal = JournalThreads::start(opened.log, opened.segments, done).unwrap();
        (journal, told, media, opened.contents)
    }

    fn append(journal: &JournalThreads, number: u64) {
        journal.take(Job::Append(number, record(number, &Bytes::from_static(b"data"))));
    }

    /// What is told next that is no news about space.
    fn next(told: &mut UnboundedReceiver<DiskDone>) -> Option<DiskDone> {
        loop {
            match told.blocking_recv() {
                Some(DiskDone::Used(..)) => {}
                next => return next,
            }
        }
    }

    /// A sync covers what was written when it began, and not what waited for space then.
    fn until_durable(journal: &JournalThreads, told: &mut UnboundedReceiver<DiskDone>, number: u64) {
        loop {
            match next(told) {
                Some(DiskDone::Durable(at)) if at >= number => return,
                Some(DiskDone::Durable(_)) => journal.take(Job::Sync),
                Some(DiskDone::Written(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_is_written_does_not_wait_for_a_sync() {
        let (journal, mut told, media, _open) = journal();
        media.hold_syncs(true);
        append(&journal, 1);
        assert!(matches!(next(&mut told), Some(DiskDone::Written(1))));
        journal.take(Job::Sync);
        for number in 2..100 {
            append(&journal, number);
            assert!(matches!(next(&mut told), Some(DiskDone::Written(at)) if at == number));
        }
        media.hold_syncs(false);
        journal.take(Job::Sync);
        until_durable(&journal, &mut told, 99);
    }

    #[test]
    fn nobody_is_forgotten_however_syncs_and_writes_meet() {
        let (journal, mut told, _media, _open) = journal();
        for number in 1..2_000 {
            append(&journal, number);
            journal.take(Job::Sync);
            // Sometimes while the sync is under way, or when its thread comes back.
            (0..number % 64).for_each(|_| std::hint::spin_loop());
            journal.take(Job::Sync);
            until_durable(&journal, &mut told, number);
            if number % 50 == 0 {
                journal.take(Job::Free(number));
            }
        }
    }

    #[test]
    fn what_was_handed_over_before_the_end_is_written_and_so_is_what_a_sync_says() {
        let (journal, mut told, media, _open) = journal();
        media.hold_syncs(true);
        append(&journal, 1);
        journal.take(Job::Sync);
        (2..100).for_each(|number| append(&journal, number));
        drop(journal);
        while !matches!(next(&mut told), Some(DiskDone::Written(99))) {}
        media.hold_syncs(false);
        assert!(matches!(next(&mut told), Some(DiskDone::Durable(1..100))));
        while next(&mut told).is_some() {}
    }

    #[test]
    fn a_disk_that_fails_is_told_of_once() {
        let (journal, mut told, media, _open) = journal();
        media.fail_after(0, io::ErrorKind::Other);
        append(&journal, 1);
        assert!(matches!(next(&mut told), Some(DiskDone::Failed(JournalError::Io(_)))));
        append(&journal, 2);
        assert!(next(&mut told).is_none());
    }

    #[test]
    fn a_sync_that_fails_when_all_is_over_is_told_of() {
        let (journal, mut told, media, _open) = journal();
        append(&journal, 1);
        journal.take(Job::Sync);
        until_durable(&journal, &mut told, 1);
        media.hold_syncs(true);
        append(&journal, 2);
        journal.take(Job::Sync);
        while !matches!(next(&mut told), Some(DiskDone::Written(2))) {}
        media.fail_all(io::ErrorKind::Other);
        drop(journal);
        media.hold_syncs(false);
        assert!(matches!(next(&mut told), Some(DiskDone::Failed(JournalError::Io(_)))));
        assert!(next(&mut told).is_none());
    }
}
