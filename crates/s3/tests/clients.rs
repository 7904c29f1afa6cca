//! Tenon's own client against Tenon's own endpoint.

use super::world::World;
use std::sync::{Arc, Mutex};
use store::conformance::{self, Capabilities};
use store::{Buckets, ObjectKey};

/// Keys of S3 are UTF-8, and the client sends a NUL to AWS alone.
fn refuses(key: &ObjectKey) -> bool {
    std::str::from_utf8(key.as_bytes()).is_err() || key.as_bytes().contains(&0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_conforms() {
    let world = World::start().await;
    let fresh = || world.fresh_bucket();
    let capabilities = Capabilities { refuses, ..Capabilities::ALL };
    conformance::run(fresh, capabilities).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn its_buckets_conform() {
    let running = Mutex::new(Vec::new());
    let fresh = || async {
        let world = World::start().await;
        let buckets = world.client(super::world::KEY);
        running.lock().unwrap().push(world);
        Ok(Arc::new(buckets) as Arc<dyn Buckets>)
    };
    conformance::run_buckets(fresh).await.unwrap();
}
