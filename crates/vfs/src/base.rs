//! The parts that all services of a mount are built on.

use std::sync::Arc;

use crate::content::Content;
use crate::mount::Mount;
use crate::names::Names;

/// The surroundings, the names and the content of a mount, which all its services use.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) mount: Arc<Mount>,
    pub(crate) names: Arc<Names>,
    pub(crate) content: Arc<Content>,
}
