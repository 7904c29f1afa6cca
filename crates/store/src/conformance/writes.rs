//! Overwriting, conditions and removal: what makes an etag an identity.

use super::world::{Outcome, Refusal, World, foreign_etag, holds, key, refused, same};
use crate::{GetOptions, Precondition};

pub(super) async fn overwriting_gives_a_new_etag(world: World) -> Outcome {
    let first = world.put("a", "first").await?;
    let second = world.put("a", "second").await?;
    holds(first.etag != second.etag, "two contents have one etag")?;
    same(world.head("a").await?.object.etag, second.etag)?;
    same(world.read("a").await?, "second")
}

pub(super) async fn an_old_etag_is_gone(world: World) -> Outcome {
    let first = world.put("a", "first").await?;
    world.put("a", "other").await?;
    let old = GetOptions { if_match: Some(first.etag), ..GetOptions::default() };
    refused(world.get("a", old.clone()).await, Refusal::Precondition)?;
    world.delete("a").await?;
    refused(world.get("a", old).await, Refusal::NotFound)
}

pub(super) async fn put_if_absent(world: World) -> Outcome {
    world.put_when("a", "first", Precondition::Absent).await?;
    refused(world.put_when("a", "second", Precondition::Absent).await, Refusal::Precondition)?;
    same(world.read("a").await?, "first")?;
    world.delete("a").await?;
    world.put_when("a", "third", Precondition::Absent).await?;
    same(world.read("a").await?, "third")
}

pub(super) async fn put_if_matches(world: World) -> Outcome {
    let first = world.put("a", "first").await?;
    let second = world.put_when("a", "second", Precondition::Matches(first.etag.clone())).await;
    if !world.capabilities.put_matches {
        return refused(second, Refusal::Unsupported);
    }
    second?;
    refused(world.put_when("a", "third", Precondition::Matches(first.etag)).await, Refusal::Precondition)?;
    refused(
        world.put_when("a", "third", Precondition::Matches(foreign_etag())).await,
        Refusal::Precondition,
    )?;
    same(world.read("a").await?, "second")
}

pub(super) async fn put_if_matches_on_a_missing_key(world: World) -> Outcome {
    if !world.capabilities.put_matches {
        return Ok(());
    }
    refused(world.put_when("a", "x", Precondition::Matches(foreign_etag())).await, Refusal::Precondition)?;
    refused(world.head("a").await, Refusal::NotFound)
}

pub(super) async fn delete_is_idempotent(world: World) -> Outcome {
    world.put("a", "x").await?;
    world.put("b", "x").await?;
    world.delete("a").await?;
    world.delete("a").await?;
    world.delete("never/was").await?;
    refused(world.head("a").await, Refusal::NotFound)?;
    same(world.all_keys().await?, [key("b")])
}

pub(super) async fn delete_if_matches(world: World) -> Outcome {
    let first = world.put("a", "first").await?;
    let second = world.put("a", "second").await?;
    if !world.capabilities.conditional_delete {
        return refused(
            world.store.delete(&key("a"), Precondition::Matches(first.etag)).await,
            Refusal::Unsupported,
        );
    }
    let old = Precondition::Matches(first.etag);
    refused(world.store.delete(&key("a"), old.clone()).await, Refusal::Precondition)?;
    same(world.read("a").await?, "second")?;
    world.store.delete(&key("a"), Precondition::Matches(second.etag)).await?;
    refused(world.head("a").await, Refusal::NotFound)?;
    refused(world.store.delete(&key("a"), old).await, Refusal::Precondition)
}
