//! The spans of batches: one trace for each batch, whose ids follow from the volume and the batch. So phases of several processes, as after a
//! restart of the mount, are in the same trace.
//!
//! The first span of the trace, the batch itself, is exported last: when the batch is merged.

use super::spans::{Attributes, Now, Recorder};
use crate::serving::batches::phases::{EndedPhase, Phase};
use otlp::{Kind, Span, SpanId, TraceId};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::PoisonError;
use vfs::Cause;

/// Returns the number of a volume for the ids of its batches, which all processes compute alike.
pub(super) fn volume_number(url: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    url.hash(&mut hasher);
    hasher.finish()
}

impl Recorder {
    /// Adds the span of a phase of a batch, with the requests to the store that were made for it.
    pub(super) fn add_batch_phase(&self, volume: u64, ended: &EndedPhase) {
        let began_ns = u64::try_from(ended.batch_began.0).unwrap_or(0);
        let trace = TraceId::named([volume ^ began_ns, ended.batch.0]);
        let now = self.batch_moment(trace, ended);
        let root = SpanId::named(volume ^ began_ns ^ ended.batch.0);
        let number = Cause::reserve_id();
        let (id, parent, (start_unix_ns, took_ns)) = match ended.began {
            Some(began) => (self.ids.span(number), Some(root), now.span_times(began, ended.took)),
            None => (root, None, (began_ns, u64::try_from(ended.took.as_nanos()).unwrap_or(u64::MAX))),
        };
        let span = Span {
            trace,
            id,
            parent,
            name: name(&ended.phase).into(),
            kind: Kind::Internal,
            start_unix_ns,
            took_ns,
            attributes: attributes(ended),
            is_failed: ended.failure.is_some(),
        };
        let place = Some((trace, id));
        self.add_with_requests(span, &ended.requests, |request| self.request_span(request, place, now));
    }

    /// Returns the moment from which the times of a batch's phases are computed, until its last: the first time that one was added.
    /// With a new reading of the clocks for each phase, the spans of successive phases could overlap.
    fn batch_moment(&self, trace: TraceId, ended: &EndedPhase) -> Now {
        let mut moments = self.batch_moments.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.phase {
            Phase::Batch { .. } => moments.remove(&trace).unwrap_or_else(|| self.now()),
            _ => *moments.entry(trace).or_insert_with(|| self.now()),
        }
    }
}

/// Returns the name of the span of a phase.
fn name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Batch { .. } => "BATCH",
        Phase::Submit => "SUBMIT",
        Phase::Seal => "SEAL",
        Phase::Verify { .. } => "VERIFY",
        Phase::Merge => "MERGE",
    }
}

fn attributes(ended: &EndedPhase) -> Attributes {
    let mut attributes: Attributes = vec![("tenon.batch", ended.batch.to_string().into())];
    match &ended.phase {
        Phase::Batch { path, accepted, refused } => {
            attributes.extend(path.as_ref().map(|path| ("file.path", path.as_str().into())));
            attributes.push(("tenon.accepted", (*accepted).into()));
            attributes.push(("tenon.refused", (*refused).into()));
        }
        Phase::Verify { verifier: Some(verifier) } => {
            attributes.push(("tenon.verifier", verifier.as_str().into()));
        }
        _ => {}
    }
    attributes.extend(ended.failure.as_ref().map(|text| ("tenon.error", text.as_str().into())));
    attributes
}
