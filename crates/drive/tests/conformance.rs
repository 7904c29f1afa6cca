//! Conformance of a drive to the traits of `store`.

use crate::fixture::{bucket, formatted, open};
use std::sync::Arc;
use store::conformance::{self, Capabilities};
use store::wrap::{Operation, Trace, Traced};
use store::{Buckets, GetOptions, ObjectKey, ObjectStore, Precondition, PutOptions};

#[tokio::test(flavor = "multi_thread")]
async fn a_drives_bucket_conforms() {
    conformance::run(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drives_uploads_conform() {
    conformance::run_uploads(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drives_versions_conform() {
    conformance::run_versions(bucket, Capabilities::ALL).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drives_buckets_conform() {
    let fresh = || async { Ok(Arc::new(open(&formatted())?) as Arc<dyn Buckets>) };
    conformance::run_buckets(fresh).await.unwrap();
}

async fn traced(trace: Trace) -> store::Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(Traced::new(bucket().await?, trace)))
}

/// Regression: a store whose calls are counted had no writers, no uploads by id and no versions, and renamed by a copy and a deletion.
#[tokio::test(flavor = "multi_thread")]
async fn a_drives_bucket_conforms_while_its_calls_are_counted() {
    conformance::run(|| traced(Trace::new()), Capabilities::ALL).await.unwrap();
    conformance::run_uploads(|| traced(Trace::new()), Capabilities::ALL).await.unwrap();
    conformance::run_versions(|| traced(Trace::new()), Capabilities::ALL).await.unwrap();

    let trace = Trace::new();
    let store = traced(trace.clone()).await.unwrap();
    let [from, to] = ["from", "to"].map(|key| ObjectKey::try_from(key).unwrap());
    let mut writer = store.writer(&from, None).await.unwrap().unwrap();
    writer.write("bytes".into()).await.unwrap();
    let object = writer.finish(PutOptions::default()).await.unwrap();
    store.rename(&object, &to, Precondition::Absent).await.unwrap();
    assert_eq!(store.get(&to, GetOptions::default()).await.unwrap().meta.size_bytes, 5);
    let counts = trace.counts();
    let counted = [Operation::Put, Operation::Copy, Operation::Delete].map(|operation| counts.of(operation));
    assert_eq!(counted, [1, 1, 0]);
}
