//! Failing reads, for simulators.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The reads of a log's segments that fail, as on a disk with unreadable sectors. By default none fails. For simulators.
#[derive(Clone, Default)]
pub struct ReadFaults(Option<Arc<FailsRead>>);

type FailsRead = dyn Fn(u64, &Range<u64>) -> bool + Send + Sync;

impl ReadFaults {
    /// Makes those reads fail for which `fails` returns true. Its arguments are the number of the segment and the range.
    pub fn new(fails: impl Fn(u64, &Range<u64>) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(fails)))
    }

    /// Returns the error of a read that fails.
    pub(super) fn check(&self, segment: u64, range: &Range<u64>) -> io::Result<()> {
        match &self.0 {
            Some(fails) if fails(segment, range) => Err(Errno::IO.into()),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for ReadFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadFaults").field(&self.0.is_some()).finish()
    }
}
