//! The phases of the end of a batch, for observers such as the export of traces: submission, seal, verification and merge.
//!
//! A phase that fails is a phase too. A merge that is tried again has several phases of a kind, also in several processes.

use batch::MergeStep;
use meta::{Batch, BatchId};
use metrics::{Observation, Observers};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use store::{Cause, StoreRequest, Timestamp, work_for};
use tokio::time::Instant;

/// The parts of a batch's life that observers see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// From the beginning of the batch until it is merged.
    Batch {
        /// Path of its directory; `None` if the directory is gone.
        path: Option<String>,
        /// Changes that were added.
        accepted: u64,
        /// Changes that were refused, or added under another name.
        refused: u64,
    },
    /// The batch is unmounted, and marked as submitted.
    Submit,
    /// All contents are stored, and the tables of the batch are written.
    Seal,
    /// The changes are verified.
    Verify {
        /// The name of the server that verified them, if it was another one.
        verifier: Option<String>,
    },
    /// The verified changes are added to the volume, and the kernels are notified.
    Merge,
}

/// A phase that has ended.
#[derive(Debug)]
pub(crate) struct EndedPhase {
    pub(crate) batch: BatchId,
    /// When the batch began.
    pub(crate) batch_began: Timestamp,
    pub(crate) phase: Phase,
    /// Beginning of the phase; `None` for the whole batch.
    pub(crate) began: Option<Instant>,
    pub(crate) took: Duration,
    /// Requests to the store that were made for it.
    pub(crate) requests: Vec<StoreRequest>,
    /// Why it failed.
    pub(crate) failure: Option<String>,
}

/// The observers of the phases of all batches.
#[derive(Debug, Default)]
pub(super) struct Phases(Observers<EndedPhase>);

impl Phases {
    /// Calls `observer` with each phase that has ended until the returned value is dropped.
    pub(super) fn observe(
        &self,
        observer: impl Fn(&EndedPhase) + Send + Sync + 'static,
    ) -> Observation<EndedPhase> {
        self.0.observe(observer)
    }

    /// Does the work of a phase, and reports it.
    pub(super) async fn run<T, E: Display>(
        &self,
        batch: &Batch,
        phase: Phase,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.run_since(batch, phase, Instant::now(), work).await
    }

    /// Like [`Phases::run`], for a phase that began earlier.
    pub(super) async fn run_since<T, E: Display>(
        &self,
        batch: &Batch,
        phase: Phase,
        began: Instant,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let cause = Cause::begin();
        let outcome = work_for(Some(Arc::clone(&cause)), work).await;
        let failure = outcome.as_ref().err().map(|error| format!("{error:#}"));
        self.report(batch, phase, (began, Instant::now()), cause.end(), failure);
        outcome
    }

    /// Reports a phase with its beginning and end.
    pub(super) fn report(
        &self,
        batch: &Batch,
        phase: Phase,
        (began, ended): (Instant, Instant),
        requests: Vec<StoreRequest>,
        failure: Option<String>,
    ) {
        let took = ended.saturating_duration_since(began);
        self.publish(batch, phase, Some(began), took, requests, failure);
    }

    /// Reports the steps of a merge by this process, which began to verify the batch at `begun`. Returns the beginning of the last step, which
    /// continues unless the merge has failed.
    pub(super) fn report_steps(
        &self,
        record: &Batch,
        begun: Instant,
        mut steps: Vec<(MergeStep, Instant)>,
        failure: Option<&anyhow::Error>,
    ) -> Instant {
        // The wait for other servers is part of the verification.
        let Some((_, first)) = steps.first_mut() else { return begun };
        *first = begun;
        let ends = steps.iter().skip(1).map(|(_, at)| Some(*at)).chain([None]).collect::<Vec<_>>();
        let mut since = begun;
        for ((step, at), end) in steps.into_iter().zip(ends) {
            let phase = match step {
                MergeStep::Verify => Phase::Verify { verifier: None },
                MergeStep::Add => Phase::Merge,
            };
            since = at;
            match (end, failure) {
                (Some(end), _) => self.report(record, phase, (at, end), Vec::new(), None),
                (None, Some(error)) => {
                    let failure = Some(format!("{error:#}"));
                    self.report(record, phase, (at, Instant::now()), Vec::new(), failure);
                }
                (None, None) => {}
            }
        }
        since
    }

    /// Reports that a batch is merged. `now` is the present time.
    pub(super) fn report_merged(&self, batch: &Batch, phase: Phase, now: Timestamp) {
        let took = u64::try_from(now.0.saturating_sub(batch.began.0)).unwrap_or(0);
        self.publish(batch, phase, None, Duration::from_nanos(took), Vec::new(), None);
    }

    fn publish(
        &self,
        batch: &Batch,
        phase: Phase,
        began: Option<Instant>,
        took: Duration,
        requests: Vec<StoreRequest>,
        failure: Option<String>,
    ) {
        if self.0.is_any() {
            let (batch, batch_began) = (batch.id(), batch.began);
            self.0.publish(&EndedPhase { batch, batch_began, phase, began, took, requests, failure });
        }
    }
}
