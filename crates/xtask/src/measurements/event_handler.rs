//! The event handler: nine real beanstalkd beside the paper's figures, and queues of this process to leave the brokers out.

use super::{Results, keep, kept};
use crate::bench::plot::{Figure, Scale, Series};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Records by the words that `cargo xtask bench events` was given.
pub(super) type Records = BTreeMap<String, Record>;

/// Results of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    events: u64,
    seconds: f64,
    events_per_second: f64,
    cpu_us: f64,
    producer_cpu_us: f64,
    broker_cpu_us: f64,
    load: String,
    latency: Option<Latency>,
}

/// From the queue to a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Latency {
    p50_us: i64,
    p90_us: i64,
    p99_us: i64,
    p99_9_us: i64,
    max_us: i64,
    percent_below_300_us: f64,
    percent_below_400_us: f64,
    bucket_ends_us: Vec<i64>,
    percent_in_buckets: Vec<f64>,
}

const SCENARIOS: [&str; 3] = ["raw", "match", "db_match"];
/// The paper's throughput with four threads a queue, in 1,000 events a second (section IV-B).
const PAPER: [f64; 3] = [200.0, 180.0, 126.0];

/// Words, and events for each of the nine queues: enough for 20 s, if the queues of this process take a million a second
/// and beanstalkd give 70,000.
const RUNS: [(&str, u64); 13] = [
    ("raw --queues beanstalkd --threads 1", 250_000),
    ("match --queues beanstalkd --threads 1", 250_000),
    ("db_match --queues beanstalkd --threads 1", 250_000),
    ("raw --queues beanstalkd --threads 4", 250_000),
    ("match --queues beanstalkd --threads 4", 250_000),
    ("db_match --queues beanstalkd --threads 4", 250_000),
    ("match --queues beanstalkd --rate 10000", 25_000),
    ("db_match --queues beanstalkd --rate 10000", 25_000),
    ("raw --threads 1", 2_300_000),
    ("match --threads 1", 2_300_000),
    ("db_match --threads 1", 2_000_000),
    ("match --rate 50000", 120_000),
    ("db_match --rate 50000", 120_000),
];
/// A quick run has a fraction of the events.
const QUICK_DIVISOR: u64 = 20;

/// Runs what is not there yet, each in a process of its own.
pub(super) fn measure(path: &Path, is_quick: bool) -> Result<()> {
    let earlier: Option<Results<Records>> = kept(path)?;
    let mut results = earlier.unwrap_or_else(|| Results::new(is_quick, Records::new()));
    let own = tempfile::tempdir()?;
    let record = own.path().join("record.json");
    for (words, events) in RUNS {
        if results.results.contains_key(words) {
            continue;
        }
        let events = if is_quick { events / QUICK_DIVISOR } else { events };
        eprintln!("{words}, {events} events a queue");
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(["bench", "events"]).args(words.split(' ')).args(["--events", &events.to_string()]);
        let status = command.arg("--record").arg(&record).status().context("cannot run this program")?;
        if !status.success() {
            bail!("'{words}' failed");
        }
        let measured: Record = kept(&record)?.context("nothing was measured")?;
        results.results.insert(words.to_owned(), measured);
        keep(path, &results)?;
    }
    Ok(())
}

/// Rates beside the paper's.
pub(super) fn rates(results: &Results<Records>) -> String {
    let records = &results.results;
    let mut text = format!("{}; all processes share it.\n\n", results.machine);
    text.push_str(
        "| 1,000 events/s | nine beanstalkd, 1 thread a queue | 4 threads | CPU µs an event: handler, brokers | the paper, 32 cores, nine beanstalkd on nodes of their own, 4 threads | queues of this process, 1 thread: what the handler can take | CPU µs an event, of which the producer |\n|---|---|---|---|---|---|---|\n",
    );
    let of = |words: String| records.get(&words);
    let thousands = |record: Option<&Record>| {
        record.map_or("-".to_owned(), |it| format!("{:.0}", it.events_per_second / 1e3))
    };
    for (scenario, paper) in SCENARIOS.into_iter().zip(PAPER) {
        let one = of(format!("{scenario} --queues beanstalkd --threads 1"));
        let four = of(format!("{scenario} --queues beanstalkd --threads 4"));
        let own = of(format!("{scenario} --threads 1"));
        let brokered = one.map_or("-".to_owned(), |it| format!("{:.1}, {:.1}", it.cpu_us, it.broker_cpu_us));
        let alone = own.map_or("-".to_owned(), |it| format!("{:.2}, {:.2}", it.cpu_us, it.producer_cpu_us));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {brokered} | {paper:.0} | {} | {alone} |",
            scenario.to_uppercase(),
            thousands(one),
            thousands(four),
            thousands(own)
        );
    }
    let lengths =
        records.iter().filter(|(words, _)| !words.contains("--rate")).map(|(_, record)| record.seconds);
    let shortest = lengths.fold(f64::INFINITY, f64::min);
    let _ = writeln!(
        text,
        "\nThe shortest of these runs took {shortest:.0} s. Load average while they ran: {}.",
        loads(records)
    );
    text.push_str("\n![Events out of nine beanstalkd](figures/events-figure-3.svg)\n");
    text
}

fn loads(records: &Records) -> String {
    let loads = || records.values().filter_map(|record| record.load.parse::<f64>().ok());
    format!("{:.1} to {:.1}", loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max))
}

/// Latencies beside the paper's.
pub(super) fn latencies(results: &Results<Records>) -> String {
    let mut text = String::from(
        "| from the queue to a client | events/s | p50 µs | p90 | p99 | p99.9 | most | under 300 µs | under 400 µs |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (words, name) in LATENCIES {
        let Some((record, latency)) = latency(&results.results, words) else { continue };
        let _ = writeln!(
            text,
            "| {name} | {:.0} | {} | {} | {} | {} | {} | {:.2} % | {:.2} % |",
            record.events_per_second,
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p99_9_us,
            latency.max_us,
            latency.percent_below_300_us,
            latency.percent_below_400_us
        );
    }
    text.push_str("| the paper, DB_MATCH, 32 cores | 50000 | | | | | | over 92 % | |\n");
    text.push_str("\n![Latency from the queue to a client](figures/events-figure-5.svg)\n");
    text
}

const LATENCIES: [(&str, &str); 4] = [
    ("match --queues beanstalkd --rate 10000", "MATCH, nine beanstalkd"),
    ("db_match --queues beanstalkd --rate 10000", "DB_MATCH, nine beanstalkd"),
    ("match --rate 50000", "MATCH, queues of this process"),
    ("db_match --rate 50000", "DB_MATCH, queues of this process"),
];

fn latency<'a>(records: &'a Records, words: &str) -> Option<(&'a Record, &'a Latency)> {
    let record = records.get(words)?;
    Some((record, record.latency.as_ref()?))
}

/// The paper's Figures 3 to 5 with what was measured here.
pub(super) fn figures(results: &Results<Records>) -> Vec<Figure> {
    let mut figures = vec![throughput(&results.results)];
    figures.extend(distribution(&results.results));
    figures
}

fn throughput(records: &Records) -> Figure {
    let rates = |words: &str| {
        let rate = |scenario| Some(records.get(&format!("{scenario} {words}"))?.events_per_second / 1e3);
        SCENARIOS.into_iter().map(rate).collect::<Option<Vec<f64>>>()
    };
    let measured = [
        ("beanstalkd, 1 thread", rates("--queues beanstalkd --threads 1")),
        ("beanstalkd, 4 threads", rates("--queues beanstalkd --threads 4")),
    ];
    let mut series = vec![Series { name: "the paper, 32 cores".into(), values: PAPER.to_vec() }];
    series.extend(
        measured.into_iter().filter_map(|(name, values)| Some(Series { name: name.into(), values: values? })),
    );
    Figure {
        name: "events-figure-3".into(),
        title: "Events out of nine beanstalkd".into(),
        x_label: "scenario".into(),
        y_label: "1,000 a second".into(),
        x: SCENARIOS.map(str::to_uppercase).to_vec(),
        series,
        scale: Scale::Linear,
    }
}

/// Shares below 0.001 % are drawn there: the scale is logarithmic, as the paper's.
const LEAST_PERCENT: f64 = 0.001;

fn distribution(records: &Records) -> Option<Figure> {
    let found: Vec<(&str, &Latency)> =
        LATENCIES.into_iter().filter_map(|(words, name)| Some((name, latency(records, words)?.1))).collect();
    let ends = &found.first()?.1.bucket_ends_us;
    let name = |end: &i64| if *end < 1000 { format!("{end}") } else { format!("{}k", end / 1000) };
    let series = found.iter().map(|(name, latency)| Series {
        name: (*name).into(),
        values: latency.percent_in_buckets.iter().map(|share| share.max(LEAST_PERCENT)).collect(),
    });
    Some(Figure {
        name: "events-figure-5".into(),
        title: "Latency from the queue to a client".into(),
        x_label: "up to so many µs".into(),
        y_label: "% of events".into(),
        x: ends.iter().map(name).chain(["more".to_owned()]).collect(),
        series: series.collect(),
        scale: Scale::Log,
    })
}
