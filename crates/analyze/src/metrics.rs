//! Numbers made of a trace: pure computations.
//!
//! Invariant: a metric of a tracepoint that the kernel lacked is "not available" with the tracepoint's name.

mod chains;
mod distribution;
mod heatmap;
mod what_if;

pub use what_if::{DeviceModel, what_if};

use crate::model::{
    Caches, CallLayers, Capability, Kind, KindOfIo, LayerTimes, LockTime, Measured, Metrics, Operation,
    Request,
};
use crate::trace::{Call, Counted, Family, Trace, capabilities};
use distribution::distribution;

const NS_PER_SECOND: f64 = 1e9;

/// What the whole trace says.
pub fn metrics(trace: &Trace) -> Metrics {
    within(trace, (trace.begin_ns, trace.end_ns))
}

/// What one phase of the trace says; `None` if it was never marked.
pub fn metrics_of_phase(trace: &Trace, phase: &str) -> Option<Metrics> {
    Some(within(trace, trace.phase(phase)?))
}

/// The requests of one phase, for [`what_if`]; empty if it was never marked.
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
        layers: if trace.has_node { measured(trace, capabilities::LAYERS, || layers) } else { no_node() },
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
            no_node()
        },
        cpu: cpu(trace),
    }
}

fn requests_within(trace: &Trace, span: (u64, u64)) -> Vec<&Request> {
    trace.requests.iter().filter(|request| (span.0..span.1).contains(&request.queued_ns)).collect()
}

/// A value with the source that the kernel has for it.
fn measured<T>(trace: &Trace, metric: &str, value: impl FnOnce() -> T) -> Measured<T> {
    match trace.capabilities.0.iter().find(|capability| capability.metric == metric) {
        Some(Capability { source: Measured::Is { source, proxy_for, .. }, .. }) => {
            Measured::Is { value: value(), source: source.clone(), proxy_for: proxy_for.clone() }
        }
        Some(Capability { source: Measured::NotAvailable { why }, .. }) => {
            Measured::NotAvailable { why: why.clone() }
        }
        None => Measured::NotAvailable { why: "this metric is not known".into() },
    }
}

fn no_node<T>() -> Measured<T> {
    Measured::NotAvailable { why: "no process of the node was in the scope".into() }
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
            let some: Vec<&&Request> = requests
                .iter()
                .filter(|request| request.kind == kind && request.operation == operation)
                .collect();
            if some.is_empty() {
                continue;
            }
            kinds.push(KindOfIo {
                kind,
                operation,
                requests: some.len() as u64,
                bytes: some.iter().map(|request| request.size_bytes).sum(),
                queued_seconds: seconds(some.iter().map(|r| r.issued_ns - r.queued_ns).sum()),
                device_seconds: seconds(
                    some.iter().map(|r| r.completed_ns.saturating_sub(r.issued_ns)).sum(),
                ),
                sizes: distribution(some.iter().map(|request| request.size_bytes).collect()),
            });
        }
    }
    kinds
}

/// The events and the amount of what was counted.
fn counted(trace: &Trace, span: (u64, u64), what: Counted) -> (u64, u64) {
    trace
        .points
        .iter()
        .filter(|point| point.what == what && (span.0..span.1).contains(&point.at_ns))
        .fold((0, 0), |(events, amount), point| (events + 1, amount + point.amount))
}

fn caches(trace: &Trace, span: (u64, u64)) -> Caches {
    let amount = |what| move || counted(trace, span, what).1;
    Caches {
        dentry_misses: dentry_misses(trace, span),
        inode_misses: measured(trace, capabilities::INODE, amount(Counted::InodeMiss)),
        page_insertions: measured(trace, capabilities::INSERTIONS, amount(Counted::PagesAdded)),
        page_evictions: measured(trace, capabilities::EVICTIONS, amount(Counted::PagesDeleted)),
        page_miss_ratio: page_miss_ratio(trace, span),
    }
}

fn dentry_misses(trace: &Trace, span: (u64, u64)) -> Measured<u64> {
    if let Some(other) = trace.file_systems.iter().find(|name| *name != "xfs") {
        let why = format!(
            "{other} has no tracepoint of lookups, and kprobes or the function tracer are not to be had"
        );
        return Measured::NotAvailable { why };
    }
    measured(trace, capabilities::DENTRY, || counted(trace, span, Counted::Lookup).1)
}

fn page_miss_ratio(trace: &Trace, span: (u64, u64)) -> Measured<f64> {
    let (wanted, missing) =
        (counted(trace, span, Counted::PagesWanted).0, counted(trace, span, Counted::PagesMissing).0);
    if wanted == 0 {
        return Measured::NotAvailable { why: "nothing was read through the page cache".into() };
    }
    measured(trace, capabilities::MISS_RATIO, || missing as f64 / wanted as f64)
}

fn locks(trace: &Trace, span: (u64, u64)) -> LockTime {
    let (waits, waited_ns) = counted(trace, span, Counted::LockWait);
    LockTime { waits, seconds: seconds(waited_ns) }
}

fn cpu(trace: &Trace) -> Measured<crate::model::CpuTime> {
    Measured::Is {
        value: trace.cpu.clone(),
        source: "/proc/PID/stat".into(),
        proxy_for: Some(
            "the node's processor time: its own is exact; the workers' is of all the kernel's threads on the machine, \
             whomever they serve"
                .into(),
        ),
    }
}
