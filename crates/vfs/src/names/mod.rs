//! State of front ends about names: kernel references, handles, locks, access times, invalidations and quotas.

pub(crate) mod access_times;
pub(crate) mod handles;
pub(crate) mod invalidation;
pub(crate) mod locks;
pub(crate) mod positions;
pub(crate) mod quotas;
pub(crate) mod references;
