//! Messages of the control socket about drives. Fields are added, never changed.

use serde::{Deserialize, Serialize};

/// A device to rebuild as a member of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rebuild {
    /// Devices of the array, as the user named them. At least one must be a member.
    pub(crate) devices: Vec<String>,
    /// The new device: an absolute path, its bytes in hexadecimal.
    pub(crate) device_hex: String,
    /// Whether to rebuild even if the device is not empty.
    pub(crate) force: bool,
    /// Whether to leave out the preceding scrub.
    pub(crate) no_scrub: bool,
    /// Bytes to read per second at most; none means no limit.
    pub(crate) bytes_per_sec: Option<u64>,
}

/// The outcome of the scrub of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Scrubbed {
    /// Objects read.
    pub(crate) objects: u64,
    /// Length of these objects in bytes.
    pub(crate) bytes: u64,
    /// Blocks of devices that were rewritten.
    pub(crate) mended: u64,
    /// Damage that could not be repaired, one line each.
    pub(crate) damaged: Vec<String>,
}

impl From<drive::Scrubbed> for Scrubbed {
    fn from(scrubbed: drive::Scrubbed) -> Self {
        let drive::Scrubbed { objects, bytes, repaired, damaged } = scrubbed;
        Self { objects, bytes, mended: repaired, damaged }
    }
}
