//! Group commit: a queue of commits, and a lock whose holder applies all queued commits.
//!
//! No thread is dedicated to commits. A queued commit is applied by its own caller or by another caller that gets the commit lock
//! first. So a single caller needs no switch of threads, and concurrent callers share one write.
//!
//! Invariant: the holder of the commit lock sets an answer for every commit that it takes from the queue.

use crate::group::{Group, Logged};
use crate::layer::FinishedTable;
use crate::run::RunParts;
use crate::sync::{Progress, Syncer};
use crate::tables::Tables;
use meta::codec::{HeadRecord, encode_head, encode_number};
use meta::{
    Commit, CommitError, EngineError, KeyRange, LogError, LogSpan, LoggedRun, RunRecord, Seqno, schema,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Maximum commits in a group, which are all checked before the first one is answered.
const GROUP_COMMITS_MAX: usize = 256;

/// Commits whose log records are removed from the database at a time.
const LOG_REMOVAL_COMMITS: u64 = 1024;

/// The queue of commits, and the state that applying them changes.
pub(crate) struct Applier {
    tables: Arc<Tables>,
    progress: Arc<Progress>,
    syncer: Syncer,
    queue: Mutex<VecDeque<QueuedCommit>>,
    /// The commit lock, which guards the state of the log.
    log: Mutex<Log>,
    /// Copy of [`LogSpan::cut`] for readers, which do not take the commit lock.
    cut: AtomicU64,
}

/// A commit in the queue, whose caller waits for the answer.
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
    /// The runs whose ops are in the tables, with their commits.
    runs: LoggedRuns,
}

/// Runs in the log, with their commits, ascending.
pub(crate) type LoggedRuns = VecDeque<(Seqno, LoggedRun)>;

impl Applier {
    pub(crate) fn new(
        tables: Arc<Tables>,
        progress: Arc<Progress>,
        syncer: Syncer,
        (span, runs): (LogSpan, LoggedRuns),
    ) -> Self {
        let cut = AtomicU64::new(span.cut().0);
        let log = Mutex::new(Log { span, removed_to: Seqno(0), runs });
        Self { tables, progress, syncer, queue: Mutex::default(), log, cut }
    }

    /// Returns the commit after which the log is complete.
    pub(crate) fn cut(&self) -> Seqno {
        Seqno(self.cut.load(Ordering::Acquire))
    }

    /// Queues a commit, and applies queued commits until it has its answer.
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

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Reserves a number as the version of a run's rows. It is below the numbers of all later commits.
    pub(crate) fn reserve(&self) -> Result<Seqno, EngineError> {
        let mut log = self.lock_log();
        self.progress.check_running()?;
        let mut group = Group::after(self.progress.head(), &self.tables);
        group.head.0 += 1;
        let reserved = group.head;
        self.publish(&mut log, group, &[])?;
        Ok(reserved)
    }

    /// Adds a run in one commit.
    pub(crate) fn ingest(&self, run: &RunParts, record: &RunRecord) -> Answer {
        let has_tables = !run.tables.is_empty();
        if has_tables {
            self.flush_ahead()?;
        }
        let mut log = self.lock_log();
        self.progress.check_running()?;
        let mut group = Group::after(self.progress.head(), &self.tables);
        let seqno = group.admit_run(&run.logged, record)?;
        group.changes.extend(run.few.iter().map(|(key, row)| (key.clone(), row.clone())));
        if has_tables && !self.tables.makes_all_durable() {
            // A table file is durable at once, so all earlier commits must be durable before it.
            self.progress.sync(&self.tables)?;
            self.tables.checkpoint()?;
        }
        self.publish(&mut log, group, &run.tables)?;
        Ok(seqno)
    }

    /// Makes the rows in memory durable as table files, so that an ingestion has little left to write while it holds the commit lock.
    fn flush_ahead(&self) -> Result<(), EngineError> {
        self.progress.sync(&self.tables)?;
        self.tables.finish_flush()?;
        {
            let _commit_lock = self.lock_log();
            self.tables.begin_flush()?;
        }
        self.tables.finish_flush()?;
        // Commits that were added during the flush are made durable, too.
        self.progress.sync(&self.tables)
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
            self.progress.check_running().and_then(|()| self.publish(log, group, &[]))
        };
        for (answer, admitted) in &answers {
            let outcome = admitted.clone().and_then(|seqno| Ok(published.clone().map(|()| seqno)?));
            answer.get_or_init(|| outcome);
        }
        !answers.is_empty()
    }

    /// Publishes all changes of a group at once, together with the table files of a run.
    fn publish(&self, log: &mut Log, group: Group<'_>, run: &[FinishedTable]) -> Result<(), EngineError> {
        let Group { mut changes, head, logged, .. } = group;
        let cut = log.span.cut();
        let removed = if run.is_empty() { log.removable() } else { Removable::default() };
        changes.extend(removed.run_pages.into_iter().map(|key| (key, None)));
        let adds_run = logged.iter().any(|commit| matches!(commit, Logged::Run { .. }));
        let has_runs = adds_run || log.runs.len() > removed.runs;
        changes.insert(schema::head(), Some(encode_head(HeadRecord { head, cut, has_runs })));
        let written = if run.is_empty() {
            self.tables.write(changes, removed.range.as_ref())
        } else {
            self.tables.ingest(run, &changes)
        };
        if let Err(error @ EngineError::Uncertain(_)) = &written
            && !self.tables.has_pending_cancellation()
        {
            // The tables may hold these rows, so their commit numbers must not be reused.
            self.progress.stop(error);
        }
        written?;
        if removed.range.is_some() {
            log.removed_to = cut;
            log.runs.drain(..removed.runs);
        }
        logged.into_iter().for_each(|commit| log.append(commit));
        self.progress.set_head(head);
        self.cut.store(log.span.cut().0, Ordering::Release);
        self.syncer.wake();
        Ok(())
    }
}

/// The records of the log that no reader needs any longer.
#[derive(Default)]
struct Removable {
    /// The keys of the records; `None` if nothing is removed now.
    range: Option<KeyRange>,
    /// The number of runs in the range.
    runs: usize,
    /// The keys of the pages of ops of these runs.
    run_pages: Vec<Vec<u8>>,
}

impl Log {
    fn append(&mut self, commit: Logged) {
        match commit {
            Logged::Ops { seqno, ops, bytes } => self.span.append(seqno, ops, bytes),
            Logged::Run { seqno, run } => {
                self.span.append_run(seqno, &run);
                self.runs.push_back((seqno, run));
            }
        }
    }

    /// Returns the records to remove, if they contain a run or at least [`LOG_REMOVAL_COMMITS`] commits.
    fn removable(&self) -> Removable {
        let cut = self.span.cut();
        let runs = self.runs.partition_point(|(seqno, _)| *seqno <= cut);
        if runs == 0 && cut.0 - self.removed_to.0 < LOG_REMOVAL_COMMITS {
            return Removable::default();
        }
        let pages = |(_, run): &(Seqno, LoggedRun)| {
            let version = run.version;
            (0..run.pages).map(move |page| schema::run_log_page(version, page))
        };
        Removable {
            range: Some(schema::log_records(self.removed_to, cut)),
            runs,
            run_pages: self.runs.iter().take(runs).flat_map(pages).collect(),
        }
    }
}

fn uncertain(text: &str) -> EngineError {
    EngineError::Uncertain(text.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
