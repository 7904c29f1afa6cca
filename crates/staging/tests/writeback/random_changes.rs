//! Random changes while the bucket is up and down, compared with a model.

use super::{LATER, World, contents, key, options};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{CopyOptions, Entropy, ObjectStore, Precondition, PutOptions, Result, StoreError, Tags};

/// Runs on one thread, so that a request of a crashed process is not served after requests of the next process.
#[tokio::test]
async fn random_changes_with_crashes_are_visible_and_uploaded() {
    any_changes(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_on_many_threads_are_visible_and_uploaded() {
    any_changes(false).await;
}

/// Makes random changes while the bucket is up and down. Readers must always see the model's contents, and in the end the
/// bucket must have them.
async fn any_changes(with_crashes: bool) {
    for seed in 0..seeds() {
        let delay = [Duration::ZERO, Duration::from_millis(1), LATER][seed as usize % 3];
        let mut world = World::new(options(delay));
        let entropy = Entropy::new(seed);
        let below = |bound: u64| entropy.below(bound);
        let mut model: BTreeMap<String, Bytes> = BTreeMap::new();
        for step in 0..120 {
            let name = ["a", "b", "c", "d/e"][below(4) as usize];
            let other = ["a", "b", "c", "d/e"][below(4) as usize];
            let body = Bytes::from(format!("{seed} {step} ").repeat(1 + below(2000) as usize));
            match below(16) {
                0..=4 => {
                    let seen = settled(&world, world.writeback.head(&key(name))).await;
                    let precondition = match (seen, below(2)) {
                        (_, 0) => Precondition::None,
                        (Ok(found), _) => Precondition::Matches(found.object.etag),
                        (Err(_), _) => Precondition::Absent,
                    };
                    let options = PutOptions { precondition, ..PutOptions::default() };
                    world.writeback.put(&key(name), body.clone().into(), options).await.unwrap();
                    model.insert(name.to_owned(), body);
                }
                5..=7 => {
                    world.writeback.delete(&key(name), Precondition::None).await.unwrap();
                    model.remove(name);
                }
                8..=9 if name != other => {
                    let Ok(from) = settled(&world, world.writeback.head(&key(name))).await else { continue };
                    let to = key(other);
                    let copied = world.writeback.copy(&from.object, &to, CopyOptions::default());
                    if settled(&world, copied).await.is_ok() {
                        model.insert(other.to_owned(), model[name].clone());
                    }
                }
                10 => {
                    let upload =
                        world.writeback.multipart(&key(other), <_>::default(), Tags::new()).await.unwrap();
                    upload.put_part(2, body.clone().into()).await.unwrap();
                    let mut whole = body.to_vec();
                    if let Ok(from) = settled(&world, world.writeback.head(&key(name))).await
                        && from.size_bytes > 0
                        && settled(&world, upload.copy_part(1, &from.object, 0..from.size_bytes))
                            .await
                            .is_ok()
                    {
                        whole = [&model[name][..], &whole].concat();
                    }
                    settled(&world, upload.complete(Precondition::None)).await.unwrap();
                    model.insert(other.to_owned(), whole.into());
                }
                11 => world.faults.set_down(below(2) == 0),
                12 if with_crashes => world.reopen(),
                13 => world.writeback.sync().await.unwrap(),
                _ => {
                    world.faults.set_down(false);
                    assert_same(&contents(&*world.writeback).await, &model, seed, step);
                }
            }
        }
        world.faults.set_down(false);
        world.writeback.drained().await;
        assert_same(&contents(&world.memory).await, &model, seed, 1000);
        assert_same(&contents(&*world.writeback).await, &model, seed, 2000);
    }
}

/// Returns the number of seeds; `TENON_SEEDS` sets more for long runs.
#[expect(clippy::disallowed_methods, reason = "the reader is a person at a shell")]
fn seeds() -> u64 {
    std::env::var("TENON_SEEDS").map_or(60, |count| count.parse().unwrap())
}

/// Compares contents; shows bodies by length and beginning only.
fn assert_same(found: &BTreeMap<String, Bytes>, model: &BTreeMap<String, Bytes>, seed: u64, step: usize) {
    let summarize = |all: &BTreeMap<String, Bytes>| -> Vec<String> {
        let short = |body: &Bytes| String::from_utf8_lossy(&body[..body.len().min(8)]).into_owned();
        all.iter().map(|(name, body)| format!("{name}: {} of {}", body.len(), short(body))).collect()
    };
    assert!(found == model, "seed {seed}, step {step}: {:?} is not {:?}", summarize(found), summarize(model));
}

/// Runs a call with the bucket up, because the call may need the bucket.
async fn settled<T>(world: &World, call: impl Future<Output = Result<T>>) -> Result<T> {
    world.faults.set_down(false);
    let outcome = call.await;
    if let Err(error) = &outcome {
        assert!(matches!(error, StoreError::NotFound(_)), "{error}");
    }
    outcome
}
