//! The derived directories of a volume, once it has some.

use std::sync::{Arc, OnceLock};

use crate::base::Base;
use crate::derived::nodes::DerivedDirectories;
use crate::mount::Mount;

/// The derived directories of a volume, once it has some.
#[derive(Debug)]
pub(crate) struct Views {
    pub(super) mount: Arc<Mount>,
    pub(super) derived: OnceLock<DerivedDirectories>,
}

impl Views {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        Arc::new(Self { mount: base.mount.clone(), derived: OnceLock::new() })
    }
}
