//! A fail-stop device: accepts no writes after the first failed write or flush, as it is unknown what that left on the device.

use super::BlockDevice;
use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A device that accepts no writes after the first failure, for frames, manifests and superblocks.
#[derive(Debug)]
pub(crate) struct FailStopDevice {
    device: Arc<dyn BlockDevice>,
    is_read_only: bool,
    /// The first failure.
    failure: OnceLock<String>,
    flush_lock: Mutex<()>,
}

impl FailStopDevice {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, is_read_only: bool) -> Self {
        Self { device, is_read_only, failure: OnceLock::new(), flush_lock: Mutex::default() }
    }

    /// Returns the device, to read it, and to write data that nothing refers to yet.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Fails if the drive is read-only, or if a write or a flush failed before.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::Failed("it was opened read-only".into()));
        }
        self.failure.get().map_or(Ok(()), |reason| Err(Error::Failed(reason.clone())))
    }

    /// Writes whole rows.
    pub(crate) fn write(&self, at: u64, rows: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.device.write_at(at, rows).map_err(|error| self.fail(Error::device(at)(error)))
    }

    /// Makes everything written before durable. Flushes run one at a time, and none after a failed one: that flush may have lost
    /// writes of others, which no later flush would report. `at` is the position of what is flushed, for the error.
    pub(crate) fn flush(&self, at: u64) -> Result<()> {
        let _alone = self.flush_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        self.device.flush().map_err(|error| self.fail(Error::device(at)(error)))
    }

    /// Makes the device refuse all further writes, and returns the error, which is the reason unless there was an
    /// earlier one.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let _first = self.failure.set(error.to_string());
        error
    }
}
