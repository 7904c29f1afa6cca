//! Events: what happened to an object.

use crate::Sequence;
use std::collections::BTreeMap;
use std::net::IpAddr;
use store::{ETag, ObjectKey, Tags, Timestamp, VersionId};

/// The kinds of events that Tenon has, a subset of AWS's (S3 User Guide, "Supported event types").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are AWS's")]
pub enum EventKind {
    CreatedPut,
    CreatedPost,
    CreatedCopy,
    CreatedCompleteMultipartUpload,
    RemovedDelete,
    RemovedDeleteMarkerCreated,
    TaggingPut,
    TaggingDelete,
    ExpirationDelete,
    ExpirationDeleteMarkerCreated,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::CreatedPut,
        Self::CreatedPost,
        Self::CreatedCopy,
        Self::CreatedCompleteMultipartUpload,
        Self::RemovedDelete,
        Self::RemovedDeleteMarkerCreated,
        Self::TaggingPut,
        Self::TaggingDelete,
        Self::ExpirationDelete,
        Self::ExpirationDeleteMarkerCreated,
    ];

    /// Returns AWS's name, without the prefix `s3:` that configurations use.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreatedPut => "ObjectCreated:Put",
            Self::CreatedPost => "ObjectCreated:Post",
            Self::CreatedCopy => "ObjectCreated:Copy",
            Self::CreatedCompleteMultipartUpload => "ObjectCreated:CompleteMultipartUpload",
            Self::RemovedDelete => "ObjectRemoved:Delete",
            Self::RemovedDeleteMarkerCreated => "ObjectRemoved:DeleteMarkerCreated",
            Self::TaggingPut => "ObjectTagging:Put",
            Self::TaggingDelete => "ObjectTagging:Delete",
            Self::ExpirationDelete => "LifecycleExpiration:Delete",
            Self::ExpirationDeleteMarkerCreated => "LifecycleExpiration:DeleteMarkerCreated",
        }
    }

    /// Returns the kind with this name, which may have the prefix `s3:`; `None` if Tenon does not have it.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.strip_prefix("s3:").unwrap_or(name);
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether an event of this kind reports that an object was stored.
    pub fn is_created(self) -> bool {
        self.name().starts_with("ObjectCreated:")
    }

    /// Returns whether an event of this kind reports that an object or a version was removed, or that a delete marker
    /// hides it.
    pub fn is_removed(self) -> bool {
        self.name().starts_with("ObjectRemoved:") || self.name().starts_with("LifecycleExpiration:")
    }
}

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// The time of the event.
    pub time: Timestamp,
    /// The position among the events of the key.
    pub sequence: Sequence,
    /// The region that the bucket reports.
    pub region: String,
    /// The bucket's name.
    pub bucket: String,
    /// The owner of the bucket.
    pub owner: String,
    /// The object's key.
    pub key: ObjectKey,
    /// The description of the object. For an object that is gone, at most its version.
    pub object: Described,
    /// The user who made the request.
    pub principal: String,
    /// The address that the request came from, if it is known.
    pub source: Option<IpAddr>,
    /// The id of the request.
    pub request_id: String,
}

/// An object as an event describes it. `None` means unknown or absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Described {
    /// The length in bytes.
    pub size_bytes: Option<u64>,
    /// The etag of the object's bytes.
    pub etag: Option<ETag>,
    /// The version id, in a bucket that keeps versions.
    pub version: Option<VersionId>,
    /// The value of `Content-Type`.
    pub content_type: Option<String>,
    /// The user metadata: names in lower case without `x-amz-meta-`.
    pub user: BTreeMap<String, String>,
    /// The tags.
    pub tags: Tags,
}
