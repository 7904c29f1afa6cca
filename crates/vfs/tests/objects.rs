//! The volume as objects: what Tenon's own S3 endpoint serves, and what the mount shows of it.

use crate::world::{Bucket, CALLER, CHUNKED, MIB, World, errno, pattern};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use futures_util::{TryStreamExt as _, stream::BoxStream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use store::conformance::{self, Capabilities};
use store::{
    Attributes, Buckets as _, CompleteOptions, CopyOptions, GetOptions, ListRequest, ObjectKey, ObjectRef,
    ObjectStore, Pages, Payload, Precondition, PutOptions, StoreError, Tags, Uploads as _,
};
use vfs::{Caller, DirectoryBuckets, Ino, Invalidation, Kind, Mapping, Objects};

/// A view of the whole volume.
fn objects(world: &World) -> Objects {
    Objects::new(world.fs.clone(), b"")
}

fn key(text: impl AsRef<[u8]>) -> ObjectKey {
    ObjectKey::try_from(text.as_ref()).unwrap()
}

async fn put(objects: &Objects, name: &str, body: impl AsRef<[u8]>) -> ObjectRef {
    let body = Payload::from(Bytes::copy_from_slice(body.as_ref()));
    objects.put(&key(name), body, PutOptions::default()).await.unwrap()
}

async fn get(objects: &Objects, name: &str) -> Option<Vec<u8>> {
    match objects.get(&key(name), GetOptions::default()).await {
        Ok(object) => Some(object.body.try_collect::<Vec<_>>().await.unwrap().concat()),
        Err(StoreError::NotFound(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn delete(objects: &Objects, name: &str) {
    objects.delete(&key(name), Precondition::None).await.unwrap();
}

async fn listed(objects: &Objects, request: ListRequest) -> Vec<String> {
    let entries = Pages::of(objects, request).all().await.unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(entry.text()).into_owned()).collect()
}

async fn keys(objects: &Objects) -> Vec<String> {
    listed(objects, ListRequest { limit: 1000, ..ListRequest::default() }).await
}

fn text_map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn described(user: BTreeMap<String, String>) -> PutOptions {
    PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() }
}

/// Volumes of every kind.
async fn each() -> Vec<World> {
    let mut worlds = Vec::new();
    for bucket in Bucket::by_inode_each().await {
        worlds.push(bucket.mount(|_| {}).await);
    }
    worlds.push(Bucket::with_metadata().mount(|_| {}).await);
    worlds
}

/// Nothing is wrong with the tables, and no content is left that no file has.
async fn assert_sound(world: &World) {
    world.settle().await;
    assert_eq!(world.fs.check().unwrap(), [""; 0]);
    assert_eq!(world.fs.collect_garbage(true).await.unwrap(), []);
}

async fn conforms(make: impl AsyncFn() -> World, base: &str, capabilities: Capabilities) {
    let kept: Mutex<Vec<World>> = Mutex::default();
    let fresh = || async {
        let world = make().await;
        let objects = Arc::new(Objects::new(world.fs.clone(), base.as_bytes())) as Arc<dyn ObjectStore>;
        kept.lock().unwrap().push(world);
        Ok(objects)
    };
    conformance::run(fresh, capabilities).await.unwrap();
    let worlds = std::mem::take(&mut *kept.lock().unwrap());
    for world in worlds {
        world.settle().await;
        assert_eq!(world.fs.check().unwrap(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_named_by_inode_conform() {
    let make = async || Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_chunks_conform() {
    let make = async || Bucket::by_inode(CHUNKED).await.mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_directory_conform() {
    let make = async || {
        let world = Bucket::by_inode(Mapping::Whole).await.mount(|_| {}).await;
        world.mkdir("a-bucket").await.unwrap();
        world
    };
    conforms(make, "a-bucket/", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_named_by_path_conform() {
    let make = async || Bucket::in_memory().mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_a_directory_conform() {
    let make = async || Bucket::in_directory().mount(|_| {}).await;
    conforms(make, "", Capabilities::ALL).await;
}
