//! A device for those who await it.

use super::{Array, BlockDevice, Buffer, FileDevice, Ring};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// Reads and writes that wait on no thread of the runtime: by a ring, or on threads for blocking calls.
///
/// On a runtime of one thread, which is a simulator's or a test's, blocking calls are made in place.
#[derive(Debug, Clone)]
pub enum Io {
    /// By io_uring.
    Ring(Arc<Ring>),
    /// By threads that wait.
    Blocking(Arc<dyn BlockDevice>),
    /// By the members' rings or threads.
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
    /// By a ring where the kernel permits one, else by threads, which the log says.
    pub fn open(device: FileDevice) -> Self {
        let device = Arc::new(device);
        match Ring::start(device.clone()) {
            Ok(ring) => Self::Ring(Arc::new(ring)),
            Err(error) => {
                tracing::warn!("no io_uring here ({error}): the device is read and written by threads");
                Self::Blocking(device)
            }
        }
    }

    /// The device itself, for those who wait on a thread of their own.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Self::Ring(ring) => ring.device().clone(),
            Self::Blocking(device) => device.clone(),
            Self::Array(array) => array.clone(),
        }
    }

    /// Fills the buffer from a position on, and gives it back.
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

    /// Stores the slices one after the other, filled up with zeros to whole blocks. One slice of whole blocks that a
    /// device can use as it is, as that of a [`Buffer`], is not copied.
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

    /// Returns when everything that was written before is on the medium.
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
}
