//! The lease on the backup of metadata in a database: of the mounts that share a volume, one exports the metadata.
//!
//! It is stored like a lock of a file, under a number that no file has. So it belongs to the lease of a session, it ends with the session, and
//! another mount can take it over as soon as that lease has expired. Its value also says how far the backup is, for the other mounts.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version |
//! | 8, 8 | session and epoch of the holder |
//! | 4 | generation of the backup |
//! | 8, 8 | times as of which the backup and its newest snapshot are complete, in nanoseconds since 1970; the lowest number for none |
//!
//! Numbers are big-endian. An engine that no other mount can use meanwhile needs no lease.

use anyhow::{Context, Result, bail};
use backup::ExporterStatus;
use meta::{Engine, LockChange, Locker, StoredLocks};
use std::sync::Arc;
use store::Timestamp;

/// The number under which the lease is stored instead of that of an inode.
const LEASE_NUMBER: u64 = 0;

const VERSION: u8 = 1;

/// Attempts to take the lease while other mounts try to take it too.
const ATTEMPTS: usize = 8;

/// The lease on the backup of a volume, as one mount sees it. All calls block.
#[derive(Debug, Clone)]
pub(crate) struct ExportLease {
    engine: Arc<dyn Engine>,
}

/// The mount whose turn it is to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This mount, with the lease as it is stored now, for [`ExportLease::publish`].
    Own(StoredLocks),
    /// Another mount, which has published how far the backup is.
    Other(ExporterStatus),
}

/// The value of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    holder: Locker,
    status: ExporterStatus,
}

impl ExportLease {
    pub(crate) fn of(engine: Arc<dyn Engine>) -> Self {
        Self { engine }
    }

    /// Takes the lease if it is free. With `takes_over` takes it from a mount that has it, too.
    pub(crate) fn take(&self, takes_over: bool) -> Result<Turn> {
        if !self.engine.is_shared() {
            return Ok(Turn::Own(StoredLocks::default()));
        }
        let own = self.engine.locker().context("the lease of this mount in the database has expired")?;
        let mut stored = self.engine.locks_of(LEASE_NUMBER)?;
        for _ in 0..ATTEMPTS {
            let status = match held(&stored)? {
                Some(held) if held.holder == own => return Ok(Turn::Own(stored)),
                Some(held) if stored.lockers.contains(&held.holder) && !takes_over => {
                    return Ok(Turn::Other(held.status));
                }
                Some(held) => held.status,
                None => ExporterStatus::default(),
            };
            let (is_replaced, now) = self.replace(&stored, Some(Held { holder: own, status }))?;
            if is_replaced {
                return Ok(Turn::Own(now));
            }
            stored = now;
        }
        bail!("other mounts keep taking over the backup");
    }

    /// Publishes for the other mounts how far the backup is, if this mount has the lease. This is one request, unless the lease is no longer as
    /// `seen`.
    pub(crate) fn publish(&self, seen: &StoredLocks, status: ExporterStatus) -> Result<()> {
        self.change_from(seen.clone(), |held| Some(Held { status, ..held }))
    }

    /// Gives the lease up, if this mount has it.
    pub(crate) fn release(&self) -> Result<()> {
        if self.engine.locker().is_none() {
            return Ok(());
        }
        self.change_from(self.engine.locks_of(LEASE_NUMBER)?, |_| None)
    }

    /// Changes the lease, which was last seen as `stored`, if this mount has it.
    fn change_from(&self, mut stored: StoredLocks, new: impl Fn(Held) -> Option<Held>) -> Result<()> {
        let Some(own) = self.engine.locker() else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            let Some(held) = held(&stored)?.filter(|held| held.holder == own) else { break };
            let (is_replaced, now) = self.replace(&stored, new(held))?;
            if is_replaced {
                break;
            }
            stored = now;
        }
        Ok(())
    }

    fn replace(&self, seen: &StoredLocks, new: Option<Held>) -> Result<(bool, StoredLocks)> {
        let new = new.map(|held| held.encode());
        let change =
            LockChange { ino: LEASE_NUMBER, seen: seen.held.as_deref(), new: new.as_deref(), wakes: false };
        Ok(self.engine.replace_locks(change)?)
    }
}

/// Returns the value of the lease; `None` if it is free.
fn held(stored: &StoredLocks) -> Result<Option<Held>> {
    let decode =
        |bytes: &Vec<u8>| Held::decode(bytes).context("the lease on the backup in the database is damaged");
    stored.held.as_ref().map(decode).transpose()
}

impl Held {
    fn encode(&self) -> Vec<u8> {
        let time = |at: Option<Timestamp>| at.map_or(i64::MIN, |at| at.0).to_be_bytes();
        let ExporterStatus { generation, current_at, snapshot_at } = self.status;
        let mut encoded = vec![VERSION];
        encoded.extend(self.holder.session.to_be_bytes());
        encoded.extend(self.holder.epoch.to_be_bytes());
        encoded.extend(generation.to_be_bytes());
        encoded.extend(time(current_at));
        encoded.extend(time(snapshot_at));
        encoded
    }

    fn decode(encoded: &[u8]) -> Option<Self> {
        let (&[VERSION], rest) = encoded.split_first_chunk()? else { return None };
        let (session, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (current_at, rest) = rest.split_first_chunk()?;
        let (snapshot_at, _) = rest.split_first_chunk()?;
        let time =
            |bytes: &[u8; 8]| Some(i64::from_be_bytes(*bytes)).filter(|at| *at != i64::MIN).map(Timestamp);
        Some(Self {
            holder: Locker { session: i64::from_be_bytes(*session), epoch: i64::from_be_bytes(*epoch) },
            status: ExporterStatus {
                generation: u32::from_be_bytes(*generation),
                current_at: time(current_at),
                snapshot_at: time(snapshot_at),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_decoded_as_it_was_encoded() {
        let holder = Locker { session: 7, epoch: 2 };
        let status = ExporterStatus { generation: 3, current_at: Some(Timestamp(5)), snapshot_at: None };
        let held = Held { holder, status };
        assert_eq!(Held::decode(&held.encode()), Some(held));
        assert_eq!(Held::decode(b"\x02"), None);
    }

    #[test]
    fn an_engine_of_one_mount_needs_no_lease() {
        let lease = ExportLease::of(Arc::new(meta::MemoryEngine::default()));
        assert_eq!(lease.take(false).unwrap(), Turn::Own(StoredLocks::default()));
        lease.publish(&StoredLocks::default(), ExporterStatus::default()).unwrap();
        lease.release().unwrap();
    }
}
