//! The parts that measurements share: what they set up on a machine and remove again, what they read from the kernel, and how they show
//! numbers.
//!
//! Owns processes and their end ([`CleanupProcess`], [`Server`], [`MemoryLimit`], [`ControlGroup`]), their use of CPU and memory
//! ([`process_usage`]), the filling of free memory ([`MemoryFiller`]), the [`Proxy`] in front of an endpoint, the command that starts
//! MinIO, the clock ([`Stopwatch`]), distributions of durations ([`Histogram`]), and tables, charts and the page of a report.
//!
//! Refuses to know what is measured: no workload or package is named here, and no storage node but MinIO.
//!
//! Invariant: what is registered with a [`CleanupProcess`] is removed however this process ends, or the failure is logged.

mod cleanup;
mod clock;
mod control_group;
mod error;
mod free_address;
mod histogram;
mod memory_filler;
mod memory_limit;
pub mod minio;
pub mod process_usage;
mod proxy;
mod server;

pub mod format;
pub mod page;
pub mod svg;
mod table;

pub use cleanup::{CleanupAction, CleanupProcess};
pub use clock::Stopwatch;
pub use control_group::{ControlGroup, Usage, command_in_groups};
pub use error::{Error, file_error, run_program};
pub use free_address::free_address;
pub use histogram::Histogram;
pub use memory_filler::MemoryFiller;
pub use memory_limit::{MemoryLimit, drop_caches};
pub use proxy::{Mode, Proxy, RequestKind, Shape, Traffic};
pub use server::{Server, ServerSpec};
pub use table::Table;
