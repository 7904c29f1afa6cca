//! Leases of sessions in the hash `leases`, and the locks that belong to them in the hash `locks`.

use crate::connection::Connection;
use crate::failure::unexpected;
use crate::request::{Arguments, leases};
use crate::scripts::Script;
use crate::values::{Values, optional_bytes};
use meta::{LockChange, Locker, Seqno, StoredLocks};
use meta_remote::{Failure, Lease, Notice, SessionId, ended};

/// Stores the lease of a session. Returns the newest commit.
pub(crate) async fn begin(connection: &Connection, lease: &Lease) -> Result<Seqno, Failure> {
    let mut arguments = of_lease(lease);
    arguments.text(i32::from(lease.is_strict));
    let mut values = Values::of(connection.run(Script::BeginLease, &arguments).await?)?;
    if values.is_empty() {
        return Err(Failure::Refused(ended()));
    }
    values.seqno()
}

/// Renews a lease. Returns all leases; `None` if there is no such lease any more, or if its beat is below `answered`.
pub(crate) async fn renew(
    connection: &Connection,
    lease: &Lease,
    answered: i64,
    notifies: bool,
) -> Result<Option<Vec<Lease>>, Failure> {
    let mut arguments = of_lease(lease);
    let session = lease.locker.session;
    let notice = Notice::Acknowledgement { session, to: lease.read_to };
    arguments.text(if notifies { notice.text(SessionId(session)) } else { String::new() }).text(answered);
    let mut values = Values::of(connection.run(Script::RenewLease, &arguments).await?)?;
    match values.int()? {
        1 => leases(values.array()?).map(Some),
        _ => Ok(None),
    }
}

fn of_lease(lease: &Lease) -> Arguments {
    let Lease { locker, fence, beat, read_to, .. } = lease;
    let mut arguments = Arguments::default();
    arguments.text(locker.session).text(locker.epoch).text(fence).text(beat).text(read_to.0);
    arguments
}

/// Removes a lease, unless it has been renewed since.
pub(crate) async fn expire(connection: &Connection, lease: &Lease) -> Result<(), Failure> {
    let mut arguments = Arguments::default();
    arguments.text(lease.locker.session).text(lease.locker.epoch).text(lease.beat);
    connection.run(Script::ExpireLease, &arguments).await.map(drop)
}

/// Returns the locks of a file.
pub(crate) async fn locks_of(connection: &Connection, ino: u64) -> Result<StoredLocks, Failure> {
    let found = connection.run(Script::LocksOf, Arguments::default().text(ino)).await?;
    Ok(stored(Values::of(found)?)?.1)
}

/// Replaces the locks of a file. Returns `None` unless the session has this lease with this fence.
pub(crate) async fn replace_locks(
    connection: &Connection,
    lease: &Lease,
    change: LockChange<'_>,
) -> Result<Option<(bool, StoredLocks)>, Failure> {
    let LockChange { ino, seen, new, wakes } = change;
    let session = lease.locker.session;
    let notice = if wakes { Notice::Unlocked(ino).text(SessionId(session)) } else { String::new() };
    let mut arguments = Arguments::default();
    arguments.text(session).text(lease.locker.epoch).text(lease.fence).text(ino);
    arguments.bytes(seen.unwrap_or_default()).bytes(new.unwrap_or_default()).text(notice).text(lease.beat);
    let values = Values::of(connection.run(Script::ReplaceLocks, &arguments).await?)?;
    if values.is_empty() {
        return Ok(None);
    }
    stored(values).map(Some)
}

/// Returns whether a replacement was made, and the locks that are stored.
fn stored(mut values: Values) -> Result<(bool, StoredLocks), Failure> {
    let is_replaced = values.int()? == 1;
    let (mut sessions, mut epochs, mut lockers) = (values.array()?, values.array()?, Vec::new());
    while !sessions.is_empty() {
        lockers.push(Locker { session: sessions.int()?, epoch: epochs.int()? });
    }
    let head = values.seqno()?;
    let held = if values.is_empty() { None } else { optional_bytes(values.next_value()?)? };
    if held.as_ref().is_some_and(Vec::is_empty) {
        return Err(unexpected());
    }
    Ok((is_replaced, StoredLocks { held, lockers, head }))
}
