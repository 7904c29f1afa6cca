//! I/O on a device for async callers.

use super::{AlternateReader, Array, BlockDevice, Buffer, FileDevice, Ring, reconstruct};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Asynchronous reads and writes: by a ring, or on threads for blocking calls, so that the runtime's threads do not wait.
///
/// On a single-threaded runtime, as in simulations and tests, blocking calls are made in place.
#[derive(Debug, Clone)]
pub enum Io {
    /// By io_uring.
    Ring(Arc<Ring>),
    /// By blocking calls on other threads.
    Blocking(Arc<dyn BlockDevice>),
    /// By the rings or threads of the array's members.
    Array(Arc<Array>),
}

impl<D: BlockDevice + 'static> From<Arc<D>> for Io {
    fn from(device: Arc<D>) -> Self {
        Self::Blocking(device)
    }
}

impl From<Arc<dyn BlockDevice>> for Io {
    fn from(device: Arc<dyn BlockDevice>) -> Self {
        Self::Blocking(device)
    }
}

impl Io {
    /// Opens a device with a ring if the kernel permits one, else with threads, which is logged.
    pub fn open(device: FileDevice) -> Self {
        let device = Arc::new(device);
        match Ring::start(device.clone()) {
            Ok(ring) => Self::Ring(Arc::new(ring)),
            Err(error) => {
                tracing::warn!("cannot start io_uring ({error}): using threads for the device");
                Self::Blocking(device)
            }
        }
    }

    /// Returns the device, for callers that may block their thread.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Self::Ring(ring) => ring.device().clone(),
            Self::Blocking(device) => device.clone(),
            Self::Array(array) => array.clone(),
        }
    }

    /// Fills the buffer from a position on, and returns it.
    pub async fn read(&self, at: u64, mut into: Buffer) -> io::Result<Buffer> {
        match self {
            Self::Ring(ring) => ring.read(at, into).await,
            Self::Array(array) => array.await_read(at, into).await,
            Self::Blocking(device) => {
                let device = device.clone();
                store::blocking(move || device.read_at(at, &mut into).map(|()| into)).await
            }
        }
    }

    /// Writes the slices one after the other, padded with zeros to whole blocks. On an array they must fill whole rows.
    /// A single slice of whole blocks in aligned memory, such as a [`Buffer`], is not copied.
    pub async fn write(&self, at: u64, slices: &[Bytes]) -> io::Result<()> {
        let from = match slices {
            [whole] if Buffer::is_aligned(whole) => whole.clone(),
            slices => Buffer::gathered(slices.iter().map(|slice| &**slice)).into(),
        };
        match self {
            Self::Ring(ring) => ring.write(at, from).await,
            Self::Array(array) => array.await_write(at, from).await,
            Self::Blocking(device) => {
                let device = device.clone();
                store::blocking(move || device.write_at(at, &from)).await
            }
        }
    }

    /// Makes all earlier writes durable.
    pub async fn flush(&self) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.flush().await,
            Self::Array(array) => array.await_flush().await,
            Self::Blocking(device) => {
                let device = device.clone();
                store::blocking(move || device.flush()).await
            }
        }
    }

    /// Does what [`reconstruct`] does, for async callers. Returns `None` if no attempt returned a value, or if the
    /// device has no redundancy.
    pub(crate) async fn reconstruct<T: Send + 'static>(
        &self,
        attempt: impl FnMut(&mut AlternateReader<'_>) -> Option<T> + Send + 'static,
    ) -> io::Result<Option<T>> {
        let device = self.device();
        match device.has_redundancy() {
            true => store::blocking(move || Ok(reconstruct(&*device, attempt))).await,
            false => Ok(None),
        }
    }
}
