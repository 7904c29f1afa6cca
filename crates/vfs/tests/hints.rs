//! What others say of the bucket's objects, where everything is believed for an hour.

use crate::world::{Bucket, World, errno};
use std::collections::BTreeMap;
use std::time::Duration;
use store::wrap::{Fault, Rule};
use store::{Entropy, ObjectKey};
use vfs::{AttributeSource, Hint, Invalidation, Says};

/// Everything is believed for an hour.
async fn believing(bucket: &Bucket) -> World {
    bucket.mount(|config| config.metadata_ttl = Duration::from_secs(3600)).await
}

/// What a source says of a key: what is there, or that nothing is.
async fn hint(bucket: &Bucket, key: &str) -> Hint {
    let says = match bucket.head(key).await {
        Some(meta) => Says::Stored {
            etag: Some(meta.object.etag),
            size_bytes: Some(meta.size_bytes),
            user: Some(meta.attributes.user),
        },
        None => Says::Removed,
    };
    Hint { key: ObjectKey::try_from(key).unwrap(), says }
}

async fn tell(world: &World, keys: &[&str]) -> vfs::Result<()> {
    let mut hints = Vec::new();
    for key in keys {
        hints.push(hint(&world.bucket, key).await);
    }
    world.fs.hear(hints).await
}

async fn shown(world: &World) -> BTreeMap<String, Vec<u8>> {
    let tree = world.tree().await.into_iter();
    let files = tree.filter(|(_, kind, _)| *kind == vfs::Kind::File);
    files.map(|(path, _, body)| (path.trim_start_matches('/').to_owned(), body)).collect()
}

async fn there(bucket: &Bucket) -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    for key in bucket.keys().await {
        objects.insert(key.clone(), bucket.object(&key).await.unwrap());
    }
    objects
}

#[tokio::test]
async fn s268_what_is_said_is_seen_at_once_though_all_is_believed_for_an_hour() {
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
        assert_eq!(shown(&world).await, there(&bucket).await);
        bucket.put("dir/a", "longer").await;
        assert_eq!(world.stat("dir/a").await.unwrap().size_bytes, 3, "it is believed");
        tell(&world, &["dir/a"]).await.unwrap();
        assert_eq!(world.stat("dir/a").await.unwrap().size_bytes, 6);
        assert_eq!(world.read_file("dir/a").await.unwrap(), b"longer");
        bucket.put("dir/new", "new").await;
        bucket.put("deep/er/file", "in a new directory").await;
        bucket.delete("dir/b").await;
        tell(&world, &["dir/new", "deep/er/file", "dir/b"]).await.unwrap();
        assert_eq!(world.names("dir").await.unwrap(), ["a", "new"]);
        assert_eq!(world.names("/").await.unwrap(), ["deep", "dir"]);
        assert_eq!(world.read_file("deep/er/file").await.unwrap(), b"in a new directory");
        bucket.delete("deep/er/file").await;
        tell(&world, &["deep/er/file"]).await.unwrap();
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        bucket.delete("dir/a").await;
        bucket.put("dir", "a file now").await;
        bucket.delete("dir/new").await;
        tell(&world, &["dir/a", "dir/new", "dir"]).await.unwrap();
        assert_eq!(world.read_file("dir").await.unwrap(), b"a file now", "{attributes:?}");
        // It was known beside the directory for a moment, and that name was left (found by this test).
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        bucket.put("dir/again", "a directory again").await;
        bucket.delete("dir").await;
        tell(&world, &["dir", "dir/again"]).await.unwrap();
        assert_eq!(world.names("/").await.unwrap(), ["dir"]);
        assert_eq!(shown(&world).await, there(&bucket).await);
        world.assert_healthy().await;
    }
}

/// What is told in any order, twice, and much at once, ends in what is there.
#[tokio::test]
async fn s269_hints_in_any_order_and_any_number_at_once_end_in_what_is_there() {
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
        let world = believing(&bucket).await;
        if seed % 3 != 0 {
            shown(&world).await;
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
                // Somebody looks before all of it is told.
                world.names(["0", "1", "0/3", "/"][below(4)]).await.ok();
            }
        }
        for _ in 0..below(50) {
            hints.extend(hints.get(below(hints.len().max(1))).cloned());
        }
        while !hints.is_empty() {
            let size = 1 + below(1 + 20 * below(20));
            let batch = (0..size.min(hints.len())).map(|_| hints.swap_remove(below(hints.len()))).collect();
            world.fs.hear(batch).await.unwrap();
        }
        assert_eq!(shown(&world).await, there(&bucket).await, "seed {seed}");
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s269_hints_cost_requests_only_where_somebody_would_be_told_something_else() {
    let bucket = Bucket::in_memory();
    for number in 0..10 {
        bucket.put(format!("listed/{number}"), "x").await;
        bucket.put(format!("unlisted/{number}"), "x").await;
    }
    let world = believing(&bucket).await;
    world.names("listed").await.unwrap();
    world.stat("unlisted").await.unwrap();
    let told = async |keys: &[&str]| world.requests(tell(&world, keys)).await;
    // What was done here comes back.
    world.write_file("listed/ours", "by this mount").await.unwrap();
    let heads = "Head 1";
    assert_eq!(told(&["listed/ours"]).await, "nothing", "the test's own look is not counted");
    world.unlink("listed/ours").await.unwrap();
    assert_eq!(told(&["listed/ours"]).await, "nothing");
    // Nobody here has asked for it.
    bucket.put("unlisted/new", "x").await;
    assert_eq!(told(&["unlisted/new", "unlisted/1"]).await, "nothing");
    // It is believed to be otherwise.
    bucket.put("listed/1", "other").await;
    let many = vec!["listed/1"; 100];
    assert_eq!(told(&many).await, heads, "of many hints of a key one counts");
    bucket.put("listed/new", "new").await;
    assert_eq!(told(&["listed/new"]).await, heads);
    assert_eq!(told(&["listed/new"]).await, "nothing");
    assert_eq!(world.requests(world.names("listed")).await, "nothing", "the listing is as good as before");
    // Only part of it is said.
    let changed = Hint { key: ObjectKey::try_from("listed/2").unwrap(), says: Says::Changed };
    assert_eq!(world.requests(world.fs.hear(vec![changed])).await, heads);
    assert_eq!(told(&[".tenon/volume", "nowhere/at/all"]).await, "nothing");
}

/// A change of attributes by a copy onto itself leaves the bytes' tag as it was.
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
    assert_eq!(world.requests(tell(&world, &["file"])).await, "nothing", "an echo");
    bucket.put_with("file", "same", &[("file-permissions", "0100600")]).await;
    tell(&world, &["file"]).await.unwrap();
    assert_eq!(world.stat("file").await.unwrap().mode, 0o600);
}

/// Many changes at once are not looked at one by one: the directory is listed when somebody looks, and kernels hear which names
/// they must ask for.
#[tokio::test]
async fn s269_a_burst_is_listed_when_somebody_looks() {
    const COUNT: usize = 5_000;
    let bucket = Bucket::in_memory();
    let keys: Vec<String> = (0..COUNT).map(|number| format!("top/dir/{number:05}")).collect();
    for key in &keys {
        bucket.put(key, "before").await;
    }
    let world = believing(&bucket).await;
    assert_eq!(world.names("top/dir").await.unwrap().len(), COUNT);
    for key in &keys {
        bucket.put(key, "afterwards").await;
    }
    let mut invalidations = world.fs.invalidations();
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
        assert_eq!(world.requests(tell(&world, batch)).await, "nothing");
    }
    assert!(kernel.await.unwrap(), "kernels hear of each name");
    assert_eq!(world.requests(world.stat("top/dir/00000")).await, "List 1");
    assert_eq!(world.stat("top/dir/04999").await.unwrap().size_bytes, 10);
    for key in &keys {
        bucket.delete(key).await;
    }
    for batch in names.chunks(512) {
        tell(&world, batch).await.unwrap();
    }
    assert_eq!(errno(world.stat("top/dir").await), libc::ENOENT, "directories go with what was in them");
    assert_eq!(errno(world.stat("top").await), libc::ENOENT);
}

/// Nobody knows what was in the hints that were lost.
#[tokio::test]
async fn s269_after_lost_hints_everything_is_asked_for_again() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/changed", "before").await;
    bucket.put("dir/gone", "before").await;
    let world = believing(&bucket).await;
    shown(&world).await;
    let file = world.fs.lookup(world.ino("dir").await.unwrap(), b"changed").await.unwrap();
    bucket.put("dir/changed", "afterwards").await;
    bucket.delete("dir/gone").await;
    bucket.put("dir/new", "new").await;
    assert_eq!(world.names("dir").await.unwrap(), ["changed", "gone"]);
    let mut invalidations = world.fs.invalidations();
    let doubted = world.fs.doubt_everything();
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
    let ((), dropped) = tokio::join!(doubted, kernel);
    assert!(dropped.contains(&Invalidation::Attributes(file.ino)), "{dropped:?}");
    assert_eq!(shown(&world).await, there(&bucket).await);
    assert_eq!(world.requests(world.names("dir")).await, "nothing", "what was seen since is believed");
}

/// A bucket that does not answer when it is asked because of a hint is asked by who looks.
#[tokio::test]
async fn s269_what_cannot_be_looked_at_is_doubted() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "before").await;
    let world = believing(&bucket).await;
    shown(&world).await;
    bucket.put("dir/a", "afterwards").await;
    let said = hint(&bucket, "dir/a").await;
    bucket.faults.add(Rule::new(Fault::unavailable()).always());
    world.fs.hear(vec![said]).await.unwrap();
    bucket.faults.clear();
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"afterwards");
}

/// Who listed before the change and is answered after the hint learns what was.
#[tokio::test]
async fn s269_a_listing_that_was_under_way_is_not_believed() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/gone", "x").await;
    let world = believing(&bucket).await;
    world.stat("dir").await.unwrap();
    let listed = bucket.late.hold(store::wrap::Operation::List);
    let told = async {
        let answer = listed.done().await;
        bucket.put("dir/new", "x").await;
        bucket.delete("dir/gone").await;
        tell(&world, &["dir/new", "dir/gone"]).await.unwrap();
        drop(answer);
    };
    let (before, ()) = tokio::join!(world.names("dir"), told);
    assert!(before.unwrap().contains(&"gone".to_owned()), "it was asked for before");
    assert_eq!(world.names("dir").await.unwrap(), ["new"]);
}

/// What is stored here the bucket tells before it has answered.
#[tokio::test]
async fn s269_an_echo_that_comes_before_the_answer_costs_nothing() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "before").await;
    let world = believing(&bucket).await;
    shown(&world).await;
    let stored = bucket.late.hold(store::wrap::Operation::Put);
    let writing = world.write_file("dir/a", "afterwards");
    let hearing = async {
        let answer = stored.done().await;
        let said = hint(&bucket, "dir/a").await;
        let heard = world.counting(world.fs.hear(vec![said]));
        let late = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(answer);
        };
        let ((heard, counts), ()) = tokio::join!(heard, late);
        heard.unwrap();
        assert_eq!(counts.of(store::wrap::Operation::Head), 0);
    };
    let (written, ()) = tokio::join!(writing, hearing);
    written.unwrap();
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"afterwards");
}

/// A program's own change was under way while the hint was looked at, so that the look did not count, and failed.
#[tokio::test]
async fn s268_a_look_during_a_change_here_is_made_again() {
    let bucket = Bucket::in_memory();
    bucket.put("dir/a", "before").await;
    let world = believing(&bucket).await;
    shown(&world).await;
    bucket.put("dir/a", "theirs").await;
    let said = hint(&bucket, "dir/a").await;
    let removal = bucket.late.hold(store::wrap::Operation::Delete);
    let fs = world.fs.clone();
    let dir = world.ino("dir").await.unwrap();
    let removing = tokio::spawn(async move { fs.unlink(dir, b"a").await });
    let answer = removal.done().await;
    bucket.put("dir/a", "theirs again").await;
    let hearing = world.fs.hear(vec![said]);
    let (heard, ()) = tokio::join!(hearing, async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(answer);
    });
    heard.unwrap();
    removing.await.unwrap().ok();
    assert_eq!(world.read_file("dir/a").await.unwrap(), b"theirs again");
}
