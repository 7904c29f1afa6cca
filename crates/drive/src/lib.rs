//! The object drive: stores objects on a raw block device, or in a file used as one, without a file system below.
//! Several devices can be one device ([`device::Array`]), and several drives one set of buckets ([`pool`]). [`kv`] is
//! an interface for key-value pairs.
//!
//! Every byte on the device has a checksum that is verified on each read from the device. An index entry is written
//! only after the data it names is durable.

mod bucket;
mod codec;
pub mod device;
mod engine;
mod error;
mod format;
mod frontend;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod index;
pub mod kv;
mod log;
mod policy;
pub mod pool;
mod space;
mod stored_format;
mod verdict;

pub use device::Pace;
pub use engine::{Area, Checked, FormatOptions, OpenOptions, Use};
pub use error::{Error, Result};
pub use frontend::{Drive, Info, Scrubbed, ZoneUse};
pub use stored_format::StoredFormat;
