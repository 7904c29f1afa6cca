//! Rules that differ between the kinds of volumes, for the services below the operations.
//!
//! Each kind has one constant (`by_path::RULES`, `by_inode::RULES`), which is chosen when the volume is mounted.

/// Differences between the two kinds of volumes, as rules for services.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VolumeRules {
    /// Other clients change the objects that names show. What is known of directories, the changes under way and the locks of
    /// paths are kept to compare the names with the bucket; without this rule, they are not kept.
    pub(crate) follows_bucket: bool,
    /// Several machines may mount the volume at the same time.
    pub(crate) can_be_shared: bool,
    /// Attributes and extended attributes of files and directories are exported to the headers of their objects.
    pub(crate) exports_attributes: bool,
    /// A file that was never stored loses its name if its writes are lost, because a name without an object would look like the
    /// leftover of a dead mount.
    pub(crate) removes_unstored_files: bool,
    /// The documents of a bucket are stored under the bucket's name, and move when it is renamed.
    pub(crate) names_documents_by_bucket: bool,
    /// A file's object contains its holes, as zeros.
    pub(crate) stores_holes: bool,
    /// Maximum length in bytes to which a file can grow.
    pub(crate) file_bytes_max: u64,
    /// The memory that the eviction of names frees.
    pub(crate) evicted: Evicted,
}

/// The memory that the eviction of names frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// Names that can be read from the bucket again.
    Names,
    /// References of the kernel to inodes, where the tables alone have the names.
    References,
}
