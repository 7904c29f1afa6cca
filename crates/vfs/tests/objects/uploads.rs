//! Multipart uploads that outlast the call and the mount that began them.

use super::{assert_sound, each, get, key, keys, objects, put, text_map};
use crate::world::{MIB, pattern};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use store::{Attributes, CompleteOptions, GetOptions, ObjectStore as _, Precondition, StoreError, Tags};

fn body(pieces: &[&[u8]]) -> BoxStream<'static, store::Result<Bytes>> {
    let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

#[tokio::test]
async fn s184_uploads_outlast_the_mount() {
    for world in each().await {
        let before = objects(&world);
        let attributes = Attributes { user: text_map([("a", "1")]), ..Attributes::default() };
        let id = before
            .uploads()
            .unwrap()
            .begin(&key("dir/big"), attributes, text_map([("t", "v")]))
            .await
            .unwrap();
        let first = pattern(6 * MIB);
        let note = || Ok(Some("noted".to_owned()));
        before
            .uploads()
            .unwrap()
            .put_part(&key("dir/big"), &id, 2, body(&[b"replaced"]), Box::new(|| Ok(None)))
            .await
            .unwrap();
        before
            .uploads()
            .unwrap()
            .put_part(&key("dir/big"), &id, 1, body(&[&first[..MIB], &first[MIB..]]), Box::new(note))
            .await
            .unwrap();
        let end = body(&[b"the", b" end"]);
        let sent = before
            .uploads()
            .unwrap()
            .put_part(&key("dir/big"), &id, 2, end, Box::new(|| Ok(None)))
            .await
            .unwrap();
        before
            .uploads()
            .unwrap()
            .put_part(&key("dir/big"), &id, 3, body(&[b"surplus"]), Box::new(|| Ok(None)))
            .await
            .unwrap();
        assert_eq!(keys(&before).await, [""; 0]);
        assert_sound(&world).await;

        let world = world.remount().await;
        world.fs.recover().await.unwrap();
        let objects = objects(&world);
        assert_eq!(world.fs.check().unwrap(), [""; 0]);
        assert_eq!(world.fs.admin().collect_garbage(true).await.unwrap(), []);
        let found = objects.uploads().unwrap().list(b"dir/").await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].key, &found[0].id), (&key("dir/big"), &id));
        assert_eq!(found[0].attributes.user, text_map([("a", "1")]));
        assert_eq!(objects.uploads().unwrap().list(b"other").await.unwrap(), []);
        let parts = objects.uploads().unwrap().parts(&key("dir/big"), &id).await.unwrap();
        assert_eq!(
            parts.iter().map(|part| (part.number, part.size_bytes)).collect::<Vec<_>>(),
            [(1, first.len() as u64), (2, 7), (3, 7)]
        );
        assert_eq!((parts[0].note.as_deref(), &parts[1]), (Some("noted"), &sent));
        for (name, other) in [("dir/other", id.as_str()), ("dir/big", &id[1..]), ("dir/big", "")] {
            assert!(matches!(
                objects.uploads().unwrap().find(&key(name), other).await,
                Err(StoreError::NotFound(_))
            ));
        }
        let absent = CompleteOptions { precondition: Precondition::Absent, ..CompleteOptions::default() };
        put(&objects, "dir/big", "in the way").await;
        let refused = objects.uploads().unwrap().complete(&key("dir/big"), &id, &[1, 2], absent).await;
        assert!(matches!(refused, Err(StoreError::PreconditionFailed(_))), "{refused:?}");
        assert!(matches!(
            objects
                .uploads()
                .unwrap()
                .complete(&key("dir/big"), &id, &[1, 9], CompleteOptions::default())
                .await,
            Err(StoreError::Invalid(_))
        ));
        let more = CompleteOptions { user: text_map([("b", "2")]), ..CompleteOptions::default() };
        let done = objects.uploads().unwrap().complete(&key("dir/big"), &id, &[1, 2], more).await.unwrap();
        let expected = [&first[..], b"the end"].concat();
        assert!(get(&objects, "dir/big").await.unwrap() == expected);
        assert!(world.read_file("dir/big").await.unwrap() == expected);
        let meta = objects.head(&key("dir/big")).await.unwrap();
        assert_eq!((meta.object.etag, meta.attributes.user), (done.etag, text_map([("a", "1"), ("b", "2")])));
        assert_eq!(objects.tags(&key("dir/big")).await.unwrap(), text_map([("t", "v")]));
        assert!(matches!(
            objects.uploads().unwrap().find(&key("dir/big"), &id).await,
            Err(StoreError::NotFound(_))
        ));
        assert_sound(&world).await;
    }
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    for world in each().await {
        let objects = objects(&world);
        let id =
            objects.uploads().unwrap().begin(&key("big"), Attributes::default(), Tags::new()).await.unwrap();
        let big = key("big");
        let part = objects
            .uploads()
            .unwrap()
            .put_part(&big, &id, 1, body(&[b"whole"]), Box::new(|| Ok(None)))
            .await
            .unwrap();
        let broken: BoxStream<'_, store::Result<Bytes>> = stream::iter([
            Ok(Bytes::from(pattern(30 * MIB))),
            Err(StoreError::Unavailable("cut off".into())),
        ])
        .boxed();
        objects
            .uploads()
            .unwrap()
            .put_part(&key("big"), &id, 1, broken, Box::new(|| Ok(None)))
            .await
            .unwrap_err();
        let refuse = || Err(StoreError::Invalid("a wrong checksum".into()));
        objects
            .uploads()
            .unwrap()
            .put_part(&key("big"), &id, 1, body(&[b"other"]), Box::new(refuse))
            .await
            .unwrap_err();
        assert_eq!(objects.uploads().unwrap().parts(&key("big"), &id).await.unwrap(), [part]);
        objects.uploads().unwrap().abort(&key("big"), &id).await.unwrap();
        assert!(matches!(
            objects.uploads().unwrap().abort(&key("big"), &id).await,
            Err(StoreError::NotFound(_))
        ));
        assert_sound(&world).await;
        let keys = world.bucket.keys().await;
        assert!(keys.iter().all(|key| key.ends_with(".tenon/volume")), "{keys:?}");
    }
}

#[tokio::test]
async fn a_long_part_is_one_object_or_one_for_each_chunk() {
    for world in each().await {
        let objects = objects(&world);
        let id =
            objects.uploads().unwrap().begin(&key("big"), Attributes::default(), Tags::new()).await.unwrap();
        let long = pattern(40 * MIB + 5);
        let pieces: Vec<&[u8]> = long.chunks(3 * MIB + 1).collect();
        objects
            .uploads()
            .unwrap()
            .put_part(&key("big"), &id, 1, body(&pieces), Box::new(|| Ok(None)))
            .await
            .unwrap();
        objects
            .uploads()
            .unwrap()
            .put_part(&key("big"), &id, 2, body(&[b"end"]), Box::new(|| Ok(None)))
            .await
            .unwrap();
        world.settle().await;
        let before = world.bucket.keys().await.iter().filter(|key| key.contains("inodes/")).count();
        assert!(before == 2 || before == 42, "{before}");
        objects
            .uploads()
            .unwrap()
            .complete(&key("big"), &id, &[1, 2], CompleteOptions::default())
            .await
            .unwrap();
        assert!(get(&objects, "big").await.unwrap() == [&long[..], b"end"].concat());
        let range = GetOptions { range: Some(39 * MIB as u64..41 * MIB as u64), ..GetOptions::default() };
        let object = objects.get(&key("big"), range).await.unwrap();
        let read = object.body.try_collect::<Vec<_>>().await.unwrap().concat();
        assert!(read == [&long[39 * MIB..], b"end"].concat());
        assert_sound(&world).await;
    }
}

/// An orphan without content has no pin, and the upload was reported as missing.
#[tokio::test]
async fn an_upload_of_nothing_is_an_empty_object() {
    for world in each().await {
        let objects = objects(&world);
        let id = objects
            .uploads()
            .unwrap()
            .begin(&key("empty"), Attributes::default(), Tags::new())
            .await
            .unwrap();
        objects
            .uploads()
            .unwrap()
            .put_part(&key("empty"), &id, 1, body(&[]), Box::new(|| Ok(None)))
            .await
            .unwrap();
        objects
            .uploads()
            .unwrap()
            .complete(&key("empty"), &id, &[1], CompleteOptions::default())
            .await
            .unwrap();
        assert_eq!(get(&objects, "empty").await.unwrap(), b"");
        assert_sound(&world).await;
    }
}
