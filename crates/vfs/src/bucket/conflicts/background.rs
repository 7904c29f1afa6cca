//! Conflicts that are detected in the background: by the write-back log when it uploads files that were closed before, and by
//! the mover when it moves renamed objects.

use staging::conflict::{ConflictCallbacks, KeyConflict, Outcome, Resolution};
use std::sync::Arc;
use store::{ObjectKey, StoreError, names};

use super::{Conflict, ConflictPolicy, Side};
use crate::bucket::conflicts::resolve::ConflictResolver;
use crate::bucket::discovery::Discovery;
use crate::{Error, Result};

impl ConflictResolver {
    /// Returns the callbacks by which the write-back log and the mover resolve conflicts, according to the volume's policy.
    pub fn callbacks(&self) -> ConflictCallbacks {
        let (me_for_decide, me_for_record, me_for_resolved) =
            (self.me.clone(), self.me.clone(), self.me.clone());
        ConflictCallbacks {
            decide: Arc::new(move |conflict| match me_for_decide.upgrade() {
                Some(resolver) => resolver.decide_destination(conflict),
                None => Resolution::OursTo(conflict.key.clone()),
            }),
            record: Arc::new(move |outcome| {
                let resolver = me_for_record.upgrade();
                Box::pin(async move {
                    let Some(resolver) = resolver else {
                        return Err(StoreError::Unavailable("the volume is unmounted".into()));
                    };
                    let noted = resolver.record_outcome(outcome).await;
                    noted.map_err(|error| {
                        StoreError::Unavailable(format!("a conflict cannot be recorded: {error}"))
                    })
                })
            }),
            resolved: Arc::new(move |key| {
                let (Some(resolver), key) = (me_for_resolved.upgrade(), key.clone()) else { return };
                tokio::spawn(async move {
                    if let Err(error) = resolver.discovery.reconcile_key(&key).await {
                        tracing::debug!(%key, %error, "cannot update the file at the key of a conflict from the bucket; the next lookup asks the bucket");
                        resolver.known.forget_listing_of(&key).ok();
                    }
                });
            }),
        }
    }

    /// Decides by the policy which side of a conflict leaves the key, and to which key it goes.
    fn decide_destination(&self, conflict: &KeyConflict) -> Resolution {
        let key = &conflict.key;
        // If the volume's prefix leaves no space for a key in `lost+found`, this is the key itself, and the change stays
        // pending.
        let lost = || {
            let unique = self.mount.entropy.next_u64();
            self.mount.config.key_space().lost_key(key, unique).unwrap_or_else(|_| key.clone())
        };
        match (self.mount.config.conflicts, &conflict.theirs) {
            (ConflictPolicy::FileWins, _) | (ConflictPolicy::KeepBoth, None) if conflict.is_complete => {
                Resolution::TheirsTo(lost())
            }
            (ConflictPolicy::KeepBoth, Some(_)) if conflict.is_complete => Resolution::OursTo(
                self.conflicts.conflict_copy_key(key, self.mount.now()).unwrap_or_else(|_| lost()),
            ),
            _ => Resolution::OursTo(lost()),
        }
    }

    /// Records the outcome of a conflict, in place of the record of an unfinished attempt.
    async fn record_outcome(&self, Outcome { conflict, ours, theirs }: Outcome) -> Result<()> {
        let KeyConflict { key, theirs: seen, is_complete } = conflict;
        // An attempt to replace the bucket's object may have been recorded before.
        let is_same =
            |known: &Conflict| known.key == key && known.file.is_none() && known.is_complete == is_complete;
        let id = self.conflicts.list().into_iter().find(is_same).map(|known| known.id);
        let inside =
            key.as_bytes().strip_prefix(self.mount.config.prefix.as_slice()).unwrap_or(key.as_bytes());
        let inside = ObjectKey::new(inside.to_vec()).map_err(|error| Error::Name(error.into()))?;
        let conflict = Conflict {
            id: id.unwrap_or_else(|| format!("{:016x}", self.mount.entropy.next_u64())),
            path: names::key_to_path(&inside).join(&b'/'),
            at: self.mount.now(),
            policy: self.mount.config.conflicts,
            seen: seen.map(|object| object.etag),
            file: ours.as_ref().map(Side::of),
            bucket: theirs.as_ref().map(Side::of),
            is_complete,
            key,
        };
        self.conflicts.record_conflict(&conflict).await
    }
}

impl Discovery {
    /// Reads the object at a key and reconciles the names with it.
    pub(crate) async fn reconcile_key(&self, key: &ObjectKey) -> Result<()> {
        let looked_at = self.mount.moment();
        let found = self.mount.store.find(key).await?;
        self.reconcile(key, found.as_ref(), looked_at).await
    }
}
