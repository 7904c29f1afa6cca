//! Runs over a MinIO that the testbed starts: requests through the proxy, a shaped network, and a warm read.

use crate::bench_run::{BenchRun, SCALE, outcome};
use crate::fake::Fake;
use bench::{Catalog, Clock, Failure, Platform, Target};
use harness::{RequestKind, Shape};

fn shipped(names: &[&str]) -> Vec<Target> {
    let catalog = Catalog::shipped().unwrap();
    names.iter().flat_map(|name| catalog.targets(name).unwrap()).collect()
}

#[test]
fn the_raw_client_and_a_directory_are_measured_and_requests_counted() {
    let records = BenchRun::new(shipped(&["raw", "local"]), Platform::minio()).run();
    assert_eq!(records.len(), 12);
    let raw: Vec<_> = records.into_iter().filter(|record| record.cell.target == "raw").collect();
    let traffic = |job| outcome(&raw, job).measurement().unwrap().traffic.clone().unwrap();
    let bytes = SCALE.small_files as u64 * SCALE.small_bytes;
    let (written, read) = (traffic("job5"), traffic("job6"));
    assert_eq!(written.requests.get(&RequestKind::Put), Some(&(SCALE.small_files as u64)));
    assert_eq!(written.uploaded_bytes, bytes);
    assert_eq!(read.requests.get(&RequestKind::Get), Some(&(SCALE.small_files as u64)));
    assert_eq!(read.downloaded_bytes, bytes);
    let measurement = outcome(&raw, "job1").measurement().unwrap().clone();
    assert!(measurement.server_cpu_seconds.is_none_or(|seconds| seconds > 0.0));
}

#[test]
fn a_shaped_network_has_its_bandwidth_and_latency() {
    let mut bench_run = BenchRun::new(shipped(&["raw"]), Platform::minio()).jobs(&["job3", "job4"]);
    bench_run.plan.scale.big_bytes = 2 << 20;
    // Eight streams keep the link busy while MinIO works on some of them.
    bench_run.plan.shape = Shape { bandwidth_bytes: Some(4 << 20), ..Shape::default() };
    let records = bench_run.run();
    for job in ["job3", "job4"] {
        let rate = outcome(&records, job)
            .measurement()
            .unwrap()
            .rate(Clock::Acknowledged, bench::Unit::MebibytesPerSecond);
        // A busy machine may be slower than the link, but nothing is faster.
        assert!((1.0..4.2).contains(&rate), "{job}: {rate} MiB/s");
    }
    bench_run.plan.shape = Shape { latency: std::time::Duration::from_millis(30), bandwidth_bytes: None };
    std::fs::remove_file(bench_run.results_path()).unwrap();
    let seconds = outcome(&bench_run.run(), "job4").measurement().unwrap().clocks.job;
    // Each of 8 streams has one connection and one request.
    assert!((0.03..30.0).contains(&seconds), "{seconds}");
}

/// The package stores its files in the bucket, but keeps a copy that no wipe of its cache removes, and reads that.
#[test]
fn a_cold_read_from_a_cache_is_found() {
    let mc = servers::program("mc").display().to_string();
    let copy = format!(
        r#"umount "$2"; "{mc}" --quiet --config-dir "$3/mc" mirror --overwrite "$3/files" "bench/${{1##*/}}""#
    );
    let fake = Fake::good()
        .mount(r#"mkdir -p "$3/files"; mount --bind "$3/files" "$2""#)
        .unmount(&copy)
        .environment(r#"MC_HOST_bench = "http://${access_key}:${secret_key}@${host}""#);
    let records = BenchRun::new(vec![fake.target()], Platform::minio()).jobs(&["job1", "job2"]).run();
    assert!(outcome(&records, "job1").measurement().is_some(), "{:?}", outcome(&records, "job1"));
    let read_bytes = SCALE.big_files as u64 * SCALE.big_bytes;
    let failure = outcome(&records, "job2").failure();
    assert_eq!(failure, Some(&Failure::NotCold { fetched_bytes: 0, read_bytes }));
}
