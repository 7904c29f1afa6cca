//! The exporter with the receiver of a real OpenTelemetry collector, which decodes what arrives.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use metrics::Sampler;
use otlp::{CollectorSettings, Exporter, Figures, Ids, Kind, QUEUE_BYTES_MAX, Span, Value};
use serde_json::Value as Json;
use servers::Collector;
use std::sync::Arc;
use std::time::Duration;

/// How long a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(60);

const IDS: [u64; 3] = [0x0123_4567_89ab_cdef, 5, 6];

fn exporter(url: &str, sampler: &Arc<Sampler>) -> Exporter {
    let headers = "Authorization: Bearer token".parse().unwrap();
    let collector = CollectorSettings { url: url.parse().unwrap(), headers, ca_bundle: None };
    let resource = vec![("service.name", Value::from("tenon")), ("process.pid", Value::from(7))];
    Exporter::start(collector, resource, Arc::clone(sampler)).unwrap()
}

fn span(operation: u64, name: &'static str) -> Span {
    let ids = Ids::new(IDS);
    Span {
        trace: ids.trace(operation),
        id: ids.span(operation),
        parent: None,
        name: name.into(),
        kind: Kind::Server,
        start_unix_ns: 1_700_000_000_123_456_789,
        took_ns: 1_000,
        attributes: vec![("file.path", "d/ü".into()), ("tenon.bytes", 4096.into())],
        is_failed: false,
    }
}

/// Returns the spans that a collector has received.
fn spans(collector: &Collector) -> Vec<Json> {
    let mut spans = Vec::new();
    for line in collector.received().lines() {
        let message: Json = serde_json::from_str(line).unwrap();
        for resource in message["resourceSpans"].as_array().unwrap() {
            for scope in resource["scopeSpans"].as_array().unwrap() {
                spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
    }
    spans
}

async fn wait_until(is_done: impl Fn() -> bool) {
    let wait = async {
        while !is_done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_decodes_what_the_exporter_sends() {
    let (collector, sampler) = (servers::collector(), Arc::new(Sampler::new(1.0, 0)));
    let exporter = exporter(&collector.url(), &sampler);
    let root = span(1, "FLUSH");
    let child = Span {
        id: Ids::new(IDS).span(2),
        parent: Some(root.id),
        name: "PUT".into(),
        kind: Kind::Client,
        is_failed: true,
        ..root.clone()
    };
    exporter.add(vec![root, child]);
    exporter.close(PATIENCE).await;
    assert_eq!(exporter.figures(), Figures { sent: 2, ..Figures::default() });
    assert_eq!(collector.authorization(), "Bearer token");
    let message: Json = serde_json::from_str(collector.received().trim()).unwrap();
    let resource = &message["resourceSpans"][0];
    let attributes = &resource["resource"]["attributes"];
    assert_eq!(attributes[0], serde_json::json!({"key": "service.name", "value": {"stringValue": "tenon"}}));
    assert_eq!(attributes[1], serde_json::json!({"key": "process.pid", "value": {"intValue": "7"}}));
    assert_eq!(resource["scopeSpans"][0]["scope"]["name"], "tenon");
    let spans = spans(&collector);
    let [root, child] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&root["name"], &child["name"]), (&"FLUSH".into(), &"PUT".into()));
    assert_eq!((&root["kind"], &child["kind"]), (&2.into(), &3.into()));
    assert_eq!(root["traceId"], child["traceId"]);
    assert!(root["traceId"].as_str().unwrap().starts_with("0123456789abcdef"), "{root}");
    assert_eq!((&root["parentSpanId"], &child["parentSpanId"]), (&Json::Null, &root["spanId"]));
    assert_eq!(root["startTimeUnixNano"], "1700000000123456789");
    assert_eq!(root["endTimeUnixNano"], "1700000000123457789");
    assert_eq!(root["attributes"][0]["value"]["stringValue"], "d/ü");
    assert_eq!(root["attributes"][1]["value"]["intValue"], "4096");
    assert!(root["status"]["code"].is_null() && child["status"]["code"] == 2, "{spans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s766_spans_are_kept_while_the_collector_is_away_up_to_a_bound() {
    let (mut collector, sampler) = (servers::collector(), Arc::new(Sampler::new(1.0, 0)));
    collector.stop();
    let exporter = exporter(&collector.url(), &sampler);
    let big = || Span { attributes: vec![("text", "x".repeat(10_000).into())], ..span(1, "READ") };
    let mut added = 0;
    while sampler.admit(0) {
        exporter.add(vec![big()]);
        added += 1;
    }
    // One batch may be out of the queue already.
    assert!(added * 10_000 <= 3 * QUEUE_BYTES_MAX, "{added} spans were kept");
    let dropped = exporter.figures().dropped;
    assert_eq!((exporter.figures().sent, dropped), (0, 2));
    collector.restart();
    wait_until(|| exporter.figures().sent == added as u64 - 1).await;
    assert!(sampler.admit(0));
    assert_eq!(spans(&collector).len(), added - 1);
    // A collector that does not answer delays the end only for the given time.
    collector.stop();
    exporter.add(vec![big()]);
    exporter.close(Duration::from_millis(100)).await;
    assert_eq!(exporter.figures().sent, added as u64 - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_collector_refuses_is_not_sent_again() {
    let (collector, sampler) = (servers::collector(), Arc::new(Sampler::new(1.0, 0)));
    // The receiver has no such path.
    let exporter = exporter(&format!("{}/elsewhere", collector.url()), &sampler);
    exporter.add(vec![span(1, "READ"), span(2, "READ")]);
    exporter.close(PATIENCE).await;
    assert_eq!(exporter.figures(), Figures { refused: 2, ..Figures::default() });
}
