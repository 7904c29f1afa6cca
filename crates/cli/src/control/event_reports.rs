//! Reports on an event handler and its feeds, in the form in which `tenon events stats` and the control socket send them.
//! Fields are added, never changed.

use events::FeedCounts;
use serde::{Deserialize, Serialize};
use views::HintCounts;

/// The state of a handler process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandlerReport {
    /// Version of Tenon.
    pub(crate) version: String,
    /// Views that clients have opened.
    pub(crate) views: Vec<ViewReport>,
    /// Number of buckets that the views cover.
    pub(crate) buckets: usize,
    /// Number of objects that the handler knows.
    pub(crate) objects: usize,
    /// Memory for what is known of objects, in bytes.
    pub(crate) memory_bytes: usize,
    /// Buckets that cannot be read, each with the reason.
    #[serde(default)]
    pub(crate) unlisted: Vec<String>,
    /// Objects that wait to be examined.
    pub(crate) looks: usize,
    /// Outcomes of hints.
    pub(crate) hints: HintReport,
    /// Total time spent on matching hints, in nanoseconds.
    pub(crate) matching_ns: u64,
    /// The feeds, in the order of the flags.
    pub(crate) feeds: Vec<FeedReport>,
}

/// Size of a view.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ViewReport {
    /// Rules of the view, as in a file of rulesets.
    pub(crate) rules: String,
    /// Number of objects in the view.
    pub(crate) objects: usize,
}

/// Counts of hints by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HintReport {
    /// Applied to the known state.
    pub(crate) applied: u64,
    /// Repetitions of what was known already.
    pub(crate) repeated: u64,
    /// Older than the known state.
    pub(crate) late: u64,
    /// Dropped: no view wants the object, or there is no memory for it.
    pub(crate) unwanted: u64,
    /// Not trusted: the object was verified in the store.
    pub(crate) looked: u64,
}

/// State of a feed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FeedReport {
    /// URL of the source.
    pub(crate) source: String,
    /// Whether the last answer of the source was a success.
    pub(crate) connected: bool,
    /// Messages received.
    pub(crate) messages: u64,
    /// Hints that all receivers have taken.
    pub(crate) hints: u64,
    /// Messages written to the dead letters.
    pub(crate) unreadable: u64,
    /// Unreadable messages that could not be written to the dead letters.
    pub(crate) lost: u64,
    /// Batches that were delivered again.
    pub(crate) repeated: u64,
    /// Failures of the source, or of a receiver of its hints.
    pub(crate) failures: u64,
    /// Age of the newest hint in the last batch when all receivers had taken it, in milliseconds.
    pub(crate) lag_ms: u64,
    /// Messages that wait in the source; `None` if the source does not tell.
    #[serde(default)]
    pub(crate) waiting: Option<u64>,
    /// Outcomes of the feed's hints, if a handler receives them.
    #[serde(default)]
    pub(crate) outcomes: Option<HintReport>,
    pub(crate) last_error: Option<String>,
}

impl From<HintCounts> for HintReport {
    fn from(counts: HintCounts) -> Self {
        let HintCounts { applied, repeated, late, unwanted, looked } = counts;
        Self { applied, repeated, late, unwanted, looked }
    }
}

impl FeedReport {
    /// Returns the state of a source, without outcomes of hints.
    pub(crate) fn new(url: &str, counts: FeedCounts) -> Self {
        Self {
            source: url.to_owned(),
            connected: counts.is_connected,
            messages: counts.messages,
            hints: counts.hints,
            unreadable: counts.unreadable,
            lost: counts.lost,
            repeated: counts.repeated,
            failures: counts.failures,
            lag_ms: u64::try_from(counts.lag.as_millis()).unwrap_or(u64::MAX),
            waiting: counts.waiting,
            outcomes: None,
            last_error: counts.last_error,
        }
    }
}
