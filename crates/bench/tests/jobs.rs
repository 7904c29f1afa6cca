//! Jobs beyond the paper's six, on fake packages with and without defects.

use crate::bench_run::{BenchRun, SCALE, outcome};
use crate::fake::Fake;
use bench::{Catalog, Failure, Place, Platform, Record, Target};

fn local() -> Target {
    Catalog::shipped().unwrap().targets("local").unwrap().remove(0)
}

fn run(target: Target, workload: &str) -> Vec<Record> {
    BenchRun::new(vec![target], Platform::directory()).workload(workload).run()
}

/// Returns the failure of a job.
fn failure(records: &[Record], job: &str) -> Failure {
    outcome(records, job).failure().unwrap_or_else(|| panic!("{job} was measured")).clone()
}

#[test]
fn random_access_metadata_and_mixed_jobs_are_measured_on_every_kind_of_package() {
    for target in [Fake::good().target(), Fake::good().chunked().target(), local()] {
        for workload in ["random", "metadata", "mixed"] {
            for record in run(target.clone(), workload) {
                let job = &record.cell.job;
                let measurement = record.outcome.measurement().unwrap_or_else(|| panic!("{record:?}"));
                assert!(measurement.operations > 0 && measurement.clocks.job > 0.0, "{job}");
                let latency = measurement.latency.as_ref().unwrap();
                let is_one_pass = job == "list";
                let expected = if is_one_pass { 1 } else { measurement.operations };
                assert_eq!(latency.count(), expected, "{job}");
                assert_eq!(measurement.clocks.durable.is_some(), record.column.is_write, "{job}");
            }
        }
    }
}

#[test]
fn files_are_copied_by_cp_as_the_paper_does() {
    for target in [Fake::good().target(), local()] {
        let mut bench_run =
            BenchRun::new(vec![target], Platform::directory()).jobs(&["job1", "job2", "job5", "job6"]);
        bench_run.plan.method.as_paper = true;
        let records = bench_run.run();
        assert_eq!(records.len(), 4);
        assert!(records.iter().all(|record| record.outcome.measurement().is_some()), "{records:?}");
        assert!(records.iter().all(|record| record.conditions.as_paper));
    }
}

#[test]
fn programs_of_others_run_in_the_mount() {
    let records = run(Fake::good().target(), "fio");
    let written = outcome(&records, "fio-write").measurement().unwrap();
    assert_eq!((written.operations, written.bytes), (128, 128 << 20));
    assert_eq!(outcome(&records, "fio-random-read").measurement().unwrap().operations, 4096);
    let reason = "program 'mdtest' not found".to_owned();
    assert_eq!(failure(&records, "mdtest"), Failure::Unsupported { reason });
}

#[test]
fn a_trace_is_replayed_with_the_files_that_it_expects() {
    let dir = tempfile::tempdir().unwrap();
    let trace = r#"{"t_us":0,"op":"read","path":"old/data","offset":4096,"bytes":4096}
{"t_us":1,"thread":1,"op":"create","path":"new"}
{"t_us":2,"thread":1,"op":"write","path":"new","offset":0,"bytes":10000}
{"t_us":3,"thread":1,"op":"close","path":"new"}
{"t_us":4,"thread":1,"op":"read","path":"new","offset":5000,"bytes":5000}
"#;
    std::fs::write(dir.path().join("app.trace"), trace).unwrap();
    let workload = "name = \"app\"\n[[job]]\nname = \"app\"\ntitle = \"app\"\noperation = \"trace\"\nfiles = \"empty\"\nthreads = 1\ntrace = \"app.trace\"\n";
    let file = dir.path().join("app.toml");
    std::fs::write(&file, workload).unwrap();
    for target in [Fake::good().target(), Fake::good().chunked().target(), local()] {
        let records = run(target, file.to_str().unwrap());
        let measurement = outcome(&records, "app").measurement().unwrap_or_else(|| panic!("{records:?}"));
        assert_eq!((measurement.operations, measurement.latency.as_ref().unwrap().count()), (5, 5));
    }
}

#[test]
fn a_block_that_was_not_stored_is_found() {
    // The old file comes back at the unmount after the random writes.
    let forgetful = r#"
        umount "$2"
        f="$1/single/00000"
        if [ -f "$3/copy" ]; then cp "$3/copy" "$f"; elif [ -f "$f" ]; then cp "$f" "$3/copy"; fi"#;
    let records = run(Fake::good().unmount(forgetful).target(), "random");
    assert!(matches!(failure(&records, "random-write"), Failure::WrongBytes { place: Place::Bucket, .. }));
    assert_eq!(failure(&records, "random-write-sync"), Failure::NoFiles { job: "random-write".into() });
}

#[test]
fn a_rename_that_keeps_the_old_name_and_an_unlink_that_removes_nothing_are_found() {
    let keep = r#"umount "$2"; f="$1/create/00003.renamed"; [ ! -f "$f" ] || cp "$f" "$1/create/00003""#;
    let records = run(Fake::good().unmount(keep).target(), "metadata");
    let left_over = |file: &str, place| Failure::LeftOver { place, file: file.into(), count: 1 };
    assert_eq!(failure(&records, "rename"), left_over("create/00003", Place::Bucket));
    // A chunked package is looked at by a second mount.
    let undead = r#"mount --bind "$1" "$2"; [ ! -d "$1/create" ] || [ -n "$(ls "$1/create")" ] || touch "$1/create/undead""#;
    let records = run(Fake::good().mount(undead).chunked().target(), "metadata");
    assert_eq!(failure(&records, "unlink"), left_over("create/undead", Place::SecondMount));
    assert_eq!(outcome(&records, "create").measurement().unwrap().files as usize, SCALE.empty_files);
}
