//! Reports of real recordings. The page is kept in `CARGO_TARGET_TMPDIR` for inspection.

use crate::trace::device::{FileSystem, Loop, Mounted};
use analyze::metrics::{DeviceModel, metrics, what_if};
use analyze::model::{Naming, Scope, SystemResult, ThroughputPoint, WorkloadResult};
use analyze::report::{html, json, terminal};
use analyze::trace::{Recorder, Recording};
use std::fs;
use std::path::Path;

const FILES: u64 = 200;

fn record(device: &Path, mounts: &[&Path]) -> Recording {
    Recorder::start(Scope {
        devices: vec![device.to_owned()],
        mounts: mounts.iter().map(|mount| (*mount).to_owned()).collect(),
        processes: vec![std::process::id()],
        naming: Naming::Minio,
        ..Scope::default()
    })
    .unwrap()
}

fn result(workload: &str, recording: Recording) -> WorkloadResult {
    let trace = recording.stop().unwrap();
    let found = metrics(&trace);
    WorkloadResult {
        workload: workload.into(),
        scale: format!("{FILES} objects"),
        seconds: found.seconds,
        operations: FILES,
        bytes: FILES << 16,
        errors: 0,
        latency: vec![("p50".into(), 0.001)],
        metrics: Some(found),
        what_if: DeviceModel::known().iter().map(|model| what_if(trace.requests(), model)).collect(),
    }
}

fn write(mounted: &Mounted) -> WorkloadResult {
    let recording = record(mounted.device(), &[mounted.path()]);
    for index in 0..FILES {
        let object = mounted.path().join(format!("object-{index}"));
        fs::create_dir(&object).unwrap();
        for (name, length) in [("xl.meta", 700), ("part.1", 65_536)] {
            fs::write(object.join(name), vec![1; length]).unwrap();
            fs::File::open(object.join(name)).unwrap().sync_all().unwrap();
        }
    }
    fs::write(mounted.path().join("large"), vec![1; 24 << 20]).unwrap();
    fs::File::open(mounted.path().join("large")).unwrap().sync_all().unwrap();
    result("W-O", recording)
}

fn list(mounted: &Mounted) -> WorkloadResult {
    let recording = record(mounted.device(), &[mounted.path()]);
    for index in 0..FILES {
        fs::read(mounted.path().join(format!("object-{index}/xl.meta"))).unwrap();
    }
    result("enumerate", recording)
}

fn system(name: &str, file_system: FileSystem) -> SystemResult {
    let mounted = Loop::new().format(file_system);
    let written = write(&mounted);
    let mounted = mounted.remount();
    let listed = list(&mounted);
    let throughput = (0..6).flat_map(|power| {
        [("raw", 3e8), (name, 2e8)].map(|(target, rate)| ThroughputPoint {
            target: target.into(),
            request_bytes: 4096,
            threads: 1 << power,
            bytes_per_second: rate * (1.0 - 0.5f64.powi(power + 1)),
        })
    });
    SystemResult {
        system: name.into(),
        about: vec![("flush".into(), "every file, by fsync".into())],
        capabilities: Recorder::probe(),
        throughput: throughput.collect(),
        workloads: vec![written, listed],
    }
}

#[test]
fn s333_a_comparison_is_rendered_as_tables_json_and_a_page() {
    let systems = [system("files on XFS", FileSystem::Xfs), system("files on ext4 <&>", FileSystem::Ext4)];
    let text = terminal(&systems);
    println!("{text}");
    for title in [
        "Workloads",
        "Time per layer",
        "I/Os to the device",
        "Chains",
        "Caches and locks",
        "Sources of the metrics",
    ] {
        assert!(text.contains(title), "{title}");
    }
    assert!(
        text.contains("ext4 has no tracepoint of lookups"),
        "the reason why a metric is not available is shown"
    );

    let page = html(&systems, "");
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), &page).unwrap();
    for figure in ["Figure 2a", "Figure 2b", "Figure 3", "Figure 4", "Figure 5", "Figure 6"] {
        assert!(page.contains(&format!("<h2>{figure}")), "{figure}");
    }
    assert!(!page.contains("<&>"), "names are escaped");
    for external in ["http:", "https:", "<script", "<link", "<img", "url("] {
        assert!(!page.contains(external), "the page must be self-contained: {external}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""), "the page must not show NaN or infinity");

    let read: Vec<SystemResult> = serde_json::from_str(&json(&systems).unwrap()).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!(html(&read, ""), page);
}

#[test]
fn a_system_without_results_has_no_figures() {
    let page = html(&[SystemResult { system: "x".into(), ..SystemResult::default() }], "");
    assert!(!page.contains("<figure>") && page.contains("</html>"));
    assert_eq!(terminal(&[]), "");
}
