//! Runs: records that are staged in a table of their own, in batches, and that one commit then moves to the others.
//!
//! Staging goes on beside commits. The commit moves the records within the database while other commits wait, so a run has a maximum size.
//!
//! Invariant: the number of a run's version is reserved before any record has it, so it is never used again.

use crate::committer::Committer;
use crate::connection::Connection;
use crate::error::Failure;
use crate::group::{Bytes, as_stored};
use crate::link::Link;
use crate::mergeable::Sums;
use crate::reads::{column, seqno};
use meta::{
    CommitError, EngineError, LogPager, LoggedRun, OpRecord, Run, RunBuilder, RunKeys, RunRecord, Seqno,
};
use std::mem;
use std::sync::Arc;

/// Maximum records of a run, and maximum bytes of its records and ops. Other commits wait while the database moves them.
pub(crate) const RECORDS_MAX: u64 = 1 << 20;
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// Records and bytes in a batch.
const BATCH_RECORDS: usize = 4096;
const BATCH_BYTES: usize = 1 << 20;

/// A run that is being built.
pub(crate) struct NewRun<'e> {
    staged: StagedRun<'e>,
    pager: LogPager,
    batch: Batch,
    keys: RunKeys,
    records: u64,
    bytes: u64,
}

/// Records that are sent together. A record without a value is a removal.
#[derive(Debug, Default)]
struct Batch {
    keys: Vec<Vec<u8>>,
    values: Vec<Option<Bytes>>,
    sum1: Vec<Option<i64>>,
    sum2: Vec<Option<i64>>,
    bytes: usize,
}

impl<'e> NewRun<'e> {
    pub(crate) fn begin(link: &'e Arc<Link>, committer: &'e Committer) -> Result<Self, EngineError> {
        let version = link.call(|connection| async move { reserve(&connection).await })?;
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
        if self.records <= RECORDS_MAX && self.bytes <= BYTES_MAX {
            return Ok(());
        }
        Err(EngineError::Unavailable(format!(
            "a run is limited to {RECORDS_MAX} records and {} MiB in PostgreSQL",
            BYTES_MAX >> 20
        )))
    }

    fn stage_batch(&mut self) -> Result<(), EngineError> {
        let batch = Arc::new(mem::take(&mut self.batch));
        if batch.keys.is_empty() {
            return Ok(());
        }
        let version = as_stored(self.staged.version);
        self.staged.link.call(move |connection| {
            let batch = batch.clone();
            async move { stage_records(&connection, version, &batch).await }
        })
    }

    fn stage_page(&mut self, page: Option<(u32, Vec<u8>)>) -> Result<(), EngineError> {
        let Some((number, page)) = page else { return Ok(()) };
        self.count(page.len())?;
        let (version, number) = (as_stored(self.staged.version), i32::try_from(number).unwrap_or(i32::MAX));
        let page = Arc::new(page);
        self.staged.link.call(move |connection| {
            let page = page.clone();
            async move { stage_page(&connection, version, number, &page).await }
        })
    }
}

impl Batch {
    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Sums { sum1, sum2 } = value.map(|value| Sums::of(key, value)).unwrap_or_default();
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.keys.push(key.to_vec());
        self.values.push(value.map(|value| Bytes(value.into())));
        self.sum1.push(sum1);
        self.sum2.push(sum2);
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES
    }
}

impl<'e> RunBuilder<'e> for NewRun<'e> {
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
struct StagedRun<'e> {
    link: &'e Arc<Link>,
    committer: &'e Committer,
    version: Seqno,
    logged: LoggedRun,
    is_added: bool,
}

impl Run for StagedRun<'_> {
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError> {
        assert!(!self.is_added, "a run is added once");
        let seqno = self.committer.add_run(self.logged, record.clone())?;
        self.is_added = true;
        Ok(seqno)
    }
}

impl Drop for StagedRun<'_> {
    fn drop(&mut self) {
        if self.is_added {
            return;
        }
        let version = as_stored(self.version);
        let dropped = self.link.call(move |connection| async move { drop_run(&connection, version).await });
        if let Err(error) = dropped {
            // The next exclusive session removes the rest.
            tracing::debug!("a run that was not added remains in the database: {error}");
        }
    }
}

async fn reserve(connection: &Connection) -> Result<Seqno, Failure> {
    let row = connection.client.query_one(&connection.statements.reserve, &[]).await?;
    Ok(seqno(column(&row, 0)?))
}

async fn stage_records(connection: &Connection, version: i64, batch: &Batch) -> Result<(), Failure> {
    let Batch { keys, values, sum1, sum2, .. } = batch;
    let stage = &connection.statements.stage_records;
    connection.client.execute(stage, &[&version, keys, values, sum1, sum2]).await?;
    Ok(())
}

async fn stage_page(connection: &Connection, version: i64, number: i32, page: &[u8]) -> Result<(), Failure> {
    connection.client.execute(&connection.statements.stage_page, &[&version, &number, &page]).await?;
    Ok(())
}

async fn drop_run(connection: &Connection, version: i64) -> Result<(), Failure> {
    connection.client.execute(&connection.statements.drop_run_records, &[&version]).await?;
    connection.client.execute(&connection.statements.drop_run_pages, &[&version]).await?;
    Ok(())
}
