//! Cases about overwriting, preconditions and removal, which make an etag an identity.

use super::world::{Outcome, Refusal, World, foreign_etag, holds, key, pattern, refused, same};
use crate::{Attributes, GetOptions, ObjectWriter, Precondition, PutOptions, Result, Tags};
use bytes::Bytes;

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

/// Makes a writer and writes these bytes to it in pieces, if the store supports writers.
async fn written(
    world: &World,
    len_bytes: Option<u64>,
    bytes: &[u8],
    piece_bytes: usize,
) -> Result<Option<Box<dyn ObjectWriter>>> {
    let Some(mut writer) = world.store.writer(&key("a"), len_bytes).await? else { return Ok(None) };
    for piece in bytes.chunks(piece_bytes) {
        writer.write(Bytes::copy_from_slice(piece)).await?;
    }
    Ok(Some(writer))
}

pub(super) async fn bytes_as_they_come(world: World) -> Outcome {
    let long = pattern(1, (9 << 20) + 5);
    for (bytes, piece_bytes) in [(0, 1), (10, 3), (100_000, 9_999), (1 << 20, 1 << 16), (long.len(), 70_001)]
    {
        // The announced length is right, too short, too long, or missing.
        for said in [Some(bytes), Some(bytes / 2), Some(bytes + 5_000_000), None] {
            let bytes = &long[..bytes];
            let Some(writer) = written(&world, said.map(|len| len as u64), bytes, piece_bytes).await? else {
                return Ok(());
            };
            let attributes = Attributes { content_type: Some("text/plain".into()), ..Attributes::default() };
            let tags = Tags::from([("colour".to_owned(), "blue".to_owned())]);
            let options =
                PutOptions { attributes: attributes.clone(), tags: tags.clone(), ..PutOptions::default() };
            let object = writer.finish(options).await?;
            let meta = world.head("a").await?;
            same((&meta.object, meta.size_bytes), (&object, bytes.len() as u64))?;
            same(meta.attributes, attributes)?;
            same(world.store.tags(&key("a")).await?, tags)?;
            holds(world.read("a").await? == bytes, "other bytes came back")?;
        }
    }
    Ok(())
}

pub(super) async fn bytes_that_break_off(world: World) -> Outcome {
    world.put("a", "whole").await?;
    let long = pattern(2, 5 << 20);
    for bytes in [10, long.len()] {
        drop(written(&world, None, &long[..bytes], 1 << 16).await?);
        same(world.read("a").await?, "whole")?;
    }
    Ok(())
}

pub(super) async fn bytes_as_they_come_under_a_condition(world: World) -> Outcome {
    let Some(writer) = written(&world, None, b"first", 2).await? else { return Ok(()) };
    let when = |precondition| PutOptions { precondition, ..PutOptions::default() };
    let first = writer.finish(when(Precondition::Absent)).await?;
    let Some(writer) = written(&world, None, b"second", 2).await? else { return Ok(()) };
    refused(writer.finish(when(Precondition::Absent)).await, Refusal::Precondition)?;
    same(world.read("a").await?, "first")?;
    let Some(writer) = written(&world, None, b"third", 2).await? else { return Ok(()) };
    writer.finish(when(Precondition::Matches(first.etag))).await?;
    same(world.read("a").await?, "third")
}
