//! Group commit: a queue of commits, and a lock whose holder applies all queued commits.
//!
//! No thread is dedicated to commits. A queued commit is applied by its own caller or by another caller that gets the commit lock
//! first. So a single caller needs no switch of threads, and concurrent callers share one write.
//!
//! Invariant: the holder of the commit lock sets an answer for every commit that it takes from the queue.

use crate::group::Group;
use crate::sync::{Progress, Syncer};
use crate::tables::Tables;
use meta::codec::{HeadRecord, encode_head, encode_number};
use meta::{
    BatchRecord, Commit, CommitError, EngineError, KeyRange, LogError, LogSpan, Seqno, SortedRun, schema,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum commits in a group, which are all checked before the first one is answered.
const GROUP_COMMITS_MAX: usize = 256;

/// Minimum rows of a sorted run for which a table file of its own is built.
const FILE_ROWS_MIN: usize = 4096;

/// Commits whose log records are removed from the database at a time.
const LOG_REMOVAL_COMMITS: u64 = 1024;

pub(crate) struct Applier {
    tables: Arc<Tables>,
    progress: Arc<Progress>,
    syncer: Syncer,
    queue: Mutex<VecDeque<QueuedCommit>>,
    /// The commit lock, which guards the state of the log.
    log: Mutex<Log>,
    /// [`LogSpan::cut`], for readers.
    cut: AtomicU64,
}

struct QueuedCommit {
    commit: Commit,
    answer: Arc<OnceLock<Answer>>,
}

type Answer = Result<Seqno, CommitError>;

/// The state of the log, which the holder of the commit lock maintains.
struct Log {
    span: LogSpan,
    /// The commit up to which log records have been removed.
    removed_to: Seqno,
}

impl Applier {
    pub(crate) fn new(tables: Arc<Tables>, progress: Arc<Progress>, syncer: Syncer, span: LogSpan) -> Self {
        let cut = AtomicU64::new(span.cut().0);
        let log = Mutex::new(Log { span, removed_to: Seqno(0) });
        Self { tables, progress, syncer, queue: Mutex::default(), log, cut }
    }

    /// Returns the commit after which the log is complete.
    pub(crate) fn cut(&self) -> Seqno {
        Seqno(self.cut.load(Ordering::Acquire))
    }

    pub(crate) fn commit(&self, commit: Commit) -> Answer {
        let answer = Arc::new(OnceLock::new());
        lock(&self.queue).push_back(QueuedCommit { commit, answer: answer.clone() });
        loop {
            let mut log = self.lock_log();
            if let Some(answer) = answer.get() {
                return answer.clone();
            }
            if !self.apply_queued(&mut log) {
                return Err(uncertain("the thread that applied the commit has panicked").into());
            }
        }
    }

    pub(crate) fn ingest(&self, run: SortedRun, record: BatchRecord) -> Answer {
        let mut log = self.lock_log();
        self.progress.check_running()?;
        let mut group = Group::after(self.progress.head(), &self.tables);
        let is_large = run.rows().len() >= FILE_ROWS_MIN;
        let seqno = group.admit_run(run, record)?;
        if is_large {
            // A table file is durable at once, so all earlier commits must be durable before it.
            self.progress.sync(&self.tables)?;
            self.tables.checkpoint()?;
        }
        self.publish(&mut log, group, is_large)?;
        Ok(seqno)
    }

    pub(crate) fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        let mut log = self.lock_log();
        let at = log.span.register(consumer, at, self.progress.head())?;
        Ok(self.store_cursor(&log, consumer, Some(at))?)
    }

    pub(crate) fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.lock_log().span.cursor(consumer, self.progress.head())
    }

    pub(crate) fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        let mut log = self.lock_log();
        let at = log.span.advance(consumer, to, self.progress.head())?;
        Ok(self.store_cursor(&log, consumer, Some(at))?)
    }

    pub(crate) fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        let mut log = self.lock_log();
        log.span.forget(consumer);
        Ok(self.store_cursor(&log, consumer, None)?)
    }

    fn store_cursor(&self, log: &Log, consumer: &str, at: Option<Seqno>) -> Result<(), EngineError> {
        self.cut.store(log.span.cut().0, Ordering::Release);
        let cursor = at.map(|at| encode_number(at.0));
        self.tables.write([(schema::consumer(consumer), cursor)].into(), None)
    }

    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let _commit_lock = self.lock_log();
        self.tables.checkpoint()
    }

    fn lock_log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    /// Applies a group of queued commits and sets their answers. Returns whether there were any.
    fn apply_queued(&self, log: &mut Log) -> bool {
        let taken: Vec<QueuedCommit> = {
            let mut queue = lock(&self.queue);
            let count = queue.len().min(GROUP_COMMITS_MAX);
            queue.drain(..count).collect()
        };
        let mut group = Group::after(self.progress.head(), &self.tables);
        let mut answers = Vec::with_capacity(taken.len());
        for QueuedCommit { commit, answer } in taken {
            answers.push((answer, group.admit(commit)));
        }
        let published = if group.changes.is_empty() {
            Ok(())
        } else {
            self.progress.check_running().and_then(|()| self.publish(log, group, false))
        };
        for (answer, admitted) in &answers {
            let outcome = admitted.clone().and_then(|seqno| Ok(published.clone().map(|()| seqno)?));
            answer.get_or_init(|| outcome);
        }
        !answers.is_empty()
    }

    /// Publishes all changes of a group at once.
    fn publish(&self, log: &mut Log, group: Group<'_>, as_file: bool) -> Result<(), EngineError> {
        let Group { mut changes, head, logged, .. } = group;
        let cut = log.span.cut();
        changes.insert(schema::head(), Some(encode_head(HeadRecord { head, cut })));
        let removed_range = if as_file { None } else { log.removable_range() };
        let written = if as_file {
            self.tables.ingest(&changes)
        } else {
            self.tables.write(changes, removed_range.as_ref())
        };
        if let Err(error @ EngineError::Uncertain(_)) = &written
            && !self.tables.has_pending_cancellation()
        {
            // The tables may hold these rows, so their commit numbers must not be reused.
            self.progress.stop(error);
        }
        written?;
        if removed_range.is_some() {
            log.removed_to = cut;
        }
        for commit in logged {
            log.span.append(commit.seqno, commit.ops, commit.bytes);
        }
        self.progress.set_head(head);
        self.cut.store(log.span.cut().0, Ordering::Release);
        self.syncer.wake();
        Ok(())
    }
}

impl Log {
    /// Returns the range of log records to remove, if it contains at least [`LOG_REMOVAL_COMMITS`] commits.
    fn removable_range(&self) -> Option<KeyRange> {
        let cut = self.span.cut();
        (cut.0 - self.removed_to.0 >= LOG_REMOVAL_COMMITS).then(|| schema::log_records(self.removed_to, cut))
    }
}

fn uncertain(text: &str) -> EngineError {
    EngineError::Uncertain(text.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
