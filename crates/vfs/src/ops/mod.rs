//! The file system's operations, one family to a file.

mod attributes;
mod create;
mod directory;
mod locate;
mod lookup;
mod open;
mod read;
mod remove;
mod rename;
mod status;
mod sync;
mod write;

pub(crate) use directory::DirectoryHandle;
pub use directory::Listed;
pub use locate::Located;
pub use status::{Statfs, Status};
