//! What a storage node does with each I/O, layer by layer: the method of `object-node-io-stack` as a tool.
//!
//! Owns workloads, what the kernel's tracepoints say while they run, and the figures drawn of it.
//!
//! Refuses: to guess. Every metric names the tracepoint that it comes from; what the kernel cannot show is "not available".

pub mod compare;
pub mod metrics;
pub mod model;
pub mod report;
pub mod setup;
pub mod trace;
pub mod workload;
