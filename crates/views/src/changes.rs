//! What a client of rulesets asks for, and what it hears.

use crate::{ObjectState, Ruleset};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use store::{ETag, ObjectKey, Tags, Timestamp};
use tokio::sync::watch;

/// Who knows which objects match rulesets: a handler in this process, or one behind an address.
#[async_trait::async_trait]
pub trait Views: Send + Sync + std::fmt::Debug {
    /// Wants to see what matches a ruleset. The same ruleset again is the same view; the first that names a container waits for
    /// its listing.
    ///
    /// # Errors
    /// If the handler cannot be reached, or cannot list the container.
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError>;

    /// What changed in a view since a cursor that came from here, or the beginning of everything; about `limit` objects at most.
    ///
    /// # Errors
    /// If the handler cannot be reached, or does not know the view: open it again.
    async fn changes(&self, view: ViewId, since: Option<&Cursor>, limit: usize)
    -> Result<Changes, ViewError>;

    /// A number that becomes another with whatever changes in any view, but by age alone; `None`: only who asks hears of changes.
    fn news(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// A view by its handler's number: equal rulesets have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u64);

/// How far a client has come in the changes of a view. Only the handler that gave it can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Which life of the handler's state: of another one everything is new.
    pub epoch: u64,
    /// How far in each of its parts.
    pub versions: Arc<[u64]>,
}

/// Some of what changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Where to go on.
    pub cursor: Cursor,
    /// What the client knew is to be forgotten first: this is the beginning of everything.
    pub is_beginning: bool,
    /// There is more after the cursor already. While a beginning has more, what is not said yet may be there.
    pub has_more: bool,
    /// Objects that match now, in no order.
    pub shown: Vec<Arc<Shown>>,
    /// Objects that do not match any more.
    pub gone: Vec<ObjectName>,
    /// Containers of the view that cannot be read: of each there is what was known before, or nothing.
    pub unlisted: Vec<Unlisted>,
}

/// A container that cannot be read. It is tried again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unlisted {
    /// Which.
    pub container: String,
    /// What the store says.
    pub why: String,
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' cannot be read: {}", self.container, self.why)
    }
}

/// A bucket and a key in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The bucket.
    pub container: Arc<str>,
    /// The key.
    pub key: ObjectKey,
}

/// An object that a view shows, as it was last heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Which.
    pub name: ObjectName,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Which bytes.
    pub etag: ETag,
    /// When it was stored.
    pub modified: Timestamp,
    /// `Content-Type`, where it is known.
    pub content_type: Option<String>,
    /// User metadata, where it is known: no ruleset may have asked.
    pub properties: Option<BTreeMap<String, String>>,
    /// Tags, where they are known.
    pub tags: Option<Tags>,
}

/// What is not known of an object is empty to rules.
static NONE: BTreeMap<String, String> = BTreeMap::new();

impl Shown {
    /// The object as rules see it, last read then.
    pub fn state(&self, accessed: Option<Timestamp>) -> ObjectState<'_> {
        ObjectState {
            container: &self.name.container,
            key: self.name.key.as_bytes(),
            size_bytes: self.size_bytes,
            modified: self.modified,
            accessed,
            content_type: self.content_type.as_deref(),
            properties: self.properties.as_ref().unwrap_or(&NONE),
            tags: self.tags.as_ref().unwrap_or(&NONE),
        }
    }
}

/// Why a view does not say what it shows.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The handler cannot be reached.
    #[error("the event handler cannot be reached: {0}")]
    Unreachable(String),
    /// The handler does not know the view (any more).
    #[error("the event handler does not know this view")]
    Unknown,
    /// The store refuses what the ruleset needs, or is not there.
    #[error("container '{container}': {source}")]
    Store {
        /// The bucket.
        container: String,
        /// What it said.
        source: store::StoreError,
    },
    /// The ruleset asks for what nobody can know here.
    #[error("{0}")]
    Refused(String),
}
