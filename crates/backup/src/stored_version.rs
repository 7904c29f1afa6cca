//! The format versions of the backups in a bucket, including those that this Tenon cannot read.

use crate::keys::{Epoch, Keys, Lineage, Part};
use crate::listing::{Listing, lineages};
use crate::{Error, Result, document, manifest};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use meta::Seqno;
use std::ops::RangeInclusive;
use store::{GetOptions, ObjectKey, ObjectStore, StoreError};

/// The versions of backups that this Tenon reads.
pub const VERSIONS: RangeInclusive<u32> = 1..=manifest::VERSION;

/// Returns the lineages in a bucket, each with the newest version of its fence and of the manifest of its newest complete snapshot; a lineage
/// without both is left out.
///
/// # Errors
/// A document of a backup is damaged, or the bucket cannot be read.
pub async fn stored_versions(store: &dyn ObjectStore, keys: &Keys) -> Result<Vec<(Lineage, u32)>> {
    let mut found = Vec::new();
    for lineage in lineages(store, keys).await? {
        let listing = Listing::read(store, keys, lineage).await?;
        let newest = listing.complete().into_iter().max_by_key(|snapshot| snapshot.at);
        let manifest = newest.map(|snapshot| manifest_part(snapshot.epoch, snapshot.seqno));
        let mut newest = None;
        for part in [Part::Generation].into_iter().chain(manifest) {
            newest = newest.max(version_at(store, &keys.part(lineage, part)?).await?);
        }
        found.extend(newest.map(|version| (lineage, version)));
    }
    Ok(found)
}

fn manifest_part(epoch: Epoch, seqno: Seqno) -> Part {
    Part::Manifest { epoch, seqno }
}

/// Returns the version of the document at a key; `None` if there is no object.
async fn version_at(store: &dyn ObjectStore, key: &ObjectKey) -> Result<Option<u32>> {
    let object = match store.get(key, GetOptions::default()).await {
        Ok(object) => object,
        Err(StoreError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let body = object.body.try_collect::<Vec<Bytes>>().await?.concat();
    document::version_of(&body).map(Some).map_err(|what| Error::damaged(key, what))
}
