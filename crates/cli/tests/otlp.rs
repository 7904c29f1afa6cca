//! Traces of real mounts at the receiver of a real OpenTelemetry collector.

use crate::fixture::{Home, eventually};
use crate::metrics::{get, sample};
use crate::s3;
use crate::view_mounts::Client;
use serde_json::Value;
use servers::Collector;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

/// Spans of a collector.
struct Spans(Vec<Value>);

impl Spans {
    fn of(collector: &Collector) -> Self {
        let messages = collector.received();
        let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let spans = messages.flat_map(|message| {
            message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap()
        });
        Self(spans.collect())
    }

    /// Returns the first span of an operation on a path.
    fn find(&self, name: &str, path: &str) -> Option<&Value> {
        self.0.iter().find(|span| span["name"] == name && attribute(span, "file.path") == path)
    }

    /// Returns the names of the spans below another one.
    fn below<'s>(&'s self, span: &Value) -> BTreeSet<&'s str> {
        let below = self.0.iter().filter(|below| below["parentSpanId"] == span["spanId"]);
        below
            .map(|below| {
                assert_eq!(below["traceId"], span["traceId"]);
                below["name"].as_str().unwrap()
            })
            .collect()
    }
}

/// Returns the text of an attribute; empty for none.
fn attribute<'s>(span: &'s Value, name: &str) -> &'s str {
    let attributes = span["attributes"].as_array().into_iter().flatten();
    let mut found = attributes.filter(|attribute| attribute["key"] == name);
    found.next().and_then(|attribute| attribute["value"]["stringValue"].as_str()).unwrap_or_default()
}

/// Returns the number of an attribute.
fn number(span: &Value, name: &str) -> u64 {
    let attributes = span["attributes"].as_array().into_iter().flatten();
    let mut found = attributes.filter(|attribute| attribute["key"] == name);
    found.next().and_then(|attribute| attribute["value"]["intValue"].as_str()?.parse().ok()).unwrap()
}

#[test]
fn s765_a_collector_gets_one_trace_per_operation_with_commits_and_store_requests() {
    let (server, collector) = (servers::shared_minio(), servers::collector());
    let bucket = format!("s3://{}", s3::new_bucket(server, "otlp"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt", "--otlp", &collector.url()]);
    fs::create_dir(home.mnt().join("d")).unwrap();
    fs::write(home.mnt().join("d/f"), b"hello").unwrap();
    fs::rename(home.mnt().join("d/f"), home.mnt().join("d/g")).unwrap();
    assert!(fs::metadata(home.mnt().join("missing")).is_err());
    home.ok(["umount", "mnt"]);
    // The end of the mount sends what waits.
    let spans = Spans::of(&collector);
    let flush = spans.0.iter().find(|span| span["name"] == "FLUSH" && spans.below(span).contains("PUT"));
    let flush = flush.unwrap_or_else(|| panic!("no FLUSH with a PUT: {:#?}", spans.0));
    assert!(spans.below(flush).contains("COMMIT"), "{:#?}", spans.0);
    let put =
        spans.0.iter().find(|span| span["parentSpanId"] == flush["spanId"] && span["name"] == "PUT").unwrap();
    assert_eq!((attribute(put, "tenon.key"), attribute(put, "tenon.outcome")), ("d/f", "ok"));
    let nanos = |span: &Value, field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos(put, "startTimeUnixNano") >= nanos(flush, "startTimeUnixNano"), "{put} {flush}");
    assert!(nanos(put, "endTimeUnixNano") <= nanos(flush, "endTimeUnixNano"), "{put} {flush}");
    let rename = spans.find("RENAME", "d/f").unwrap();
    assert_eq!(attribute(rename, "tenon.target_path"), "d/g");
    assert!(spans.below(rename).contains("COMMIT"), "{:#?}", spans.0);
    let missing = spans.find("LOOKUP", "missing").unwrap();
    assert_eq!(attribute(missing, "error.type"), "ENOENT");
    assert!(missing["status"]["code"].is_null(), "{missing}");
    assert!(!attribute(missing, "process.executable.name").is_empty());
    let received = collector.received();
    assert!(received.contains(&format!("{{\"stringValue\":\"{bucket}\"}}")), "{received}");
}

#[test]
fn s766_a_mount_works_without_its_collector_and_warns_once() {
    let home = Home::new();
    let url = format!("http://{}", servers::free_address());
    home.ok(["format", "volume"]);
    home.ok(["mount", "volume", "mnt", "--otlp", &url, "--log-file=mount.log", "--metrics=127.0.0.1:0"]);
    for number in 0..50 {
        fs::write(home.mnt().join(format!("file{number}")), b"content").unwrap();
    }
    let log = || fs::read_to_string(home.path("mount.log")).unwrap();
    eventually("the failure is logged", || log().contains("the collector of traces does not accept spans"));
    fs::write(home.mnt().join("after"), b"content").unwrap();
    assert_eq!(fs::read(home.mnt().join("after")).unwrap(), b"content");
    let metrics = home.status()["metrics"].as_str().unwrap().to_owned();
    let address = metrics.trim_start_matches("http://").trim_end_matches("/metrics");
    let text = get(address, "/metrics", "*/*").1;
    assert_eq!(sample(&text, "tenon_trace_spans_total{outcome=\"sent\"}"), Some(0.0), "{text}");
    home.ok(["umount", "mnt"]);
    assert_eq!(log().matches("the collector of traces").count(), 1);
    let refused = home.refused(["mount", "volume", "mnt", "--otlp=localhost:4318"]);
    assert!(refused.contains("http://127.0.0.1:4318"), "{refused}");
    let refused = home.refused(["mount", "volume", "mnt", "--otlp=http://127.0.0.1:4318", "--otlp-sample=2"]);
    assert!(refused.contains("from 0 to 1"), "{refused}");
}

#[test]
fn s768_requests_of_s3_clients_are_traced_with_their_store_requests() {
    let (server, collector) = (servers::shared_minio(), servers::collector());
    let bucket = format!("s3://{}", s3::new_bucket(server, "otlp-s3"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint()).with_users();
    let headers = home.path("headers");
    fs::write(&headers, "Authorization: Bearer secret-of-the-collector\n").unwrap();
    let mount = [
        "mount",
        &bucket,
        "mnt",
        "--serve=127.0.0.1:0",
        "--bucket=volume",
        "--users=users.toml",
        "--otlp",
        &collector.url(),
        "--otlp-headers=headers",
        "--log-file=mount.log",
    ];
    fs::set_permissions(&headers, Permissions::from_mode(0o644)).unwrap();
    assert!(home.refused(mount).contains("chmod 600"));
    fs::set_permissions(&headers, Permissions::from_mode(0o600)).unwrap();
    home.ok(mount);
    let client = Client::at(home.status()["endpoint"].as_str().unwrap(), "volume");
    // The mount answers for a directory that it has listed, so that a new object in it is a commit.
    assert_eq!(fs::read_dir(home.mnt()).unwrap().count(), 0);
    client.put("öbject", &"x".repeat(3 << 20), &[]);
    // An object that the mount has not in memory.
    fs::write(home.path("source"), vec![7; 3 << 20]).unwrap();
    home.ok(["object", "put", &format!("{bucket}/foreign"), "source"]);
    assert_eq!(client.read("foreign").unwrap().len(), 3 << 20);
    assert_eq!(client.read("missing"), None);
    home.ok(["umount", "mnt"]);
    let spans = Spans::of(&collector);
    let of = |name: &str, key: &str| {
        let found = spans.0.iter().find(|span| span["name"] == name && attribute(span, "aws.s3.key") == key);
        found.unwrap_or_else(|| panic!("no {name} of {key}: {:#?}", spans.0))
    };
    let (put, get) = (of("PutObject", "öbject"), of("GetObject", "foreign"));
    assert!(spans.below(put).is_superset(&["COMMIT", "PUT"].into()), "{:#?}", spans.0);
    assert!(spans.below(get).contains("GET"), "{:#?}", spans.0);
    assert_eq!((attribute(put, "aws.s3.bucket"), attribute(put, "http.request.method")), ("volume", "PUT"));
    assert!(!attribute(put, "user.name").is_empty() && attribute(put, "client.address") == "127.0.0.1");
    assert_eq!(number(get, "http.response.body.size"), 3 << 20);
    let missing = of("GetObject", "missing");
    assert_eq!(number(missing, "http.response.status_code"), 404);
    assert!(missing["status"]["code"].is_null(), "{missing}");
    assert!(collector.received().contains("tenon.endpoint"));
    assert!(!fs::read_to_string(home.path("mount.log")).unwrap().contains("secret-of-the-collector"));
}

/// Returns the bounds of a span in nanoseconds.
fn times(span: &Value) -> (u64, u64) {
    let nanos = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
    (nanos("startTimeUnixNano"), nanos("endTimeUnixNano"))
}

#[test]
fn s770_the_phases_of_a_batch_are_one_trace() {
    let (server, collector) = (servers::shared_minio(), servers::collector());
    let bucket = format!("s3://{}", s3::new_bucket(server, "otlp-batch"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["format", &bucket, "--naming", "inode"]);
    // Batches are exported, whatever share of the operations is.
    let mount = || home.ok(["mount", &bucket, "mnt", "--otlp", &collector.url(), "--otlp-sample=0"]);
    mount();
    let ids: Vec<String> = ["waited", "lazy"]
        .map(|name| {
            let job = home.mnt().join(name);
            fs::create_dir(&job).unwrap();
            let begun = home.ok(["batch", "begin", &format!("mnt/{name}")]);
            for number in 0..20 {
                fs::write(job.join(format!("file-{number}")), vec![7; 3000]).unwrap();
            }
            begun.trim().rsplit(' ').next().unwrap().to_owned()
        })
        .to_vec();
    home.ok(["batch", "end", "mnt/waited"]);
    home.ok(["umount", "mnt"]);
    // A second process ends the other batch.
    mount();
    home.ok(["batch", "end", "mnt/lazy", "--lazy"]);
    let is_merged = || home.ok(["batch", "show", "mnt", &ids[1]]).contains("merged");
    eventually("the batch is merged in the background", || {
        is_merged() && home.ok(["batch", "list", "mnt"]).matches("merged").count() == 2
    });
    home.ok(["umount", "mnt"]);
    let spans = Spans::of(&collector);
    for (id, path) in ids.iter().zip(["waited", "lazy"]) {
        let all: Vec<&Value> =
            spans.0.iter().filter(|span| attribute(span, "tenon.batch") == id.as_str()).collect();
        let find = |name: &str| -> &Value {
            let mut found = all.iter().filter(|span| span["name"] == name);
            let span = found.next().unwrap_or_else(|| panic!("no {name} of batch {id}: {all:#?}"));
            assert!(found.next().is_none(), "two {name} of batch {id}: {all:#?}");
            span
        };
        let root = find("BATCH");
        assert_eq!(attribute(root, "file.path"), path);
        assert_eq!((number(root, "tenon.accepted"), number(root, "tenon.refused")), (40, 0), "{root}");
        assert!(root["parentSpanId"].as_str().unwrap_or_default().is_empty(), "{root}");
        let phases = ["SUBMIT", "SEAL", "VERIFY", "MERGE"].map(find);
        for phase in phases {
            assert_eq!((&phase["traceId"], &phase["parentSpanId"]), (&root["traceId"], &root["spanId"]));
            assert!(times(root).0 <= times(phase).0 && times(phase).0 <= times(phase).1, "{phase} {root}");
            assert!(phase["status"]["code"].is_null(), "{phase}");
        }
        assert!(phases.windows(2).all(|pair| times(pair[0]).1 <= times(pair[1]).0), "{phases:#?}");
        assert!(spans.below(phases[1]).contains("PUT"), "the pack is stored: {:#?}", spans.0);
    }
    let trace = |id: &String| {
        let mut found = spans.0.iter().filter(|span| attribute(span, "tenon.batch") == id.as_str());
        found.next().unwrap()["traceId"].clone()
    };
    assert_ne!(trace(&ids[0]), trace(&ids[1]));
}
