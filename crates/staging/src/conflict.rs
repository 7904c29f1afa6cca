//! Conflicts: another client changed an object in the bucket before a change of ours was uploaded or moved there.
//!
//! Owns the words in which the write-back log and the mover ask which object keeps the key, and report where both are.

use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Entropy, ObjectKey, ObjectRef, Result, StoreError};

/// A function that returns the key under which the loser of a conflict is kept, from the key in conflict and a random
/// number.
pub type LostKey = Arc<dyn Fn(&ObjectKey, u64) -> ObjectKey + Send + Sync>;

/// A conflict: another client changed a key in the bucket before our change was uploaded.
#[derive(Debug, Clone)]
pub struct KeyConflict {
    /// The key that both sides changed.
    pub key: ObjectKey,
    /// The other client's object; `None`: it deleted the key.
    pub theirs: Option<ObjectRef>,
    /// Whether the bucket still has all objects that our object is made of.
    pub is_complete: bool,
}

/// The decision of a conflict: whose object keeps the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Their object keeps the key; ours is stored under this one.
    OursTo(ObjectKey),
    /// Our object gets the key; theirs, if there is one, is copied to this one before.
    TheirsTo(ObjectKey),
}

/// Refuses to keep an object under the conflict's own key, where one object would replace the other: the key is too long for
/// another one to be made of it.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn require_other_key(key: &ObjectKey, kept_key: &ObjectKey) -> Result<()> {
    match key == kept_key {
        false => Ok(()),
        true => Err(StoreError::Invalid(format!(
            "the key '{key}' is too long for its object to be kept under another key"
        ))),
    }
}

/// Where the objects of both sides are after a conflict.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The conflict that was resolved.
    pub conflict: KeyConflict,
    /// Our object; `None`: it is about to replace theirs or, if the conflict is not complete, nothing is left of it.
    pub ours: Option<ObjectRef>,
    /// The other client's object, or the copy of it; `None`: it deleted the key.
    pub theirs: Option<ObjectRef>,
}

/// Callbacks that decide conflicts and record their outcomes.
#[derive(Clone)]
pub struct ConflictCallbacks {
    /// Decides whose object keeps the key. If the conflict is not complete the decision must be [`Resolution::OursTo`].
    pub decide: Arc<dyn Fn(&KeyConflict) -> Resolution + Send + Sync>,
    /// Records where both objects are. If our object loses, it is called once, after that object was stored under another key or was found
    /// lost. If their object is replaced, it is called before and after the replacement. After an error the upload or move is retried; a
    /// replacement that fails is decided and recorded anew.
    pub record: Arc<dyn Fn(Outcome) -> BoxFuture<'static, Result<()>> + Send + Sync>,
    /// Called for a key whose visible object a resolution has changed. The write-back log calls it when our change
    /// was set aside; the mover calls it for the key in conflict and for the key of the loser, whichever object keeps
    /// the key.
    pub resolved: Arc<dyn Fn(&ObjectKey) + Send + Sync>,
}

impl fmt::Debug for ConflictCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConflictCallbacks")
    }
}

/// The callbacks, if they are set.
#[derive(Debug, Default)]
enum CallbacksState {
    /// No callbacks: their object keeps the key.
    #[default]
    None,
    /// Callbacks will be set later.
    Awaited,
    Set(ConflictCallbacks),
}

/// Decides conflicts by callbacks. Without callbacks, their object keeps the key.
pub(crate) struct Decisions {
    callbacks: Mutex<CallbacksState>,
    /// Makes the key for an object that loses a conflict.
    lost: LostKey,
    entropy: Arc<Entropy>,
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decisions")
    }
}

impl Decisions {
    pub(crate) fn new(lost: LostKey, entropy: Arc<Entropy>) -> Self {
        Self { callbacks: Mutex::default(), lost, entropy }
    }

    /// Notes that the callbacks will be set later. The write-back log does not decide conflicts until then.
    pub(crate) fn await_callbacks(&self) {
        *self.state() = CallbacksState::Awaited;
    }

    /// Returns whether callbacks are expected but not set yet.
    pub(crate) fn are_callbacks_awaited(&self) -> bool {
        matches!(*self.state(), CallbacksState::Awaited)
    }

    pub(crate) fn set_callbacks(&self, callbacks: ConflictCallbacks) {
        *self.state() = CallbacksState::Set(callbacks);
    }

    /// Decides which object keeps the key.
    pub(crate) fn decide(&self, conflict: &KeyConflict) -> Resolution {
        let resolution = match self.callbacks() {
            Some(callbacks) => (callbacks.decide)(conflict),
            None => Resolution::OursTo(self.lost_key(&conflict.key)),
        };
        let replaces_theirs = matches!(resolution, Resolution::TheirsTo(_));
        assert!(conflict.is_complete || !replaces_theirs, "an object with gaps would replace a whole one");
        resolution
    }

    /// Returns the key for our object without callbacks.
    pub(crate) fn lost_key(&self, key: &ObjectKey) -> ObjectKey {
        (self.lost)(key, self.entropy.next_u64())
    }

    /// Records where both objects are.
    pub(crate) async fn record(&self, outcome: Outcome) -> Result<()> {
        match self.callbacks() {
            Some(callbacks) => (callbacks.record)(outcome).await,
            None => Ok(()),
        }
    }

    /// Calls the callback `resolved`, if callbacks are set.
    pub(crate) fn report_resolved(&self, key: &ObjectKey) {
        if let Some(callbacks) = self.callbacks() {
            (callbacks.resolved)(key);
        }
    }

    fn callbacks(&self) -> Option<ConflictCallbacks> {
        match &*self.state() {
            CallbacksState::Set(callbacks) => Some(callbacks.clone()),
            CallbacksState::None | CallbacksState::Awaited => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, CallbacksState> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
