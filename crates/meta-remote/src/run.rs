//! Runs: records that are staged apart in the database, in batches, and that one commit then moves to the volume's records.
//!
//! Staging does not delay commits. The commit of the run moves the records within the database while other commits wait, so a run has a maximum size.
//!
//! Invariant: the number of a run's version is reserved before any record has it, so it is never used again.

use crate::committer::Committer;
use crate::database::{Connection as _, Database, StagedRecords};
use crate::link::Link;
use crate::mergeable::Sums;
use meta::{
    CommitError, EngineError, LogPager, LoggedRun, OpRecord, Run, RunBuilder, RunKeys, RunRecord, Seqno,
    Value,
};
use std::mem;
use std::sync::Arc;

/// Records, and bytes of keys and records, at which a batch is sent.
const BATCH_RECORDS: usize = 4096;
const BATCH_BYTES: usize = 1 << 20;

/// A run that is being built.
pub(crate) struct NewRun<'e, D: Database> {
    staged: StagedRun<'e, D>,
    pager: LogPager,
    batch: Batch,
    keys: RunKeys,
    /// Records and bytes so far, which the limits of runs bound.
    records: u64,
    bytes: u64,
}

/// Records that are sent together.
#[derive(Debug, Default)]
struct Batch {
    records: StagedRecords,
    bytes: usize,
}

/// Returns the number of the commit that adds a run, relative to the head before it.
pub fn number_of(run: &LoggedRun) -> i32 {
    i32::try_from(run.seqno_after(Seqno(0)).0).unwrap_or(i32::MAX)
}

impl<'e, D: Database> NewRun<'e, D> {
    /// Reserves the number of the run's version.
    pub(crate) fn begin(link: &'e Arc<Link<D>>, committer: &'e Committer<D>) -> Result<Self, EngineError> {
        let version = link.call(|connection| async move { connection.reserve().await })?;
        link.learn_head(version);
        Ok(Self {
            staged: StagedRun {
                link,
                committer,
                version,
                is_added: false,
                logged: LogPager::new(version).run(),
            },
            pager: LogPager::new(version),
            batch: Batch::default(),
            keys: RunKeys::default(),
            records: 0,
            bytes: 0,
        })
    }

    /// Adds a record, or without a value a removal. Sends the batch if it is full.
    fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), EngineError> {
        self.keys.add(key)?;
        self.records += 1;
        self.count(key.len() + value.map_or(0, <[u8]>::len))?;
        self.batch.add(key, value);
        if self.batch.is_full() { self.stage_batch() } else { Ok(()) }
    }

    /// Counts bytes of the run, and fails if it is too large.
    fn count(&mut self, bytes: usize) -> Result<(), EngineError> {
        self.bytes += bytes as u64;
        let limits = D::RUN_LIMITS;
        if self.records <= limits.records && self.bytes <= limits.bytes {
            return Ok(());
        }
        Err(EngineError::Unavailable(format!(
            "too many changes for one commit: in {} it can have {} records and {} MiB; nothing was changed",
            D::NAME,
            limits.records,
            limits.bytes >> 20
        )))
    }

    /// Sends the records that wait.
    fn stage_batch(&mut self) -> Result<(), EngineError> {
        let records = Arc::new(mem::take(&mut self.batch).records);
        if records.keys.is_empty() {
            return Ok(());
        }
        let version = self.staged.version;
        self.staged.link.call(move |connection| {
            let records = records.clone();
            async move { connection.stage_records(version, &records).await }
        })
    }

    /// Sends a page of ops, if there is one.
    fn stage_page(&mut self, page: Option<(u32, Vec<u8>)>) -> Result<(), EngineError> {
        let Some((number, page)) = page else { return Ok(()) };
        self.count(page.len())?;
        let (version, page) = (self.staged.version, Arc::new(page));
        self.staged.link.call(move |connection| {
            let page = page.clone();
            async move { connection.stage_page(version, number, &page).await }
        })
    }
}

impl Batch {
    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let records = &mut self.records;
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        records.keys.push(key.to_vec());
        records.values.push(value.map(Value::from));
        records.sums.push(value.map(|value| Sums::of(key, value)).unwrap_or_default());
    }

    fn is_full(&self) -> bool {
        self.records.keys.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES
    }
}

impl<'e, D: Database> RunBuilder<'e> for NewRun<'e, D> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.add(key, Some(value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.add(key, None)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        let page = self.pager.add(record);
        self.stage_page(page)
    }

    fn finish(mut self: Box<Self>) -> Result<Box<dyn Run + 'e>, EngineError> {
        let page = self.pager.end_page();
        self.stage_page(page)?;
        self.stage_batch()?;
        self.staged.logged = self.pager.run();
        Ok(Box::new(self.staged))
    }
}

/// A run whose records are staged.
struct StagedRun<'e, D: Database> {
    link: &'e Arc<Link<D>>,
    committer: &'e Committer<D>,
    version: Seqno,
    logged: LoggedRun,
    /// Whether the commit has been made, or may have been.
    is_added: bool,
}

impl<D: Database> Run for StagedRun<'_, D> {
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError> {
        assert!(!self.is_added, "a run is added once");
        let added = self.committer.add_run(self.logged, record.clone());
        // If it is not known whether the commit was made, the log may refer to the pages.
        self.is_added = matches!(added, Ok(_) | Err(CommitError::Engine(EngineError::Uncertain(_))));
        added
    }
}

impl<D: Database> Drop for StagedRun<'_, D> {
    fn drop(&mut self) {
        if self.is_added {
            return;
        }
        let version = self.version;
        let dropped = self.link.call(move |connection| async move { connection.drop_run(version).await });
        if let Err(error) = dropped {
            // The next session that begins as the only one removes the rest.
            tracing::debug!(
                "cannot remove a run that was not added; it stays in the database until a session begins while there is no other: {error}"
            );
        }
    }
}
