//! Operations in flight: at most one per volume, as the CSI specification recommends ("Concurrency").

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Status;

/// The volumes that have an operation in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<BTreeSet<String>>);

/// An operation in flight. Dropping it allows the next one.
#[derive(Debug)]
pub(crate) struct Operation {
    all: Arc<InFlight>,
    volume: String,
}

impl InFlight {
    /// Begins an operation on a volume. Fails with `ABORTED` if there is one: the caller repeats the request later.
    pub(crate) fn begin(self: &Arc<Self>, volume: &str) -> Result<Operation, Status> {
        let volume = volume.to_owned();
        match self.volumes().insert(volume.clone()) {
            true => Ok(Operation { all: Arc::clone(self), volume }),
            false => Err(Status::aborted(format!("another operation on {volume} is in progress"))),
        }
    }

    fn volumes(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.all.volumes().remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_operation_at_a_time() {
        let all = Arc::new(InFlight::default());
        let first = all.begin("a").unwrap();
        assert_eq!(all.begin("a").unwrap_err().code(), tonic::Code::Aborted);
        drop((all.begin("b").unwrap(), first));
        all.begin("a").unwrap();
    }
}
