//! The paper's Figures 2 to 6, drawn for the compared systems.

use super::FILE_SYSTEM;
use super::heatmap::heatmap;
use crate::model::{
    Distribution, Kind, LayerTimes, Measured, Metrics, NATURAL_TRANSFER_BYTES, Operation, Step, SystemResult,
    WorkloadResult,
};
use harness::format::{bytes, count, percent, seconds};
use harness::svg::{Axes, Bar, Curve, Stack, bars, curves, stacks};
use std::collections::BTreeMap;

/// The workload of Figures 3 and 4.
const ENUMERATE: &str = "enumerate";

/// A figure of the page.
pub(super) struct Figure {
    /// Number and title.
    pub(super) title: String,
    /// Colours: (CSS class, name).
    pub(super) legend: Vec<(String, String)>,
    pub(super) panels: Vec<Panel>,
    /// Explanation, with the sources of the metrics.
    pub(super) caption: String,
}

/// A chart of a figure.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) svg: String,
    pub(super) is_wide: bool,
}

/// Draws every figure for which there are numbers.
pub(super) fn figures(systems: &[SystemResult]) -> Vec<Figure> {
    let mut figures = vec![throughput(systems), layers(systems)];
    figures.extend(workloads(systems).into_iter().map(|workload| workload_figure(systems, &workload)));
    figures.push(heatmaps(systems));
    figures.push(what_if(systems));
    figures.retain(|figure| !figure.panels.is_empty());
    figures
}

/// A number with its text, or the reason why there is none.
type LabelledValue = Result<(f64, String), String>;

/// Returns the CSS class of the colour with this index.
fn colour(index: usize) -> String {
    format!("c{}", index % 8)
}

fn system_legend(systems: &[SystemResult]) -> Vec<(String, String)> {
    systems.iter().enumerate().map(|(index, system)| (colour(index), system.system.clone())).collect()
}

/// Returns the names of all workloads: enumeration first, the others in the order of the results.
fn workloads(systems: &[SystemResult]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for workload in systems.iter().flat_map(|system| &system.workloads) {
        if !names.contains(&workload.workload) {
            names.push(workload.workload.clone());
        }
    }
    names.sort_by_key(|name| name != ENUMERATE);
    names
}

fn run_of<'a>(system: &'a SystemResult, workload: &str) -> Option<&'a WorkloadResult> {
    system.workloads.iter().find(|run| run.workload == workload)
}

/// Draws Figure 2a: throughput by number of threads.
fn throughput(systems: &[SystemResult]) -> Figure {
    let mut series: BTreeMap<(u64, String), Vec<(f64, f64)>> = BTreeMap::new();
    for point in systems.iter().flat_map(|system| &system.throughput) {
        let curve = series.entry((point.request_bytes, point.target.clone())).or_default();
        curve.push((f64::from(point.threads), point.bytes_per_second));
    }
    let mut targets: Vec<String> = Vec::new();
    for (_, target) in series.keys() {
        if !targets.contains(target) {
            targets.push(target.clone());
        }
    }
    let class = |target: &String| colour(targets.iter().position(|known| known == target).unwrap_or(0));
    let top = series.values().flatten().map(|(_, y)| *y).fold(0.0, f64::max);
    let mut sizes: Vec<u64> = series.keys().map(|(size, _)| *size).collect();
    sizes.dedup();
    let panels = sizes.into_iter().map(|size| {
        let of_size: Vec<Curve> = series
            .iter()
            .filter(|((request_bytes, _), _)| *request_bytes == size)
            .map(|((_, target), points)| {
                let mut points = points.clone();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Curve { label: target.clone(), colour: class(target), dashed: false, points }
            })
            .collect();
        let axes = Axes { top, x_label: |x| format!("{x:.0}"), y_label: rate, steps: false, mark: None };
        Panel {
            title: format!("Requests of {}, by threads", bytes(size as f64)),
            svg: curves(&of_size, &axes),
            is_wide: false,
        }
    });
    Figure {
        title: "Figure 2a. Throughput of a device, raw and through a file system".into(),
        legend: targets.iter().map(|target| (class(target), target.clone())).collect(),
        panels: panels.collect(),
        caption: "Sequential writes by fio, direct I/O, by number of threads. Source: fio.".into(),
    }
}

fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second))
}

const LAYERS: [(&str, &str); 4] =
    [("c0", "VFS"), ("c1", FILE_SYSTEM), ("c2", "block layer"), ("grey", "device")];

fn layer_parts(times: &LayerTimes) -> Vec<(String, String, f64)> {
    let values = [times.vfs_seconds, times.file_system_seconds, times.block_seconds, times.device_seconds];
    LAYERS.iter().zip(values).map(|((class, name), value)| ((*class).into(), (*name).into(), value)).collect()
}

/// Draws Figure 2b: time per layer.
fn layers(systems: &[SystemResult]) -> Figure {
    let mut unavailable = Vec::new();
    let mut panels = Vec::new();
    for workload in workloads(systems) {
        let mut rows = Vec::new();
        for system in systems {
            match run_of(system, &workload)
                .and_then(|run| run.metrics.as_ref())
                .map(|metrics| &metrics.layers)
            {
                Some(Measured::Is { value, .. }) if value.calls > 0 => {
                    let above = 1.0 - value.device_seconds / value.total_seconds().max(f64::MIN_POSITIVE);
                    rows.push(Stack {
                        label: system.system.clone(),
                        parts: layer_parts(value),
                        note: format!(
                            "{} in {} calls; {} above the device",
                            seconds(value.total_seconds()),
                            count(value.calls),
                            percent(above)
                        ),
                    });
                }
                Some(Measured::NotAvailable { why: reason }) => {
                    unavailable.push(format!("{}: {reason}", system.system))
                }
                _ => (),
            }
        }
        if !rows.is_empty() {
            panels.push(Panel { title: workload, svg: stacks(&rows, true), is_wide: true });
        }
    }
    unavailable.dedup();
    Figure {
        title: "Figure 2b. Time of the node's I/O in each layer".into(),
        legend: LAYERS.iter().map(|(class, name)| ((*class).into(), (*name).into())).collect(),
        panels,
        caption: format!(
            "Time of all calls on files or on the device, summed over threads. Each bar is scaled to its own total. {} {}",
            source_of(systems, |metrics| source(&metrics.layers)),
            match unavailable.as_slice() {
                [] => String::new(),
                reasons => format!("Not available: {}.", reasons.join("; ")),
            }
        ),
    }
}

/// Draws Figure 3 (enumeration) or Figure 5 (another workload): time, cache misses, I/Os, sizes and chains.
fn workload_figure(systems: &[SystemResult], workload: &str) -> Figure {
    let number = if workload == ENUMERATE { "Figure 3" } else { "Figure 5" };
    let runs: Vec<(usize, &SystemResult, &WorkloadResult)> = systems
        .iter()
        .enumerate()
        .filter_map(|(index, system)| Some((index, system, run_of(system, workload)?)))
        .collect();
    let bar_panel = |title: &str, value: fn(&WorkloadResult) -> LabelledValue| Panel {
        title: title.into(),
        svg: bars(
            &runs.iter().map(|(index, system, run)| bar(*index, system, value(run))).collect::<Vec<_>>(),
        ),
        is_wide: false,
    };
    let mut panels = vec![
        bar_panel("(a) Execution time", |run| Ok((run.seconds, seconds(run.seconds)))),
        bar_panel("(b) Dentry-cache misses", |run| count_of(run, |metrics| &metrics.caches.dentry_misses)),
        bar_panel("(c) I/Os to the device", io_count),
        bar_panel("(d) Page-cache miss ratio", |run| {
            let ratio = &metrics_of(run)?.caches.page_miss_ratio;
            available(ratio).map(|ratio| (*ratio, percent(*ratio)))
        }),
    ];
    for operation in [Operation::Read, Operation::Write] {
        let sizes = |run: &WorkloadResult| sizes(run, operation);
        panels.extend(cdf_panel(&runs, &format!("(e) Sizes of {operation} I/Os"), &sizes, None));
        let mark = Some((NATURAL_TRANSFER_BYTES as f64, "natural transfer size"));
        let chains = |run: &WorkloadResult| chain_lengths(run, operation);
        panels.extend(cdf_panel(
            &runs,
            &format!("(f) Chain lengths of {operation}s of object data"),
            &chains,
            mark,
        ));
    }
    let scale = runs.first().map(|(_, _, run)| run.scale.clone()).unwrap_or_default();
    Figure {
        title: format!("{number}. {workload}"),
        legend: system_legend(systems),
        panels,
        caption: format!(
            "Scale: {scale}. (b) {} (c) {} (d) {} (e) share of requests up to a size; (f) share of chains up to a \
             length, within each object's data, in the order of issue. {}",
            source_of(systems, |metrics| source(&metrics.caches.dentry_misses)),
            source_of(systems, |metrics| source(&metrics.io)),
            source_of(systems, |metrics| source(&metrics.caches.page_miss_ratio)),
            source_of(systems, |metrics| source(&metrics.chains)),
        ),
    }
}

fn bar(index: usize, system: &SystemResult, value: LabelledValue) -> Bar {
    let label = system.system.clone();
    match value {
        Ok((value, note)) => Bar { label, value: Some(value), note, colour: colour(index) },
        Err(why) => Bar { label, value: None, note: shortened(&why), colour: colour(index) },
    }
}

/// Shortens a reason to the width of a chart. The tables show it in full.
fn shortened(why: &str) -> String {
    let whole = format!("not available: {why}");
    match whole.char_indices().nth(72) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

fn metrics_of(run: &WorkloadResult) -> Result<&Metrics, String> {
    run.metrics.as_ref().ok_or_else(|| "not traced".into())
}

fn available<T>(measured: &Measured<T>) -> Result<&T, String> {
    match measured {
        Measured::Is { value, .. } => Ok(value),
        Measured::NotAvailable { why } => Err(why.clone()),
    }
}

fn count_of(run: &WorkloadResult, metric: fn(&Metrics) -> &Measured<u64>) -> LabelledValue {
    available(metric(metrics_of(run)?)).map(|value| (*value as f64, count(*value)))
}

fn io_count(run: &WorkloadResult) -> LabelledValue {
    let kinds = available(&metrics_of(run)?.io)?;
    let all: u64 = kinds.iter().map(|kind| kind.requests).sum();
    Ok((all as f64, count(all)))
}

fn cdf_panel(
    runs: &[(usize, &SystemResult, &WorkloadResult)],
    title: &str,
    distribution: &dyn Fn(&WorkloadResult) -> Option<Distribution>,
    mark: Option<(f64, &'static str)>,
) -> Option<Panel> {
    let drawn: Vec<Curve> = runs
        .iter()
        .filter_map(|(index, system, run)| {
            let found = distribution(run).filter(|distribution| distribution.count > 0)?;
            let points = found.steps.iter().map(|step| (step.at_most as f64, step.share)).collect();
            Some(Curve { label: system.system.clone(), colour: colour(*index), dashed: false, points })
        })
        .collect();
    let axes = Axes { top: 1.0, x_label: bytes, y_label: percent, steps: true, mark };
    (!drawn.is_empty()).then(|| Panel { title: title.into(), svg: curves(&drawn, &axes), is_wide: false })
}

fn sizes(run: &WorkloadResult, operation: Operation) -> Option<Distribution> {
    let kinds = run.metrics.as_ref()?.io.value()?;
    Some(merged(kinds.iter().filter(|kind| kind.operation == operation).map(|kind| &kind.sizes)))
}

fn chain_lengths(run: &WorkloadResult, operation: Operation) -> Option<Distribution> {
    let chains = run.metrics.as_ref()?.chains.value()?;
    Some(chains.iter().find(|chains| chains.operation == operation)?.per_stream.clone())
}

/// Merges several distributions into one.
fn merged<'a>(parts: impl Iterator<Item = &'a Distribution>) -> Distribution {
    let mut weights: BTreeMap<u64, f64> = BTreeMap::new();
    let mut total = 0;
    for part in parts {
        total += part.count;
        let mut before = 0.0;
        for step in &part.steps {
            *weights.entry(step.at_most).or_default() += (step.share - before) * part.count as f64;
            before = step.share;
        }
    }
    let mut sum = 0.0;
    let steps = weights.into_iter().map(|(at_most, weight)| {
        sum += weight;
        Step { at_most, share: sum / total as f64 }
    });
    Distribution { count: total, steps: steps.collect() }
}

/// Draws Figure 4: a heat map for each workload and system.
fn heatmaps(systems: &[SystemResult]) -> Figure {
    let mut panels = Vec::new();
    for workload in workloads(systems) {
        for system in systems {
            let maps = run_of(system, &workload)
                .and_then(|run| run.metrics.as_ref())
                .map_or(&[][..], |m| &m.heatmaps);
            for map in maps.iter().filter(|map| !map.cells.is_empty()) {
                let duration = map.column_ns as f64 * map.columns as f64 / 1e9;
                panels.push(Panel {
                    title: format!(
                        "{workload}: {} (height {}, width {})",
                        system.system,
                        bytes(map.device_bytes as f64),
                        seconds(duration)
                    ),
                    svg: heatmap(map),
                    is_wide: false,
                });
            }
        }
    }
    Figure {
        title: "Figure 4. I/O by address on the device and by time".into(),
        legend: vec![("c0".into(), "mostly reads".into()), ("c1".into(), "mostly writes".into())],
        panels,
        caption: "The address grows from 0 at the bottom to the device's end, time from left to right. The opacity of a cell grows with \
                  the logarithm of its bytes. Source: block_bio_queue, block_rq_issue."
            .into(),
    }
}

const KINDS: [(&str, Kind); 5] = [
    ("c0", Kind::ObjectData),
    ("c1", Kind::ObjectMetadata),
    ("c3", Kind::Index),
    ("c2", Kind::FileSystemMetadata),
    ("grey", Kind::Unnamed),
];

/// Draws Figure 6: time on modelled devices by kind of I/O.
fn what_if(systems: &[SystemResult]) -> Figure {
    let runs = || systems.iter().flat_map(|system| system.workloads.iter().map(move |run| (system, run)));
    let mut devices: Vec<(String, String)> = Vec::new();
    for model in runs().flat_map(|(_, run)| &run.what_if) {
        if !devices.iter().any(|(name, _)| *name == model.device) {
            devices.push((model.device.clone(), model.source.clone()));
        }
    }
    let mut panels = Vec::new();
    for (device, _) in &devices {
        for workload in workloads(systems) {
            let rows: Vec<Stack> = runs()
                .filter(|(_, run)| run.workload == workload)
                .filter_map(|(system, run)| {
                    let model = run.what_if.iter().find(|model| model.device == *device)?;
                    let time = |kind: Kind| {
                        let of_kind = model.by_kind.iter().find(|part| part.kind == kind);
                        of_kind.map_or(0.0, |part| part.host_seconds + part.device_seconds)
                    };
                    let parts =
                        KINDS.iter().map(|(class, kind)| ((*class).into(), kind.name().into(), time(*kind)));
                    Some(Stack {
                        label: system.system.clone(),
                        parts: parts.collect(),
                        note: format!("{} busy", seconds(model.busy_seconds)),
                    })
                })
                .collect();
            if !rows.is_empty() {
                panels.push(Panel {
                    title: format!("{device}: {workload}"),
                    svg: stacks(&rows, false),
                    is_wide: true,
                });
            }
        }
    }
    let sources: Vec<String> = devices.iter().map(|(name, source)| format!("{name}: {source}")).collect();
    Figure {
        title: "Figure 6. The same I/Os on modelled devices".into(),
        legend: KINDS.iter().map(|(class, kind)| ((*class).into(), kind.name().into())).collect(),
        panels,
        caption: format!(
            "Time in the block layer (measured) and on the device (modelled, with waits), summed over requests. The replay keeps \
             the dependencies between requests. {}.",
            sources.join("; ")
        ),
    }
}

/// Returns the source of a metric in the first system that has it; an empty text if none has.
fn source_of(systems: &[SystemResult], source: impl Fn(&Metrics) -> Option<String>) -> String {
    let mut runs = systems.iter().flat_map(|system| &system.workloads);
    let found = runs.find_map(|run| source(run.metrics.as_ref()?));
    found.unwrap_or_default()
}

fn source<T>(measured: &Measured<T>) -> Option<String> {
    match measured {
        Measured::Is { source, proxy_for: Some(proxy), .. } => {
            Some(format!("Source: {source}; a proxy for {proxy}."))
        }
        Measured::Is { source, proxy_for: None, .. } => Some(format!("Source: {source}.")),
        Measured::NotAvailable { .. } => None,
    }
}
