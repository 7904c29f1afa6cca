//! Metrics computed from a trace.
//!
//! Invariant: if the kernel lacks a tracepoint of a metric, the metric is "not available" and names that tracepoint.

mod chains;
mod distribution;
mod heatmap;
mod what_if;

pub use what_if::{DeviceModel, what_if};

use crate::model::{
    Caches, CallLayers, Capability, Kind, KindOfIo, LayerTimes, LockTime, Measured, Metrics, Operation,
    Request,
};
use crate::trace::{Call, CountedEvent, Family, Trace, capabilities};
use distribution::distribution;

const NS_PER_SECOND: f64 = 1e9;

/// Computes the metrics of the whole trace.
pub fn metrics(trace: &Trace) -> Metrics {
    within(trace, (trace.begin_ns, trace.end_ns))
}

/// Computes the metrics of one phase, or returns `None` if the phase was never marked.
pub fn metrics_of_phase(trace: &Trace, phase: &str) -> Option<Metrics> {
    Some(within(trace, trace.phase(phase)?))
}

/// Returns the requests of one phase, for [`what_if`]. Empty if the phase was never marked.
pub fn requests_of_phase(trace: &Trace, phase: &str) -> Vec<Request> {
    trace
        .phase(phase)
        .map_or_else(Vec::new, |span| requests_within(trace, span).into_iter().cloned().collect())
}

fn within(trace: &Trace, span: (u64, u64)) -> Metrics {
    let requests = requests_within(trace, span);
    let calls: Vec<&Call> =
        trace.calls.iter().filter(|call| (span.0..span.1).contains(&call.begin_ns)).collect();
    let layers = layer_times(calls.iter().copied());
    Metrics {
        seconds: seconds(span.1 - span.0),
        lost_events: trace.lost,
        layers: if trace.has_node { measured(trace, capabilities::LAYERS, || layers) } else { no_process() },
        layers_by_call: layers_by_call(&calls),
        io: measured(trace, capabilities::IO, || io(&requests)),
        chains: measured(trace, capabilities::CHAINS, || chains::chains(&requests, &trace.regions)),
        heatmaps: trace
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| heatmap::heatmap(index, device, &requests, span, trace.begin_ns))
            .collect(),
        caches: caches(trace, span),
        locks: if trace.has_node {
            measured(trace, capabilities::LOCKS, || locks(trace, span))
        } else {
            no_process()
        },
        cpu: cpu(trace),
    }
}

fn requests_within(trace: &Trace, span: (u64, u64)) -> Vec<&Request> {
    trace.requests.iter().filter(|request| (span.0..span.1).contains(&request.queued_ns)).collect()
}

/// Wraps a value with the metric's source, or tells why the metric is not available. Computes the value only if it is available.
fn measured<T>(trace: &Trace, metric: &str, value: impl FnOnce() -> T) -> Measured<T> {
    match trace.capabilities.0.iter().find(|capability| capability.metric == metric) {
        Some(Capability { source: Measured::Is { source, proxy_for, .. }, .. }) => {
            Measured::Is { value: value(), source: source.clone(), proxy_for: proxy_for.clone() }
        }
        Some(Capability { source: Measured::NotAvailable { why }, .. }) => {
            Measured::NotAvailable { why: why.clone() }
        }
        None => Measured::NotAvailable { why: "unknown metric".into() },
    }
}

fn no_process<T>() -> Measured<T> {
    Measured::NotAvailable { why: "the scope has no process".into() }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / NS_PER_SECOND
}

fn layer_times<'a>(calls: impl Iterator<Item = &'a Call>) -> LayerTimes {
    calls.fold(LayerTimes::default(), |sum, call| LayerTimes {
        calls: sum.calls + 1,
        vfs_seconds: sum.vfs_seconds + seconds(call.vfs_ns),
        file_system_seconds: sum.file_system_seconds + seconds(call.file_system_ns),
        block_seconds: sum.block_seconds + seconds(call.block_ns),
        device_seconds: sum.device_seconds + seconds(call.device_ns),
    })
}

fn layers_by_call(calls: &[&Call]) -> Vec<CallLayers> {
    Family::ALL
        .into_iter()
        .map(|family| {
            let times = layer_times(calls.iter().copied().filter(|call| call.family == family));
            CallLayers { family: family.name().to_owned(), times }
        })
        .filter(|layers| layers.times.calls > 0)
        .collect()
}

fn io(requests: &[&Request]) -> Vec<KindOfIo> {
    let operations = [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        for operation in operations {
            let matching: Vec<&&Request> = requests
                .iter()
                .filter(|request| request.kind == kind && request.operation == operation)
                .collect();
            if matching.is_empty() {
                continue;
            }
            kinds.push(KindOfIo {
                kind,
                operation,
                requests: matching.len() as u64,
                bytes: matching.iter().map(|request| request.size_bytes).sum(),
                queued_seconds: seconds(matching.iter().map(|r| r.issued_ns - r.queued_ns).sum()),
                device_seconds: seconds(
                    matching.iter().map(|r| r.completed_ns.saturating_sub(r.issued_ns)).sum(),
                ),
                sizes: distribution(matching.iter().map(|request| request.size_bytes).collect()),
            });
        }
    }
    kinds
}

/// Returns how often an event was counted in the span, and the sum of its amounts.
fn sum_of(trace: &Trace, span: (u64, u64), event: CountedEvent) -> (u64, u64) {
    trace
        .counts
        .iter()
        .filter(|count| count.event == event && (span.0..span.1).contains(&count.at_ns))
        .fold((0, 0), |(events, amount), count| (events + 1, amount + count.amount))
}

fn caches(trace: &Trace, span: (u64, u64)) -> Caches {
    let amount = |event| move || sum_of(trace, span, event).1;
    Caches {
        dentry_misses: dentry_misses(trace, span),
        inode_misses: measured(trace, capabilities::INODE, amount(CountedEvent::InodeMiss)),
        page_insertions: measured(trace, capabilities::INSERTIONS, amount(CountedEvent::PagesAdded)),
        page_evictions: measured(trace, capabilities::EVICTIONS, amount(CountedEvent::PagesDeleted)),
        page_miss_ratio: page_miss_ratio(trace, span),
    }
}

fn dentry_misses(trace: &Trace, span: (u64, u64)) -> Measured<u64> {
    if let Some(other) = trace.file_systems.iter().find(|name| *name != "xfs") {
        let why = format!(
            "{other} has no tracepoint of lookups, and kprobes and the function tracer are not available"
        );
        return Measured::NotAvailable { why };
    }
    measured(trace, capabilities::DENTRY, || sum_of(trace, span, CountedEvent::Lookup).1)
}

fn page_miss_ratio(trace: &Trace, span: (u64, u64)) -> Measured<f64> {
    let (reads, misses) = (
        sum_of(trace, span, CountedEvent::PagesLookedUp).0,
        sum_of(trace, span, CountedEvent::PagesMissing).0,
    );
    if reads == 0 {
        return Measured::NotAvailable { why: "nothing was read through the page cache".into() };
    }
    measured(trace, capabilities::MISS_RATIO, || misses as f64 / reads as f64)
}

fn locks(trace: &Trace, span: (u64, u64)) -> LockTime {
    let (waits, waited_ns) = sum_of(trace, span, CountedEvent::LockWait);
    LockTime { waits, seconds: seconds(waited_ns) }
}

fn cpu(trace: &Trace) -> Measured<crate::model::CpuTime> {
    Measured::Is {
        value: trace.cpu.clone(),
        source: "/proc/PID/stat".into(),
        proxy_for: Some(
            "the CPU time spent for the node: its own is exact; that of kernel workers is the sum over all kernel threads \
             of the machine, whatever they work for"
                .into(),
        ),
    }
}
