//! One sweep: evaluates the rules for everything in a bucket, and deletes what is due.

use futures_util::StreamExt as _;
use s3s::S3Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{
    ListRequest, ListVersions, ObjectKey, ObjectRef, Pages, Precondition, Removal, StoreError, Tags,
    Timestamp, Upload, Version, VersionEntry, Versioning, Versions,
};

use super::rule::{Rule, midnight_after};
use crate::bucket::Bucket;
use crate::error::from_store;
use crate::notify::{Cause, Notifier};
use crate::operations::Mutation;
use crate::ops::tagging;
use crate::version_lookup;

/// Entries per listed page.
const PAGE_ENTRIES: usize = 1000;
/// The maximum number of deletions in flight.
const DELETIONS_IN_FLIGHT: usize = 8;
/// Failures after which the sweep of a bucket stops.
const FAILURES_MAX: u64 = 16;
/// The principal of lifecycle events.
const PRINCIPAL: &str = "tenon:lifecycle";

/// The results of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Expired objects. In a bucket with versioning, delete markers hide them.
    pub objects: u64,
    /// Deleted noncurrent versions.
    pub versions: u64,
    /// Deleted delete markers that hid nothing any more.
    pub marks: u64,
    /// Aborted uploads.
    pub uploads: u64,
    /// Items that were due and could not be deleted, and buckets that could not be read.
    pub failures: u64,
}

impl Expired {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects + other.objects,
            versions: self.versions + other.versions,
            marks: self.marks + other.marks,
            uploads: self.uploads + other.uploads,
            failures: self.failures + other.failures,
        }
    }
}

/// The sweep of one bucket.
pub(super) struct Sweep {
    pub(super) bucket: Bucket,
    pub(super) rules: Vec<Rule>,
    pub(super) now: Timestamp,
    pub(super) notifier: Arc<Notifier>,
    counts: Counts,
}

/// The counts of a sweep in progress, in the order of [`Expired`].
#[derive(Default)]
struct Counts {
    objects: AtomicU64,
    versions: AtomicU64,
    marks: AtomicU64,
    uploads: AtomicU64,
    failures: AtomicU64,
}

/// An item that is due.
enum Due {
    Object(ObjectRef),
    /// A current version, to be hidden by a delete marker.
    Current(ObjectRef),
    /// A noncurrent version, the time at which it was replaced, and the number of newer noncurrent versions.
    Noncurrent(Box<Version>, Timestamp, usize),
    DeleteMarker(Box<Version>),
    Upload(Box<Upload>),
}

impl Sweep {
    pub(super) fn new(bucket: Bucket, rules: Vec<Rule>, now: Timestamp, notifier: Arc<Notifier>) -> Self {
        Self { bucket, rules, now, notifier, counts: Counts::default() }
    }

    /// Sweeps the bucket, until it is done or too many deletions have failed. Fails if the bucket cannot be read.
    pub(super) async fn run(&self) -> S3Result<Expired> {
        for prefix in self.prefixes(|rule| rule.aborts_after_days.is_some()) {
            self.uploads(&prefix).await?;
        }
        let is_versioned = version_lookup::versioning_state(&self.bucket).await? != Versioning::Never;
        match self.bucket.store.versions().filter(|_| is_versioned) {
            Some(versions) => {
                let is_included = |rule: &Rule| {
                    rule.expires.is_some() || rule.noncurrent.is_some() || rule.removes_orphan_markers
                };
                for prefix in self.prefixes(is_included) {
                    self.versions(versions, &prefix).await?;
                }
            }
            None => {
                for prefix in self.prefixes(|rule| rule.expires.is_some()) {
                    self.objects(&prefix).await?;
                }
            }
        }
        Ok(self.expired())
    }

    pub(super) fn expired(&self) -> Expired {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        Expired {
            objects: of(&counts.objects),
            versions: of(&counts.versions),
            marks: of(&counts.marks),
            uploads: of(&counts.uploads),
            failures: of(&counts.failures),
        }
    }

    fn has_too_many_failures(&self) -> bool {
        self.counts.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    /// Returns the prefixes of the given kind of rules, without those that another prefix covers.
    fn prefixes(&self, is_included: impl Fn(&Rule) -> bool) -> Vec<String> {
        let rules = self.rules.iter().filter(|rule| is_included(rule));
        let mut all: Vec<String> = rules.map(|rule| rule.filter.prefix.clone()).collect();
        all.sort();
        // In sorted order, a prefix is followed by all texts that begin with it.
        all.dedup_by(|longer, shorter| longer.starts_with(shorter.as_str()));
        all
    }

    /// Deletes the expired objects of a bucket without versioning.
    async fn objects(&self, prefix: &str) -> S3Result<()> {
        let prefix = prefix.to_owned().into();
        let request = ListRequest { prefix, limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::new(self.bucket.store.as_ref(), request);
        while !self.has_too_many_failures()
            && let Some(page) = pages.next().await.map_err(from_store)?
        {
            let due = page.into_iter().filter_map(|entry| {
                let (object, size_bytes) = entry.into_object()?;
                self.may_be_due(&object, size_bytes).then_some(Due::Object(object))
            });
            self.delete_all(due.collect()).await;
        }
        Ok(())
    }

    /// Returns whether a rule expires the object, tags aside.
    fn may_be_due(&self, object: &ObjectRef, size_bytes: u64) -> bool {
        object
            .last_modified
            .is_some_and(|stored| self.expiring_rules(object, size_bytes, stored).next().is_some())
    }

    /// Returns the rules that expire an object stored at `stored`, tags aside.
    fn expiring_rules(
        &self,
        object: &ObjectRef,
        size_bytes: u64,
        stored: Timestamp,
    ) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| {
            rule.expires.is_some_and(|expires| expires.due_at(stored) <= self.now)
                && rule.filter.matches_key(object.key.as_bytes())
                && rule.filter.matches_size(size_bytes)
        })
    }

    /// Deletes the expired objects and versions of a bucket with versioning.
    async fn versions(&self, versions: &dyn Versions, prefix: &str) -> S3Result<()> {
        let mut request =
            ListVersions { prefix: prefix.to_owned().into(), limit: PAGE_ENTRIES, ..ListVersions::default() };
        let mut key = KeyScan::default();
        while !self.has_too_many_failures() {
            let page = versions.list(request.clone()).await.map_err(from_store)?;
            let is_last = page.len() < PAGE_ENTRIES;
            let mut due = Vec::new();
            for entry in page {
                let VersionEntry::Version(version) = entry else { continue };
                request.after = Some(bytes::Bytes::copy_from_slice(version.key.as_bytes()));
                request.after_version = Some(version.id.clone());
                due.extend(self.collect_due(&mut key, version));
            }
            if is_last {
                due.extend(
                    key.take_orphan_marker()
                        .filter(|marker| self.is_marker_due(marker))
                        .map(Due::DeleteMarker),
                );
            }
            self.delete_all(due).await;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Returns what is due once `version` is known: the version itself, or the previous key's delete marker if it turns
    /// out to be that key's only version.
    fn collect_due(&self, scan: &mut KeyScan, version: Box<Version>) -> Vec<Due> {
        let mut due = Vec::new();
        if scan.key.as_ref() != Some(&version.key) {
            due.extend(
                scan.take_orphan_marker().filter(|marker| self.is_marker_due(marker)).map(Due::DeleteMarker),
            );
            *scan = KeyScan { key: Some(version.key.clone()), ..KeyScan::default() };
        } else {
            scan.marker = None;
        }
        let replaced_at = scan.newer_at.replace(version.last_modified);
        match (replaced_at, &version.stored) {
            (None, Some(meta)) => {
                let object = &meta.object;
                if self.expiring_rules(object, meta.size_bytes, version.last_modified).next().is_some() {
                    due.push(Due::Current(ObjectRef { version: Some(version.id), ..object.clone() }));
                }
            }
            (None, None) => scan.marker = Some(version),
            (Some(replaced_at), _) => {
                let newer = scan.noncurrent;
                scan.noncurrent += 1;
                if self.deleting_rules(&version, replaced_at, newer).next().is_some() {
                    due.push(Due::Noncurrent(version, replaced_at, newer));
                }
            }
        }
        due
    }

    /// Returns the rules that delete a version replaced at `replaced_at` with `newer` newer noncurrent versions, tags
    /// aside.
    fn deleting_rules(
        &self,
        version: &Version,
        replaced_at: Timestamp,
        newer: usize,
    ) -> impl Iterator<Item = &Rule> {
        let size_bytes = version.stored.as_ref().map(|meta| meta.size_bytes);
        self.rules.iter().filter(move |rule| {
            let is_due = rule.noncurrent.is_some_and(|noncurrent| {
                noncurrent.newer <= newer && midnight_after(replaced_at, noncurrent.days) <= self.now
            });
            let fits = match size_bytes {
                Some(size_bytes) => rule.filter.matches_size(size_bytes),
                None => rule.filter.is_by_key_only(),
            };
            is_due && fits && rule.filter.matches_key(version.key.as_bytes())
        })
    }

    fn is_marker_due(&self, marker: &Version) -> bool {
        self.rules.iter().any(|rule| {
            let is_old = matches!(rule.expires, Some(expires @ super::rule::Expiry::Days(_))
                if expires.due_at(marker.last_modified) <= self.now);
            (rule.removes_orphan_markers || is_old)
                && rule.filter.is_by_key_only()
                && rule.filter.matches_key(marker.key.as_bytes())
        })
    }

    /// Aborts the uploads that are too old.
    async fn uploads(&self, prefix: &str) -> S3Result<()> {
        let Some(uploads) = self.bucket.store.uploads() else { return Ok(()) };
        let listed = uploads.list(prefix.as_bytes()).await.map_err(from_store)?;
        let is_due = |upload: &Upload| {
            self.rules.iter().any(|rule| {
                rule.filter.matches_key(upload.key.as_bytes())
                    && rule
                        .aborts_after_days
                        .is_some_and(|days| midnight_after(upload.began, days) <= self.now)
            })
        };
        let due = listed.into_iter().filter(is_due).map(|upload| Due::Upload(Box::new(upload)));
        self.delete_all(due.collect()).await;
        Ok(())
    }

    /// Deletes what is due, several at a time.
    async fn delete_all(&self, due: Vec<Due>) {
        let deletions = due.into_iter().map(|due| self.delete(due));
        futures_util::stream::iter(deletions)
            .buffer_unordered(DELETIONS_IN_FLIGHT)
            .collect::<Vec<()>>()
            .await;
    }

    async fn delete(&self, due: Due) {
        if self.has_too_many_failures() {
            return;
        }
        let counts = &self.counts;
        let (deleted, count) = match due {
            Due::Object(object) => (self.delete_object(object).await, &counts.objects),
            Due::Current(object) => (self.add_delete_marker(object).await, &counts.objects),
            Due::Noncurrent(version, replaced_at, newer) => {
                (self.delete_noncurrent(&version, replaced_at, newer).await, &counts.versions)
            }
            Due::DeleteMarker(marker) => (self.remove_version(&marker.key, &marker.id).await, &counts.marks),
            Due::Upload(upload) => (self.abort(&upload).await, &counts.uploads),
        };
        match deleted {
            Ok(true) => drop(count.fetch_add(1, Ordering::Relaxed)),
            // The item was deleted or replaced in the meantime, or is locked.
            Ok(false)
            | Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_) | StoreError::Locked(_)) => {}
            Err(error) => {
                let earlier = counts.failures.fetch_add(1, Ordering::Relaxed);
                if earlier == 0 {
                    tracing::warn!(bucket = self.bucket.name, %error, "cannot delete an item that a lifecycle rule expires; further failures in this bucket are only counted");
                }
            }
        }
    }

    /// Returns a view of the bucket that emits the events of one deletion.
    fn observed_bucket(&self) -> Bucket {
        let cause = Cause {
            mutation: Mutation::Expire,
            principal: PRINCIPAL.to_owned(),
            source: None,
            request_id: String::new(),
        };
        self.notifier.observe(self.bucket.clone(), cause)
    }

    /// Returns whether the candidate still exists and is due. The etag alone does not prove this, since a newer object with
    /// the same bytes has the same etag: the rules are evaluated again for the object's current time.
    async fn is_still_due(&self, candidate: &ObjectRef) -> store::Result<bool> {
        let Some(found) = self.bucket.store.find(&candidate.key).await? else { return Ok(false) };
        let Some(stored) = found.object.last_modified else { return Ok(false) };
        let rules: Vec<&Rule> = self.expiring_rules(&found.object, found.size_bytes, stored).collect();
        Ok(found.object.etag == candidate.etag && self.matches_any_tags(&rules, &found.object).await?)
    }

    async fn delete_object(&self, candidate: ObjectRef) -> store::Result<bool> {
        let is_due = self.is_still_due(&candidate).await?;
        if is_due {
            self.observed_bucket()
                .store
                .delete(&candidate.key, Precondition::Matches(candidate.etag))
                .await?;
        }
        Ok(is_due)
    }

    async fn add_delete_marker(&self, candidate: ObjectRef) -> store::Result<bool> {
        let observed = self.observed_bucket();
        let Some(versions) = observed.store.versions() else { return Ok(false) };
        let is_due = self.is_still_due(&candidate).await?;
        if is_due {
            versions.mark(&candidate.key, Precondition::Matches(candidate.etag)).await?;
        }
        Ok(is_due)
    }

    /// Removes a version that is not the newest, if a rule says so. Returns whether it did.
    async fn delete_noncurrent(
        &self,
        version: &Version,
        replaced_at: Timestamp,
        newer: usize,
    ) -> store::Result<bool> {
        let rules: Vec<&Rule> = self.deleting_rules(version, replaced_at, newer).collect();
        let is_due = match &version.stored {
            Some(meta) => {
                let object = ObjectRef { version: Some(version.id.clone()), ..meta.object.clone() };
                self.matches_any_tags(&rules, &object).await?
            }
            None => !rules.is_empty(),
        };
        Ok(is_due && self.remove_version(&version.key, &version.id).await?)
    }

    /// Returns whether the object has the tags that some of the rules require.
    async fn matches_any_tags(&self, rules: &[&Rule], object: &ObjectRef) -> store::Result<bool> {
        if rules.iter().any(|rule| !rule.filter.needs_tags()) {
            return Ok(true);
        }
        if rules.is_empty() {
            return Ok(false);
        }
        let tags: Tags = tagging::read_from_store(&self.bucket, object).await?;
        Ok(rules.iter().any(|rule| rule.filter.matches_tags(&tags)))
    }

    async fn remove_version(&self, key: &ObjectKey, id: &str) -> store::Result<bool> {
        let observed = self.observed_bucket();
        let Some(versions) = observed.store.versions() else { return Ok(false) };
        versions.remove(key, id, Removal::default()).await?;
        Ok(true)
    }

    async fn abort(&self, upload: &Upload) -> store::Result<bool> {
        let Some(uploads) = self.bucket.store.uploads() else { return Ok(false) };
        uploads.abort(&upload.key, &upload.id).await?;
        Ok(true)
    }
}

/// The state of a scan over one key's versions, the newest first.
#[derive(Default)]
struct KeyScan {
    /// The key whose versions are scanned; `None` at first.
    key: Option<ObjectKey>,
    /// When the previous, newer version was stored.
    newer_at: Option<Timestamp>,
    /// Noncurrent versions so far.
    noncurrent: usize,
    /// The current version, if it is a delete marker and the only version so far.
    marker: Option<Box<Version>>,
}

impl KeyScan {
    fn take_orphan_marker(&mut self) -> Option<Box<Version>> {
        self.marker.take()
    }
}
