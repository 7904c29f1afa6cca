//! Planted defects: each is reported as exactly that, and its rate is in no table.

use crate::bench_run::{BenchRun, SCALE, outcome};
use crate::fake::Fake;
use bench::{Clock, Failure, Outcome, Phase, Place, Platform, Record, Summary};
use std::time::Duration;

fn run(fake: &Fake, jobs: &[&str]) -> Vec<Record> {
    BenchRun::new(vec![fake.target()], Platform::directory()).jobs(jobs).run()
}

/// Returns the failure of a job, and checks that no table has a rate of it.
fn failure(records: &[Record], job: &str) -> Failure {
    for clock in [Clock::Acknowledged, Clock::Durable, Clock::Paper] {
        let summary = Summary::of(records, clock);
        let column = summary.jobs.iter().position(|column| column.name == job).unwrap();
        assert!(summary.rows.iter().all(|row| row.cells[column].spread().is_none()));
    }
    match outcome(records, job) {
        Outcome::Failed(failure) => failure.clone(),
        Outcome::Measured(measurement) => panic!("{job} was measured: {measurement:?}"),
    }
}

#[test]
fn a_package_without_defects_is_measured_in_all_jobs() {
    for fake in [Fake::good(), Fake::good().chunked()] {
        let records = BenchRun::new(vec![fake.target()], Platform::directory()).run();
        assert_eq!(records.len(), 6);
        for record in &records {
            let measurement = record.outcome.measurement().unwrap_or_else(|| panic!("{record:?}"));
            assert!(measurement.clocks.mount > 0.0 && measurement.clocks.job > 0.0);
            let is_write = ["job1", "job3", "job5"].contains(&record.cell.job.as_str());
            assert_eq!(measurement.clocks.durable.is_some(), is_write);
        }
    }
}

#[test]
fn a_wrong_byte_in_file_7_of_the_bucket_is_found() {
    let spoil = r#"umount "$2"; f="$1/job1/00007"; [ ! -f "$f" ] || printf X | dd of="$f" bs=1 seek=5000 conv=notrunc"#;
    let records = run(&Fake::good().unmount(spoil), &["job1", "job2", "job3"]);
    match failure(&records, "job1") {
        Failure::WrongBytes { place: Place::Bucket, file, offset } => {
            assert_eq!(file, "job1/00007");
            assert!(offset <= 5000);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(failure(&records, "job2"), Failure::NoFiles { job: "job1".into() });
    assert!(outcome(&records, "job3").measurement().is_some());
}

#[test]
fn a_wrong_byte_in_file_7_of_a_mount_is_found() {
    let spoil = r#"mount --bind "$1" "$2"; f="$1/job1/00007"; [ ! -f "$f" ] || printf X | dd of="$f" bs=1 seek=5000 conv=notrunc"#;
    let records = run(&Fake::good().mount(spoil), &["job1", "job2"]);
    match failure(&records, "job2") {
        Failure::WrongBytes { place: Place::Mount, file, .. } => assert_eq!(file, "job1/00007"),
        other => panic!("{other:?}"),
    }
    let records = run(&Fake::good().mount(spoil).chunked(), &["job1"]);
    assert!(matches!(failure(&records, "job1"), Failure::WrongBytes { place: Place::SecondMount, .. }));
}

#[test]
fn a_dropped_file_is_found() {
    let records = run(&Fake::good().unmount(r#"umount "$2"; rm -f "$1/job1/00003""#), &["job1"]);
    let file = "job1/00003".to_owned();
    assert_eq!(failure(&records, "job1"), Failure::Missing { place: Place::Bucket, file, count: 1 });
}

#[test]
fn files_that_were_acknowledged_before_they_were_stored_are_lost_by_a_kill() {
    let late = r#"mount -t tmpfs fake "$2"; setsid sh -c 'sleep 600; cp -r "$0/." "$1"' "$2" "$1" &"#;
    let mut bench_run =
        BenchRun::new(vec![Fake::good().mount(late).target()], Platform::directory()).jobs(&["job1"]);
    bench_run.plan.workload.jobs[0].kills = true;
    let records = bench_run.run();
    let of = SCALE.big_files as u64;
    assert_eq!(failure(&records, "job1"), Failure::Lost { count: of, of });
    let mut sound = BenchRun::new(vec![Fake::good().target()], Platform::directory()).jobs(&["job1"]);
    sound.plan.workload.jobs[0].kills = true;
    assert!(outcome(&sound.run(), "job1").measurement().is_some());
}

#[test]
fn a_read_that_hangs_is_given_up() {
    let hang = r#"mount --bind "$1" "$2"; f="$1/job1/00003"; [ ! -f "$f" ] || { rm "$f"; mkfifo "$f"; }"#;
    let mut bench_run =
        BenchRun::new(vec![Fake::good().mount(hang).target()], Platform::directory()).jobs(&["job1", "job2"]);
    bench_run.plan.limits.job = Duration::from_secs(5);
    let records = bench_run.run();
    assert_eq!(failure(&records, "job2"), Failure::Hung { phase: Phase::Job, seconds: 5.0 });
}

#[test]
fn an_unmount_that_hangs_is_forced() {
    let fake = Fake::good().unmount("sleep 600");
    let mut bench_run = BenchRun::new(vec![fake.target()], Platform::directory()).jobs(&["job1", "job3"]);
    bench_run.plan.limits.unmount = Duration::from_secs(1);
    let records = bench_run.run();
    let hung = Failure::Hung { phase: Phase::Unmount, seconds: 1.0 };
    assert_eq!((failure(&records, "job1"), failure(&records, "job3")), (hung.clone(), hung));
}

#[test]
fn a_mount_that_fails_shows_its_last_output() {
    let records = run(&Fake::good().mount("echo 'no such bucket'; exit 5"), &["job1"]);
    let reason = "no such bucket".to_owned();
    assert_eq!(failure(&records, "job1"), Failure::Command { phase: Phase::Mount, reason });
}

#[test]
fn a_full_disk_is_named() {
    let records = run(&Fake::good().mount(r#"mount -t tmpfs -o size=300k fake "$2""#), &["job1"]);
    assert!(matches!(failure(&records, "job1"), Failure::NoSpace { file } if file.starts_with("job1/")));
}

#[test]
fn a_slow_repeat_stays_in_the_spread_and_is_marked() {
    // Every read waits for a pipe: 0.3 s, and 6 s in the third repeat.
    let slow_third = r#"
        mount --bind "$1" "$2"
        f="$1/job1/00000"
        if [ -f "$f" ]; then
            echo >>"$4/reads"
            seconds=0.3
            [ "$(wc -l <"$4/reads")" != 3 ] || seconds=6
            mv "$f" "$3/original"
            mkfifo "$f"
            { sleep $seconds; cat "$3/original" >"$f"; } &
        fi"#;
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::good().mount(slow_third).test_dir(dir.path());
    let mut bench_run = BenchRun::new(vec![fake.target()], Platform::directory()).jobs(&["job1", "job2"]);
    bench_run.plan.repeats = 5;
    let records = bench_run.run();
    let summary = Summary::of(&records, Clock::Durable);
    let spread = summary.rows[0].cells[1].spread().unwrap();
    assert_eq!((spread.count, spread.slow), (5, 1));
    assert!(spread.min * 3.0 < spread.median);
    assert!(bench::report::rates(&summary, "durable")[0].rows[0][2].ends_with('!'));
}

#[test]
fn the_clocks_differ_by_a_slow_mount_and_an_unmount_that_uploads() {
    let fake = Fake::good()
        .mount(r#"mount -t tmpfs fake "$2"; sleep 2"#)
        .unmount(r#"sleep 3; cp -r "$2/." "$1"; umount "$2""#);
    let records = run(&fake, &["job1"]);
    let measurement = outcome(&records, "job1").measurement().unwrap();
    let clocks = &measurement.clocks;
    let difference = clocks.seconds(Clock::Paper) - clocks.seconds(Clock::Acknowledged);
    // A busy machine adds to them.
    assert!((5.0..20.0).contains(&difference), "{clocks:?}");
    assert!((3.0..18.0).contains(&(clocks.seconds(Clock::Durable) - clocks.seconds(Clock::Acknowledged))));
}

/// A package whose process uploads after its unmount command has returned: the unmount ends with the process.
#[test]
fn an_unmount_ends_with_the_last_process() {
    let fake = Fake::good()
        .mount(
            r#"mount -t tmpfs fake "$2"
            setsid sh -c 'until [ -e "$2/unmounting" ]; do sleep 0.1; done; sleep 1; cp -r "$0/." "$1"; umount "$0"' "$2" "$1" "$3" &"#,
        )
        .unmount(r#"touch "$3/unmounting""#);
    let records = run(&fake, &["job1"]);
    let measurement = outcome(&records, "job1").measurement().unwrap_or_else(|| panic!("{records:?}"));
    assert!(measurement.clocks.unmount >= 1.0);
}

#[test]
fn a_package_that_cannot_be_had_is_a_row_that_says_why() {
    let text = Fake::good()
        .file()
        .replace("[actions]", "[program]\nname = \"no-such-program\"\ndebian = \"fakefs\"\n[actions]");
    let mut catalog = bench::Catalog::shipped().unwrap();
    catalog.add(std::path::Path::new("fake.toml"), &text).unwrap();
    let targets = [catalog.targets("fake").unwrap(), catalog.targets("local").unwrap()].concat();
    let records = BenchRun::new(targets, Platform::directory()).run();
    assert_eq!(records.len(), 12);
    let summary = Summary::of(&records, Clock::Durable);
    let reason = "program 'no-such-program' not found: apt-get install fakefs".to_owned();
    assert_eq!(summary.rows[0].unavailable(), Some(&Failure::Unavailable { reason }));
    assert!(summary.rows[1].cells.iter().all(|cell| cell.spread().is_some()));
    assert_eq!(bench::report::failures(&records).rows.len(), 1);
    assert!(summary.jobs.iter().any(|job| !job.is_write));
}
