//! Leases of sessions in the table `lease`, and the locks that belong to them in the table `lock`.

use crate::columns::{column, seqno};
use crate::connection::Connection;
use crate::failure::failure;
use crate::parameters::as_stored;
use futures_util::join;
use meta::{EngineError, LockChange, Locker, Seqno, StoredLocks};
use meta_remote::{Failure, Lease, Notice, SessionId, ended};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Stores the lease of a session, in the order of commits. Returns the newest commit.
pub(crate) async fn begin(connection: &Connection, lease: &Lease) -> Result<Seqno, Failure> {
    let Lease { locker, fence, beat, read_to, is_strict } = lease;
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&locker.session, &locker.epoch, fence, beat, &as_stored(*read_to), is_strict];
    let rows = connection.run_locked(&connection.statements.begin_lease, &parameters).await?;
    let row = rows.first().ok_or_else(no_row)?;
    match column::<i64>(row, 1)? {
        0 => Err(Failure::Refused(ended())),
        _ => Ok(seqno(column(row, 0)?)),
    }
}

/// Renews a lease. Returns all leases; `None` if there is no such lease any more, or if its beat is below `answered`.
pub(crate) async fn renew(
    connection: &Connection,
    lease: &Lease,
    answered: i64,
    notifies: bool,
) -> Result<Option<Vec<Lease>>, Failure> {
    let Lease { locker, fence, beat, read_to, .. } = lease;
    let read_to_stored = as_stored(*read_to);
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&locker.session, &locker.epoch, fence, beat, &read_to_stored, &answered];
    let notice = Notice::Acknowledgement { session: locker.session, to: *read_to };
    let notice = notifies.then(|| notice.text(SessionId(locker.session)));
    let (renewed, rows, notified) = join!(
        connection.client.execute(&connection.statements.renew_lease, &parameters),
        connection.client.query(&connection.statements.leases, &[]),
        connection.notify(notice),
    );
    notified.map_err(failure)?;
    if renewed.map_err(failure)? == 0 {
        return Ok(None);
    }
    rows.map_err(failure)?.iter().map(lease_of).collect::<Result<_, _>>().map(Some)
}

fn lease_of(row: &Row) -> Result<Lease, Failure> {
    Ok(Lease {
        locker: Locker { session: column(row, 0)?, epoch: column(row, 1)? },
        fence: column(row, 2)?,
        beat: column(row, 3)?,
        read_to: seqno(column(row, 4)?),
        is_strict: column(row, 5)?,
    })
}

/// Removes a lease, unless it has been renewed since.
pub(crate) async fn expire(connection: &Connection, lease: &Lease) -> Result<(), Failure> {
    let Lease { locker, beat, .. } = lease;
    let expire = &connection.statements.expire_lease;
    let parameters: [&(dyn ToSql + Sync); 3] = [&locker.session, &locker.epoch, beat];
    connection.client.execute(expire, &parameters).await.map(drop).map_err(failure)
}

/// Returns the leases of strict sessions in the last columns of a commit's answer.
pub(crate) fn strict(row: &Row, first_column: usize) -> Result<Vec<Lease>, Failure> {
    let numbers = |at: usize| column::<Vec<i64>>(row, first_column + at);
    let (sessions, epochs, beats, read_to) = (numbers(0)?, numbers(1)?, numbers(2)?, numbers(3)?);
    let leases = sessions.into_iter().zip(epochs).zip(beats.into_iter().zip(read_to));
    let leases = leases.map(|((session, epoch), (beat, read_to))| Lease {
        locker: Locker { session, epoch },
        fence: 0,
        beat,
        read_to: seqno(read_to),
        is_strict: true,
    });
    Ok(leases.collect())
}

/// Returns the locks of a file.
pub(crate) async fn locks_of(connection: &Connection, ino: u64) -> Result<StoredLocks, Failure> {
    let row = connection.client.query_one(&connection.statements.locks_of, &[&ino.cast_signed()]).await;
    stored(&row.map_err(failure)?)
}

/// Replaces the locks of a file. Returns `None` unless the session has this lease with this fence.
pub(crate) async fn replace_locks(
    connection: &Connection,
    lease: &Lease,
    change: LockChange<'_>,
) -> Result<Option<(bool, StoredLocks)>, Failure> {
    let LockChange { ino, seen, new, wakes } = change;
    let (Lease { locker, fence, beat, .. }, ino) = (lease, ino.cast_signed());
    let parameters: [&(dyn ToSql + Sync); 7] =
        [&locker.session, &locker.epoch, fence, &ino, &seen, &new, beat];
    let asked: [&(dyn ToSql + Sync); 1] = [&ino];
    let notice = wakes.then(|| Notice::Unlocked(change.ino).text(SessionId(locker.session)));
    let (replaced, now, notified) = join!(
        connection.client.query_one(&connection.statements.replace_locks, &parameters),
        connection.client.query_one(&connection.statements.locks_of, &asked),
        connection.notify(notice),
    );
    notified.map_err(failure)?;
    let (replaced, now) = (replaced.map_err(failure)?, stored(&now.map_err(failure)?)?);
    if column::<i64>(&replaced, 0)? == 0 {
        return Ok(None);
    }
    Ok(Some((column::<i64>(&replaced, 1)? > 0, now)))
}

fn stored(row: &Row) -> Result<StoredLocks, Failure> {
    let (sessions, epochs): (Vec<i64>, Vec<i64>) = (column(row, 1)?, column(row, 2)?);
    let lockers = sessions.into_iter().zip(epochs).map(|(session, epoch)| Locker { session, epoch });
    Ok(StoredLocks { held: column(row, 0)?, lockers: lockers.collect(), head: seqno(column(row, 3)?) })
}

fn no_row() -> Failure {
    Failure::Refused(EngineError::Corrupt("a statement without an answer".into()))
}
