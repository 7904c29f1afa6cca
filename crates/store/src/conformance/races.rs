//! Cases about concurrent callers.

use super::world::{Failure, Outcome, World, everything, holds, key, pattern, same, when};
use crate::{ETag, ObjectRef, Precondition, Result, StoreError};
use bytes::Bytes;
use tokio::task::JoinSet;

/// Number of concurrent writers of one key.
const WRITERS: u64 = 20;

pub(super) async fn one_creator_wins(world: World) -> Outcome {
    for round in 0..5 {
        let name = format!("dir{round}/a");
        let winner = one_wins(&world, &name, &Precondition::Absent).await?;
        same(world.read(&name).await?, winner)?;
    }
    Ok(())
}

pub(super) async fn one_replacer_wins(world: World) -> Outcome {
    if !world.capabilities.put_matches {
        return Ok(());
    }
    for _ in 0..5 {
        let etag: ETag = world.put("a", "before").await?.etag;
        let winner = one_wins(&world, "a", &Precondition::Matches(etag)).await?;
        same(world.read("a").await?, winner)?;
    }
    Ok(())
}

/// After 100 concurrent writes of one key, the object has the body and etag of one of them.
pub(super) async fn writers_of_one_key(world: World) -> Outcome {
    let mut writers = JoinSet::new();
    for seed in 0..100 {
        let (world, body) = (world.clone(), pattern(seed, 20_000));
        writers
            .spawn(async move { world.put("shared", body.clone()).await.map(|stored| (stored.etag, body)) });
    }
    let mut written = Vec::new();
    while let Some(done) = writers.join_next().await {
        written.push(done??);
    }
    let (found, etag) = (world.read("shared").await?, world.head("shared").await?.object.etag);
    holds(
        written.iter().any(|(tag, body)| *tag == etag && *body == found),
        "not the whole body of one writer",
    )?;
    same(world.all_keys().await?, [key("shared")])
}

/// While a key is overwritten repeatedly, every read returns the body and etag of one write.
pub(super) async fn readers_see_whole_objects(world: World) -> Outcome {
    let body = |seed: u64| pattern(seed, 400_000 + seed as usize);
    world.put("moving", body(0)).await?;
    let writer = {
        let world = world.clone();
        tokio::spawn(async move {
            for seed in 1..20 {
                world.put("moving", body(seed)).await?;
            }
            Ok::<(), StoreError>(())
        })
    };
    for _ in 0..40 {
        let found = match world.read("moving").await {
            Err(StoreError::PreconditionFailed(_)) => continue,
            found => found?,
        };
        let seed = (found.len() as u64).saturating_sub(400_000);
        holds(found == body(seed), "a read mixes two objects")?;
    }
    writer.await??;
    same(world.read("moving").await?.len(), body(19).len())
}

/// Directories are removed with their last object. Writers that create objects in such a directory must not fail.
pub(super) async fn creating_and_deleting_neighbours(world: World) -> Outcome {
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let world = world.clone();
        workers.spawn(async move {
            let name = format!("a/b/c/{worker}");
            for _ in 0..25 {
                match come_and_go(&world, &name).await {
                    Err(error) if world.capabilities.steady_neighbours => return Err(error),
                    _ => {}
                }
            }
            // If a step failed, the object may still exist.
            world.delete(&name).await.ok();
            Ok::<(), StoreError>(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    come_and_go(&world, "a/b/c/0").await?;
    same(world.texts(everything()).await?, [""; 0])
}

/// Stores an object, reads its metadata and deletes it.
async fn come_and_go(world: &World, name: &str) -> Result<()> {
    world.put(name, "x").await?;
    world.head(name).await?;
    world.delete(name).await
}

/// Runs many conditional writes of a key, of which exactly one must succeed. Returns its body.
async fn one_wins(world: &World, name: &str, precondition: &Precondition) -> Outcome<Bytes> {
    let mut writers = JoinSet::new();
    for seed in 0..WRITERS {
        let (store, key, options) = (world.store.clone(), key(name), when(precondition.clone()));
        let body = pattern(seed, 100 + seed as usize);
        writers.spawn(async move { (store.put(&key, body.clone().into(), options).await, body) });
    }
    let mut winners = Vec::new();
    while let Some(done) = writers.join_next().await {
        let (result, body): (Result<ObjectRef>, Bytes) = done?;
        match result {
            Ok(_) => winners.push(body),
            Err(StoreError::PreconditionFailed(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    same(winners.len(), 1)?;
    winners.pop().ok_or_else(|| Failure::new("no winner".into()))
}
