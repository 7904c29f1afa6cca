//! Conformance: Tenon's own client against Tenon's own endpoint.

use super::raw::send;
use super::test_server::{KEY, OneBucket, TestServer};
use std::sync::{Arc, Mutex};
use store::conformance::{self, Capabilities};
use store::memory::MemoryStore;
use store::wrap::{Fault, Faults, Faulty, Operation, Rule, Trace, Traced};
use store::{Buckets, ObjectKey, SystemClock};

/// Keys that the client or S3 cannot represent: S3 keys are UTF-8, and the client sends NUL only to AWS.
fn refuses(key: &ObjectKey) -> bool {
    std::str::from_utf8(key.as_bytes()).is_err() || key.as_bytes().contains(&0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_conforms() {
    let server = TestServer::start().await;
    let fresh = || server.fresh_bucket();
    let capabilities = Capabilities { refuses, ..Capabilities::ALL };
    conformance::run(fresh, capabilities).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn its_buckets_conform() {
    let running = Mutex::new(Vec::new());
    let fresh = || async {
        let server = TestServer::start().await;
        let buckets = server.client(KEY);
        running.lock().unwrap().push(server);
        Ok(Arc::new(buckets) as Arc<dyn Buckets>)
    };
    conformance::run_buckets(fresh).await.unwrap();
}

/// A PUT to an unavailable store took twice the store's retry time: after any error the endpoint looked the object up.
#[tokio::test]
async fn a_failed_put_does_not_look_the_object_up() {
    let (faults, trace) = (Faults::new(), Trace::new());
    let store = Faulty::new(MemoryStore::new(Arc::new(SystemClock)), faults.clone());
    let store = Arc::new(Traced::new(store, trace.clone()));
    let server = TestServer::with_buckets(Arc::new(OneBucket(store))).await;
    let put = |headers| send(&server, Some(KEY), ("PUT", "/bucket/a", ""), headers, "x");
    let looks = || trace.counts().of(Operation::Head);
    faults.add(Rule::new(Fault::unavailable()).on(Operation::Put));
    put(&[]).await.errs(503, "ServiceUnavailable");
    put(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]).await.errs(400, "BadDigest");
    put(&[("if-none-match", "*")]).await.is(200);
    put(&[("if-none-match", "*")]).await.errs(412, "PreconditionFailed");
    assert_eq!(looks(), 0);
    put(&[("if-match", "\"other\"")]).await.errs(412, "PreconditionFailed");
    assert_eq!(looks(), 1);
}
