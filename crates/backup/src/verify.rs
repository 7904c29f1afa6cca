//! Verification of backups: every part that a restoration could use is read and checked.

use crate::keys::{Keys, Lineage, Part};
use crate::listing::{Complete, Listing};
use crate::snapshot::{read, read_manifest, read_table};
use crate::{Error, Result, segment};
use meta::Seqno;
use store::{ObjectStore, StoreError, Timestamp};

/// The outcome of the verification of a lineage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Complete snapshots.
    pub snapshots: u64,
    /// Records in the newest undamaged one.
    pub records: u64,
    /// Ops in the log.
    pub ops: u64,
    /// The moment of the newest undamaged part; `None` if there is none. A restoration reaches it unless there are problems.
    pub moment: Option<Timestamp>,
    /// Damage, one line each.
    pub problems: Vec<String>,
}

/// Verifies a lineage: all complete snapshots, all segments of the log, and that the segments continue the newest snapshot without a gap.
pub async fn verify(store: &dyn ObjectStore, keys: &Keys, lineage: Lineage) -> Result<Verified> {
    let listing = Listing::read(store, keys, lineage).await?;
    let verifier = Verifier { store, keys, lineage };
    let mut verified = Verified::default();
    for snapshot in listing.complete() {
        verified.snapshots += 1;
        match verifier.check_snapshot(snapshot).await {
            Ok((records, made_at)) => {
                verified.records = records;
                verified.moment = verified.moment.max(Some(made_at));
            }
            Err(error) => verified.problems.push(damage(error)?),
        }
    }
    for (epoch, parts) in &listing.epochs {
        for (from, to) in parts.log.keys() {
            match verifier.check_segment(Part::Log { epoch: *epoch, from: *from, to: *to }).await {
                Ok((ops, read_at)) => {
                    verified.ops += ops;
                    verified.moment = verified.moment.max(Some(read_at));
                }
                Err(error) => verified.problems.push(damage(error)?),
            }
        }
    }
    verified.problems.extend(gap(&listing));
    if verified.snapshots == 0 {
        verified.problems.push("there is no complete snapshot".into());
    }
    Ok(verified)
}

/// Returns the text of an error that means damage. Other errors, for example of the network, say nothing about the backup.
fn damage(error: Error) -> Result<String> {
    match error {
        Error::Damaged { .. } | Error::Store(StoreError::NotFound(_)) => Ok(error.to_string()),
        other => Err(other),
    }
}

/// Describes the gap in the log after the newest snapshot, behind which segments cannot be used; `None` if there is none.
fn gap(listing: &Listing) -> Option<String> {
    let newest = listing.complete().last().copied()?;
    let end = listing.end(newest.epoch, newest.seqno);
    let last: Seqno = listing.epochs.get(&newest.epoch)?.log.keys().map(|(_, to)| *to).max()?;
    (last > end).then(|| format!("the log has a gap after commit {}", end.0))
}

struct Verifier<'v> {
    store: &'v dyn ObjectStore,
    keys: &'v Keys,
    lineage: Lineage,
}

impl Verifier<'_> {
    async fn check_snapshot(&self, snapshot: Complete) -> Result<(u64, Timestamp)> {
        let Complete { epoch, seqno, .. } = snapshot;
        let manifest = read_manifest(self.store, self.keys, self.lineage, (epoch, seqno)).await?;
        let mut last = Vec::new();
        for (number, entry) in manifest.tables.iter().enumerate() {
            let part = Part::Table { epoch, seqno, number: number as u32 };
            let table = read_table(self.store, self.keys, self.lineage, part, *entry).await?;
            if number > 0 && table.first() <= last.as_slice() {
                let key = self.keys.part(self.lineage, part)?;
                return Err(Error::damaged(&key, "does not continue the table before it"));
            }
            last = table.last().to_vec();
        }
        Ok((manifest.records(), Timestamp(manifest.made_at)))
    }

    async fn check_segment(&self, part: Part) -> Result<(u64, Timestamp)> {
        let key = self.keys.part(self.lineage, part)?;
        let opened = segment::open(self.lineage, part, &key, &read(self.store, &key).await?)?;
        Ok((opened.ops.len() as u64, opened.read_at))
    }
}
