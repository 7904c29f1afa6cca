//! The outcome of many concurrent calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fail_fast::Unanswered as _;
use crate::{Error, Result};

/// The first error of many calls, some of them concurrent.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Option<Error>>);

impl Outcomes {
    /// Makes a call and notes its outcome. Makes no call if the store did not answer an earlier one. A call that has
    /// begun is completed, because a cancelled one loses the writes that it was storing.
    pub(crate) async fn add(&self, call: impl Future<Output = Result<()>>) {
        if self.first().as_ref().is_some_and(Error::gave_no_usable_answer) {
            return;
        }
        if let Err(error) = call.await {
            let mut first = self.first();
            if first
                .as_ref()
                .is_none_or(|first| error.gave_no_usable_answer() && !first.gave_no_usable_answer())
            {
                *first = Some(error);
            }
        }
    }

    /// Returns the error of a store that does not answer, otherwise the first error, if there was one.
    pub(crate) fn into_result(self) -> Result<()> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn first(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
