//! Record metadata: derives what clients see of a record (etag, version id, `ObjectMeta`, `Version`) from the record,
//! the drive's id and the bucket's versioning state.

use crate::format::{Body, Naming, ObjectRecord};
use store::{ETag, NULL_VERSION, ObjectKey, ObjectMeta, ObjectRef, Version, Versioning};

/// The facts, apart from a record, on which the metadata shown to clients depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetadataContext {
    /// The id of the drive, a part of the etags.
    pub(super) drive: u64,
    pub(super) versioning: Versioning,
}

impl MetadataContext {
    pub(super) fn object_ref(self, key: &ObjectKey, record: &ObjectRecord) -> ObjectRef {
        ObjectRef {
            key: key.clone(),
            etag: etag_of(self.drive, record),
            version: effective_naming(record.naming, self.versioning).id(record.write, record.modified),
            last_modified: Some(record.modified),
        }
    }

    pub(super) fn meta(self, key: &ObjectKey, record: &ObjectRecord) -> ObjectMeta {
        ObjectMeta {
            object: self.object_ref(key, record),
            size_bytes: record.body.len_bytes(),
            attributes: record.attributes.clone(),
            tag_count: Some(record.tags.len() as u32),
        }
    }

    pub(super) fn version(self, key: &ObjectKey, record: &ObjectRecord, is_newest: bool) -> Version {
        let id = effective_naming(record.naming, self.versioning)
            .id(record.write, record.modified)
            .unwrap_or_else(|| NULL_VERSION.into());
        let stored = (record.body != Body::DeleteMarker).then(|| self.meta(key, record));
        Version { key: key.clone(), id, is_newest, last_modified: record.modified, stored }
    }

    /// Returns the versions of a key for these records, which are ordered newest first.
    pub(super) fn versions_of(
        self,
        key: &ObjectKey,
        records: &[ObjectRecord],
    ) -> impl Iterator<Item = Version> {
        let numbered = records.iter().enumerate();
        numbered.map(move |(at, record)| self.version(key, record, at == 0))
    }

    /// Returns whether the version of this record has the id `id`.
    pub(super) fn has_version_id(self, record: &ObjectRecord, id: &str) -> bool {
        let naming = match effective_naming(record.naming, self.versioning) {
            Naming::Unnamed => Naming::Null,
            naming => naming,
        };
        naming.id(record.write, record.modified).is_some_and(|name| *name == *id)
    }
}

/// Returns the etag of a record.
pub(super) fn etag_of(drive: u64, record: &ObjectRecord) -> ETag {
    etag(drive, record.write, record.etag.as_ref())
}

/// Returns the etag given by the writer or, without one, the etag derived from the drive's id and the write number.
pub(super) fn etag(drive: u64, write: u64, given: Option<&ETag>) -> ETag {
    given.cloned().unwrap_or_else(|| etag_of_write(drive, write))
}

/// Returns the etag of a write. Listings need it for each object, so it is built without a format string, which would take as long as
/// everything else in them.
fn etag_of_write(drive: u64, write: u64) -> ETag {
    let number = u128::from(drive) << 64 | u128::from(write);
    ETag::new(&(store::hex(&number.to_be_bytes()) + "-1"))
}

/// Returns how a version's id is formed in a bucket of this state: versions from before versioning have the id `null`.
pub(super) fn effective_naming(naming: Naming, state: Versioning) -> Naming {
    match (naming, state) {
        (Naming::Unnamed, Versioning::Enabled | Versioning::Suspended) => Naming::Null,
        _ => naming,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_consists_of_drive_id_and_write_number() {
        assert_eq!(etag_of_write(0xfe_dcba_9876_5432, 0x1b).as_str(), "00fedcba98765432000000000000001b-1");
    }
}
