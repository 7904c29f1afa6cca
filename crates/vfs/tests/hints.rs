//! Hints about objects of the bucket, with a TTL of one hour.

use crate::world::{Bucket, World, assert_waits, errno};
use std::collections::BTreeMap;
use std::time::Duration;
use store::wrap::{Fault, Rule};
use store::{Entropy, ObjectKey};
use vfs::{AttributeSource, Hint, Invalidation, ReportedState};

/// Mounts with a TTL of one hour.
async fn mount_with_long_ttl(bucket: &Bucket) -> World {
    bucket.mount(|config| config.metadata_ttl = Duration::from_secs(3600)).await
}

/// Returns a hint with the true state of a key: an object, or its absence.
async fn hint(bucket: &Bucket, key: &str) -> Hint {
    let state = match bucket.head(key).await {
        Some(meta) => ReportedState::Stored {
            etag: Some(meta.object.etag),
            size_bytes: Some(meta.size_bytes),
            user: Some(meta.attributes.user),
        },
        None => ReportedState::Removed,
    };
    Hint { key: ObjectKey::try_from(key).unwrap(), state }
}

async fn send_hints(world: &World, keys: &[&str]) -> vfs::Result<()> {
    let mut hints = Vec::new();
    for key in keys {
        hints.push(hint(&world.bucket, key).await);
    }
    world.fs.hints().process(hints).await
}

async fn visible_files(world: &World) -> BTreeMap<String, Vec<u8>> {
    let tree = world.tree().await.into_iter();
    let files = tree.filter(|(_, kind, _)| *kind == vfs::Kind::File);
    files.map(|(path, _, body)| (path.trim_start_matches('/').to_owned(), body)).collect()
}

async fn objects_in(bucket: &Bucket) -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    for key in bucket.keys().await {
        objects.insert(key.clone(), bucket.object(&key).await.unwrap());
    }
    objects
}

#[tokio::test]
async fn s268_hinted_changes_are_seen_before_the_ttl_expires() {
    for attributes in [AttributeSource::Listing, AttributeSource::Headers] {
        let bucket = Bucket::in_memory();
        bucket.put("dir/a", "one").await;
        bucket.put("dir/b", "two").await;
        let world = bucket
            .mount(|config| {
                config.metadata_ttl = Duration::from_secs(3600);
                config.attributes = attributes;
            })
            .await;
        assert_eq!(visible_files(&world).await, objects_in(&bucket).await);
        bucket.put("dir/a", "longer").await;
        assert_eq!(world.stat("dir/a").await.unwrap().size_bytes, 3, "the cached attributes are still used");
        send_hints(&world, &["dir/a"]).await.unwrap();
        assert_eq!(world.stat("dir/a").await.unwrap().size_bytes, 6);
        assert_eq!(world.read_file("dir/a").await.unwrap(), b"longer");
        bucket.put("dir/new", "new").await;
        bucket.put("deep/er/file", "in a new directory").await;
        bucket.delete("dir/b").await;
        send_hints(&world, &["dir/new", "deep/er/file", "dir/b"]).await.unwrap();
        assert_eq!(world.names("dir").await.unwrap(), ["a", "new"]);
        assert_eq!(world.names("/").await.unwrap(), ["deep", "dir"]);
        assert_eq!(world.read_file("deep/er/file").await.unwrap(), b"in a new directory");
        bucket.delete("deep/er/file").await;
        send_hints(&world, &["deep/er/file"]).await.unwrap();
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        bucket.delete("dir/a").await;
        bucket.put("dir", "a file now").await;
        bucket.delete("dir/new").await;
        send_hints(&world, &["dir/a", "dir/new", "dir"]).await.unwrap();
        assert_eq!(world.read_file("dir").await.unwrap(), b"a file now", "{attributes:?}");
        // Regression, found by this test: the object had an escaped name for a moment, and that name was left over.
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        bucket.put("dir/again", "a directory again").await;
        bucket.delete("dir").await;
        send_hints(&world, &["dir", "dir/again"]).await.unwrap();
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        assert_eq!(visible_files(&world).await, objects_in(&bucket).await);
        world.assert_healthy().await;
    }
}

/// Hints in any order, repeated, and in batches lead to the state of the bucket.
#[tokio::test]
async fn s269_hints_in_any_order_and_number_lead_to_the_state_of_the_bucket() {
    for seed in 0..12 {
        let entropy = Entropy::new(seed);
        let below = |bound: usize| entropy.below(bound as u64) as usize;
        let bucket = Bucket::in_memory();
        let keys: Vec<String> =
            (0..200).map(|number| format!("{}/{}/{number}", number % 2, number % 7)).collect();
        for key in &keys {
            if below(2) == 0 {
                bucket.put(key, "at first").await;
            }
        }
        let world = mount_with_long_ttl(&bucket).await;
        if seed % 3 != 0 {
            visible_files(&world).await;
        }
        let mut hints = Vec::new();
        for step in 0..below(400) {
            let key = &keys[below(keys.len())];
            match below(3) {
                0 => bucket.delete(key).await,
                _ => bucket.put(key, format!("at step {step}")).await,
            }
            hints.push(hint(&bucket, key).await);
            if below(40) == 0 {
                // Some lookups happen before all hints have been processed.
                world.names(["0", "1", "0/3", "/"][below(4)]).await.ok();
            }
        }
        for _ in 0..below(50) {
            hints.extend(hints.get(below(hints.len().max(1))).cloned());
        }
        while !hints.is_empty() {
            let size = 1 + below(1 + 20 * below(20));
            let batch = (0..size.min(hints.len())).map(|_| hints.swap_remove(below(hints.len()))).collect();
            world.fs.hints().process(batch).await.unwrap();
        }
        assert_eq!(visible_files(&world).await, objects_in(&bucket).await, "seed {seed}");
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s269_hints_cost_requests_only_if_they_contradict_known_state() {
    let bucket = Bucket::in_memory();
    for number in 0..10 {
        bucket.put(format!("listed/{number}"), "x").await;
        bucket.put(format!("unlisted/{number}"), "x").await;
    }
    let world = mount_with_long_ttl(&bucket).await;
    world.names("listed").await.unwrap();
    world.stat("unlisted").await.unwrap();
    let requests_for = async |keys: &[&str]| world.requests(send_hints(&world, keys)).await;
    // Hints about this mount's own changes.
    world.write_file("listed/ours", "by this mount").await.unwrap();
    let heads = "Head 1";
    assert_eq!(requests_for(&["listed/ours"]).await, "nothing", "the test's own request is not counted");
    world.unlink("listed/ours").await.unwrap();
    assert_eq!(requests_for(&["listed/ours"]).await, "nothing");
    // Hints about names that nothing here depends on.
    bucket.put("unlisted/new", "x").await;
    assert_eq!(requests_for(&["unlisted/new", "unlisted/1"]).await, "nothing");
    // A hint that contradicts the known state.
    bucket.put("listed/1", "other").await;
    let many = vec!["listed/1"; 100];
    assert_eq!(requests_for(&many).await, heads, "repeated hints for a key cost one request");
    bucket.put("listed/new", "new").await;
    assert_eq!(requests_for(&["listed/new"]).await, heads);
    assert_eq!(requests_for(&["listed/new"]).await, "nothing");
    assert_eq!(world.requests(world.names("listed")).await, "nothing", "the listing is still valid");
    // A hint that does not tell the new state.
    let changed = Hint { key: ObjectKey::try_from("listed/2").unwrap(), state: ReportedState::Changed };
    assert_eq!(world.requests(world.fs.hints().process(vec![changed])).await, heads);
    assert_eq!(requests_for(&[".tenon/volume", "nowhere/at/all"]).await, "nothing");
}

/// A copy onto itself changes attributes but not the etag.
#[tokio::test]
async fn s268_changed_attributes_of_the_same_bytes_are_seen() {
    let bucket = Bucket::in_memory();
    bucket.put_with("file", "same", &[("file-permissions", "0100644")]).await;
    let world = bucket
        .mount(|config| {
            config.metadata_ttl = Duration::from_secs(3600);
            config.attributes = AttributeSource::Headers;
        })
        .await;
    assert_eq!(world.stat("file").await.unwrap().mode, 0o644);
    assert_eq!(
        world.requests(send_hints(&world, &["file"])).await,
        "nothing",
        "the hint confirms the known state"
    );
    bucket.put_with("file", "same", &[("file-permissions", "0100600")]).await;
    send_hints(&world, &["file"]).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().mode, 0o600);
}

/// A burst of changes is not looked up one by one. The next lookup lists the directory, and kernels are told to drop each name.
#[tokio::test]
async fn s269_a_burst_is_listed_at_the_next_lookup() {
    const COUNT: usize = 5_000;
    let bucket = Bucket::in_memory();
    let keys: Vec<String> = (0..COUNT).map(|number| format!("top/dir/{number:05}")).collect();
    for key in &keys {
        bucket.put(key, "before").await;
    }
    let world = mount_with_long_ttl(&bucket).await;
    assert_eq!(world.names("top/dir").await.unwrap().len(), COUNT);
    for key in &keys {
        bucket.put(key, "afterwards").await;
    }
    let mut invalidations = world.fs.kernel_caches().invalidations();
    let kernel = tokio::spawn(async move {
        let mut dropped = std::collections::BTreeSet::new();
        while let Some(news) = invalidations.recv().await {
            match news {
                Invalidation::Entry { name, .. } => drop(dropped.insert(name)),
                Invalidation::Reached(mark) => mark.reached(),
                _ => {}
            }
            if dropped.len() == COUNT {
                return true;
            }
        }
        false
    });
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    for batch in names.chunks(512) {
        assert_eq!(world.requests(send_hints(&world, batch)).await, "nothing");
    }
    assert!(kernel.await.unwrap(), "kernels are told of each name");
    assert_eq!(world.requests(world.stat("top/dir/00000")).await, "List 1");
    assert_eq!(world.stat("top/dir/04999").await.unwrap().size_bytes, 10);
    for key in &keys {
        bucket.delete(key).await;
    }
    for batch in names.chunks(512) {
        send_hints(&world, batch).await.unwrap();
    }
    assert_eq!(
        errno(world.stat("top/dir").await),
        libc::ENOENT,
        "directories are removed with their last entry"
    );
    assert_eq!(errno(world.stat("top").await), libc::ENOENT);
}

/// The contents of lost hints are unknown.
#[tokio::test]
async fn s269_lost_hints_invalidate_everything() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/changed", "before").await;
    bucket.put("dir/gone", "before").await;
    let world = mount_with_long_ttl(&bucket).await;
    visible_files(&world).await;
    let file = world.fs.lookup(world.ino("dir").await.unwrap(), b"changed").await.unwrap();
    bucket.put("dir/changed", "afterwards").await;
    bucket.delete("dir/gone").await;
    bucket.put("dir/new", "new").await;
    assert_eq!(world.names("dir").await.unwrap(), ["changed", "gone"]);
    let mut invalidations = world.fs.kernel_caches().invalidations();
    let marking = world.fs.hints().mark_all_stale();
    let kernel = async {
        let mut dropped = Vec::new();
        loop {
            match invalidations.recv().await.unwrap() {
                Invalidation::Reached(mark) => {
                    mark.reached();
                    return dropped;
                }
                Invalidation::Entry { name, .. } => assert!(name == "changed" || name == "gone", "{name:?}"),
                news => dropped.push(news),
            }
        }
    };
    let ((), dropped) = tokio::join!(marking, kernel);
    assert!(dropped.contains(&Invalidation::Attributes(file.ino)), "{dropped:?}");
    assert_eq!(visible_files(&world).await, objects_in(&bucket).await);
    assert_eq!(world.requests(world.names("dir")).await, "nothing", "newer observations are valid");
}

/// If the bucket does not answer the lookup for a hint, the next lookup by a program asks it again.
#[tokio::test]
async fn s269_a_hint_that_cannot_be_looked_up_marks_the_directory_stale() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "before").await;
    let world = mount_with_long_ttl(&bucket).await;
    visible_files(&world).await;
    bucket.put("dir/a", "afterwards").await;
    let hint = hint(&bucket, "dir/a").await;
    bucket.faults.add(Rule::new(Fault::unavailable()).always());
    world.fs.hints().process(vec![hint]).await.unwrap();
    bucket.faults.clear();
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"afterwards");
}

/// A listing requested before a change, and answered after the hint about it, shows the old state.
#[tokio::test]
async fn s269_a_listing_under_way_during_a_hint_is_not_trusted() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/gone", "x").await;
    let world = mount_with_long_ttl(&bucket).await;
    world.stat("dir").await.unwrap();
    let listed = bucket.late.hold(store::wrap::Operation::List);
    let changes = async {
        let answer = listed.done().await;
        bucket.put("dir/new", "x").await;
        bucket.delete("dir/gone").await;
        send_hints(&world, &["dir/new", "dir/gone"]).await.unwrap();
        drop(answer);
    };
    let (before, ()) = tokio::join!(world.names("dir"), changes);
    assert!(before.unwrap().contains(&"gone".to_owned()), "the listing was requested before the change");
    assert_eq!(world.names("dir").await.unwrap(), ["new"]);
}

/// A hint about an object stored here may arrive before the answer to the PUT.
#[tokio::test]
async fn s269_a_hint_that_precedes_the_answer_to_the_put_costs_nothing() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "before").await;
    let world = mount_with_long_ttl(&bucket).await;
    visible_files(&world).await;
    let stored = bucket.late.hold(store::wrap::Operation::Put);
    let writing = world.write_file("dir/a", "afterwards");
    let processing = async {
        let answer = stored.done().await;
        let hint = hint(&bucket, "dir/a").await;
        let (outcome, counts) = world.counting(world.fs.hints().process(vec![hint])).await;
        outcome.unwrap();
        drop(answer);
        assert_eq!(counts.of(store::wrap::Operation::Head), 0);
    };
    let (written, ()) = tokio::join!(writing, processing);
    written.unwrap();
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"afterwards");
}

/// Regression: while a hint was looked up, a program's own change was under way, which made the look invalid, and then failed.
#[tokio::test(start_paused = true)]
async fn s268_a_look_during_a_local_change_is_repeated() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "before").await;
    let world = mount_with_long_ttl(&bucket).await;
    visible_files(&world).await;
    bucket.put("dir/a", "theirs").await;
    let hint = hint(&bucket, "dir/a").await;
    let removal = bucket.late.hold(store::wrap::Operation::Delete);
    let fs = world.fs.clone();
    let dir = world.ino("dir").await.unwrap();
    let removing = tokio::spawn(async move { fs.unlink(dir, b"a").await });
    let answer = removal.done().await;
    bucket.put("dir/a", "theirs again").await;
    let mut processing = std::pin::pin!(world.fs.hints().process(vec![hint]));
    assert_waits(processing.as_mut()).await;
    drop(answer);
    processing.await.unwrap();
    removing.await.unwrap().ok();
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"theirs again");
}
