//! Membership of a drive in a pool: reads and stores the list of the pool's drives.

use super::Drive;
use crate::engine::Prepared;
use crate::error::{Error, Result};
use crate::format::{Change, IndexKey, Membership};
use crate::policy::Purpose;

impl Drive {
    /// Returns the id of the drive.
    pub fn id(&self) -> u64 {
        self.0.engine.drive.id
    }

    /// Returns the pool that the drive belongs to; `None` if it belongs to none.
    pub async fn membership(&self) -> Result<Option<Membership>> {
        let entry = IndexKey::membership();
        let Some(value) = self.0.entry(&entry).await? else { return Ok(None) };
        let damaged = || Error::damaged_entry("the drive's pool", &entry.0);
        Membership::decode(&value).ok_or_else(damaged).map(Some)
    }

    pub(crate) async fn set_membership(&self, membership: &Membership) -> Result<()> {
        let locks = vec![self.0.locks.lock_names().await];
        let put = Change::Put { key: IndexKey::membership().0, value: membership.encode() };
        // Needs as little space as a deletion, and must succeed on a full drive: pools are enlarged when their drives are full.
        let purpose = Purpose::Frees;
        self.0.commit(Prepared { changes: vec![put], purpose, ..Prepared::default() }, locks).await
    }
}
