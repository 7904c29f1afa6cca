//! The order of commits: a queue, and one who applies at a time.
//!
//! There is no thread for it. A commit waits in the queue until its caller or somebody before it gets the turn, so a
//! single caller pays for no switch between threads, and many share one write.
//!
//! Invariant: who has the turn leaves an answer for every commit taken from the queue.

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

/// Commits that are applied together at most: so many are checked before the first one is answered.
const GROUP_COMMITS_MAX: usize = 256;

/// Sorted runs of at least so many rows become a table file of their own.
const FILE_ROWS_MIN: usize = 4096;

/// The log is removed from the database in steps of so many commits.
const SWEEP_COMMITS: u64 = 1024;

pub(crate) struct Applier {
    tables: Arc<Tables>,
    progress: Arc<Progress>,
    syncer: Syncer,
    waiting: Mutex<VecDeque<Waiting>>,
    turn: Mutex<Log>,
    /// [`LogSpan::cut`], for readers.
    cut: AtomicU64,
}

struct Waiting {
    commit: Commit,
    answer: Arc<OnceLock<Answer>>,
}

type Answer = Result<Seqno, CommitError>;

/// The log, as who has the turn keeps it.
struct Log {
    span: LogSpan,
    /// Records up to this commit have been removed.
    swept: Seqno,
}

impl Applier {
    pub(crate) fn new(tables: Arc<Tables>, progress: Arc<Progress>, syncer: Syncer, span: LogSpan) -> Self {
        let cut = AtomicU64::new(span.cut().0);
        let turn = Mutex::new(Log { span, swept: Seqno(0) });
        Self { tables, progress, syncer, waiting: Mutex::default(), turn, cut }
    }

    /// The log is complete after this commit.
    pub(crate) fn cut(&self) -> Seqno {
        Seqno(self.cut.load(Ordering::Acquire))
    }

    pub(crate) fn commit(&self, commit: Commit) -> Answer {
        let answer = Arc::new(OnceLock::new());
        lock(&self.waiting).push_back(Waiting { commit, answer: answer.clone() });
        loop {
            let mut log = self.take_turn();
            if let Some(answer) = answer.get() {
                return answer.clone();
            }
            if !self.apply_waiting(&mut log) {
                return Err(uncertain("the thread that applied the commit ended early").into());
            }
        }
    }

    pub(crate) fn ingest(&self, run: SortedRun, record: BatchRecord) -> Answer {
        let mut log = self.take_turn();
        self.progress.check_running()?;
        let mut group = Group::after(self.progress.head(), &self.tables);
        let is_large = run.rows().len() >= FILE_ROWS_MIN;
        let seqno = group.admit_run(run, record)?;
        if is_large {
            // A table file is durable at once, so what it builds on must be.
            self.progress.sync(&self.tables)?;
            self.tables.checkpoint()?;
        }
        self.publish(&mut log, group, is_large)?;
        Ok(seqno)
    }

    pub(crate) fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        let mut log = self.take_turn();
        let at = log.span.register(consumer, at, self.progress.head())?;
        Ok(self.keep_cursor(&log, consumer, Some(at))?)
    }

    pub(crate) fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.take_turn().span.cursor(consumer, self.progress.head())
    }

    pub(crate) fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        let mut log = self.take_turn();
        let at = log.span.advance(consumer, to, self.progress.head())?;
        Ok(self.keep_cursor(&log, consumer, Some(at))?)
    }

    pub(crate) fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        let mut log = self.take_turn();
        log.span.forget(consumer);
        Ok(self.keep_cursor(&log, consumer, None)?)
    }

    fn keep_cursor(&self, log: &Log, consumer: &str, at: Option<Seqno>) -> Result<(), EngineError> {
        self.cut.store(log.span.cut().0, Ordering::Release);
        let cursor = at.map(|at| encode_number(at.0));
        self.tables.write(&[(schema::consumer(consumer), cursor)].into(), None)
    }

    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let _nobody_writes = self.take_turn();
        self.tables.checkpoint()
    }

    fn take_turn(&self) -> MutexGuard<'_, Log> {
        lock(&self.turn)
    }

    /// Applies what waits and answers. Whether there was anything.
    fn apply_waiting(&self, log: &mut Log) -> bool {
        let taken: Vec<Waiting> = {
            let mut waiting = lock(&self.waiting);
            let count = waiting.len().min(GROUP_COMMITS_MAX);
            waiting.drain(..count).collect()
        };
        let mut group = Group::after(self.progress.head(), &self.tables);
        let mut answers = Vec::with_capacity(taken.len());
        for Waiting { commit, answer } in taken {
            answers.push((answer, group.admit(commit)));
        }
        let published = if group.changes.is_empty() {
            Ok(())
        } else {
            self.progress.check_running().and_then(|()| self.publish(log, group, false))
        };
        for (answer, admitted) in &answers {
            let told = admitted.clone().and_then(|seqno| Ok(published.clone().map(|()| seqno)?));
            answer.get_or_init(|| told);
        }
        !answers.is_empty()
    }

    /// Makes what a group changes visible, all at once.
    fn publish(&self, log: &mut Log, group: Group<'_>, as_file: bool) -> Result<(), EngineError> {
        let Group { mut changes, head, logged, .. } = group;
        let cut = log.span.cut();
        changes.insert(schema::head(), Some(encode_head(HeadRecord { head, cut })));
        let gone = if as_file { None } else { log.to_sweep() };
        let written =
            if as_file { self.tables.ingest(&changes) } else { self.tables.write(&changes, gone.as_ref()) };
        if let Err(error @ EngineError::Uncertain(_)) = &written
            && !self.tables.owes_cancellation()
        {
            // The tables may hold these rows, so that their number must not be given to other changes.
            self.progress.stop(error);
        }
        written?;
        if gone.is_some() {
            log.swept = cut;
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
    /// What can be removed, once it is worth it.
    fn to_sweep(&self) -> Option<KeyRange> {
        let cut = self.span.cut();
        (cut.0 - self.swept.0 >= SWEEP_COMMITS).then(|| schema::log_records(self.swept, cut))
    }
}

fn uncertain(text: &str) -> EngineError {
    EngineError::Uncertain(text.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
