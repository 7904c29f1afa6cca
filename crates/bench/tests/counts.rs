//! The counts of the proxy equal those of the server, retries included, after all connections are closed.

use bench::raw_client::{Bucket, s3_buckets};
use bench::{Scale, Task, Workload};
use harness::{Mode, Proxy, RequestKind, Traffic};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Names of MinIO's metrics for each kind of request.
const APIS: [(RequestKind, &[&str]); 9] = [
    (RequestKind::Get, &["getobject"]),
    (RequestKind::Head, &["headobject", "headbucket"]),
    (RequestKind::Put, &["putobject"]),
    (RequestKind::Part, &["putobjectpart"]),
    (RequestKind::BeginUpload, &["newmultipartupload"]),
    (RequestKind::CompleteUpload, &["completemultipartupload"]),
    (RequestKind::AbortUpload, &["abortmultipartupload"]),
    (RequestKind::Delete, &["deleteobject", "deletemultipleobjects"]),
    (RequestKind::List, &["listobjectsv2", "listobjectsv1", "listbuckets"]),
];

/// Reads how many requests MinIO has served, by the name of the call.
fn server_counts(address: &str) -> BTreeMap<String, u64> {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /minio/v2/metrics/cluster HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains(" 200 "), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("minio_s3_requests_total{"));
    let count = |line: &str| {
        let api = line.split("api=\"").nth(1)?.split('"').next()?.to_owned();
        let count: f64 = line.rsplit(' ').next()?.parse().ok()?;
        Some((api, count as u64))
    };
    lines.filter_map(count).collect()
}

fn of_kinds(apis: &BTreeMap<String, u64>) -> BTreeMap<RequestKind, u64> {
    let count = |names: &[&str]| names.iter().filter_map(|name| apis.get(*name)).sum();
    APIS.iter().map(|(kind, names)| (*kind, count(names))).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn counts_of_the_proxy_equal_those_of_minio() {
    let server = servers::minio_with(&[("MINIO_PROMETHEUS_AUTH_TYPE", "public")]);
    let address = server.endpoint().replace("http://", "");
    let before = server_counts(&address);
    let proxy = Proxy::start(&server.endpoint()).unwrap();
    let scale = Scale { big_bytes: 20 << 20, ..Scale::TINY };
    let paper = Workload::paper().unwrap();
    // The client, and so its connections, ends with the runtime.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let keys = (server.access_key(), server.secret_key());
        let buckets = s3_buckets(&proxy.endpoint(), server.region(), keys).unwrap();
        let bucket = Bucket::create(&buckets, "counted").await.unwrap();
        for job in &paper.jobs {
            if job.name == "job5" {
                // The responses of some requests are lost: the client repeats them, and the server has served them twice.
                proxy.set(Mode::LoseReplies);
                // 16 writers have one request each: after more, at least one has lost its response.
                let losing = async {
                    while proxy.struck() <= 16 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    proxy.set(Mode::Pass);
                };
                let tasks = job.tasks(&scale, 1);
                let (ran, ()) = tokio::join!(bucket.run(&tasks), losing);
                ran.unwrap();
            } else {
                bucket.run(&job.tasks(&scale, 1)).await.unwrap();
            }
        }
        bucket.run(&[vec![Task::List { folder: "job5".into(), files: Default::default() }]]).await.unwrap();
        bucket.remove_all().await.unwrap();
    });
    drop(runtime);
    let traffic: Traffic = proxy.traffic();
    let counted: BTreeMap<RequestKind, u64> =
        traffic.requests.into_iter().filter(|(kind, _)| *kind != RequestKind::Other).collect();
    assert!(counted[&RequestKind::Put] > scale.small_files as u64, "no response was lost: {counted:?}");
    // MinIO publishes its counts every few seconds.
    let mut served = BTreeMap::new();
    for _ in 0..100 {
        let mut now = server_counts(&address);
        now.iter_mut().for_each(|(api, count)| *count -= before.get(api).copied().unwrap_or(0));
        served = of_kinds(&now);
        if served == counted {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(served, counted);
}
