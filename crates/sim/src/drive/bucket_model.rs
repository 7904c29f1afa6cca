//! The model of a bucket.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{ETag, NULL_VERSION, ObjectRef, Tags, VersionId, Versioning};

/// A value that is not known because its change was in flight. The first observation determines it.
pub(super) type Unknown<T> = Option<T>;

/// A version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionModel {
    /// The version has an id of its own, and not `null`.
    pub(super) is_named: bool,
    pub(super) id: Unknown<VersionId>,
    pub(super) etag: Unknown<ETag>,
    /// `None` for a delete marker.
    pub(super) bytes: Option<Bytes>,
    pub(super) user: BTreeMap<String, String>,
    pub(super) tags: Tags,
}

/// An upload and its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadModel {
    pub(super) key: String,
    pub(super) user: BTreeMap<String, String>,
    pub(super) tags: Tags,
    pub(super) parts: BTreeMap<u32, PartModel>,
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartModel {
    Stored(Bytes),
    /// A listed part with its length. Its bytes become visible when the upload is completed.
    Listed(usize),
}

impl PartModel {
    /// Returns the bytes of a part that the model stored; empty for a part that was only listed.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Stored(bytes) => bytes,
            Self::Listed(_) => &[],
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Stored(bytes) => bytes.len(),
            Self::Listed(len) => *len,
        }
    }
}

/// The expected state of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BucketModel {
    pub(super) exists: bool,
    pub(super) versioning: Versioning,
    /// Versions of each key, newest first, never empty. Successive models share them.
    pub(super) keys: BTreeMap<Arc<str>, Arc<Vec<VersionModel>>>,
    /// Uploads by id; `None`: the upload was in flight, and its id is not known.
    pub(super) uploads: BTreeMap<Option<String>, UploadModel>,
    pub(super) settings: BTreeMap<String, Bytes>,
}

impl BucketModel {
    /// Returns the version that a read of the key gets.
    pub(super) fn current(&self, key: &str) -> Option<&VersionModel> {
        self.keys.get(key)?.first().filter(|version| version.bytes.is_some())
    }

    /// Returns the versions with an id of their own: key, id and bytes.
    pub(super) fn named_versions(&self) -> impl Iterator<Item = (&str, &VersionId, &Bytes)> {
        let all =
            self.keys.iter().flat_map(|(key, version)| version.iter().map(move |version| (&**key, version)));
        let named_versions = all.filter(|(_, version)| version.is_named);
        named_versions.filter_map(|(key, version)| Some((key, version.id.as_ref()?, version.bytes.as_ref()?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.uploads.is_empty()
    }

    /// Stores a version of a key, or a delete marker.
    pub(super) fn put(
        &mut self,
        key: &str,
        bytes: Option<Bytes>,
        user: BTreeMap<String, String>,
        tags: Tags,
    ) {
        let versions = Arc::make_mut(self.keys.entry(key.into()).or_default());
        match self.versioning {
            Versioning::Never => versions.clear(),
            Versioning::Enabled => {}
            Versioning::Suspended => versions.retain(|version| version.is_named),
        }
        let is_named = self.versioning == Versioning::Enabled;
        let id = (!is_named).then(|| NULL_VERSION.into());
        versions.insert(0, VersionModel { is_named, id, etag: None, bytes, user, tags });
    }

    pub(super) fn delete(&mut self, key: &str) {
        match self.versioning {
            Versioning::Never => drop(self.keys.remove(key)),
            _ => self.put(key, None, BTreeMap::new(), Tags::new()),
        }
    }

    /// Removes a version permanently.
    pub(super) fn remove(&mut self, key: &str, at: usize) {
        if let Some(versions) = self.keys.get_mut(key).map(Arc::make_mut) {
            versions.remove(at);
            if versions.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// Returns the newest version of a key for changes.
    pub(super) fn newest_mut(&mut self, key: &str) -> Option<&mut VersionModel> {
        Arc::make_mut(self.keys.get_mut(key)?).first_mut()
    }

    /// Sets etag and id of the newest version from the result of a put.
    pub(super) fn learn(&mut self, key: &str, put: ObjectRef) {
        if let Some(version) = self.newest_mut(key) {
            version.etag = Some(put.etag);
            version.id = put.version.or(version.id.take());
        }
    }

    /// Whether etags or ids of changes that were in flight are still unknown.
    pub(super) fn has_unknown(&self) -> bool {
        let is_unknown = |version: &VersionModel| {
            version.id.is_none() || (version.etag.is_none() && version.bytes.is_some())
        };
        self.keys.values().flat_map(|version| &**version).any(is_unknown) || self.uploads.contains_key(&None)
    }

    /// Adopts an observation that this model allows.
    pub(super) fn adopt(mut self, seen: Self) -> Self {
        let in_flight = self.uploads.remove(&None);
        let new = seen.uploads.into_keys().find(|id| !self.uploads.contains_key(id));
        if let (Some(upload), Some(id)) = (in_flight, new) {
            self.uploads.insert(id, upload);
        }
        Self { keys: seen.keys, ..self }
    }

    /// Whether an observation is a correct state.
    pub(super) fn allows(&self, seen: &Self) -> bool {
        let keys = || {
            self.keys.len() == seen.keys.len()
                && self.keys.iter().zip(&seen.keys).all(|((key, version), (seen_key, seen))| {
                    key == seen_key
                        && version.len() == seen.len()
                        && version.iter().zip(&**seen).all(|(version, seen)| version.allows(seen))
                })
        };
        let uploads = || {
            let mut left: Vec<&UploadModel> =
                self.uploads.iter().filter(|(id, _)| id.is_none()).map(|(_, upload)| upload).collect();
            let known = self.uploads.len() - left.len();
            let all = seen.uploads.iter().all(|(id, upload)| match self.uploads.get(id) {
                Some(known) => known.allows(upload),
                None => left.pop().is_some_and(|unknown| unknown.allows(upload)),
            });
            all && left.is_empty() && seen.uploads.len() >= known
        };
        self.exists == seen.exists
            && self.versioning == seen.versioning
            && self.settings == seen.settings
            && keys()
            && uploads()
    }
}

impl UploadModel {
    /// An observation of an upload shows its key, attributes, and the numbers and lengths of its parts.
    fn allows(&self, seen: &Self) -> bool {
        let lens = |upload: &Self| upload.parts.iter().map(|(number, part)| (*number, part.len())).collect();
        let (own, other): (Vec<_>, Vec<_>) = (lens(self), lens(seen));
        (&self.key, &self.user, own) == (&seen.key, &seen.user, other)
    }
}

impl VersionModel {
    fn allows(&self, seen: &Self) -> bool {
        let Self { is_named, id, etag, bytes, user, tags } = self;
        (*is_named, user, tags) == (seen.is_named, &seen.user, &seen.tags)
            && are_same(bytes.as_ref(), seen.bytes.as_ref())
            && id.as_ref().is_none_or(|id| seen.id.as_ref() == Some(id))
            && etag.as_ref().is_none_or(|etag| seen.etag.as_ref() == Some(etag))
    }

    /// Describes the version for messages.
    pub(super) fn describe(&self) -> String {
        let bytes = self.bytes.as_ref().map_or("a delete marker".into(), |bytes| match bytes.first() {
            Some(first) => format!("{} bytes of {first:02x}", bytes.len()),
            None => "no bytes".into(),
        });
        let (id, etag) = (self.id.as_deref().unwrap_or("?"), self.etag.as_ref().map_or("?", ETag::as_str));
        format!("{bytes} as {id} etag {etag} {:?} {:?}", self.user, self.tags)
    }
}

/// Compares bytes. Bytes that were not read again share their buffer, and need no comparison.
fn are_same(one: Option<&Bytes>, other: Option<&Bytes>) -> bool {
    let place = |bytes: &Bytes| (bytes.as_ptr(), bytes.len());
    one.map(place) == other.map(place) || one == other
}

/// Describes a bucket for messages.
pub(super) fn describe(model: &BucketModel) -> String {
    let keys: Vec<String> = model
        .keys
        .iter()
        .map(|(key, version)| {
            format!("{key}: [{}]", version.iter().map(VersionModel::describe).collect::<Vec<_>>().join("; "))
        })
        .collect();
    let uploads: Vec<String> = model
        .uploads
        .iter()
        .map(|(id, upload)| {
            let parts: Vec<_> = upload.parts.iter().map(|(number, part)| (number, part.len())).collect();
            format!("upload {id:?} of {} {parts:?}", upload.key)
        })
        .collect();
    format!(
        "{}{:?} {} {} {:?}",
        if model.exists { "" } else { "MISSING " },
        model.versioning,
        keys.join(" | "),
        uploads.join(" | "),
        model.settings.keys()
    )
}
