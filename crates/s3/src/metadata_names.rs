//! Names of the user metadata in which the endpoint keeps its own facts about an object.
//!
//! Clients can neither set nor see them.

/// The name that keeps an object's checksum.
pub(crate) const CHECKSUM: &str = "tenon-checksum";
/// The name that keeps the sizes of an object's parts.
pub(crate) const PARTS: &str = "tenon-parts";
/// The name that keeps the checksums of an object's parts.
pub(crate) const PART_CHECKSUMS: &str = "tenon-part-checksums";
/// The name that keeps the user who began an upload.
pub(crate) const INITIATOR: &str = "tenon-initiator";
/// The name that keeps the id of the upload that an object came from.
pub(crate) const UPLOAD: &str = "tenon-upload";

/// Returns whether a name belongs to metadata of the endpoint itself.
pub(crate) fn is_internal(name: &str) -> bool {
    [CHECKSUM, INITIATOR, PARTS, PART_CHECKSUMS, UPLOAD].contains(&name)
}
