//! The testbed: any file system over any object store, measured the same way. The method is that of the NSDF-FUSE paper.
//!
//! Data goes one way. A [`Catalog`] of packages, [`Platform`]s and a [`Workload`] make a [`Grid`] of [`Cell`]s; [`run`] turns each cell
//! into an [`Outcome`] and appends it to [`Results`]; a [`Summary`] of the results becomes a [`report`]. Only [`run`], [`probe_all`] and the
//! actions of a [`Workbench`] have effects on the machine: processes, mounts, control groups, the proxy.
//!
//! Refuses a rate for a wrong result: every byte is compared, after a write by a second client, and a failure is an outcome of its own.
//!
//! Invariants: everything that is created on the machine is registered with a cleanup process before; no secret is in a command, a result
//! or a message; the package is measured through the same proxy as every other.

mod actions;
pub mod content;
mod file_error;
mod journal;
mod outcome;
mod package;
mod plan;
mod platform;
mod probe;
pub mod raw_client;
pub mod report;
mod results;
mod runner;
mod statistics;
mod summary;
mod workload;

pub use actions::{ActionError, Mounting, Station, Workbench, is_bucket_of, program_directories};
pub use file_error::FileError;
pub use journal::{Journal, JournalError, JournaledBucket};
pub use outcome::{Clock, Clocks, Failure, Measurement, Outcome, Phase, Place};
pub use package::{
    Action, Api, Catalog, CatalogError, Characteristics, Command, Commands, DefinitionError, Driver, Links,
    Mapping, Package, Posix, Program, Target, Template, TemplateError, Variables, Version,
};
pub use plan::{Cell, Grid, Session, Step};
pub use platform::{Environment, Platform, PlatformError, PlatformKind, S3Endpoint};
pub use probe::{Finding, Verdict, matrix};
pub use report::Ranking;
pub use results::{Conditions, Record, Results, ResultsError};
pub use runner::{
    Cost, Limits, Method, ProbeEvent, Probed, Programs, Progress, RunError, RunPlan, probe_all, run,
};
pub use statistics::{Conclusion, Ratio, Spread, median};
pub use summary::{CellSummary, Row, Summary};
pub use workload::{
    FileKind, ForeignProgram, Job, JobColumn, JobFile, Operation, ReplayThread, Rewritten, Scale, SyncPolicy,
    Task, TraceCall, TraceError, TraceStep, Unit, Workload, WorkloadError, parse_trace,
};
