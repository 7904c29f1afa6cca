//! Packages that Debian has: they are installed, and measured over MinIO.

use crate::bench_run::{BenchRun, environment, programs};
use bench::{Catalog, Limits, Platform, Target, Workbench};
use harness::Shape;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

fn target(name: &str) -> Target {
    Catalog::shipped().unwrap().targets(name).unwrap().remove(0)
}

const LIMITS: Limits = Limits { mount: LIMIT, job: LIMIT, unmount: LIMIT };

/// Installs a package of Debian.
pub(crate) fn install(name: &str) {
    let (dir, programs) = (tempfile::tempdir().unwrap(), programs());
    let state = dir.path().to_owned();
    let shape = Shape::default();
    let bench = Workbench { programs: &programs, state, environment: &environment, limits: LIMITS, shape };
    let installed = bench.install(&target(name).package, LIMIT).unwrap();
    assert!(installed.unwrap().is_file());
}

/// Installs a package and measures the paper's jobs with it, with unmounts that upload and loop devices.
fn measure(name: &str) {
    install(name);
    let mut bench_run = BenchRun::new(vec![target(name)], Platform::minio());
    bench_run.plan.limits = LIMITS;
    let records = bench_run.run();
    assert_eq!(records.len(), 6);
    for record in &records {
        let measurement = record.outcome.measurement().unwrap_or_else(|| panic!("{record:?}"));
        assert!(measurement.traffic.as_ref().unwrap().total() > 0);
        assert!(record.version.is_some());
    }
}

#[test]
fn s3fs_is_installed_and_measured() {
    measure("s3fs");
}

#[test]
fn rclone_is_installed_and_measured() {
    measure("rclone");
}

#[test]
fn s3backer_is_installed_and_measured() {
    measure("s3backer");
}

#[test]
fn a_package_that_no_manager_has_says_where_it_is() {
    let (dir, programs) = (tempfile::tempdir().unwrap(), programs());
    let state = dir.path().to_owned();
    let shape = Shape::default();
    let bench = Workbench { programs: &programs, state, environment: &environment, limits: LIMITS, shape };
    let error = bench.install(&target("objectivefs").package, LIMIT).unwrap_err().to_string();
    assert!(error.contains("https://objectivefs.com"), "{error}");
}
