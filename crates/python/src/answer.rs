//! Results of operations as Python's objects.

use crate::content::Content;
use crate::failure::Outcome;
use crate::stat::Stat;
use pyo3::types::PyList;
use pyo3::{IntoPyObjectExt as _, Py, PyAny, PyErr, PyResult, Python};
use std::ffi::OsString;

/// A result that Python gets.
pub(crate) trait Answer: Send + 'static {
    /// Returns the result as an object.
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Answer for () {
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// Each outcome is the value, or the exception as a value.
impl<T: Answer> Answer for Vec<Outcome<T>> {
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let as_object = |Outcome(outcome): Outcome<T>| match outcome {
            Ok(value) => value.into_object(py),
            Err(failure) => PyErr::from(failure).into_py_any(py),
        };
        let objects = self.into_iter().map(as_object).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, objects)?.into_any().unbind())
    }
}

/// Implements [`Answer`] for types that `pyo3` converts.
macro_rules! convert {
    ($($type:ty),*) => {
        $(impl Answer for $type {
            fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.into_py_any(py)
            }
        })*
    };
}

convert!(Content, Stat, OsString, Vec<OsString>, Vec<(OsString, Stat)>);
