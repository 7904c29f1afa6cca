//! Volumes and buckets that this process has open and serves.

mod activity;
mod batch_ops;
pub(crate) mod batches;
pub(crate) mod caches;
pub(crate) mod console;
pub(crate) mod drive_requests;
mod export_lease;
pub(crate) mod filesystem_sink;
pub(crate) mod metadata_backup;
pub(crate) mod metrics;
pub(crate) mod mount_points;
mod observation;
mod observed_mounts;
pub(crate) mod open_volume;
mod protocol_values;
pub(crate) mod served_buckets;
pub(crate) mod served_volume;
pub(crate) mod trace_export;
mod traced_paths;
mod traces;
mod warm_up;
