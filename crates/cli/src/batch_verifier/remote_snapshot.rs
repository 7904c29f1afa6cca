//! The snapshot of a lease, read over the network.

use super::primary::{Primary, unexpected};
use crate::batch_server::client::CallError;
use crate::control::verification_protocol::{End, LeaseId, Row, SnapshotRead, VerificationAnswer};
use meta::{EngineError, KeyRange, Reader, Rows, Versioned};
use std::ops::Bound;
use std::sync::Arc;

/// Keys in one request. The batch server passes requests of at most 64 KiB on, and a key has up to some 300 bytes.
const KEYS_MAX: usize = 64;

/// The snapshot that the primary lends for a lease. Reads fail once the lease has ended.
pub(super) struct RemoteSnapshot {
    primary: Arc<Primary>,
    lease: LeaseId,
}

impl RemoteSnapshot {
    pub(super) fn new(primary: Arc<Primary>, lease: LeaseId) -> Self {
        Self { primary, lease }
    }

    /// Returns the records that a read finds, and whether more may be there.
    fn read(&self, read: SnapshotRead) -> Result<(Vec<Option<Row>>, bool), EngineError> {
        match self.primary.read(&self.lease, read).map_err(unavailable)? {
            VerificationAnswer::Rows { rows, has_more } => Ok((rows, has_more)),
            other => Err(unavailable(unexpected(&other))),
        }
    }
}

impl Reader for RemoteSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        let (rows, _) = self.read(SnapshotRead::Get { keys_hex: vec![store::hex(key)] })?;
        let found = rows.into_iter().next().flatten();
        found.map(|row| Ok(record(&row)?.1)).transpose()
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_MAX) {
            let keys_hex = keys.iter().map(|key| store::hex(key)).collect();
            let (rows, _) = self.read(SnapshotRead::Get { keys_hex })?;
            if rows.len() != keys.len() {
                return Err(EngineError::Unavailable("the batch server answered for other keys".to_owned()));
            }
            for row in rows {
                found.push(row.map(|row| Ok::<_, EngineError>(record(&row)?.1)).transpose()?);
            }
        }
        Ok(found)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let mut found = Rows::new();
        let (mut from, to) = (end(from), end(to));
        loop {
            let limit = limit - found.len();
            let read = SnapshotRead::Scan { from: from.clone(), to: to.clone(), limit };
            let (rows, has_more) = self.read(read)?;
            if rows.len() > limit {
                return Err(EngineError::Unavailable(
                    "the batch server returned too many records".to_owned(),
                ));
            }
            let last = rows.iter().flatten().last().map(|row| row.key_hex.clone());
            for row in rows.iter().flatten() {
                found.push(record(row)?);
            }
            match last {
                Some(last) if has_more && rows.len() < limit => from = End::Excluded(last),
                _ => return Ok(found),
            }
        }
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        let read = SnapshotRead::Last { from_hex: store::hex(&range.from), to_hex: store::hex(&range.to) };
        let (rows, _) = self.read(read)?;
        rows.into_iter().next().flatten().map(|row| record(&row)).transpose()
    }
}

fn end(bound: Bound<&[u8]>) -> End {
    match bound {
        Bound::Included(key) => End::Included(store::hex(key)),
        Bound::Excluded(key) => End::Excluded(store::hex(key)),
        Bound::Unbounded => End::Unbounded,
    }
}

fn record(row: &Row) -> Result<(Vec<u8>, Versioned), EngineError> {
    row.record().map_err(|error| EngineError::Unavailable(error.to_string()))
}

fn unavailable(error: CallError) -> EngineError {
    EngineError::Unavailable(error.to_string())
}
