//! What events say of a mounted volume's objects, told to its file system.
//!
//! Owns the way from a hint to what the file system may believe: names, attributes and bytes that it and the kernel know are put
//! right as soon as a source speaks, however long they would be believed otherwise.

use crate::viewing::Reach;
use events::{Hint, Sink, SinkError, What};
use std::sync::{Arc, OnceLock};
use store::{ETag, ObjectKey};
use vfs::{Filesystem, Says};
use views::ObjectName;

/// A mount's file system, as somebody who hears of its objects.
#[derive(Debug)]
pub(crate) struct Coherence {
    reach: Reach,
    /// Not there yet while the mount begins.
    fs: OnceLock<Arc<Filesystem>>,
}

impl Coherence {
    /// Of a volume that will be mounted.
    pub(crate) fn of(reach: Reach) -> Arc<Self> {
        Arc::new(Self { reach, fs: OnceLock::new() })
    }

    /// Hears from now on. What was learned before, in this mount or an earlier one, nobody spoke of.
    pub(crate) async fn begin(&self, fs: &Arc<Filesystem>) {
        self.fs.get_or_init(|| Arc::clone(fs)).doubt_everything().await;
    }

    fn hint(&self, hint: &Hint<'_>) -> Option<vfs::Hint> {
        let key = ObjectKey::new(hint.key.to_vec()).ok()?;
        let name = ObjectName { container: hint.bucket.as_ref().into(), key };
        Some(vfs::Hint { key: self.reach.key(&name)?, says: says(hint)? })
    }
}

/// What a hint says that anybody could see; nothing of an object that was read.
fn says(hint: &Hint<'_>) -> Option<Says> {
    let said = &hint.said;
    match hint.what {
        What::Stored => {
            let user = said
                .properties
                .as_ref()
                .map(|all| all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect());
            let etag = said.etag.as_deref().map(ETag::new);
            Some(Says::Stored { etag, size_bytes: said.size_bytes, user })
        }
        What::Removed => Some(Says::Removed),
        What::Changed => Some(Says::Changed),
        What::Read => None,
    }
}

#[async_trait::async_trait]
impl Sink for Coherence {
    async fn take(&self, hints: &[Hint<'_>]) -> Result<(), SinkError> {
        let Some(fs) = self.fs.get() else { return Ok(()) };
        let hints = hints.iter().filter_map(|hint| self.hint(hint)).collect();
        fs.hear(hints).await.map_err(|error| SinkError(error.to_string()))
    }

    async fn lost(&self, _bucket: Option<&str>) {
        if let Some(fs) = self.fs.get() {
            fs.doubt_everything().await;
        }
    }
}
