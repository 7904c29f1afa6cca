//! The locks of a file as a shared engine stores them: encoding and decoding.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | version |
//! | 4, then 16 each | number of sessions that wait, and the sessions: session, epoch |
//! | 4, then 24 each | number of open files that may be closed soon, and the files: session, epoch, handle |
//! | 61 each | locks: session, epoch, front end, owner, handle, first and last byte (8 each), kind (1), process (4) |
//!
//! Numbers are big-endian.

use meta::Locker;
use std::collections::BTreeSet;

use super::table::{Held, Lock, LockKind, LockOwner};
use crate::{Error, Handle, Result};

const VERSION: u8 = 1;

/// The locks of a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct StoredFile {
    /// The held locks, of all sessions.
    pub(super) held: Held,
    /// The sessions to notify of a release.
    pub(super) waiting: BTreeSet<Locker>,
    /// Open files of which a descriptor was closed, which may have been the last one.
    pub(super) ending: BTreeSet<(Locker, u64)>,
}

impl StoredFile {
    /// Returns the encoded locks; `None` if there is nothing to store.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        if *self == Self::default() {
            return None;
        }
        let mut encoded = vec![VERSION];
        let length = |set: usize| u32::try_from(set).unwrap_or(u32::MAX).to_be_bytes();
        encoded.extend(length(self.waiting.len()));
        self.waiting.iter().for_each(|locker| push_locker(&mut encoded, *locker));
        encoded.extend(length(self.ending.len()));
        for (locker, handle) in &self.ending {
            push_locker(&mut encoded, *locker);
            encoded.extend(handle.to_be_bytes());
        }
        for lock in self.held.iter() {
            push_locker(&mut encoded, lock.owner.locker);
            for number in [lock.owner.session, lock.owner.id, lock.handle.0, lock.first, lock.last] {
                encoded.extend(number.to_be_bytes());
            }
            encoded.push(u8::from(lock.kind == LockKind::Exclusive));
            encoded.extend(lock.pid.to_be_bytes());
        }
        Some(encoded)
    }

    /// Decodes locks. Leaves out those of sessions for which `is_alive` returns false.
    pub(super) fn decode(encoded: Option<&[u8]>, is_alive: impl Fn(Locker) -> bool) -> Result<Self> {
        let Some(encoded) = encoded else { return Ok(Self::default()) };
        let mut rest = Rest(encoded);
        let (mut waiting, mut ending, mut held) = (BTreeSet::new(), BTreeSet::new(), Held::default());
        let [VERSION] = rest.take()? else {
            return Err(Error::new(libc::ENOLCK, "a newer Tenon stored the locks of this file"));
        };
        for _ in 0..u32::from_be_bytes(rest.take()?) {
            waiting.insert(rest.locker()?);
        }
        for _ in 0..u32::from_be_bytes(rest.take()?) {
            ending.insert((rest.locker()?, rest.number()?));
        }
        while !rest.0.is_empty() {
            let locker = rest.locker()?;
            let owner = LockOwner { locker, session: rest.number()?, id: rest.number()? };
            let (handle, first, last) = (Handle(rest.number()?), rest.number()?, rest.number()?);
            let [kind] = rest.take()?;
            let kind = if kind == 1 { LockKind::Exclusive } else { LockKind::Shared };
            held.insert(Lock { owner, handle, first, last, kind, pid: u32::from_be_bytes(rest.take()?) });
        }
        waiting.retain(|locker| is_alive(*locker));
        ending.retain(|(locker, _)| is_alive(*locker));
        held.drop_all(|lock| !is_alive(lock.owner.locker));
        Ok(Self { held, waiting, ending })
    }
}

fn push_locker(encoded: &mut Vec<u8>, locker: Locker) {
    encoded.extend(locker.session.to_be_bytes());
    encoded.extend(locker.epoch.to_be_bytes());
}

/// The bytes that are not decoded yet.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let damaged = || Error::new(libc::EIO, "the locks of a file are damaged in the database");
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn locker(&mut self) -> Result<Locker> {
        Ok(Locker { session: i64::from_be_bytes(self.take()?), epoch: i64::from_be_bytes(self.take()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_decoded_as_they_were_encoded_without_those_of_dead_sessions() {
        let (one, two) = (Locker { session: 1, epoch: 2 }, Locker { session: -3, epoch: 1 });
        let lock = |locker, first, kind| Lock {
            owner: LockOwner { locker, session: 4, id: u64::MAX },
            handle: Handle(6),
            first,
            last: first + 9,
            kind,
            pid: 7,
        };
        let mut file = StoredFile::default();
        assert_eq!(file.encode(), None);
        file.held.set(lock(one, 0, LockKind::Exclusive));
        file.held.set(lock(two, 50, LockKind::Shared));
        file.waiting.extend([one, two]);
        file.ending.insert((two, 8));
        let encoded = file.encode().unwrap();
        assert_eq!(StoredFile::decode(Some(&encoded), |_| true).unwrap(), file);
        let left = StoredFile::decode(Some(&encoded), |locker| locker == one).unwrap();
        assert_eq!((left.held.len(), left.waiting.len(), left.ending.len()), (1, 1, 0));
        assert!(StoredFile::decode(Some(&encoded[..encoded.len() - 1]), |_| true).is_err());
        assert!(StoredFile::decode(Some(&[9]), |_| true).is_err());
    }
}
