//! Which drives a pool has. Each of them knows all, so that a foreign or a missing one is told.
//!
//! A pool only grows: of two lists of one pool the longer one counts, and begins with the shorter. New drives learn of it first, so that
//! whoever knows of a drive is never alone with it: cut short, joining changed nothing for those who serve the old ones.

use crate::error::{Error, Result};
use crate::format::{Change, IndexKey};
use crate::machine::{Prepared, Purpose};
use crate::pool::{DRIVES_MAX, unfit};
use crate::shell::Drive;
use crate::wire::{Decoder, Encoder};
use std::collections::BTreeSet;
use store::{Buckets, Entropy};

/// A pool, as each of its drives knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// By which the pool is known.
    pub pool: u64,
    /// The ids of its drives, in the order in which they joined.
    pub drives: Vec<u64>,
}

impl Membership {
    /// A drive's place, from 0.
    pub fn number_of(&self, drive: u64) -> Option<usize> {
        self.drives.iter().position(|&id| id == drive)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.fixed(self.pool);
        to.each(self.drives.iter(), |to, &id| to.fixed(id));
        to.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let (pool, drives) = (from.fixed()?, from.each(Decoder::fixed)?);
        from.end(Self { pool, drives })
    }
}

impl Drive {
    /// By which the drive is known.
    pub fn id(&self) -> u64 {
        self.0.machine.drive.id
    }

    /// The pool that the drive is of.
    pub async fn membership(&self) -> Result<Option<Membership>> {
        let Some(value) = self.0.entry(&IndexKey::membership()).await? else { return Ok(None) };
        let damaged = Error::damaged("the drive's pool in the index", 0);
        Membership::decode(&value).ok_or(damaged).map(Some)
    }

    pub(super) async fn set_membership(&self, membership: &Membership) -> Result<()> {
        let locks = vec![self.0.locks.hold_names().await];
        let put = Change::Put { key: IndexKey::membership().0, value: membership.encode() };
        // It takes as little as a deletion, and a pool grows when its drives are full.
        let purpose = Purpose::Frees;
        self.0.commit(Prepared { changes: vec![put], purpose, ..Prepared::default() }, locks).await
    }
}

/// Makes one pool of drives, or adds drives to one: those that are of no pool yet. They must be empty, but for one where there is no
/// pool yet. Can be repeated when it was cut short. All of the pool's drives must be there.
///
/// Errors: [`Error::Unfit`] if that cannot be.
pub async fn join(drives: &[Drive], entropy: &Entropy) -> Result<Membership> {
    let found = memberships(drives).await?;
    let known = longest(&found);
    let pool = known.clone().unwrap_or_else(|| Membership { pool: entropy.next_u64(), drives: Vec::new() });
    check_all_of(&found, &pool)?;
    let new = newcomers(drives, &pool, known.is_none()).await?;
    let joined = Membership { drives: [pool.drives, new].concat(), ..pool };
    if !(2..=DRIVES_MAX).contains(&joined.drives.len()) {
        return Err(Error::Unfit(format!("a pool has 2 to {DRIVES_MAX} drives")));
    }
    // The newest first: whoever knows of a drive is never alone with it.
    for id in joined.drives.iter().rev() {
        for drive in drives.iter().filter(|drive| drive.id() == *id) {
            drive.set_membership(&joined).await?;
        }
    }
    Ok(joined)
}

/// The drives that are to join. Where the pool is new, one may have buckets, and is its first.
async fn newcomers(drives: &[Drive], pool: &Membership, is_new: bool) -> Result<Vec<u64>> {
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for drive in drives.iter().filter(|drive| pool.number_of(drive.id()).is_none()) {
        let is_empty = Buckets::list(drive).await.map_err(unfit)?.is_empty();
        if is_empty { &mut empty } else { &mut full }.push(drive.id());
    }
    match full.get(usize::from(is_new)) {
        None => Ok([full, empty].concat()),
        Some(full) => {
            Err(Error::Unfit(format!("drive {full:016x} has buckets: a drive that joins must be empty")))
        }
    }
}

/// An error unless all drives of a pool are there, and none of another.
fn check_all_of(found: &[(u64, Option<Membership>)], pool: &Membership) -> Result<()> {
    for (id, membership) in found {
        membership.as_ref().map_or(Ok(()), |membership| check_of(*id, membership, pool))?;
    }
    match pool.drives.iter().find(|away| !found.iter().any(|(id, _)| id == *away)) {
        None => Ok(()),
        Some(away) => {
            Err(Error::Unfit(format!("drive {away:016x} of the pool is missing: all must be there")))
        }
    }
}

/// What the drives say together of their pool.
pub(super) async fn agreed(drives: &[Drive]) -> Result<Membership> {
    let found = memberships(drives).await?;
    let longest = longest(&found);
    let longest = longest
        .ok_or_else(|| Error::Unfit("no pool: 'tenon drive join' makes one of several drives".into()))?;
    for (id, membership) in &found {
        match membership {
            Some(membership) => check_of(*id, membership, &longest)?,
            None if longest.number_of(*id).is_none() => return Err(foreign(*id)),
            None => {}
        }
    }
    Ok(longest)
}

async fn memberships(drives: &[Drive]) -> Result<Vec<(u64, Option<Membership>)>> {
    let (mut found, mut ids) = (Vec::new(), BTreeSet::new());
    for drive in drives {
        if !ids.insert(drive.id()) {
            return Err(Error::Unfit(format!("drive {:016x} is there twice: one is a copy", drive.id())));
        }
        found.push((drive.id(), drive.membership().await?));
    }
    Ok(found)
}

fn longest(found: &[(u64, Option<Membership>)]) -> Option<Membership> {
    let known = found.iter().filter_map(|(_, membership)| membership.as_ref());
    known.max_by_key(|membership| membership.drives.len()).cloned()
}

/// An error unless what a drive knows is the beginning of what the pool is.
fn check_of(id: u64, known: &Membership, pool: &Membership) -> Result<()> {
    match known.pool == pool.pool && pool.drives.starts_with(&known.drives) {
        true => Ok(()),
        false => Err(Error::Unfit(format!("drive {id:016x} is of another pool"))),
    }
}

pub(super) fn foreign(id: u64) -> Error {
    Error::Unfit(format!("drive {id:016x} is not of the pool: 'tenon drive join' adds it"))
}
