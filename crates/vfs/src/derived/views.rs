//! The derived directories of a volume, once it has some.

use std::sync::{Arc, OnceLock};

use crate::derived::nodes::DerivedDirectories;

/// The derived directories of a volume, once it has some.
#[derive(Debug)]
pub(crate) struct Views {
    pub(super) derived: OnceLock<DerivedDirectories>,
}

impl Views {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { derived: OnceLock::new() })
    }
}
