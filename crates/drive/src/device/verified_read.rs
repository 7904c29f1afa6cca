//! Verified reads: read data that has a checksum, and use the redundancy of the device if it does not match.

use super::{BlockDevice, Buffer, Io};
use std::io;

/// Reads blocks, and checks them with `is_right`. If they are wrong, tries the alternatives of the device and repairs the blocks. Returns
/// false if no alternative is right.
pub(crate) fn read_verified(
    device: &dyn BlockDevice,
    at: u64,
    into: &mut [u8],
    mut is_right: impl FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    device.read_at(at, into)?;
    Ok(is_right(into) || read_reconstructed(device, at, into, is_right))
}

/// Reads blocks by each alternative of the device until `is_right` accepts them, then repairs them. Returns false if no alternative is
/// right.
pub(crate) fn read_reconstructed(
    device: &dyn BlockDevice,
    at: u64,
    into: &mut [u8],
    mut is_right: impl FnMut(&[u8]) -> bool,
) -> bool {
    let found = (0..device.ways()).find(|&way| device.read_without(way, at, into).is_ok() && is_right(into));
    if let Some(way) = found
        && let Err(error) = device.mend(way, at, into.len() as u64)
    {
        tracing::warn!(at, %error, "damaged blocks were reconstructed but could not be rewritten");
    }
    found.is_some()
}

impl Io {
    /// Like [`read_reconstructed`], for async callers. Returns `None` if no alternative is right.
    pub(crate) async fn read_reconstructed(
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
            Ok(read_reconstructed(&*device, at, &mut buffer, is_right).then_some(buffer))
        };
        store::blocking(look).await
    }
}
