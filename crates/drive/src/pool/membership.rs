//! Membership: the list of a pool's drives. Each drive stores the list, so that foreign and missing drives are detected.
//!
//! A pool only grows. If drives have lists of different lengths, the longest is in force, and the others must be prefixes of it. New
//! drives get the new list first: if a drive's list names another drive, that drive has the list too. If joining is interrupted before
//! the old drives have got the list, they can be served as before.

use super::{DRIVES_MAX, unsuitable};
use crate::error::{Error, Result};
use crate::format::Membership;
use crate::frontend::Drive;
use std::collections::BTreeSet;
use store::{Buckets, Entropy};

/// Makes a pool of drives, or adds drives to a pool. Drives that join must be empty, except for one drive of a new pool. All drives of an
/// existing pool must be given. An interrupted call can be repeated.
///
/// Errors: [`Error::Unsuitable`] if the drives cannot form a pool.
pub async fn join(drives: &[Drive], entropy: &Entropy) -> Result<Membership> {
    let found = memberships(drives).await?;
    let known = longest(&found);
    let pool = known.clone().unwrap_or_else(|| Membership { pool: entropy.next_u64(), drives: Vec::new() });
    check_all_of(&found, &pool)?;
    let new = newcomers(drives, &pool, known.is_none()).await?;
    let joined = Membership { drives: [pool.drives, new].concat(), ..pool };
    if !(2..=DRIVES_MAX).contains(&joined.drives.len()) {
        return Err(Error::Unsuitable(format!("a pool has 2 to {DRIVES_MAX} drives; name more or fewer")));
    }
    // The newest drive first, as the module's documentation explains.
    for id in joined.drives.iter().rev() {
        for drive in drives.iter().filter(|drive| drive.id() == *id) {
            drive.set_membership(&joined).await?;
        }
    }
    Ok(joined)
}

/// Returns the ids of the drives that join. In a new pool one drive may have buckets, and comes first.
async fn newcomers(drives: &[Drive], pool: &Membership, is_new: bool) -> Result<Vec<u64>> {
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for drive in drives.iter().filter(|drive| pool.number_of(drive.id()).is_none()) {
        let is_empty = Buckets::list(drive).await.map_err(unsuitable)?.is_empty();
        if is_empty { &mut empty } else { &mut full }.push(drive.id());
    }
    match full.get(usize::from(is_new)) {
        None => Ok([full, empty].concat()),
        Some(full) => Err(Error::Unsuitable(format!(
            "drive {full:016x} has buckets: a drive that joins a pool must be empty"
        ))),
    }
}

/// Checks that all drives of a pool are present, and none of another pool.
fn check_all_of(found: &[(u64, Option<Membership>)], pool: &Membership) -> Result<()> {
    for (id, membership) in found {
        membership.as_ref().map_or(Ok(()), |membership| check_of(*id, membership, pool))?;
    }
    match pool.drives.iter().find(|away| !found.iter().any(|(id, _)| id == *away)) {
        None => Ok(()),
        Some(away) => Err(Error::Unsuitable(format!(
            "drive {away:016x} of the pool is missing: name all drives of the pool"
        ))),
    }
}

/// Returns the membership in force according to all drives. Fails if the drives are no pool, or belong to different
/// ones.
pub(super) async fn agree_on_membership(drives: &[Drive]) -> Result<Membership> {
    let found = memberships(drives).await?;
    let longest = longest(&found);
    let longest = longest
        .ok_or_else(|| Error::Unsuitable("the drives are no pool: 'tenon drive join' makes one".into()))?;
    for (id, membership) in &found {
        match membership {
            Some(membership) => check_of(*id, membership, &longest)?,
            None if longest.number_of(*id).is_none() => return Err(foreign(*id)),
            None => {}
        }
    }
    Ok(longest)
}

/// Reads the id and the membership record of each drive. Fails if a drive is given twice.
async fn memberships(drives: &[Drive]) -> Result<Vec<(u64, Option<Membership>)>> {
    let (mut found, mut ids) = (Vec::new(), BTreeSet::new());
    for drive in drives {
        if !ids.insert(drive.id()) {
            return Err(Error::Unsuitable(format!(
                "drive {:016x} is given twice: remove the copy",
                drive.id()
            )));
        }
        found.push((drive.id(), drive.membership().await?));
    }
    Ok(found)
}

/// Returns the record that names most drives: the newest, as drives are only added.
fn longest(found: &[(u64, Option<Membership>)]) -> Option<Membership> {
    let known = found.iter().filter_map(|(_, membership)| membership.as_ref());
    known.max_by_key(|membership| membership.drives.len()).cloned()
}

/// Checks that a drive's membership is a prefix of the pool's.
fn check_of(id: u64, known: &Membership, pool: &Membership) -> Result<()> {
    match known.pool == pool.pool && pool.drives.starts_with(&known.drives) {
        true => Ok(()),
        false => Err(Error::Unsuitable(format!("drive {id:016x} belongs to another pool"))),
    }
}

/// Returns the error for a drive that is not a member of the pool.
pub(super) fn foreign(id: u64) -> Error {
    Error::Unsuitable(format!("drive {id:016x} does not belong to the pool: 'tenon drive join' adds it"))
}
