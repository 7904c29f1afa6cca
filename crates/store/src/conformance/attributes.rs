//! Cases about headers and tags of objects.

use super::world::{Outcome, Refusal, World, everything, holds, key, refused, same};
use crate::{
    Attributes, GetOptions, ListEntry, ListRequest, ListedObject, ObjectMeta, PutOptions, Result, Tags,
};
use std::collections::BTreeMap;

pub(super) async fn content_headers(world: World) -> Outcome {
    let attributes = Attributes {
        content_type: Some("text/x-odd; charset=utf-8".into()),
        system: text_map([
            ("cache-control", "max-age=60"),
            ("content-disposition", "attachment; filename=\"a b.txt\""),
            ("content-encoding", "identity"),
            ("content-language", "de-AT"),
        ]),
        ..Attributes::default()
    };
    let found = put_with(&world, attributes.clone()).await?.attributes;
    same(found.content_type, attributes.content_type)?;
    same(found.system, attributes.system)
}

pub(super) async fn user_metadata(world: World) -> Outcome {
    let user =
        text_map([("mode", "0100644"), ("file-owner", "0"), ("a-b-c", "x = y; z, \"q\""), ("mtime", "1.5")]);
    let found = put_with(&world, Attributes { user: user.clone(), ..Attributes::default() }).await?;
    same(found.attributes.user, user)
}

pub(super) async fn unicode_metadata(world: World) -> Outcome {
    if !world.capabilities.unicode_metadata {
        return Ok(());
    }
    let user = text_map([("who", "größe ☃ 日本"), ("plain", "x")]);
    let found = put_with(&world, Attributes { user: user.clone(), ..Attributes::default() }).await?;
    same(found.attributes.user, user)
}

pub(super) async fn tags_with_put(world: World) -> Outcome {
    let tags = text_map([("project", "x y"), ("stage", "a+b=c/d:e@f")]);
    let options = PutOptions { tags: tags.clone(), ..PutOptions::default() };
    let stored = world.store.put(&key("tagged"), "x".into(), options).await;
    if !world.capabilities.tags {
        return refused(stored, Refusal::Unsupported);
    }
    stored?;
    same(world.store.tags(&key("tagged")).await?, tags)?;
    world.put("tagged", "y").await?;
    same(world.store.tags(&key("tagged")).await?, Tags::new())
}

pub(super) async fn tags_counted(world: World) -> Outcome {
    if !world.capabilities.tags {
        return Ok(());
    }
    let options = PutOptions { tags: text_map([("k", "v"), ("l", "w")]), ..PutOptions::default() };
    world.store.put(&key("tagged"), "x".into(), options).await?;
    same(world.head("tagged").await?.tag_count, Some(2))?;
    same(world.store.get(&key("tagged"), GetOptions::default()).await?.meta.tag_count, Some(2))?;
    world.store.set_tags(&key("tagged"), Tags::new()).await?;
    same(world.head("tagged").await?.tag_count.unwrap_or(0), 0)
}

pub(super) async fn tags_replaced(world: World) -> Outcome {
    let stored = world.put("a", "x").await?;
    let (name, value) = if world.capabilities.unicode_tags { ("ü", "größe") } else { ("u", "groesse") };
    let tags = text_map([("k", "v"), (name, value)]);
    let replaced = world.store.set_tags(&key("a"), tags.clone()).await;
    if !world.capabilities.tags {
        return refused(replaced, Refusal::Unsupported);
    }
    replaced?;
    same(world.store.tags(&key("a")).await?, tags)?;
    same(world.head("a").await?.object.etag, stored.etag)?;
    world.store.set_tags(&key("a"), Tags::new()).await?;
    same(world.store.tags(&key("a")).await?, Tags::new())?;
    refused(world.store.tags(&key("missing")).await, Refusal::NotFound)?;
    refused(world.store.set_tags(&key("missing"), text_map([("k", "v")])).await, Refusal::NotFound)
}

pub(super) async fn overwriting_replaces_attributes(world: World) -> Outcome {
    let user = text_map([("old", "1")]);
    put_with(&world, Attributes { user, ..Attributes::default() }).await?;
    let user = text_map([("new", "2")]);
    let found = put_with(&world, Attributes { user: user.clone(), ..Attributes::default() }).await?;
    same(found.attributes.user, user)
}

pub(super) async fn attributes_in_listings(world: World) -> Outcome {
    let described = Attributes {
        content_type: Some("text/html".into()),
        system: text_map([("cache-control", "max-age=60"), ("content-language", "de-AT")]),
        user: text_map([("file-owner", "7"), ("a_b.c", "x = y; <z> & \"q\"")]),
        ..Attributes::default()
    };
    put_with(&world, described).await?;
    world.put("plain", "x").await?;
    for entry in world.store.list(ListRequest { with_attributes: true, ..everything() }).await?.entries {
        let ListEntry::Object(ListedObject { object, attributes, .. }) = entry else {
            return holds(false, "no delimiter was given");
        };
        match attributes {
            Some(listed) => same(*listed, world.store.head(&object.key).await?.attributes)?,
            None => holds(!world.capabilities.lists_attributes, "a listing without attributes")?,
        }
    }
    let page = world.store.list(everything()).await?;
    let has_attributes =
        |entry: &ListEntry| matches!(entry, ListEntry::Object(listed) if listed.attributes.is_some());
    holds(!page.entries.iter().any(has_attributes), "attributes that nobody asked for")
}

pub(super) fn text_map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn put_with(world: &World, attributes: Attributes) -> Result<ObjectMeta> {
    let options = PutOptions { attributes, ..PutOptions::default() };
    world.store.put(&key("described"), "x".into(), options).await?;
    world.head("described").await
}
