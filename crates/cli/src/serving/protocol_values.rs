//! Values of the control protocol, made from those of the volume.

use crate::control::protocol::{FileExtent, Quota};

pub(super) fn quota_to_protocol(quota: &vfs::Quota) -> Quota {
    let used = |used: i64| u64::try_from(used).unwrap_or(0);
    Quota {
        bytes: quota.limits.bytes,
        bytes_used: used(quota.used.bytes),
        files: quota.limits.files,
        files_used: used(quota.used.files),
    }
}

pub(super) fn extent_to_protocol((key, extent): (store::ObjectKey, meta::Extent)) -> FileExtent {
    FileExtent {
        offset: extent.offset,
        len: extent.len,
        key: key.to_string(),
        etag: extent.object.etag.to_string(),
        object_offset: extent.object_offset,
    }
}
