//! The listings of one container: the one in progress, and which rules on keys earlier ones cover.
//!
//! Owns the transitions: a listing begins, succeeds or fails. Refuses: to send requests, to know what time it is.

use super::objects::{LogRecord, Needs, RecordKind};
use super::view::View;
use crate::object_record::ByteReader;
use std::sync::Arc;
use std::time::Duration;
use store::{StoreError, Timestamp};
use tokio::sync::watch;

/// Minimum time from the start of a container's last listing to another one that begins because the known state may be
/// wrong and a client asks.
const RELIST_AFTER: Duration = Duration::from_secs(30);
/// During this time after the start of a listing that the store failed, requests get its error instead of starting
/// another.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Reason why a listing failed, or why an object could not be added.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ListingError {
    /// The store does not answer, or refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is not enough memory for the objects.
    #[error("{0}")]
    NoRoom(String),
}

pub(super) type ListingResult = Result<(), ListingError>;

/// Receives the result of a listing when it ends.
pub(super) type RunningListing = watch::Receiver<Option<ListingResult>>;

/// Coverage of listings: rules on keys as text, and the metadata that was read for the objects that match them.
pub(super) type Coverage = Vec<(String, Needs)>;

/// The listings of a container, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct ListingState {
    /// Number of the last listing that was started.
    number: u32,
    running: Option<RunningListing>,
    covered: Coverage,
    /// Whether the known state may be wrong since the last listing, because hints were lost or an object could not be
    /// verified.
    is_stale: bool,
    /// Whether another listing was asked for while one was in progress, which may have been too early.
    must_repeat: bool,
    /// Time at which the last listing was started.
    last_tried: Timestamp,
    /// Error of the last listing, if it failed, or of an object that could not be added since. A listing that succeeds
    /// clears it.
    failed: Option<ListingError>,
}

/// A listing that was started.
#[derive(Debug)]
pub(super) struct StartedListing {
    pub(super) number: u32,
    /// Whether the known state may be wrong, so that known objects have to be checked, too.
    pub(super) is_relisting: bool,
    pub(super) result: watch::Sender<Option<ListingResult>>,
}

/// Returns what listings for `views` cover.
pub(super) fn coverage<'v>(views: impl Iterator<Item = &'v Arc<View>>) -> Coverage {
    let mut covered = Coverage::new();
    for view in views {
        if !covered.iter().any(|(keys, needs)| *keys == view.keys && *needs == view.needs) {
            covered.push((view.keys.clone(), view.needs));
        }
    }
    covered
}

impl ListingState {
    /// Returns the state after a restart, with what was covered before.
    pub(super) fn restored(covered: Coverage, is_stale: bool) -> Self {
        Self { is_stale: !covered.is_empty() && is_stale, covered, ..Self::default() }
    }

    /// Returns what receives the result of the listing in progress, or of a new one. The second part is the new
    /// listing, which the caller has to run; `None` if one was in progress.
    pub(super) fn start(&mut self, now: Timestamp) -> (RunningListing, Option<StartedListing>) {
        if let Some(running) = &self.running {
            return (running.clone(), None);
        }
        let (result, running) = watch::channel(None);
        self.number += 1;
        self.running = Some(running.clone());
        self.last_tried = now;
        let is_relisting = std::mem::take(&mut self.is_stale);
        (running, Some(StartedListing { number: self.number, is_relisting, result }))
    }

    /// Notes that the listing in progress succeeded, and what it covers. Returns whether a failure had been noted since
    /// the last success.
    pub(super) fn succeed(&mut self, covered: Coverage) -> bool {
        self.running = None;
        self.covered = covered;
        self.failed.take().is_some()
    }

    /// Notes that the listing in progress failed. Returns whether this is the first failure since the last success.
    pub(super) fn fail(&mut self, error: ListingError) -> bool {
        self.running = None;
        self.note_failure(error)
    }

    /// Notes that the known state lacks something. Returns whether this is the first failure since the last success.
    pub(super) fn note_failure(&mut self, error: ListingError) -> bool {
        self.is_stale = true;
        self.failed.replace(error).is_none()
    }

    /// Notes that the known state may be wrong.
    pub(super) fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Notes that the known state may be wrong, and that a listing in progress may be too early.
    pub(super) fn require_relisting(&mut self) {
        self.is_stale = true;
        self.must_repeat = self.running.is_some();
    }

    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Returns whether another listing has to follow the one that has ended. Answers once.
    pub(super) fn take_must_repeat(&mut self) -> bool {
        std::mem::take(&mut self.must_repeat)
    }

    /// Returns whether the container should be listed again, because a client asks for it.
    pub(super) fn is_relisting_due(&self, now: Timestamp) -> bool {
        self.is_stale && now.since(self.last_tried) >= RELIST_AFTER
    }

    /// Returns what receives the result of the listing in progress; `None` if none is.
    pub(super) fn running(&self) -> Option<RunningListing> {
        self.running.clone()
    }

    /// Returns the last error since the last listing that succeeded; `None` if there was none.
    pub(super) fn failed(&self) -> Option<&ListingError> {
        self.failed.as_ref()
    }

    /// Returns the store's error if a listing failed recently. Returns no lack of memory, which concerns only the views
    /// that the listing was for.
    pub(super) fn recent_failure(&self, now: Timestamp) -> Option<&ListingError> {
        let failed = self.failed.as_ref().filter(|failed| matches!(failed, ListingError::Store(_)));
        failed.filter(|_| now.since(self.last_tried) < FAILURE_TTL)
    }

    /// Reduces the coverage to that of these views.
    pub(super) fn keep_coverage_of(&mut self, views: &[Arc<View>]) {
        self.covered = coverage(views.iter().filter(|view| self.covers(view)));
    }

    /// Returns whether listings cover everything that a view needs.
    pub(super) fn covers(&self, view: &View) -> bool {
        self.covered
            .iter()
            .any(|(keys, needs)| (keys.is_empty() || *keys == view.keys) && needs.union(view.needs) == *needs)
    }

    /// Returns whether a handler that restarts from this state has to list the container again.
    pub(super) fn needs_relisting(&self) -> bool {
        self.is_stale || (self.running.is_some() && !self.covered.is_empty())
    }

    /// Appends the records of what listings cover, and whether the container has to be listed again.
    pub(super) fn append_records(&self, container: u32, into: &mut Vec<u8>) {
        let body = pack_coverage(&self.covered);
        LogRecord { kind: RecordKind::Listed, number: container, version: 0, body: &body }.append(into);
        if self.needs_relisting() {
            LogRecord { kind: RecordKind::Stale, number: container, version: 0, body: &[] }.append(into);
        }
    }
}

fn pack_coverage(covered: &Coverage) -> Vec<u8> {
    let mut body = Vec::new();
    for (keys, needs) in covered {
        body.push(needs.bits());
        body.extend_from_slice(&(keys.len() as u32).to_le_bytes());
        body.extend_from_slice(keys.as_bytes());
    }
    body
}

/// Reads the body of a record of what listings cover; `None` if the bytes are malformed.
pub(super) fn read_coverage(body: &[u8]) -> Option<Coverage> {
    let mut rest = ByteReader(body);
    let mut covered = Coverage::new();
    while !rest.0.is_empty() {
        let needs = Needs::from_bits(rest.take(1)?[0]);
        let bytes = u32::from_le_bytes(rest.array()?);
        covered.push((String::from_utf8(rest.take(bytes as usize)?.to_vec()).ok()?, needs));
    }
    Some(covered)
}
