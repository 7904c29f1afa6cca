//! Cases about multipart uploads.

use super::attributes::text_map;
use super::world::{Outcome, Refusal, World, foreign_etag, holds, key, pattern, refused, same};
use crate::{Attributes, Multipart, Payload, Precondition, Result, Tags};
use futures_util::future::try_join_all;
use std::sync::Arc;

pub(super) async fn parts_out_of_order(world: World) -> Outcome {
    let least = world.capabilities.part_bytes_min;
    let parts: Vec<_> = (0..4).map(|n| pattern(n, if n == 3 { 1000 } else { least + n as usize })).collect();
    let upload = begin(&world).await?;
    let sends = [(7, 2), (2, 0), (9, 3), (4, 1)].map(|(number, at)| {
        let (upload, body) = (upload.clone(), Payload::from(parts[at].clone()));
        async move { upload.put_part(number, body).await }
    });
    try_join_all(sends).await?;
    let stored = upload.complete(Precondition::None).await?;
    same(&stored.etag, &world.head("big").await?.object.etag)?;
    holds(world.read("big").await? == parts.concat(), "other bytes came back")
}

pub(super) async fn a_part_sent_twice(world: World) -> Outcome {
    let first = pattern(1, world.capabilities.part_bytes_min);
    let upload = begin(&world).await?;
    upload.put_part(1, pattern(9, world.capabilities.part_bytes_min + 5).into()).await?;
    upload.put_part(2, "end".into()).await?;
    upload.put_part(1, first.clone().into()).await?;
    upload.complete(Precondition::None).await?;
    holds(world.read("big").await? == [&first[..], b"end"].concat(), "not the part sent last")
}

pub(super) async fn parts_of_stored_objects(world: World) -> Outcome {
    let least = world.capabilities.part_bytes_min;
    let whole = pattern(3, 2 * least + 1000);
    let source = world.put("source", whole.clone()).await?;
    let upload = begin(&world).await?;
    let (middle, end) = (500..500 + least as u64, least as u64..whole.len() as u64);
    upload.copy_part(2, &source, end).await?;
    upload.copy_part(1, &source, middle).await?;
    upload.put_part(3, "tail".into()).await?;
    upload.complete(Precondition::None).await?;
    let expected = [&whole[500..500 + least], &whole[least..], b"tail"].concat();
    holds(world.read("big").await? == expected, "other bytes came back")
}

pub(super) async fn a_part_of_a_changed_source(world: World) -> Outcome {
    let source = world.put("source", "old bytes").await?;
    world.put("source", "new bytes!").await?;
    let upload = begin(&world).await?;
    refused(upload.copy_part(1, &source, 0..4).await, Refusal::Precondition)?;
    world.delete("source").await?;
    refused(upload.copy_part(1, &source, 0..4).await, Refusal::NotFound)?;
    Ok(upload.abort().await?)
}

pub(super) async fn invisible_until_complete(world: World) -> Outcome {
    let upload = begin(&world).await?;
    upload.put_part(1, "only".into()).await?;
    refused(world.head("big").await, Refusal::NotFound)?;
    same(world.all_keys().await?, [])?;
    upload.complete(Precondition::None).await?;
    same(world.read("big").await?, "only")?;
    same(world.all_keys().await?, [key("big")])
}

pub(super) async fn abort_leaves_nothing(world: World) -> Outcome {
    world.put("big", "before").await?;
    let upload = begin(&world).await?;
    upload.put_part(1, "after".into()).await?;
    upload.abort().await?;
    same(world.read("big").await?, "before")?;
    same(world.all_keys().await?, [key("big")])?;
    holds(upload.complete(Precondition::None).await.is_err(), "an aborted upload was completed")?;
    same(world.read("big").await?, "before")
}

pub(super) async fn complete_if_absent(world: World) -> Outcome {
    let upload = begin_with_part(&world).await?;
    if !world.capabilities.conditional_complete {
        refused(upload.complete(Precondition::Absent).await, Refusal::Unsupported)?;
        return Ok(upload.abort().await?);
    }
    upload.complete(Precondition::Absent).await?;
    same(world.read("big").await?, "parts")?;
    world.put("big", "meanwhile").await?;
    let late = begin_with_part(&world).await?;
    refused(late.complete(Precondition::Absent).await, Refusal::Precondition)?;
    same(world.read("big").await?, "meanwhile")?;
    Ok(late.abort().await?)
}

pub(super) async fn complete_if_matches(world: World) -> Outcome {
    if !world.capabilities.conditional_complete {
        return Ok(());
    }
    let first = world.put("big", "first").await?;
    begin_with_part(&world).await?.complete(Precondition::Matches(first.etag.clone())).await?;
    same(world.read("big").await?, "parts")?;
    for other in [first.etag, foreign_etag()] {
        let upload = begin_with_part(&world).await?;
        refused(upload.complete(Precondition::Matches(other)).await, Refusal::Precondition)?;
        upload.abort().await?;
    }
    same(world.read("big").await?, "parts")
}

pub(super) async fn a_refused_complete_may_be_repeated(world: World) -> Outcome {
    if !world.capabilities.conditional_complete {
        return Ok(());
    }
    world.put("big", "first").await?;
    let upload = begin_with_part(&world).await?;
    refused(upload.complete(Precondition::Matches(foreign_etag())).await, Refusal::Precondition)?;
    upload.complete(Precondition::None).await?;
    same(world.read("big").await?, "parts")
}

pub(super) async fn no_parts(world: World) -> Outcome {
    let upload = begin(&world).await?;
    refused(upload.complete(Precondition::None).await, Refusal::Invalid)?;
    refused(world.head("big").await, Refusal::NotFound)?;
    Ok(upload.abort().await?)
}

pub(super) async fn one_small_part(world: World) -> Outcome {
    let upload = begin(&world).await?;
    upload.put_part(10_000, "small".into()).await?;
    upload.complete(Precondition::None).await?;
    same(world.read("big").await?, "small")
}

pub(super) async fn attributes_and_tags(world: World) -> Outcome {
    let attributes = Attributes {
        content_type: Some("application/x-parts".into()),
        user: text_map([("mode", "0100755")]),
        ..Attributes::default()
    };
    let tags = if world.capabilities.tags { text_map([("stage", "raw")]) } else { Tags::new() };
    let upload = world.store.multipart(&key("big"), attributes.clone(), tags.clone()).await?;
    upload.put_part(1, "x".into()).await?;
    upload.complete(Precondition::None).await?;
    let found = world.head("big").await?.attributes;
    same(found.content_type, attributes.content_type)?;
    same(found.user, attributes.user)?;
    if world.capabilities.tags {
        same(world.store.tags(&key("big")).await?, tags)?;
    }
    Ok(())
}

async fn begin(world: &World) -> Result<Arc<dyn Multipart>> {
    world.store.multipart(&key("big"), Attributes::default(), Tags::new()).await
}

/// Begins an upload with one part, whose body is `parts`.
async fn begin_with_part(world: &World) -> Result<Arc<dyn Multipart>> {
    let upload = begin(world).await?;
    upload.put_part(1, "parts".into()).await?;
    Ok(upload)
}
