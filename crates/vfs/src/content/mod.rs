//! The bytes of files: open files, snapshots that handles read, unpublished writes, and memory for both.

pub(crate) mod audit;
pub(crate) mod budget;
pub(crate) mod discards;
pub(crate) mod disk_space;
pub(crate) mod garbage;
pub(crate) mod open_file;
pub(crate) mod pin;
pub(crate) mod publishing;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod slab;
pub(crate) mod version;
pub(crate) mod write;
