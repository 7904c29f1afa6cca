//! Analysis of a storage node's I/O, layer by layer. The method is that of the object-node I/O stack paper (`docs/analyze.md`).
//!
//! Owns the setup of the systems to compare, the workloads, the kernel traces recorded while they run, comparisons of several systems, and
//! the figures and tables of all these.
//!
//! Refuses to guess. Every metric names the tracepoints or kernel files that it comes from; a metric that the kernel
//! cannot provide is reported as "not available".

pub mod compare;
pub mod metrics;
pub mod model;
pub mod report;
pub mod setup;
pub mod trace;
pub mod workload;
