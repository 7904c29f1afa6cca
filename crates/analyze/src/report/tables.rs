//! The numbers of the figures as tables of text, for the terminal and for the page.

use super::FILE_SYSTEM;
use crate::model::{Capability, Distribution, Measured, Metrics, SystemResult, WorkloadResult};
use harness::Table;
use harness::format::{bytes, count, percent, seconds};

/// Makes every table that has rows.
pub(super) fn tables(systems: &[SystemResult]) -> Vec<Table> {
    let mut tables = vec![
        about(systems),
        summary(systems),
        layers(systems),
        io(systems),
        chains(systems),
        caches(systems),
        what_if(systems),
        capabilities(systems),
    ];
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn about(systems: &[SystemResult]) -> Table {
    let rows = systems.iter().flat_map(|system| {
        system.about.iter().map(|(name, value)| vec![system.system.clone(), name.clone(), value.clone()])
    });
    Table {
        title: "The systems".into(),
        heads: heads(&["system", "property", "value"]),
        rows: rows.collect(),
    }
}

fn runs(systems: &[SystemResult]) -> impl Iterator<Item = (&SystemResult, &WorkloadResult)> {
    systems.iter().flat_map(|system| system.workloads.iter().map(move |run| (system, run)))
}

fn traced_runs(systems: &[SystemResult]) -> impl Iterator<Item = (&SystemResult, &WorkloadResult, &Metrics)> {
    runs(systems).filter_map(|(system, run)| Some((system, run, run.metrics.as_ref()?)))
}

fn summary(systems: &[SystemResult]) -> Table {
    let rows = runs(systems).map(|(system, run)| {
        let latency = run.latency.iter().map(|(name, value)| format!("{name} {}", seconds(*value)));
        let cpu = run.metrics.as_ref().and_then(|metrics| metrics.cpu.value());
        vec![
            run.workload.clone(),
            system.system.clone(),
            seconds(run.seconds),
            count(run.operations),
            bytes(run.bytes as f64),
            match run.bytes {
                0 => String::new(),
                moved => format!("{}/s", bytes(moved as f64 / run.seconds.max(f64::MIN_POSITIVE))),
            },
            latency.collect::<Vec<_>>().join(", "),
            cpu.map_or_else(String::new, |cpu| seconds(cpu.node_user_seconds + cpu.node_system_seconds)),
            cpu.map_or_else(String::new, |cpu| seconds(cpu.kernel_workers_seconds)),
            count(run.errors),
        ]
    });
    Table {
        title: "Workloads".into(),
        heads: heads(&[
            "workload",
            "system",
            "time",
            "operations",
            "bytes",
            "rate",
            "latency",
            "node CPU",
            "kernel workers' CPU",
            "errors",
        ]),
        rows: rows.collect(),
    }
}

fn layers(systems: &[SystemResult]) -> Table {
    let mut rows = Vec::new();
    for (system, run, metrics) in traced_runs(systems) {
        let all = metrics.layers.value().map(|times| ("all".to_owned(), times.clone()));
        let by_call =
            metrics.layers_by_call.iter().map(|layers| (layers.family.clone(), layers.times.clone()));
        for (family, times) in all.into_iter().chain(by_call) {
            let whole = times.total_seconds().max(f64::MIN_POSITIVE);
            rows.push(vec![
                run.workload.clone(),
                system.system.clone(),
                family,
                count(times.calls),
                seconds(times.total_seconds()),
                percent(times.vfs_seconds / whole),
                percent(times.file_system_seconds / whole),
                percent(times.block_seconds / whole),
                percent(times.device_seconds / whole),
            ]);
        }
    }
    Table {
        title: "Time per layer".into(),
        heads: heads(&[
            "workload",
            "system",
            "calls",
            "number",
            "time",
            "VFS",
            FILE_SYSTEM,
            "block",
            "device",
        ]),
        rows,
    }
}

fn io(systems: &[SystemResult]) -> Table {
    let mut rows = Vec::new();
    for (system, run, metrics) in traced_runs(systems) {
        for kind in metrics.io.value().into_iter().flatten() {
            rows.push(vec![
                run.workload.clone(),
                system.system.clone(),
                kind.kind.name().to_owned(),
                kind.operation.to_string(),
                count(kind.requests),
                bytes(kind.bytes as f64),
                quantile(&kind.sizes, 0.5),
                quantile(&kind.sizes, 0.9),
                seconds(kind.queued_seconds),
                seconds(kind.device_seconds),
            ]);
        }
    }
    Table {
        title: "I/Os to the device".into(),
        heads: heads(&[
            "workload",
            "system",
            "kind",
            "operation",
            "I/Os",
            "bytes",
            "median",
            "p90",
            "in queue",
            "on device",
        ]),
        rows,
    }
}

fn chains(systems: &[SystemResult]) -> Table {
    let mut rows = Vec::new();
    for (system, run, metrics) in traced_runs(systems) {
        for chains in
            metrics.chains.value().into_iter().flatten().filter(|chains| chains.per_stream.count > 0)
        {
            rows.push(vec![
                run.workload.clone(),
                system.system.clone(),
                chains.operation.to_string(),
                count(chains.per_stream.count),
                quantile(&chains.per_stream, 0.5),
                quantile(&chains.per_stream, 0.9),
                percent(chains.natural),
                percent(chains.bytes_in_natural),
                quantile(&chains.global, 0.5),
                quantile(&chains.global, 0.9),
            ]);
        }
    }
    Table {
        title: "Chains".into(),
        heads: heads(&[
            "workload",
            "system",
            "operation",
            "chains",
            "median",
            "p90",
            "at least 4 MiB",
            "their share of bytes",
            "median on device",
            "p90 on device",
        ]),
        rows,
    }
}

fn caches(systems: &[SystemResult]) -> Table {
    let rows = traced_runs(systems).map(|(system, run, metrics)| {
        let caches = &metrics.caches;
        let locks = match &metrics.locks {
            Measured::Is { value, .. } => {
                format!("{} in {} waits", seconds(value.seconds), count(value.waits))
            }
            Measured::NotAvailable { .. } => NOT_AVAILABLE.into(),
        };
        vec![
            run.workload.clone(),
            system.system.clone(),
            text_of(&caches.dentry_misses, |value| count(*value)),
            text_of(&caches.inode_misses, |value| count(*value)),
            text_of(&caches.page_insertions, |value| count(*value)),
            text_of(&caches.page_evictions, |value| count(*value)),
            text_of(&caches.page_miss_ratio, |value| percent(*value)),
            locks,
            count(metrics.lost_events),
        ]
    });
    Table {
        title: "Caches and locks".into(),
        heads: heads(&[
            "workload",
            "system",
            "dentry misses",
            "inode misses",
            "pages added",
            "pages removed",
            "page misses",
            "locks",
            "lost events",
        ]),
        rows: rows.collect(),
    }
}

const NOT_AVAILABLE: &str = "not available";

fn text_of<T>(measured: &Measured<T>, text: impl Fn(&T) -> String) -> String {
    measured.value().map_or_else(|| NOT_AVAILABLE.into(), text)
}

fn what_if(systems: &[SystemResult]) -> Table {
    let mut rows = Vec::new();
    for (system, run) in runs(systems) {
        for model in &run.what_if {
            for part in &model.by_kind {
                rows.push(vec![
                    run.workload.clone(),
                    system.system.clone(),
                    model.device.clone(),
                    seconds(model.seconds),
                    part.kind.name().to_owned(),
                    count(part.requests),
                    seconds(part.host_seconds),
                    seconds(part.device_seconds),
                ]);
            }
        }
    }
    Table {
        title: "The same I/Os on modelled devices".into(),
        heads: heads(&["workload", "system", "device", "whole run", "kind", "I/Os", "in queue", "on device"]),
        rows,
    }
}

/// Lists the source of each metric, once for all systems that have the same one.
fn capabilities(systems: &[SystemResult]) -> Table {
    let mut known: Vec<&Capability> = Vec::new();
    for capability in systems.iter().flat_map(|system| &system.capabilities.0) {
        if !known.contains(&capability) {
            known.push(capability);
        }
    }
    let rows = known.into_iter().map(|capability| match &capability.source {
        Measured::Is { source, proxy_for, .. } => {
            vec![capability.metric.clone(), source.clone(), proxy_for.clone().unwrap_or_default()]
        }
        Measured::NotAvailable { why } => vec![capability.metric.clone(), NOT_AVAILABLE.into(), why.clone()],
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    // Metrics that depend on the system, not only on the kernel: ext4 lacks a tracepoint that XFS has.
    for (system, _, metrics) in traced_runs(systems) {
        if let Measured::NotAvailable { why } = &metrics.caches.dentry_misses {
            let row =
                vec![format!("dentry-cache misses of {}", system.system), NOT_AVAILABLE.into(), why.clone()];
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    Table {
        title: "Sources of the metrics".into(),
        heads: heads(&["metric", "source", "proxy for, or why not available"]),
        rows,
    }
}

/// Formats the smallest size that at least `share` of all values do not exceed.
fn quantile(distribution: &Distribution, share: f64) -> String {
    let step = distribution.steps.iter().find(|step| step.share >= share);
    step.map_or_else(String::new, |step| bytes(step.at_most as f64))
}
