//! Cases about multipart uploads by id, and settings.

use super::attributes::text_map;
use super::world::{Outcome, Refusal, World, holds, key, pattern, refused, same};
use super::{Capabilities, Case, Failures, cases, run_each};
use crate::{
    Attributes, CompleteOptions, ObjectStore, Part, Precondition, Result, StoreError, Tags, Uploads,
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use std::sync::Arc;

/// Runs every case of [`Uploads`] and [`Settings`](crate::Settings) on a store that has both.
pub async fn run_uploads<Factory, Making>(
    factory: Factory,
    capabilities: Capabilities,
) -> Result<usize, Failures>
where
    Factory: Fn() -> Making,
    Making: Future<Output = Result<Arc<dyn ObjectStore>>>,
{
    run_each(upload_cases(), factory, |store| World { store, capabilities }).await
}

use super::uploads;

fn upload_cases() -> Vec<Case<World>> {
    cases! {
        uploads::{
            parts_become_an_object, some_of_the_parts, a_part_sent_again, a_part_sent_again_meanwhile, a_body_that_breaks_off,
            a_part_that_is_refused, an_upload_of_another_key, abort_forgets, uploads_are_listed,
            headers_come_with_it, a_condition_that_fails_keeps_the_parts, settings_are_kept,
        }
    }
}

pub(super) async fn parts_become_an_object(world: World) -> Outcome {
    let uploads = of(&world)?;
    let least = world.capabilities.part_bytes_min;
    let bodies = [pattern(1, least + 7), pattern(2, least), pattern(3, 11)];
    let id = begin(&world, "big").await?;
    for (number, body) in [(30, 2), (2, 0), (7, 1)] {
        let part = send(uploads, &id, number, &bodies[body]).await?;
        same(part.size_bytes, bodies[body].len() as u64)?;
    }
    same(world.all_keys().await?, [])?;
    let parts = uploads.parts(&key("big"), &id).await?;
    same(parts.iter().map(|part| part.number).collect::<Vec<_>>(), [2, 7, 30])?;
    let stored = uploads.complete(&key("big"), &id, &[2, 7, 30], CompleteOptions::default()).await?;
    same(&stored.etag, &world.head("big").await?.object.etag)?;
    holds(world.read("big").await? == bodies.concat(), "other bytes came back")?;
    refused(uploads.find(&key("big"), &id).await, Refusal::NotFound)?;
    refused(uploads.complete(&key("big"), &id, &[2], CompleteOptions::default()).await, Refusal::NotFound)
}

pub(super) async fn some_of_the_parts(world: World) -> Outcome {
    let uploads = of(&world)?;
    let id = begin(&world, "big").await?;
    for (number, body) in [(1, "left out"), (2, "chosen"), (3, "too")] {
        send(uploads, &id, number, body.as_bytes()).await?;
    }
    uploads.complete(&key("big"), &id, &[2], CompleteOptions::default()).await?;
    same(world.read("big").await?, "chosen")
}

pub(super) async fn a_part_sent_again(world: World) -> Outcome {
    let uploads = of(&world)?;
    let id = begin(&world, "big").await?;
    let first = send(uploads, &id, 1, b"first").await?;
    let again = send(uploads, &id, 1, b"again!").await?;
    holds(first.etag != again.etag, "two parts have one etag")?;
    same(uploads.parts(&key("big"), &id).await?.len(), 1)?;
    uploads.complete(&key("big"), &id, &[1], CompleteOptions::default()).await?;
    same(world.read("big").await?, "again!")
}

/// Regression: a part that was replaced between listing the parts and the completion became part of the object.
pub(super) async fn a_part_sent_again_meanwhile(world: World) -> Outcome {
    let uploads = of(&world)?;
    let id = begin(&world, "big").await?;
    let first = send(uploads, &id, 1, b"first").await?;
    let again = send(uploads, &id, 1, b"again!").await?;
    let of = |etags: &[&Part]| CompleteOptions {
        etags: etags.iter().map(|part| part.etag.clone()).collect(),
        ..CompleteOptions::default()
    };
    refused(uploads.complete(&key("big"), &id, &[1], of(&[&first])).await, Refusal::Invalid)?;
    refused(uploads.complete(&key("big"), &id, &[1], of(&[&again, &again])).await, Refusal::Invalid)?;
    same(uploads.parts(&key("big"), &id).await?.len(), 1)?;
    uploads.complete(&key("big"), &id, &[1], of(&[&again])).await?;
    same(world.read("big").await?, "again!")
}

pub(super) async fn a_body_that_breaks_off(world: World) -> Outcome {
    let uploads = of(&world)?;
    let id = begin(&world, "big").await?;
    send(uploads, &id, 1, b"whole").await?;
    let broken = [Ok(Bytes::from_static(b"begin")), Err(StoreError::Corrupt("it broke off".into()))];
    let body = futures_util::stream::iter(broken).boxed();
    let sent = uploads.put_part(&key("big"), &id, 1, body, Box::new(|| Ok(None))).await;
    holds(sent.is_err(), "half a body was taken")?;
    uploads.complete(&key("big"), &id, &[1], CompleteOptions::default()).await?;
    same(world.read("big").await?, "whole")
}

pub(super) async fn a_part_that_is_refused(world: World) -> Outcome {
    let uploads = of(&world)?;
    let id = begin(&world, "big").await?;
    let body = futures_util::stream::iter([Ok(Bytes::from_static(b"bad"))]).boxed();
    let note = || Err(StoreError::Corrupt("its checksum is wrong".into()));
    holds(uploads.put_part(&key("big"), &id, 1, body, Box::new(note)).await.is_err(), "it was taken")?;
    same(uploads.parts(&key("big"), &id).await?.len(), 0)?;
    let body = futures_util::stream::iter([Ok(Bytes::from_static(b"good"))]).boxed();
    let part = uploads.put_part(&key("big"), &id, 1, body, Box::new(|| Ok(Some("noted".to_owned())))).await?;
    same(part.note.as_deref(), Some("noted"))?;
    same(&uploads.parts(&key("big"), &id).await?, &[part])?;
    Ok(uploads.abort(&key("big"), &id).await?)
}

pub(super) async fn an_upload_of_another_key(world: World) -> Outcome {
    let uploads = of(&world)?;
    let id = begin(&world, "big").await?;
    refused(uploads.find(&key("other"), &id).await, Refusal::NotFound)?;
    refused(uploads.find(&key("big"), "no such upload").await, Refusal::NotFound)?;
    refused(uploads.parts(&key("big"), "").await, Refusal::NotFound)?;
    Ok(uploads.abort(&key("big"), &id).await?)
}

pub(super) async fn abort_forgets(world: World) -> Outcome {
    let uploads = of(&world)?;
    world.put("big", "before").await?;
    let id = begin(&world, "big").await?;
    send(uploads, &id, 1, b"after").await?;
    uploads.abort(&key("big"), &id).await?;
    refused(uploads.abort(&key("big"), &id).await, Refusal::NotFound)?;
    refused(send(uploads, &id, 1, b"late").await, Refusal::NotFound)?;
    same(world.read("big").await?, "before")
}

pub(super) async fn uploads_are_listed(world: World) -> Outcome {
    let uploads = of(&world)?;
    let mut begun = Vec::new();
    for name in ["b", "a/2", "a/1", "a/1"] {
        begun.push((name, begin(&world, name).await?));
    }
    let listed = uploads.list(b"a/").await?;
    let listed: Vec<_> = listed.iter().map(|upload| (upload.key.clone(), upload.id.clone())).collect();
    let expected = [2, 3, 1].map(|at: usize| (key(begun[at].0), begun[at].1.clone()));
    same(listed, expected)?;
    same(uploads.list(b"").await?.len(), 4)?;
    for (name, id) in begun {
        uploads.abort(&key(name), &id).await?;
    }
    same(uploads.list(b"").await?.len(), 0)
}

pub(super) async fn headers_come_with_it(world: World) -> Outcome {
    let uploads = of(&world)?;
    let attributes = Attributes {
        content_type: Some("application/x-parts".into()),
        user: text_map([("colour", "red")]),
        ..Attributes::default()
    };
    let tags = if world.capabilities.tags { text_map([("stage", "raw")]) } else { Tags::new() };
    let id = uploads.begin(&key("big"), attributes.clone(), tags.clone()).await?;
    same(uploads.find(&key("big"), &id).await?.attributes, attributes)?;
    send(uploads, &id, 1, b"x").await?;
    let options = CompleteOptions { user: text_map([("late", "word")]), ..CompleteOptions::default() };
    uploads.complete(&key("big"), &id, &[1], options).await?;
    let found = world.head("big").await?.attributes;
    same(found.content_type.as_deref(), Some("application/x-parts"))?;
    for (name, value) in [("colour", "red"), ("late", "word")] {
        same(found.user.get(name).map(String::as_str), Some(value))?;
    }
    if world.capabilities.tags {
        same(world.store.tags(&key("big")).await?, tags)?;
    }
    Ok(())
}

pub(super) async fn a_condition_that_fails_keeps_the_parts(world: World) -> Outcome {
    if !world.capabilities.conditional_complete {
        return Ok(());
    }
    let uploads = of(&world)?;
    let first = world.put("big", "first").await?;
    let id = begin(&world, "big").await?;
    send(uploads, &id, 1, b"second").await?;
    let when = |precondition| CompleteOptions { precondition, ..CompleteOptions::default() };
    let complete = |precondition| async {
        let name = key("big");
        uploads.complete(&name, &id, &[1], when(precondition)).await
    };
    refused(complete(Precondition::Absent).await, Refusal::Precondition)?;
    same(world.read("big").await?, "first")?;
    complete(Precondition::Matches(first.etag)).await?;
    same(world.read("big").await?, "second")
}

pub(super) async fn settings_are_kept(world: World) -> Outcome {
    let Some(settings) = world.store.settings() else { return holds(false, "there are no settings") };
    same(settings.get("policy").await?, None)?;
    settings.set("policy", Some(Bytes::from_static(b"{}"))).await?;
    settings.set("cors", Some(Bytes::from_static(b"all"))).await?;
    same(settings.get("policy").await?.as_deref(), Some(b"{}".as_slice()))?;
    settings.set("policy", Some(Bytes::from_static(b"{1}"))).await?;
    same(settings.get("policy").await?.as_deref(), Some(b"{1}".as_slice()))?;
    settings.set("policy", None).await?;
    settings.set("policy", None).await?;
    same(settings.get("policy").await?, None)?;
    same(settings.get("cors").await?.as_deref(), Some(b"all".as_slice()))?;
    same(world.all_keys().await?, [])
}

/// Returns the store's interface to uploads by id.
fn of(world: &World) -> Result<&dyn Uploads> {
    world.store.uploads().ok_or_else(|| StoreError::Unsupported("uploads that outlast a call".into()))
}

async fn begin(world: &World, name: &str) -> Result<String> {
    of(world)?.begin(&key(name), Attributes::default(), Tags::new()).await
}

async fn send(uploads: &dyn Uploads, id: &str, number: u32, body: &[u8]) -> Result<Part> {
    let pieces: Vec<Result<Bytes>> =
        body.chunks(1 << 16).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let body = futures_util::stream::iter(pieces).boxed();
    uploads.put_part(&key("big"), id, number, body, Box::new(|| Ok(None))).await
}
