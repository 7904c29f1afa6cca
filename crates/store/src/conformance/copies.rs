//! Cases about copies inside the store.

use super::attributes::text_map;
use super::world::{Outcome, Refusal, World, foreign_etag, holds, key, refused, same};
use crate::{Attributes, CopyOptions, ObjectRef, Precondition, PutOptions, Result, Tags};

pub(super) async fn copy_keeps_headers(world: World) -> Outcome {
    let source = put_described(&world, "from", "body").await?;
    let copied = world.store.copy(&source, &key("to"), CopyOptions::default()).await?;
    let (from, to) = (world.head("from").await?, world.head("to").await?);
    same(&copied.key, &key("to"))?;
    same(&to.object.etag, &copied.etag)?;
    same(to.attributes, from.attributes)?;
    same(from.object.etag, source.etag)?;
    same(world.read("to").await?, "body")
}

pub(super) async fn copy_replaces_headers(world: World) -> Outcome {
    let source = put_described(&world, "from", "body").await?;
    let options = CopyOptions { attributes: Some(other_attributes()), ..CopyOptions::default() };
    world.store.copy(&source, &key("to"), options).await?;
    let found = world.head("to").await?.attributes;
    same(found.user, other_attributes().user)?;
    same(found.content_type, other_attributes().content_type)?;
    same(world.read("to").await?, "body")
}

pub(super) async fn copy_of_a_changed_source(world: World) -> Outcome {
    let source = world.put("from", "old").await?;
    world.put("from", "new").await?;
    refused(world.store.copy(&source, &key("to"), CopyOptions::default()).await, Refusal::Precondition)?;
    refused(world.head("to").await, Refusal::NotFound)
}

pub(super) async fn copy_of_a_missing_source(world: World) -> Outcome {
    let source = world.put("from", "old").await?;
    world.delete("from").await?;
    refused(world.store.copy(&source, &key("to"), CopyOptions::default()).await, Refusal::NotFound)
}

pub(super) async fn copy_onto_itself(world: World) -> Outcome {
    let source = put_described(&world, "a", "body").await?;
    let options = CopyOptions { attributes: Some(other_attributes()), ..CopyOptions::default() };
    let copied = world.store.copy(&source, &key("a"), options).await?;
    let found = world.head("a").await?;
    same(found.object.etag, copied.etag)?;
    same(found.attributes.user, other_attributes().user)?;
    same(world.read("a").await?, "body")
}

pub(super) async fn copy_if_absent(world: World) -> Outcome {
    let source = world.put("from", "body").await?;
    world.put("taken", "other").await?;
    let options = CopyOptions { precondition: Precondition::Absent, ..CopyOptions::default() };
    let onto_taken = world.store.copy(&source, &key("taken"), options.clone()).await;
    if !world.capabilities.conditional_copy {
        return refused(onto_taken, Refusal::Unsupported);
    }
    refused(onto_taken, Refusal::Precondition)?;
    same(world.read("taken").await?, "other")?;
    world.store.copy(&source, &key("free"), options).await?;
    same(world.read("free").await?, "body")
}

pub(super) async fn copy_if_matches(world: World) -> Outcome {
    if !world.capabilities.conditional_copy {
        return Ok(());
    }
    let source = world.put("from", "body").await?;
    let target = world.put("to", "other").await?;
    let matching = |etag| CopyOptions { precondition: Precondition::Matches(etag), ..CopyOptions::default() };
    refused(world.store.copy(&source, &key("to"), matching(foreign_etag())).await, Refusal::Precondition)?;
    same(world.read("to").await?, "other")?;
    world.store.copy(&source, &key("to"), matching(target.etag)).await?;
    same(world.read("to").await?, "body")
}

pub(super) async fn copy_keeps_tags(world: World) -> Outcome {
    if !world.capabilities.tags || !world.capabilities.copies_tags {
        return Ok(());
    }
    let source = put_described(&world, "from", "body").await?;
    world.store.copy(&source, &key("plain"), CopyOptions::default()).await?;
    let options = CopyOptions { attributes: Some(other_attributes()), ..CopyOptions::default() };
    world.store.copy(&source, &key("described"), options).await?;
    same(world.store.tags(&key("plain")).await?, tags())?;
    same(world.store.tags(&key("described")).await?, tags())?;
    holds(
        world.head("described").await?.attributes.user == other_attributes().user,
        "headers were not replaced",
    )
}

/// Regression: tags were set after a copy, so that an object stored meanwhile got them.
pub(super) async fn copy_replaces_tags(world: World) -> Outcome {
    if !world.capabilities.tags || !world.capabilities.copies_tags {
        return Ok(());
    }
    let source = put_described(&world, "from", "body").await?;
    let other = Tags::from([("other".to_owned(), "tag".to_owned())]);
    let with = |tags: &Tags| CopyOptions { tags: Some(tags.clone()), ..CopyOptions::default() };
    world.store.copy(&source, &key("to"), with(&other)).await?;
    same(world.store.tags(&key("to")).await?, other.clone())?;
    same(world.head("to").await?.attributes, world.head("from").await?.attributes)?;
    let described = CopyOptions { attributes: Some(other_attributes()), ..with(&Tags::new()) };
    world.store.copy(&source, &key("bare"), described).await?;
    same(world.store.tags(&key("bare")).await?, Tags::new())?;
    same(world.store.tags(&key("from")).await?, tags())?;
    let anew = CopyOptions { attributes: Some(other_attributes()), ..with(&other) };
    world.store.copy(&source, &key("from"), anew).await?;
    same(world.store.tags(&key("from")).await?, other)?;
    same(world.read("from").await?, "body")
}

pub(super) async fn rename_moves(world: World) -> Outcome {
    let source = put_described(&world, "from", "body").await?;
    let before = world.head("from").await?.attributes;
    world.store.rename(&source, &key("deep/to"), Precondition::None).await?;
    refused(world.head("from").await, Refusal::NotFound)?;
    same(world.read("deep/to").await?, "body")?;
    same(world.head("deep/to").await?.attributes, before)?;
    if world.capabilities.tags && world.capabilities.copies_tags {
        same(world.store.tags(&key("deep/to")).await?, tags())?;
    }
    same(world.all_keys().await?, [key("deep/to")])
}

pub(super) async fn rename_replaces(world: World) -> Outcome {
    let source = world.put("a/from", "new").await?;
    world.put("to", "old").await?;
    world.store.rename(&source, &key("to"), Precondition::None).await?;
    same(world.read("to").await?, "new")?;
    same(world.all_keys().await?, [key("to")])?;
    refused(world.store.rename(&source, &key("to"), Precondition::None).await, Refusal::NotFound)
}

pub(super) async fn rename_under_conditions(world: World) -> Outcome {
    if !world.capabilities.conditional_copy || !world.capabilities.conditional_delete {
        return Ok(());
    }
    let old = world.put("from", "old").await?;
    let source = world.put("from", "changed").await?;
    refused(world.store.rename(&old, &key("to"), Precondition::None).await, Refusal::Precondition)?;
    world.put("to", "there").await?;
    refused(world.store.rename(&source, &key("to"), Precondition::Absent).await, Refusal::Precondition)?;
    same(world.read("from").await?, "changed")?;
    same(world.read("to").await?, "there")?;
    let there = world.head("to").await?.object.etag;
    world.store.rename(&source, &key("to"), Precondition::Matches(there)).await?;
    same(world.read("to").await?, "changed")?;
    refused(world.head("from").await, Refusal::NotFound)
}

async fn put_described(world: &World, name: &str, body: &'static str) -> Result<ObjectRef> {
    let attributes = Attributes {
        content_type: Some("text/plain".into()),
        system: text_map([("cache-control", "no-cache")]),
        user: text_map([("mode", "0100644")]),
        storage_class: None,
    };
    let tags = if world.capabilities.tags { tags() } else { Tags::new() };
    let options = PutOptions { attributes, tags, ..PutOptions::default() };
    world.store.put(&key(name), body.into(), options).await
}

fn other_attributes() -> Attributes {
    Attributes {
        content_type: Some("text/html".into()),
        user: text_map([("mode", "0100600"), ("uid", "7")]),
        ..Attributes::default()
    }
}

fn tags() -> Tags {
    text_map([("stage", "raw")])
}
