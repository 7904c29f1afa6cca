//! Buckets of a test server, reached by the raw S3 client.

use ::bench::raw_client::{Bucket, s3_buckets};
use anyhow::Result;
use servers::S3Server;
use tokio::runtime::Runtime;

/// Creates a bucket of a server.
pub(super) fn create(server: &S3Server, name: &str, runtime: &Runtime) -> Result<Bucket> {
    let _guard = runtime.enter();
    let keys = (server.access_key(), server.secret_key());
    let buckets = s3_buckets(&server.endpoint(), server.region(), keys)?;
    Ok(runtime.block_on(Bucket::create(&buckets, name))?)
}

/// Opens an existing bucket at an endpoint.
pub(super) fn open(endpoint: &str, keys: (&str, &str), name: &str, runtime: &Runtime) -> Result<Bucket> {
    let _guard = runtime.enter();
    let buckets = s3_buckets(endpoint, "us-east-1", keys)?;
    Ok(runtime.block_on(Bucket::open(&buckets, name))?)
}
