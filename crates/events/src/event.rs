//! What happened to an object.

use crate::Sequence;
use std::collections::BTreeMap;
use std::net::IpAddr;
use store::{ETag, ObjectKey, Tags, Timestamp, VersionId};

/// What kinds of events there are (S3 User Guide, "Supported event types"), as far as Tenon has them.
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
    /// All of them.
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

    /// AWS's name, without the `s3:` that configurations write before it.
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

    /// The kind that has this name, with `s3:` before it or without.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.strip_prefix("s3:").unwrap_or(name);
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the key shows an object by what happened.
    pub fn is_created(self) -> bool {
        self.name().starts_with("ObjectCreated:")
    }

    /// Whether the key's object is gone by what happened.
    pub fn is_removed(self) -> bool {
        self.name().starts_with("ObjectRemoved:") || self.name().starts_with("LifecycleExpiration:")
    }
}

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// What.
    pub kind: EventKind,
    /// When.
    pub time: Timestamp,
    /// Its place among the events of the key.
    pub sequence: Sequence,
    /// The region that the bucket says it is in.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// Who owns the bucket.
    pub owner: String,
    /// The object's name.
    pub key: ObjectKey,
    /// What is known of the object; of one that is gone, its version at most.
    pub object: Described,
    /// Who asked for it.
    pub principal: String,
    /// From where, if that is known.
    pub source: Option<IpAddr>,
    /// By which request.
    pub request_id: String,
}

/// An object as an event describes it. What is `None` is not known, or is not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Described {
    /// Length in bytes.
    pub size_bytes: Option<u64>,
    /// Which bytes.
    pub etag: Option<ETag>,
    /// Which version, in a bucket that keeps versions.
    pub version: Option<VersionId>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// User metadata: names in lower case without `x-amz-meta-`.
    pub user: BTreeMap<String, String>,
    /// Tags.
    pub tags: Tags,
}
