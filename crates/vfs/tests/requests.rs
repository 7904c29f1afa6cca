//! Numbers of requests that operations take; more are a regression.

use crate::world::{Bucket, MIB, World, pattern};
use store::wrap::Operation;
use vfs::{AttributeSource, Ino};

#[tokio::test]
async fn s13_a_cold_small_read_is_one_get() {
    for attributes in [AttributeSource::Listing, AttributeSource::Headers] {
        let bucket = Bucket::in_memory();
        bucket.put("dir/small", pattern(10_000)).await;
        let world = bucket.mount(|config| config.attributes = attributes).await;
        world.stat("dir").await.unwrap();
        let requests = world.requests(world.read_file("dir/small")).await;
        assert_eq!(requests, "Get 1, List 1", "{attributes:?}");
        assert_eq!(world.requests(world.read_file("dir/small")).await, "nothing", "{attributes:?}");
    }
}

#[tokio::test]
async fn s130_bytes_in_the_page_cache_above_are_not_cached_again() {
    let bucket = Bucket::in_memory();
    bucket.put("small", pattern(10_000)).await;
    bucket.put("big", pattern(32 * MIB)).await;
    let world = bucket.mount(|config| config.page_cache_above = true).await;
    for (name, size_bytes) in [("small", 10_000), ("big", 32 * MIB)] {
        let handle = world.open_handle(name, libc::O_RDONLY).await.unwrap();
        // A page cache requests whole pages, and none behind the end.
        for at in (0..size_bytes).step_by(128 << 10) {
            let len = (size_bytes - at).next_multiple_of(4096).min(128 << 10);
            world.fs.read(handle, at as u64, len).await.unwrap();
        }
        world.close(handle).await.unwrap();
        assert_eq!(world.fs.status().read_bytes, 0, "{name}");
    }
    let handle = world.open_handle("big", libc::O_RDONLY).await.unwrap();
    world.fs.read(handle, 17 * MIB as u64, 4096).await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.fs.status().read_bytes, 128 << 10, "the block around a random read is kept");
}

#[tokio::test]
async fn s98_a_cold_read_from_the_middle_is_one_get() {
    let bucket = Bucket::in_memory();
    bucket.put("big", pattern(32 * MIB)).await;
    for (attributes, expected) in
        [(AttributeSource::Listing, "Get 1"), (AttributeSource::Headers, "Get 1, Head 1")]
    {
        let world = bucket.mount(|config| config.attributes = attributes).await;
        world.names("/").await.unwrap();
        let (read, counts) = world
            .counting(async {
                let handle = world.open_handle("big", libc::O_RDONLY).await?;
                world.fs.read(handle, 17 * MIB as u64, 4096).await
            })
            .await;
        assert_eq!(read.unwrap(), pattern(32 * MIB)[17 * MIB..17 * MIB + 4096]);
        assert_eq!(counts.to_string(), expected);
        assert!(counts.received_bytes <= 128 << 10, "{}", counts.received_bytes);
    }
}

#[tokio::test]
async fn s130_a_sequential_read_takes_large_requests_and_no_byte_twice() {
    let bucket = Bucket::in_memory();
    let body = pattern(256 * MIB);
    bucket.put("big", &body).await;
    let world = bucket.mount(|_| {}).await;
    world.names("/").await.unwrap();
    let (read, counts) = world.counting(world.read_file("big")).await;
    assert!(read.unwrap() == body);
    assert!(counts.of(Operation::Get) <= 40, "{counts}");
    assert_eq!(counts.total(), counts.of(Operation::Get));
    assert_eq!(counts.received_bytes, 256 * MIB as u64);
}

#[tokio::test]
async fn s579_random_reads_that_return_to_a_file_take_few_requests() {
    let bucket = Bucket::in_memory();
    let body = pattern(64 * MIB);
    bucket.put("big", &body).await;
    let world = bucket.mount(|_| {}).await;
    world.names("/").await.unwrap();
    let ((), counts) = world
        .counting(async {
            let handle = world.open_handle("big", libc::O_RDONLY).await.unwrap();
            let mut at = 1;
            for _ in 0..3000 {
                at = (at * 25_214_903_917 + 11) % body.len();
                let (at, len) = (at, 4096.min(body.len() - at));
                let read = world.fs.read(handle, at as u64, len).await.unwrap();
                assert!(read == body[at..at + len]);
            }
            world.close(handle).await.unwrap();
        })
        .await;
    assert!(counts.of(Operation::Get) <= 150, "{counts}");
    assert!(counts.received_bytes <= 64 * MIB as u64, "no byte twice: {counts}");
}

#[tokio::test]
async fn s132_listing_5000_entries_is_five_pages() {
    let bucket = Bucket::in_memory();
    for n in 0..5000 {
        bucket.put(format!("dir/file-{n:04}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    world.stat("dir").await.unwrap();
    assert_eq!(world.requests(world.names("dir")).await, "List 5");
    let looked_up = world.requests(async {
        let dir = world.ino("dir").await?;
        for n in 0..5000 {
            world.fs.lookup(dir, format!("file-{n:04}").as_bytes()).await?;
        }
        world.list("dir", true).await
    });
    assert_eq!(looked_up.await, "nothing");
}

/// The first lookup in a flat bucket of a million keys listed eight pages sequentially before it requested the name.
#[tokio::test]
async fn s132_a_lookup_in_a_large_directory_does_not_list_it() {
    let bucket = Bucket::in_memory();
    for n in 0..20_000 {
        bucket.put(format!("file-{n:05}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    for n in 19_990..19_998 {
        let page_and_name = world.requests(world.stat(&format!("file-{n}"))).await;
        assert_eq!(page_and_name, "Head 1, List 2");
    }
    assert_eq!(world.requests(world.stat("file-19998")).await, "Head 1, List 1");
    assert_eq!(world.requests(world.stat("file-19998")).await, "nothing");
    world.expire();
    world.stat("file-19998").await.unwrap();
    assert_eq!(
        world.requests(world.stat("file-19998")).await,
        "nothing",
        "the name was looked up a moment ago"
    );
}

/// A stat of every name of a flat bucket, in an order that is not that of the keys, took a HEAD and a LIST for each.
#[tokio::test]
async fn s132_looking_up_all_names_of_a_large_directory_lists_it() {
    const FILES: usize = 20_000;
    let bucket = Bucket::in_memory();
    for n in 0..FILES {
        bucket.put(format!("file-{n:05}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    let (found, counts) = world
        .counting(async {
            for n in 0..FILES {
                world.stat(&format!("file-{:05}", n * 7919 % FILES)).await?;
            }
            Ok::<_, vfs::Error>(())
        })
        .await;
    found.unwrap();
    let probes = counts.of(Operation::Head);
    assert!(probes < 20 * 32, "{counts}");
    assert_eq!(counts.of(Operation::List), 20 + probes, "each page once: {counts}");
}

#[tokio::test]
async fn s32_an_open_revalidates_in_a_directory_trusted_for_long() {
    let bucket = Bucket::in_memory();
    for n in 0..17_000 {
        bucket.put(format!("file-{n:05}"), "").await;
    }
    let world = bucket.mount(|_| {}).await;
    assert_eq!(world.names("/").await.unwrap().len(), 17_000);
    bucket.put("file-00007", "new").await;
    world.expire();
    let handle = world.open_handle("file-00007", libc::O_RDONLY).await.unwrap();
    assert_eq!(world.fs.getattr(world.ino("file-00007").await.unwrap()).await.unwrap().size_bytes, 3);
    assert_eq!(world.read_all(handle).await.unwrap(), b"new");
}

#[tokio::test]
async fn s131_mounting_lists_nothing() {
    let bucket = Bucket::in_memory();
    for n in 0..10_000 {
        bucket.put(format!("file-{n:05}"), "").await;
    }
    let before = bucket.trace.counts();
    let world = bucket.mount(|_| {}).await;
    assert_eq!(bucket.trace.counts().since(&before).to_string(), "nothing");
    assert_eq!(world.requests(world.fs.getattr(Ino::ROOT)).await, "nothing");
}

#[tokio::test]
async fn s13_creating_many_files_is_one_put_each() {
    let world = World::new().await;
    world.mkdir("dir").await.unwrap();
    let (_, counts) = world
        .counting(async {
            for n in 0..200 {
                world.write_file(format!("dir/{n}"), b"x").await.unwrap();
            }
        })
        .await;
    assert_eq!(counts.to_string(), "Put 200");
}
