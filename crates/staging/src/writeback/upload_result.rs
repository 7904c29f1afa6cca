//! How the upload of a change ended.

use store::ETag;

/// How the upload of a change ended.
pub(super) enum UploadResult {
    /// The bucket has the change: the object under its key with this etag, or none after a deletion.
    Uploaded(Option<ETag>),
    /// The object is stored under another key, or nothing of it had to be kept.
    Aside,
}
