//! Uploads: stores the bytes of unpublished writes as objects, at a path or under keys of their own.

use std::sync::Arc;

use crate::base::Base;
use crate::content::Content;
use crate::content::write::assemble::assembling_permits_max;
use crate::fail_fast::FailFastSemaphore;
use crate::mount::Mount;
use crate::names::Names;

/// Stores unpublished writes as objects.
#[derive(Debug)]
pub(crate) struct Uploader {
    pub(in crate::content) mount: Arc<Mount>,
    pub(in crate::content) names: Arc<Names>,
    pub(in crate::content) content: Arc<Content>,
    /// Limits the bytes that are assembled in memory at once, over all files.
    pub(in crate::content) assembling: FailFastSemaphore,
}

impl Uploader {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            assembling: FailFastSemaphore::with_permits(assembling_permits_max(&base.mount.config) as usize),
        })
    }
}
