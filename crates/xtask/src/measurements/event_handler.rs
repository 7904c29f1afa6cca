//! Measurements of the event handler: with nine real beanstalkd, as in the paper, and with queues in the process, to exclude the brokers' work.

use super::{Results, load, store};
use crate::bench::plot::{Figure, Scale, Series};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Records by the arguments of `cargo xtask bench events`.
pub(super) type Records = BTreeMap<String, Record>;

/// The results of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    events: u64,
    seconds: f64,
    events_per_second: f64,
    cpu_us: f64,
    producer_cpu_us: f64,
    broker_cpu_us: f64,
    /// Load average during the run.
    load: String,
    latency: Option<Latency>,
}

/// Latencies from the queue to a client.
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
/// The paper's throughput with four threads per queue, in 1,000 events per second (section IV-B).
const PAPER: [f64; 3] = [200.0, 180.0, 126.0];

/// Arguments, and events for each of the nine queues. The numbers make runs of 20 s, if the queues of this process take a million events per
/// second and beanstalkd 70,000.
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
/// Divisor of the number of events in a quick run.
const QUICK_DIVISOR: u64 = 20;

/// Makes all runs that are not stored yet, each in its own process.
pub(super) fn measure(path: &Path, is_quick: bool) -> Result<()> {
    let earlier: Option<Results<Records>> = load(path)?;
    let mut results = earlier.unwrap_or_else(|| Results::new(is_quick, Records::new()));
    let folder = tempfile::tempdir()?;
    let record = folder.path().join("record.json");
    for (arguments, events) in RUNS {
        if results.results.contains_key(arguments) {
            continue;
        }
        let events = if is_quick { events / QUICK_DIVISOR } else { events };
        eprintln!("{arguments}, {events} events per queue");
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(["bench", "events"]).args(arguments.split(' ')).args(["--events", &events.to_string()]);
        let status = command.arg("--record").arg(&record).status().context("cannot run this program")?;
        if !status.success() {
            bail!("'bench events {arguments}' failed");
        }
        let measured: Record = load(&record)?.context("the run wrote no record")?;
        results.results.insert(arguments.to_owned(), measured);
        store(path, &results)?;
    }
    Ok(())
}

/// Makes the table of rates, with those of the paper.
pub(super) fn rates(results: &Results<Records>) -> String {
    let records = &results.results;
    let mut text = format!("{}, shared by all processes.\n\n", results.machine);
    text.push_str(
        "| 1,000 events/s | nine beanstalkd, 1 thread per queue | 4 threads | CPU µs per event: handler, brokers | the paper: 32 cores, nine beanstalkd on separate nodes, 4 threads | queues in the process, 1 thread: limit of the handler | CPU µs per event: total, producer |\n|---|---|---|---|---|---|---|\n",
    );
    let record = |arguments: String| records.get(&arguments);
    let thousands = |record: Option<&Record>| {
        record.map_or("-".to_owned(), |record| format!("{:.0}", record.events_per_second / 1e3))
    };
    for (scenario, paper) in SCENARIOS.into_iter().zip(PAPER) {
        let one = record(format!("{scenario} --queues beanstalkd --threads 1"));
        let four = record(format!("{scenario} --queues beanstalkd --threads 4"));
        let in_process = record(format!("{scenario} --threads 1"));
        let cpu_with_brokers =
            one.map_or("-".to_owned(), |record| format!("{:.1}, {:.1}", record.cpu_us, record.broker_cpu_us));
        let cpu_in_process = in_process
            .map_or("-".to_owned(), |record| format!("{:.2}, {:.2}", record.cpu_us, record.producer_cpu_us));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {cpu_with_brokers} | {paper:.0} | {} | {cpu_in_process} |",
            scenario.to_uppercase(),
            thousands(one),
            thousands(four),
            thousands(in_process)
        );
    }
    let durations = records
        .iter()
        .filter(|(arguments, _)| !arguments.contains("--rate"))
        .map(|(_, record)| record.seconds);
    let shortest = durations.fold(f64::INFINITY, f64::min);
    let _ = writeln!(
        text,
        "\nThe shortest of these runs took {shortest:.0} s. Load average during the runs: {}.",
        load_range(records)
    );
    text.push_str("\n![Events out of nine beanstalkd](figures/events-figure-3.svg)\n");
    text
}

fn load_range(records: &Records) -> String {
    let loads = || records.values().filter_map(|record| record.load.parse::<f64>().ok());
    format!("{:.1} to {:.1}", loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max))
}

/// Makes the table of latencies, with that of the paper.
pub(super) fn latencies(results: &Results<Records>) -> String {
    let mut text = String::from(
        "| from the queue to a client | events/s | p50 µs | p90 | p99 | p99.9 | max | under 300 µs | under 400 µs |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (arguments, name) in LATENCIES {
        let Some((record, latency)) = latency(&results.results, arguments) else { continue };
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
    ("match --rate 50000", "MATCH, queues in the process"),
    ("db_match --rate 50000", "DB_MATCH, queues in the process"),
];

fn latency<'a>(records: &'a Records, arguments: &str) -> Option<(&'a Record, &'a Latency)> {
    let record = records.get(arguments)?;
    Some((record, record.latency.as_ref()?))
}

/// Draws the paper's Figures 3 to 5 with the measured results.
pub(super) fn figures(results: &Results<Records>) -> Vec<Figure> {
    let mut figures = vec![throughput(&results.results)];
    figures.extend(distribution(&results.results));
    figures
}

fn throughput(records: &Records) -> Figure {
    let rates = |arguments: &str| {
        let rate = |scenario| Some(records.get(&format!("{scenario} {arguments}"))?.events_per_second / 1e3);
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
        y_label: "1,000 per second".into(),
        x: SCENARIOS.map(str::to_uppercase).to_vec(),
        series,
        scale: Scale::Linear,
    }
}

/// Smallest share that is drawn; smaller ones are drawn at this value, as the scale is logarithmic (as in the paper).
const MIN_PERCENT: f64 = 0.001;

fn distribution(records: &Records) -> Option<Figure> {
    let found: Vec<(&str, &Latency)> = LATENCIES
        .into_iter()
        .filter_map(|(arguments, name)| Some((name, latency(records, arguments)?.1)))
        .collect();
    let ends = &found.first()?.1.bucket_ends_us;
    let name = |end: &i64| if *end < 1000 { format!("{end}") } else { format!("{}k", end / 1000) };
    let series = found.iter().map(|(name, latency)| Series {
        name: (*name).into(),
        values: latency.percent_in_buckets.iter().map(|share| share.max(MIN_PERCENT)).collect(),
    });
    Some(Figure {
        name: "events-figure-5".into(),
        title: "Latency from the queue to a client".into(),
        x_label: "latency up to, µs".into(),
        y_label: "% of events".into(),
        x: ends.iter().map(name).chain(["more".to_owned()]).collect(),
        series: series.collect(),
        scale: Scale::Log,
    })
}
