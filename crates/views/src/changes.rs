//! The interface between an event handler and its clients: views, their changes, and errors.

use crate::{ObjectState, PackedObject, Ruleset};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use store::{ETag, ObjectKey, Tags, Timestamp};
use tokio::sync::watch;

/// An event handler, as its clients see it: in this process, or behind an address.
#[async_trait::async_trait]
pub trait Views: Send + Sync + std::fmt::Debug {
    /// Opens the view of a ruleset. Equal rulesets have the same view. Waits until everything that the view needs of
    /// its containers is listed.
    ///
    /// # Errors
    /// If the handler cannot be reached, refuses the ruleset, cannot list a container, or has too little memory for
    /// its objects.
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError>;

    /// Returns the changes of a view since a cursor from this handler, or the whole content without a cursor; at most
    /// about `limit` objects, the rest with the next request.
    ///
    /// # Errors
    /// If the handler cannot be reached, or for the reasons of [`Views::open`]. [`ViewError::Unknown`] if the handler
    /// does not know the view: open it again.
    async fn changes(&self, view: ViewId, since: Option<&Cursor>, limit: usize)
    -> Result<Changes, ViewError>;

    /// Returns a counter that changes whenever any view changes, except when only the passing of time changes it, by a
    /// rule on ages. `None` if the handler has no counter, so that clients learn of changes only by asking.
    fn change_counter(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// Id of a view, given by its handler; equal rulesets have the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u64);

/// Position of a client in the changes of a view. Only the handler that issued it can interpret it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Epoch of the handler's state. For a cursor of another epoch, the handler returns the whole content of the
    /// view.
    pub epoch: u64,
    /// Positions in the parts of the handler's state, which only the handler can interpret.
    pub versions: Arc<[u64]>,
}

/// One page of changes of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Cursor for the next request.
    pub cursor: Cursor,
    /// Whether this is the first page of the whole content. The client has to forget what it knew first.
    pub is_beginning: bool,
    /// Whether more changes are available already. While the whole content has more pages, objects that were not
    /// returned yet may be in the view.
    pub has_more: bool,
    /// Objects that match now, in no particular order.
    pub shown: Vec<PackedObject>,
    /// Objects that do not match any more.
    pub gone: Vec<ObjectName>,
    /// Containers of the view that cannot be read. The view shows their objects as last known, or none.
    pub unlisted: Vec<Unlisted>,
}

/// A container that cannot be read. The handler tries again in the background.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unlisted {
    /// The bucket's name.
    pub container: String,
    /// The store's error.
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

/// The fields of an object that a view shows, in its last known state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The bucket and key.
    pub name: ObjectName,
    /// Length in bytes.
    pub size_bytes: u64,
    /// The store's tag of the bytes.
    pub etag: ETag,
    /// Time of the last modification.
    pub modified: Timestamp,
    /// `Content-Type`; `None` if it is not known, or the object has none.
    pub content_type: Option<String>,
    /// User metadata; `None` if it is not known, because no ruleset needed it.
    pub properties: Option<BTreeMap<String, String>>,
    /// Tags; `None` if they are not known.
    pub tags: Option<Tags>,
}

/// Empty map, which rules see in place of properties or tags that are not known.
static NONE: BTreeMap<String, String> = BTreeMap::new();

impl Shown {
    /// Returns the object as rules see it. `accessed` is the time of its last read.
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

/// Reason why a view cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The handler cannot be reached.
    #[error("the event handler cannot be reached or has failed: {0}")]
    Unreachable(String),
    /// The handler does not know the view, or not any more.
    #[error("the event handler does not know this view")]
    Unknown,
    /// The store cannot be read, or refuses what the ruleset needs.
    #[error("container '{container}': {source}")]
    Store {
        /// The bucket whose store failed; `*` if the buckets themselves cannot be listed.
        container: String,
        /// The store's error.
        source: store::StoreError,
    },
    /// The objects of the view need more memory than there is for them; holds the reason.
    #[error("{0}")]
    TooLarge(String),
    /// The handler refuses the request, for example because it does not know what the ruleset asks for.
    #[error("{0}")]
    Refused(String),
}
