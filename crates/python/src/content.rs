//! Bytes on their way between the store and Python. Each byte that is read is copied once, into Python's memory; bytes
//! that are written are not copied.

use bytes::Bytes;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use pyo3::{Bound, IntoPyObject, PyErr, Python};

/// The pieces of content that was read.
#[derive(Debug, Default)]
pub(crate) struct Content(pub(crate) Vec<Bytes>);

impl Content {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
}

impl From<Bytes> for Content {
    fn from(piece: Bytes) -> Self {
        Self(vec![piece])
    }
}

impl<'py> IntoPyObject<'py> for Content {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, PyErr> {
        PyBytes::new_with(py, self.len(), |mut target| {
            for piece in &self.0 {
                let (filled, rest) = target.split_at_mut(piece.len());
                filled.copy_from_slice(piece);
                target = rest;
            }
            Ok(())
        })
    }
}

/// Returns the bytes of a Python object, which stays alive as long as they do.
pub(crate) fn shared(bytes: PyBackedBytes) -> Bytes {
    Bytes::from_owner(bytes)
}
