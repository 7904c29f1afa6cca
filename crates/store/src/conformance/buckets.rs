//! Cases for [`Buckets`].

use super::world::{Outcome, holds, same};
use super::{Case, Failures, cases, run_each};
use crate::{Buckets, ObjectKey, Precondition, PutOptions, Result, StoreError};
use std::sync::Arc;

/// Runs every case on an empty set of buckets of its own.
pub async fn run_buckets<Factory, Making>(factory: Factory) -> Result<usize, Failures>
where
    Factory: Fn() -> Making,
    Making: Future<Output = Result<Arc<dyn Buckets>>>,
{
    run_each(bucket_cases(), factory, |buckets| buckets).await
}

fn bucket_cases() -> Vec<Case<Arc<dyn Buckets>>> {
    use super::buckets;
    cases! { buckets::{ coming_and_going, missing_buckets, a_bucket_in_use, buckets_are_apart, bad_names } }
}

async fn coming_and_going(buckets: Arc<dyn Buckets>) -> Outcome {
    same(buckets.list().await?, [""; 0])?;
    for name in ["second-bucket", "a-bucket"] {
        buckets.create(name).await?;
    }
    same(buckets.list().await?, ["a-bucket", "second-bucket"])?;
    buckets.delete("a-bucket").await?;
    same(buckets.list().await?, ["second-bucket"])
}

async fn missing_buckets(buckets: Arc<dyn Buckets>) -> Outcome {
    holds(matches!(buckets.open("no-bucket").await, Err(StoreError::NoSuchBucket(_))), "it was opened")?;
    holds(matches!(buckets.delete("no-bucket").await, Err(StoreError::NoSuchBucket(_))), "it was deleted")
}

async fn a_bucket_in_use(buckets: Arc<dyn Buckets>) -> Outcome {
    buckets.create("a-bucket").await?;
    holds(
        matches!(buckets.create("a-bucket").await, Err(StoreError::BucketState { .. })),
        "it was made twice",
    )?;
    let store = buckets.open("a-bucket").await?;
    store.put(&object_key(), "x".into(), PutOptions::default()).await?;
    holds(
        matches!(buckets.delete("a-bucket").await, Err(StoreError::BucketState { .. })),
        "it was not empty",
    )?;
    store.head(&object_key()).await?;
    store.delete(&object_key(), Precondition::None).await?;
    Ok(buckets.delete("a-bucket").await?)
}

async fn buckets_are_apart(buckets: Arc<dyn Buckets>) -> Outcome {
    for name in ["a-bucket", "b-bucket"] {
        buckets.create(name).await?;
    }
    let (a, b) = (buckets.open("a-bucket").await?, buckets.open("b-bucket").await?);
    a.put(&object_key(), "x".into(), PutOptions::default()).await?;
    holds(
        matches!(b.head(&object_key()).await, Err(StoreError::NotFound(_))),
        "the other bucket has it too",
    )?;
    buckets.open("a-bucket").await?.head(&object_key()).await?;
    Ok(())
}

async fn bad_names(buckets: Arc<dyn Buckets>) -> Outcome {
    for name in
        ["", ".", "..", "a/b", ".tenon-store", "ab", "Upper-Case", "under_score", "dot..dot", &"x".repeat(64)]
    {
        holds(buckets.create(name).await.is_err(), &format!("'{name}' was made"))?;
        holds(buckets.open(name).await.is_err(), &format!("'{name}' was opened"))?;
    }
    same(buckets.list().await?, [""; 0])
}

fn object_key() -> ObjectKey {
    super::world::key("dir/object")
}
