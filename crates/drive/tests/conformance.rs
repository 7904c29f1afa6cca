//! Conformance of a drive to the traits of `store`.

use crate::fixture::{bucket, formatted, open};
use std::sync::Arc;
use store::Buckets;
use store::conformance::{self, Capabilities};

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
