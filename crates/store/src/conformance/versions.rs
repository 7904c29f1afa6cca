//! Cases about versions and their locks.

use super::world::{Outcome, Refusal, World, holds, key, refused, same, when};
use super::{Capabilities, Case, Failures, cases, run_each};
use crate::{
    Attributes, GetOptions, ListVersions, Lock, LockMode, NULL_VERSION, ObjectRef, ObjectStore, Precondition,
    PutOptions, Removal, Result, Retention, StoreError, Timestamp, VersionEntry, Versioning, Versions,
};
use bytes::Bytes;
use std::sync::Arc;

/// Runs every case of [`Versions`] on a store that has them.
pub async fn run_versions<Factory, Making>(
    factory: Factory,
    capabilities: Capabilities,
) -> Result<usize, Failures>
where
    Factory: Fn() -> Making,
    Making: Future<Output = Result<Arc<dyn ObjectStore>>>,
{
    run_each(version_cases(), factory, |store| World { store, capabilities }).await
}

use super::versions;

fn version_cases() -> Vec<Case<World>> {
    cases! {
        versions::{
            none_at_first, every_write_stays, a_delete_marker_hides_older_versions, removing_the_newest_uncovers,
            suspended_writes_replace_null, objects_from_before_versioning_are_null, conditions_look_at_the_newest,
            ids_that_are_none, listed_by_key_and_age, listed_page_by_page, listed_while_removed, folded, tags_of_a_version,
            copies_of_a_version, a_lock_holds, a_lock_gets_longer, a_lock_comes_with_the_bytes,
        }
    }
}

/// Checks that a bucket has no versions before versioning is enabled.
pub(super) async fn none_at_first(world: World) -> Outcome {
    let versions = of(&world)?;
    same(versions.state().await?, Versioning::Never)?;
    same(world.put("a", "1").await?.version, None)?;
    same(world.put("a", "2").await?.version, None)?;
    same(ids(versions, "").await?, [("a", NULL_VERSION.to_owned(), true)].map(owned))?;
    world.delete("a").await?;
    same(ids(versions, "").await?, [])
}

pub(super) async fn every_write_stays(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let (first, second) = (named(world.put("a", "1").await?)?, named(world.put("a", "2").await?)?);
    holds(first != second, "two versions have one name")?;
    same(world.read("a").await?, "2")?;
    same(read(&world, "a", &first).await?, "1")?;
    same(read(&world, "a", &second).await?, "2")?;
    same(world.head("a").await?.object.version.as_deref(), Some(second.as_str()))?;
    let found = versions.find(&key("a"), Some(&first)).await?;
    holds(!found.is_newest, "the first of two is the newest")?;
    same(found.stored.map(|meta| meta.size_bytes), Some(1))?;
    same(ids(versions, "").await?, [("a", second, true), ("a", first, false)].map(owned))
}

pub(super) async fn a_delete_marker_hides_older_versions(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let first = named(world.put("a", "1").await?)?;
    let deleted = versions.mark(&key("a"), Precondition::None).await?;
    holds(deleted.is_marker, "no mark was made")?;
    let mark = deleted.version.ok_or_else(unnamed)?;
    refused(world.head("a").await, Refusal::NotFound)?;
    same(world.all_keys().await?, [])?;
    same(read(&world, "a", &first).await?, "1")?;
    let newest = versions.find(&key("a"), None).await?;
    same((newest.id.clone(), newest.stored), (mark.clone(), None))?;
    refused(world.get("a", at(&mark)).await, Refusal::NotFound)?;
    let again = versions.remove(&key("a"), &mark, Removal::default()).await?;
    holds(again.is_marker, "the mark was none")?;
    same(world.read("a").await?, "1")?;
    holds(versions.mark(&key("never"), Precondition::None).await?.is_marker, "a key without object")
}

pub(super) async fn removing_the_newest_uncovers(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let (first, second) = (named(world.put("a", "1").await?)?, named(world.put("a", "2").await?)?);
    let deleted = versions.remove(&key("a"), &second, Removal::default()).await?;
    same((deleted.version.as_deref(), deleted.is_marker), (Some(second.as_str()), false))?;
    same(world.read("a").await?, "1")?;
    versions.remove(&key("a"), &second, Removal::default()).await?;
    versions.remove(&key("a"), &first, Removal::default()).await?;
    refused(world.head("a").await, Refusal::NotFound)?;
    same(ids(versions, "").await?, [])
}

pub(super) async fn suspended_writes_replace_null(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let first = named(world.put("a", "1").await?)?;
    versions.set_state(Versioning::Suspended).await?;
    same(versions.state().await?, Versioning::Suspended)?;
    for body in ["2", "3"] {
        same(world.put("a", body).await?.version.as_deref(), Some(NULL_VERSION))?;
    }
    same(read(&world, "a", NULL_VERSION).await?, "3")?;
    let expected = [("a", NULL_VERSION.to_owned(), true), ("a", first.clone(), false)].map(owned);
    same(ids(versions, "").await?, &expected)?;
    let deleted = versions.mark(&key("a"), Precondition::None).await?;
    same((deleted.version.as_deref(), deleted.is_marker), (Some(NULL_VERSION), true))?;
    same(ids(versions, "").await?, &expected)?;
    same(versions.find(&key("a"), None).await?.stored, None)?;
    same(read(&world, "a", &first).await?, "1")?;
    refused(versions.set_state(Versioning::Never).await, Refusal::Invalid)
}

pub(super) async fn objects_from_before_versioning_are_null(world: World) -> Outcome {
    let versions = of(&world)?;
    world.put("a", "0").await?;
    let versions_then = enabled(&world).await?;
    same(world.head("a").await?.object.version.as_deref(), Some(NULL_VERSION))?;
    let second = named(world.put("a", "1").await?)?;
    same(read(&world, "a", NULL_VERSION).await?, "0")?;
    versions_then.remove(&key("a"), NULL_VERSION, Removal::default()).await?;
    same(ids(versions, "").await?, [("a", second, true)].map(owned))
}

pub(super) async fn conditions_look_at_the_newest(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let first = world.put("a", "1").await?;
    let second = world.put("a", "2").await?;
    let name = key("a");
    let put = |body, precondition| world.store.put(&name, body, when(precondition));
    refused(put("3".into(), Precondition::Absent).await, Refusal::Precondition)?;
    if world.capabilities.put_matches {
        refused(put("3".into(), Precondition::Matches(first.etag.clone())).await, Refusal::Precondition)?;
    }
    if world.capabilities.conditional_delete {
        let when = Precondition::Matches(first.etag.clone());
        refused(versions.mark(&key("a"), when).await, Refusal::Precondition)?;
        versions.mark(&key("a"), Precondition::Matches(second.etag)).await?;
    } else {
        versions.mark(&key("a"), Precondition::None).await?;
    }
    put("4".into(), Precondition::Absent).await?;
    same(world.read("a").await?, "4")
}

/// Checks the errors for ids of versions that are invalid or do not exist.
pub(super) async fn ids_that_are_none(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let there = named(world.put("a", "1").await?)?;
    for odd in ["", "../a", "no such id"] {
        refused(versions.find(&key("a"), Some(odd)).await, Refusal::Invalid)?;
        refused(versions.remove(&key("a"), odd, Removal::default()).await, Refusal::Invalid)?;
    }
    refused(versions.find(&key("b"), Some(&there)).await, Refusal::NotFound)?;
    refused(versions.find(&key("a"), Some(NULL_VERSION)).await, Refusal::NotFound)?;
    refused(versions.find(&key("b"), None).await, Refusal::NotFound)
}

pub(super) async fn listed_by_key_and_age(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let mut expected = Vec::new();
    for name in ["c", "a", "b", "a"] {
        expected.push((name, named(world.put(name, "x").await?)?));
    }
    world.delete("c").await?;
    let mark = versions.find(&key("c"), None).await?.id.to_string();
    let [c, a1, b, a2] = [0, 1, 2, 3].map(|at: usize| expected[at].1.clone());
    let expected =
        [("a", a2, true), ("a", a1, false), ("b", b, true), ("c", mark, true), ("c", c, false)].map(owned);
    same(ids(versions, "").await?, expected)?;
    same(ids(versions, "b").await?.len(), 1)
}

pub(super) async fn listed_page_by_page(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    for round in 0..3 {
        for name in ["a", "b", "c"] {
            world.put(name, format!("{round}")).await?;
        }
    }
    world.delete("b").await?;
    let all = ids(versions, "").await?;
    for limit in [1, 2, 3, 4, 9] {
        let mut found = Vec::new();
        let mut request = ListVersions { limit, ..ListVersions::default() };
        loop {
            let page = versions.list(request.clone()).await?;
            holds(page.len() <= limit, "a page is longer than the limit")?;
            let Some(VersionEntry::Version(last)) = page.last() else { break };
            request.after = Some(Bytes::copy_from_slice(last.key.as_bytes()));
            request.after_version = Some(last.id.clone());
            found.extend(page.into_iter().filter_map(shown));
        }
        same(&found, &all)?;
    }
    Ok(())
}

/// Regression: a client that empties a bucket lists a page, removes its versions and lists the next page. The remaining
/// versions of the last key were left out.
pub(super) async fn listed_while_removed(world: World) -> Outcome {
    let versions = of(&world)?;
    world.put("a", "before versions").await?;
    enabled(&world).await?;
    for _ in 0..6 {
        world.put("a", "x").await?;
    }
    world.put("b", "y").await?;
    for limit in [2, 3] {
        let mut request = ListVersions { limit, ..ListVersions::default() };
        for _ in 0..2 {
            let page = versions.list(request.clone()).await?;
            for entry in &page {
                let VersionEntry::Version(version) = entry else { continue };
                versions.remove(&version.key, &version.id, Removal::default()).await?;
                request.after = Some(Bytes::copy_from_slice(version.key.as_bytes()));
                request.after_version = Some(version.id.clone());
            }
            same(page.len(), limit)?;
        }
        if limit == 2 {
            same(ids(versions, "").await?.len(), 4)?;
            world.put("a", "x").await?;
            world.put("a", "x").await?;
        }
    }
    same(ids(versions, "").await?, [])
}

/// Checks that a delimiter folds a listing of versions.
pub(super) async fn folded(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    for name in ["a/1", "a/2", "a/1", "b", "c/d/e"] {
        world.put(name, "x").await?;
    }
    world.delete("c/d/e").await?;
    let request = ListVersions { delimiter: Some(b'/'), limit: 10, ..ListVersions::default() };
    let texts = |page: &[VersionEntry]| {
        page.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect::<Vec<_>>()
    };
    same(texts(&versions.list(request.clone()).await?), ["a/", "b", "c/"])?;
    let after = ListVersions { after: Some("a/".into()), limit: 1, ..request.clone() };
    same(texts(&versions.list(after).await?), ["b"])?;
    let below = ListVersions { prefix: "c/".into(), ..request };
    same(texts(&versions.list(below).await?), ["c/d/"])
}

pub(super) async fn tags_of_a_version(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let (first, second) = (named(world.put("a", "1").await?)?, named(world.put("a", "2").await?)?);
    let tags = super::attributes::text_map([("colour", "red")]);
    versions.set_tags(&key("a"), &first, tags.clone()).await?;
    same(&versions.tags(&key("a"), &first).await?, &tags)?;
    same(versions.tags(&key("a"), &second).await?.len(), 0)?;
    same(world.store.tags(&key("a")).await?.len(), 0)
}

pub(super) async fn copies_of_a_version(world: World) -> Outcome {
    enabled(&world).await?;
    let first = world.put("a", "1").await?;
    world.put("a", "2").await?;
    let options = crate::CopyOptions { attributes: Some(Attributes::default()), ..Default::default() };
    world.store.copy(&first, &key("a"), options).await?;
    same(world.read("a").await?, "1")
}

pub(super) async fn a_lock_holds(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let id = named(world.put("a", "1").await?)?;
    let bypassing = Removal { bypass_governance: true, ..Removal::default() };
    versions.set_legal_hold(&key("a"), &id, true).await?;
    locked(versions.remove(&key("a"), &id, bypassing.clone()).await)?;
    holds(versions.mark(&key("a"), Precondition::None).await?.is_marker, "a mark removes nothing")?;
    locked(versions.remove(&key("a"), &id, Removal::default()).await)?;
    versions.set_legal_hold(&key("a"), &id, false).await?;
    let retention = Some(Retention { mode: LockMode::Governance, until: far() });
    versions.set_retention(&key("a"), &id, retention, false).await?;
    locked(versions.remove(&key("a"), &id, Removal::default()).await)?;
    let stored = versions.find(&key("a"), Some(&id)).await?.stored.ok_or_else(unnamed)?;
    same(Lock::of(&stored.attributes), Lock { retention, legal_hold: Some(false) })?;
    versions.remove(&key("a"), &id, bypassing).await?;
    refused(versions.find(&key("a"), Some(&id)).await, Refusal::NotFound)
}

pub(super) async fn a_lock_gets_longer(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let id = named(world.put("a", "1").await?)?;
    let later = Timestamp(far().0 + 1_000_000_000);
    let until = |mode, until| Some(Retention { mode, until });
    let set = |retention, bypass| {
        let id = id.clone();
        async move { versions.set_retention(&key("a"), &id, retention, bypass).await }
    };
    set(until(LockMode::Governance, later), false).await?;
    locked(set(until(LockMode::Governance, far()), false).await)?;
    locked(set(None, false).await)?;
    set(until(LockMode::Compliance, far()), true).await?;
    locked(set(until(LockMode::Governance, later), true).await)?;
    set(until(LockMode::Compliance, later), false).await?;
    locked(set(until(LockMode::Compliance, far()), true).await)
}

pub(super) async fn a_lock_comes_with_the_bytes(world: World) -> Outcome {
    let versions = enabled(&world).await?;
    let mut attributes = Attributes::default();
    let retention = Some(Retention { mode: LockMode::Compliance, until: far() });
    Lock { retention, legal_hold: None }.write(&mut attributes);
    let options = PutOptions { attributes, ..PutOptions::default() };
    let id = named(world.store.put(&key("a"), "1".into(), options).await?)?;
    locked(versions.remove(&key("a"), &id, Removal::default()).await)
}

/// Returns a time in the year 2096.
fn far() -> Timestamp {
    Timestamp::from_secs(4_000_000_000, 0)
}

/// Returns the store's interface to versions.
fn of(world: &World) -> Result<&dyn Versions> {
    world.store.versions().ok_or_else(|| StoreError::Unsupported("versions".into()))
}

/// Enables versioning, and returns the store's interface to versions.
async fn enabled(world: &World) -> Result<&dyn Versions> {
    let versions = of(world)?;
    versions.set_state(Versioning::Enabled).await?;
    Ok(versions)
}

/// Returns the error for a version without an id.
fn unnamed() -> StoreError {
    StoreError::Corrupt("a version without a name".into())
}

/// Returns the id of an object's version.
fn named(object: ObjectRef) -> Result<String> {
    object.version.map(String::from).ok_or_else(unnamed)
}

/// Returns options that read a version.
fn at(version: &str) -> GetOptions {
    GetOptions { version: Some(version.into()), ..GetOptions::default() }
}

async fn read(world: &World, name: &str, version: &str) -> Result<Bytes> {
    world.get(name, at(version)).await
}

/// Checks that an operation has failed because of a lock.
#[track_caller]
fn locked<T>(result: Result<T>) -> Outcome {
    holds(matches!(result, Err(StoreError::Locked(_))), "a lock was overlooked")
}

/// A version's key, its id, and whether it is the newest version.
type Shown = (String, String, bool);

/// Returns an expected entry in the form of [`Shown`].
fn owned((name, id, is_newest): (&str, String, bool)) -> Shown {
    (name.to_owned(), id, is_newest)
}

/// Returns what a listing shows of a version; `None` for a prefix.
fn shown(entry: VersionEntry) -> Option<Shown> {
    match entry {
        VersionEntry::Version(version) => {
            Some((version.key.to_string(), version.id.into(), version.is_newest))
        }
        VersionEntry::Prefix(_) => None,
    }
}

/// Lists the versions below a prefix.
async fn ids(versions: &dyn Versions, prefix: &str) -> Result<Vec<Shown>> {
    let prefix = Bytes::copy_from_slice(prefix.as_bytes());
    let request = ListVersions { prefix, limit: 1000, ..ListVersions::default() };
    Ok(versions.list(request).await?.into_iter().filter_map(shown).collect())
}
