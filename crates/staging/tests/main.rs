//! Integration tests of the crate, including the conformance tests of each store in front of a bucket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod joined;
mod leases;
mod mover;
mod packs;
mod writeback;

use std::sync::Arc;
use store::{Buckets as _, Entropy, ObjectStore, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

/// Returns an empty bucket of a MinIO server.
async fn bucket_of_a_server() -> Arc<dyn ObjectStore> {
    let server = servers::shared_minio();
    let config = S3Config {
        endpoint: Some(server.endpoint()),
        region: server.region().to_owned(),
        credentials: Credentials::new(server.access_key(), server.secret_key(), None).unwrap().into(),
        ..S3Config::default()
    };
    let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7))).unwrap();
    buckets.create("moves").await.unwrap();
    buckets.open("moves").await.unwrap()
}
