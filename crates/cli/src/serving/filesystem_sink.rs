//! Applies events about a mounted volume's objects to its file system.
//!
//! Turns hints of event sources into invalidations: names, attributes and bytes that the file system and the kernel
//! cache are corrected as soon as a source reports a change, however long they would be valid otherwise.

use crate::mounted_views::ObjectScope;
use events::{ChangeKind, Hint, Sink, SinkError};
use std::sync::{Arc, OnceLock};
use store::{ETag, ObjectKey};
use vfs::{Filesystem, ReportedState};
use views::ObjectName;

/// An event sink that updates the file system of a mount.
#[derive(Debug)]
pub(crate) struct FilesystemSink {
    /// The objects that the file system shows.
    reach: ObjectScope,
    /// Empty until the mount has started.
    fs: OnceLock<Arc<Filesystem>>,
}

impl FilesystemSink {
    /// Creates a sink for a volume that is going to be mounted.
    pub(crate) fn new(reach: ObjectScope) -> Arc<Self> {
        Arc::new(Self { reach, fs: OnceLock::new() })
    }

    /// Starts to apply hints. Marks everything as stale first: no source reported changes of what was cached before.
    pub(crate) async fn start(&self, fs: &Arc<Filesystem>) {
        self.fs.get_or_init(|| Arc::clone(fs)).hints().mark_all_stale().await;
    }

    /// Returns a hint for the file system; `None` if it shows no such object.
    fn hint(&self, hint: &Hint<'_>) -> Option<vfs::Hint> {
        let key = ObjectKey::new(hint.key.to_vec()).ok()?;
        let name = ObjectName { container: hint.bucket.as_ref().into(), key };
        Some(vfs::Hint { key: self.reach.key(&name)?, state: change(hint)? })
    }
}

/// Returns the change that a hint reports, or `None` for a read.
fn change(hint: &Hint<'_>) -> Option<ReportedState> {
    let object = &hint.object;
    match hint.kind {
        ChangeKind::Stored => {
            let user = object
                .properties
                .as_ref()
                .map(|all| all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect());
            let etag = object.etag.as_deref().map(ETag::new);
            Some(ReportedState::Stored { etag, size_bytes: object.size_bytes, user })
        }
        ChangeKind::Removed => Some(ReportedState::Removed),
        ChangeKind::Changed => Some(ReportedState::Changed),
        ChangeKind::Read => None,
    }
}

#[async_trait::async_trait]
impl Sink for FilesystemSink {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let Some(fs) = self.fs.get() else { return Ok(()) };
        let hints = hints.iter().filter_map(|hint| self.hint(hint)).collect();
        fs.hints().process(hints).await.map_err(|error| SinkError(error.to_string()))
    }

    async fn lost(&self, _bucket: Option<&str>) -> Result<(), SinkError> {
        if let Some(fs) = self.fs.get() {
            fs.hints().mark_all_stale().await;
        }
        Ok(())
    }
}
