//! Conversions between the messages of verifiers and what they stand for.

use super::leases::{LEASE, Offer};
use crate::control::verification_protocol::{
    End, FileMessage, LeaseId, Row, SnapshotRead, Task, TermsMessage, VerificationAnswer,
};
use anyhow::{Context, Result};
use batch::{Proof, SEALED_FILES, Terms};
use meta::access::Caller;
use meta::{BatchId, Ino, KeyRange, Moment, Reader, Seqno, Versioned};
use std::fs;
use std::ops::Bound;
use std::path::Path;
use store::Timestamp;

/// Maximum number of records in an answer.
const ROWS_MAX: usize = 1024;

/// Returns the message about a lease.
pub(super) fn task(id: BatchId, fence: u64, offer: &Offer) -> Result<Task> {
    Ok(Task {
        lease: LeaseId { batch: id.to_string(), fence },
        lease_ms: u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX),
        terms: TermsMessage::from(&offer.terms),
        is_reduced: offer.proof == Proof::Reduced,
        files: files(&offer.dir)?,
    })
}

/// Returns the files of a sealed batch.
pub(super) fn files(dir: &Path) -> Result<Vec<FileMessage>> {
    let file = |name: &&str| {
        let path = dir.join(name);
        let bytes = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok(FileMessage { name: (*name).to_owned(), bytes })
    };
    SEALED_FILES.iter().map(file).collect()
}

/// Reads a snapshot.
pub(super) fn read(snapshot: &dyn Reader, read: &SnapshotRead) -> Result<VerificationAnswer> {
    let (rows, has_more) = match read {
        SnapshotRead::Get { keys_hex } => {
            let keys: Vec<Vec<u8>> =
                keys_hex.iter().take(ROWS_MAX).map(|hex| bytes(hex)).collect::<Result<_>>()?;
            let found = snapshot.multi_get(&keys)?.into_iter().zip(keys);
            (found.map(|(found, key)| found.map(|found| row(&key, &found))).collect(), false)
        }
        SnapshotRead::Scan { from, to, limit } => {
            let (from, to) = (bound(from)?, bound(to)?);
            let limit = (*limit).min(ROWS_MAX);
            let rows = snapshot.scan(as_slice(&from), as_slice(&to), limit)?;
            (rows.iter().map(|(key, found)| Some(row(key, found))).collect(), rows.len() == limit)
        }
        SnapshotRead::Last { from_hex, to_hex } => {
            let range = KeyRange { from: bytes(from_hex)?, to: bytes(to_hex)? };
            (vec![snapshot.last(&range)?.map(|(key, found)| row(&key, &found))], false)
        }
    };
    Ok(VerificationAnswer::Rows { rows, has_more })
}

fn row(key: &[u8], found: &Versioned) -> Row {
    Row { key_hex: store::hex(key), value_hex: store::hex(&found.value), version: found.version.0 }
}

fn bytes(hex: &str) -> Result<Vec<u8>> {
    store::unhex(hex).context("a key is not hexadecimal")
}

fn bound(end: &End) -> Result<Bound<Vec<u8>>> {
    Ok(match end {
        End::Included(hex) => Bound::Included(bytes(hex)?),
        End::Excluded(hex) => Bound::Excluded(bytes(hex)?),
        End::Unbounded => Bound::Unbounded,
    })
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl From<&Terms> for TermsMessage {
    fn from(terms: &Terms) -> Self {
        Self {
            uid: terms.caller.uid,
            gid: terms.caller.gid,
            groups: terms.caller.groups.to_vec(),
            inos: (terms.lease.start.0, terms.lease.end.0),
            moment: (terms.at.mount, terms.at.nanos),
            times: (terms.times.start().0, terms.times.end().0),
            content_hex: terms.content.as_deref().map(store::hex),
            packs_hex: terms.packs.as_deref().map(store::hex),
            keeps_refused: terms.keeps_refused,
            submitted: terms.submitted.0,
        }
    }
}

impl TermsMessage {
    /// Returns the terms that the message stands for.
    pub(crate) fn terms(&self) -> Result<Terms> {
        let prefix = |hex: &Option<String>| -> Result<Option<Box<[u8]>>> {
            hex.as_deref().map(|hex| Ok(bytes(hex)?.into())).transpose()
        };
        Ok(Terms {
            caller: Caller { uid: self.uid, gid: self.gid, groups: self.groups.clone().into() },
            lease: Ino(self.inos.0)..Ino(self.inos.1),
            at: Moment { mount: self.moment.0, nanos: self.moment.1 },
            times: Timestamp(self.times.0)..=Timestamp(self.times.1),
            content: prefix(&self.content_hex)?,
            packs: prefix(&self.packs_hex)?,
            keeps_refused: self.keeps_refused,
            submitted: Timestamp(self.submitted),
        })
    }
}

impl Row {
    /// Returns the key and the record.
    pub(crate) fn record(&self) -> Result<(Vec<u8>, Versioned)> {
        let value = bytes(&self.value_hex)?.into();
        Ok((bytes(&self.key_hex)?, Versioned { value, version: Seqno(self.version) }))
    }
}
