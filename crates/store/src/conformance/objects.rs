//! Cases about reading objects, whole and by range.

use super::world::{Outcome, Refusal, World, foreign_etag, holds, key, pattern, refused, same};
use crate::{GetOptions, Payload};
use bytes::Bytes;

pub(super) async fn an_empty_object(world: World) -> Outcome {
    let stored = world.put("empty", Payload::default()).await?;
    let meta = world.head("empty").await?;
    same(meta.size_bytes, 0)?;
    same(&meta.object.etag, &stored.etag)?;
    same(world.read("empty").await?, Bytes::new())
}

pub(super) async fn a_small_object(world: World) -> Outcome {
    let stored = world.put("small", "hello").await?;
    same(&stored.key, &key("small"))?;
    let object = world.store.get(&key("small"), GetOptions::default()).await?;
    let head = world.head("small").await?;
    same(object.meta.size_bytes, 5)?;
    same(&object.meta, &head)?;
    same(&head.object.etag, &stored.etag)?;
    same(&head.object.key, &key("small"))?;
    holds(head.object.last_modified.is_some(), "head does not say when the object was stored")?;
    drop(object);
    same(world.read("small").await?, "hello")
}

pub(super) async fn a_rope_of_many_pieces(world: World) -> Outcome {
    let whole = pattern(1, 300_000);
    let pieces = (0..whole.len()).step_by(777).map(|at| whole.slice(at..whole.len().min(at + 777)));
    let rope: Payload = pieces.collect();
    world.store.put(&key("rope"), rope, Default::default()).await?;
    holds(world.read("rope").await? == whole, "other bytes came back")
}

pub(super) async fn nine_mebibytes(world: World) -> Outcome {
    let whole = pattern(2, 9 << 20);
    world.put("big", whole.clone()).await?;
    same(world.head("big").await?.size_bytes, 9 << 20)?;
    holds(world.read("big").await? == whole, "other bytes came back")?;
    let middle = world.read_range("big", 4_000_000..6_000_001).await?;
    holds(middle == whole.slice(4_000_000..6_000_001), "other bytes came back for a range")
}

pub(super) async fn missing_objects(world: World) -> Outcome {
    refused(world.head("nothing").await, Refusal::NotFound)?;
    refused(world.read("nothing").await, Refusal::NotFound)?;
    let condition = GetOptions { if_match: Some(foreign_etag()), ..GetOptions::default() };
    refused(world.get("nothing", condition).await, Refusal::NotFound)?;
    world.put("dir/file", "x").await?;
    refused(world.head("dir").await, Refusal::NotFound)?;
    refused(world.head("dir/").await, Refusal::NotFound)?;
    refused(world.head("dir/file/below").await, Refusal::NotFound)?;
    refused(world.read("dir/file/").await, Refusal::NotFound)
}

pub(super) async fn ranges_inside(world: World) -> Outcome {
    world.put("ten", "0123456789").await?;
    same(world.read_range("ten", 0..1).await?, "0")?;
    same(world.read_range("ten", 3..7).await?, "3456")?;
    same(world.read_range("ten", 9..10).await?, "9")?;
    same(world.read_range("ten", 0..10).await?, "0123456789")?;
    let options = GetOptions { range: Some(3..7), ..GetOptions::default() };
    same(world.store.get(&key("ten"), options).await?.meta.size_bytes, 10)
}

pub(super) async fn ranges_that_end_beyond(world: World) -> Outcome {
    world.put("ten", "0123456789").await?;
    same(world.read_range("ten", 8..1000).await?, "89")?;
    same(world.read_range("ten", 0..u64::MAX).await?, "0123456789")
}

pub(super) async fn ranges_that_begin_beyond(world: World) -> Outcome {
    world.put("ten", "0123456789").await?;
    world.put("empty", Payload::default()).await?;
    refused(world.read_range("ten", 10..11).await, Refusal::InvalidRange)?;
    refused(world.read_range("ten", 500..600).await, Refusal::InvalidRange)?;
    refused(world.read_range("empty", 0..1).await, Refusal::InvalidRange)
}

pub(super) async fn get_if_match(world: World) -> Outcome {
    let stored = world.put("a", "first").await?;
    let matching = GetOptions { if_match: Some(stored.etag), ..GetOptions::default() };
    same(world.get("a", matching.clone()).await?, "first")?;
    let ranged = GetOptions { range: Some(1..3), ..matching };
    same(world.get("a", ranged).await?, "ir")?;
    let other = GetOptions { if_match: Some(foreign_etag()), ..GetOptions::default() };
    refused(world.get("a", other).await, Refusal::Precondition)
}
