//! Shows a mount's views as directories of its file system.

use super::{ChangeDetection, MountedViews};
use meta::Name;
use std::sync::Arc;
use std::time::Duration;
use store::{ObjectKey, names};
use vfs::{Derived, DerivedEntry, DerivedFile, Error, Placed, Result, StaleNames};
use views::tree::{Entry, TreeError};
use views::{ObjectName, Ruleset, Shown};

/// How long the kernel caches entries of views whose changes are all reported by events, and invalidated then.
const REPORTED_LIFETIME: Duration = Duration::from_secs(3600);
/// How long the kernel caches entries of views with rules on ages, where events report other changes: no event
/// reports changes that come with time.
const AGE_RULES_LIFETIME: Duration = Duration::from_secs(1);

#[async_trait::async_trait]
impl Derived for MountedViews {
    async fn find(&self, path: &[Name]) -> Result<Option<DerivedEntry>> {
        self.refresh().await;
        Ok(self.tree.find(&bytes(path)).await.map_err(to_errno)?.and_then(|entry| self.entry(entry)))
    }

    async fn list(
        &self,
        directory: &[Name],
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, DerivedEntry)>> {
        self.refresh().await;
        let mut after: Option<Arc<[u8]>> = after.map(|name| name.as_bytes().into());
        loop {
            let listed =
                self.tree.list(&bytes(directory), after.as_deref(), limit).await.map_err(to_errno)?;
            let Some((last, _)) = listed.last() else { return Ok(Vec::new()) };
            after = Some(Arc::clone(last));
            let entries = listed.into_iter().filter_map(|(name, entry)| Some((name, self.entry(entry)?)));
            let named = entries.filter_map(|(name, entry)| Some((Name::new(&name).ok()?, entry)));
            let named: Vec<_> = named.collect();
            // Only an empty page of the tree is the end: continue after a page without entries of the volume.
            if !named.is_empty() {
                return Ok(named);
            }
        }
    }

    async fn place(&self, path: &[Name]) -> Result<Placed> {
        let place = self.tree.place(&bytes(path)).await.map_err(to_errno)?;
        let object = ObjectName { container: place.container.into(), key: place.key };
        let key = self.scope.key(&object).ok_or_else(|| {
            tracing::info!("cannot make a file: the view would place {} outside of the volume", object.key);
            Error::Errno { errno: libc_errno::INVALID, what: "the view puts new files outside of the volume" }
        })?;
        let inside = ObjectKey::new(key.as_bytes()[self.scope.prefix().len()..].to_vec());
        let inside = inside.map_err(|error| Error::Name(error.into()))?;
        Ok(Placed {
            path: names::key_to_path(&inside),
            properties: place.properties,
            tags: place.tags,
            content_type: place.content_type,
        })
    }

    async fn make_directory(&self, path: &[Name]) -> Result<()> {
        self.tree.make_directory(&bytes(path)).await.map_err(to_errno)
    }

    async fn remove_directory(&self, path: &[Name]) -> Result<()> {
        self.tree.remove_directory(&bytes(path)).await.map_err(to_errno)
    }

    async fn rename(&self, from: &[Name], to: &[Name]) -> Result<()> {
        self.tree.rename(&bytes(from), &bytes(to)).await.map_err(to_errno)
    }

    fn recency(&self, directory: &[Name]) -> Duration {
        self.ruleset_of(directory).and_then(|ruleset| ruleset.recency).unwrap_or(self.recency)
    }

    fn lifetime(&self, directory: &[Name]) -> Duration {
        let ruleset = self.ruleset_of(directory);
        match self.detection {
            ChangeDetection::Events if ruleset.is_some_and(Ruleset::has_ages) => AGE_RULES_LIFETIME,
            ChangeDetection::Events => REPORTED_LIFETIME,
            ChangeDetection::Polling(every) => ruleset.and_then(|ruleset| ruleset.recency).unwrap_or(every),
        }
    }

    async fn version(&self, directory: &[Name]) -> Result<u64> {
        self.refresh().await;
        self.tree.version(&bytes(directory)).await.map_err(to_errno)
    }

    fn take_stale(&self, limit: usize) -> Vec<StaleNames> {
        self.take_stale_names(limit)
    }
}

impl MountedViews {
    /// Returns the ruleset of the view that a directory is in.
    fn ruleset_of(&self, directory: &[Name]) -> Option<&Ruleset> {
        let name = directory.first()?.as_bytes();
        self.rulesets.iter().find(|ruleset| ruleset.name.as_bytes() == name)
    }

    /// Converts an entry. Returns `None` for an object that the volume does not have.
    fn entry(&self, entry: Entry) -> Option<DerivedEntry> {
        match entry {
            Entry::Directory => Some(DerivedEntry::Directory),
            Entry::File(object) => {
                let Shown { name, size_bytes, etag, modified, properties, .. } = object.unpack();
                let key = self.scope.key(&name)?;
                Some(DerivedEntry::File(DerivedFile { key, size_bytes, etag, modified, properties }))
            }
        }
    }
}

fn bytes(path: &[Name]) -> Vec<&[u8]> {
    path.iter().map(Name::as_bytes).collect()
}

/// Converts an error to an error number. Logs what the number alone does not show.
fn to_errno(error: TreeError) -> Error {
    let errno = |errno, what| Error::Errno { errno, what };
    match error {
        TreeError::NotFound => errno(libc_errno::NOT_FOUND, "no such file or directory in the view"),
        TreeError::Exists => errno(libc_errno::EXISTS, "exists in the view"),
        TreeError::NotEmpty => errno(libc_errno::NOT_EMPTY, "not empty"),
        TreeError::NotDirectory => errno(libc_errno::NOT_DIRECTORY, "a file of the view"),
        TreeError::IsDirectory => errno(libc_errno::IS_DIRECTORY, "a directory of the view"),
        TreeError::Elsewhere => errno(libc_errno::CROSS, "only a copy and a removal can do it"),
        TreeError::Fixed => errno(libc_errno::NOT_PERMITTED, "views are made by rulesets"),
        TreeError::Invalid(why) => {
            tracing::warn!("{why}");
            errno(libc_errno::INVALID, "the view could not show it")
        }
        error => {
            tracing::warn!("{error}");
            errno(libc_errno::IO, "the view cannot be read")
        }
    }
}

/// Error numbers of Linux.
mod libc_errno {
    use rustix::io::Errno;

    pub(super) const NOT_FOUND: i32 = Errno::NOENT.raw_os_error();
    pub(super) const EXISTS: i32 = Errno::EXIST.raw_os_error();
    pub(super) const NOT_EMPTY: i32 = Errno::NOTEMPTY.raw_os_error();
    pub(super) const NOT_DIRECTORY: i32 = Errno::NOTDIR.raw_os_error();
    pub(super) const IS_DIRECTORY: i32 = Errno::ISDIR.raw_os_error();
    pub(super) const NOT_PERMITTED: i32 = Errno::PERM.raw_os_error();
    pub(super) const INVALID: i32 = Errno::INVAL.raw_os_error();
    pub(super) const CROSS: i32 = Errno::XDEV.raw_os_error();
    pub(super) const IO: i32 = Errno::IO.raw_os_error();
}
