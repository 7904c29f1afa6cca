//! Reading what has a checksum: where a device has bytes more than once, those are found that are right.

use super::{BlockDevice, Buffer, Io};
use std::io;

/// Reads blocks of which `is_right` knows whether they are what was written; `false` if they are not, whichever way they are read. What
/// was wrong and could be read otherwise is mended.
pub(crate) fn read_right(
    device: &dyn BlockDevice,
    at: u64,
    into: &mut [u8],
    mut is_right: impl FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    device.read_at(at, into)?;
    Ok(is_right(into) || read_otherwise(device, at, into, is_right))
}

/// Reads blocks once more that are not what was written, in every other way there is, until `is_right` says that they are. Then they
/// are mended.
pub(crate) fn read_otherwise(
    device: &dyn BlockDevice,
    at: u64,
    into: &mut [u8],
    mut is_right: impl FnMut(&[u8]) -> bool,
) -> bool {
    let found = (0..device.ways()).find(|&way| device.read_without(way, at, into).is_ok() && is_right(into));
    if let Some(way) = found
        && let Err(error) = device.mend(way, at, into.len() as u64)
    {
        tracing::warn!(at, %error, "what is damaged could be read otherwise, and not be mended");
    }
    found.is_some()
}

impl Io {
    /// [`read_otherwise`] for those who await; `None` if there are no right bytes.
    pub(crate) async fn read_otherwise(
        &self,
        at: u64,
        len_bytes: u64,
        is_right: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> io::Result<Option<Buffer>> {
        let device = self.device();
        if device.ways() == 0 {
            return Ok(None);
        }
        let look = move || {
            let mut buffer = Buffer::zeroed(len_bytes as usize);
            Ok(read_otherwise(&*device, at, &mut buffer, is_right).then_some(buffer))
        };
        store::blocking(look).await
    }
}
