//! Volumes and buckets that this process has open and serves.

pub(crate) mod drive_requests;
pub(crate) mod filesystem_sink;
pub(crate) mod metadata_backup;
pub(crate) mod mount_points;
pub(crate) mod open_volume;
pub(crate) mod served_buckets;
pub(crate) mod served_volume;
