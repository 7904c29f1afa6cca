//! The object drive: objects on a raw block device, or on a file that stands for one, without a file system below.
//!
//! Refuses: to trust a byte that it reads (everything on the device has a checksum), and to name what is not yet durable.

mod bucket;
pub mod device;
mod error;
mod format;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod index;
pub mod kv;
mod machine;
pub mod pool;
mod shell;
mod space;
mod wire;

pub use error::{Error, Result};
pub use machine::{Area, Checked, FormatOptions, OpenOptions, Use};
pub use shell::{Drive, Info, Pace, Scrubbed, ZoneUse};
