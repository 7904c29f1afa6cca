//! The services that change directory entries.

use std::sync::Arc;

use crate::ops::create::Creator;
use crate::ops::remove::Remover;
use crate::ops::rename::Renamer;

/// The operations that change directory entries.
#[derive(Debug)]
pub(crate) struct EntryOps {
    pub(crate) creator: Arc<Creator>,
    pub(crate) remover: Arc<Remover>,
    pub(crate) renamer: Arc<Renamer>,
}
