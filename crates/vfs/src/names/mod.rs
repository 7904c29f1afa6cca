//! Names as a front end uses them: what the kernel knows of inodes, handles, locks, access times and quotas.

pub(crate) mod access_times;
pub(crate) mod handles;
pub(crate) mod invalidation;
pub(crate) mod locks;
pub(crate) mod positions;
pub(crate) mod quotas;
pub(crate) mod references;
