//! Runs: many rows that are written to table files outside of commits, and then added to the tables by one commit.
//!
//! Invariants: a table file of a run that was not added is deleted, at the latest when the engine is opened again; the number of the run's
//! version is in a durable head record before any row has it, so it is never used again.

use crate::applier::Applier;
use crate::layer::{FinishedTable, NewTable};
use crate::row;
use crate::row::Changes;
use crate::tables::Tables;
use meta::{
    CommitError, EngineError, LogPager, LoggedRun, OpRecord, Run, RunBuilder, RunKeys, RunRecord, Seqno,
    schema,
};

/// Maximum number of rows of a run that stays in memory, so that its rows are written like those of another commit.
const FEW_ROWS_MAX: usize = 4096;
/// Maximum length of the rows of such a run, in bytes.
const FEW_BYTES_MAX: usize = 1 << 20;

/// A run that is being built.
pub(crate) struct NewRun<'e> {
    applier: &'e Applier,
    rows: NewPart<'e>,
    log: NewPart<'e>,
    pager: LogPager,
    /// The reserved number that is the version of all rows of the run.
    version: Seqno,
    /// Checks the order of the keys.
    keys: RunKeys,
    /// The buffer in which rows are encoded.
    row: Vec<u8>,
}

impl<'e> NewRun<'e> {
    /// Begins a run, and reserves the version of its rows.
    pub(crate) fn begin(applier: &'e Applier) -> Result<Self, EngineError> {
        let version = applier.reserve()?;
        Ok(Self {
            applier,
            rows: NewPart::default(),
            log: NewPart::default(),
            pager: LogPager::new(version),
            version,
            keys: RunKeys::default(),
            row: Vec::new(),
        })
    }

    /// Adds a page of logged ops, if the pager has completed one.
    fn add_page(&mut self, page: Option<(u32, Vec<u8>)>) -> Result<(), EngineError> {
        let Some((number, page)) = page else { return Ok(()) };
        self.log.add(self.applier.tables(), &schema::run_log_page(self.version, number), Some(&page))
    }
}

impl<'e> RunBuilder<'e> for NewRun<'e> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.keys.add(key)?;
        row::encode_into(&mut self.row, self.version, value);
        self.rows.add(self.applier.tables(), key, Some(&self.row))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.keys.add(key)?;
        self.rows.add(self.applier.tables(), key, None)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        let page = self.pager.add(record);
        self.add_page(page)
    }

    fn finish(mut self: Box<Self>) -> Result<Box<dyn Run + 'e>, EngineError> {
        let page = self.pager.end_page();
        self.add_page(page)?;
        let mut parts = RunParts { few: Changes::new(), tables: Vec::new(), logged: self.pager.run() };
        self.log.finish_into(&mut parts)?;
        self.rows.finish_into(&mut parts)?;
        Ok(Box::new(DiskRun { applier: self.applier, parts, is_ingested: false }))
    }
}

/// Rows of a run in ascending order: in memory while they are few, then in a table file.
enum NewPart<'e> {
    Few { rows: Changes, bytes: usize },
    Table(NewTable<'e>),
}

impl Default for NewPart<'_> {
    fn default() -> Self {
        Self::Few { rows: Changes::new(), bytes: 0 }
    }
}

impl<'e> NewPart<'e> {
    fn add(&mut self, tables: &'e Tables, key: &[u8], row: Option<&[u8]>) -> Result<(), EngineError> {
        match self {
            Self::Few { rows, bytes } => {
                *bytes += key.len() + row.map_or(0, <[u8]>::len);
                rows.insert(key.to_vec(), row.map(<[u8]>::to_vec));
                if rows.len() > FEW_ROWS_MAX || *bytes > FEW_BYTES_MAX {
                    let mut table = tables.begin_table()?;
                    rows.iter().try_for_each(|(key, row)| table.add(key, row.as_deref()))?;
                    *self = Self::Table(table);
                }
                Ok(())
            }
            Self::Table(table) => table.add(key, row),
        }
    }

    /// Adds the rows of this part to the parts of the run.
    fn finish_into(self, parts: &mut RunParts) -> Result<(), EngineError> {
        match self {
            Self::Few { rows, .. } => parts.few.extend(rows),
            Self::Table(table) => parts.tables.push(table.finish()?),
        }
        Ok(())
    }
}

/// The rows of a run that is complete.
pub(crate) struct RunParts {
    /// Rows that are written like those of another commit.
    pub(crate) few: Changes,
    /// Table files, whose keys are in separate ranges.
    pub(crate) tables: Vec<FinishedTable>,
    pub(crate) logged: LoggedRun,
}

/// A run that is complete.
struct DiskRun<'e> {
    applier: &'e Applier,
    parts: RunParts,
    /// Whether the run was added to the engine.
    is_ingested: bool,
}

impl Run for DiskRun<'_> {
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError> {
        assert!(!self.is_ingested, "a run is added once");
        let seqno = self.applier.ingest(&self.parts, record)?;
        self.is_ingested = true;
        Ok(seqno)
    }
}
