//! The actions on one target: up and down, and the bucket's creation, cleaning and removal.

use crate::bench_run::{environment, programs};
use crate::fake::Fake;
use bench::{ActionError, Limits, Mounting, Platform, Programs, Station, Target, Workbench};
use harness::Shape;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn workbench<'p>(dir: &Path, programs: &'p Programs) -> Workbench<'p> {
    let seconds = Duration::from_secs;
    Workbench {
        programs,
        state: dir.to_owned(),
        environment: &environment,
        limits: Limits { mount: seconds(10), job: seconds(10), unmount: seconds(10) },
        shape: Shape::default(),
    }
}

/// Mounts a target, calls `work`, and unmounts.
fn while_up(bench: &Workbench<'_>, target: &Target, platform: &Platform, work: &dyn Fn(&Station)) {
    let is_stopped = AtomicBool::new(false);
    let mounting = Mounting { target, platform, bucket: None, point: None };
    let ready = |station: &Station| {
        work(station);
        is_stopped.store(true, Ordering::Relaxed);
    };
    bench.hold(&mounting, &ready, &is_stopped).unwrap();
}

#[test]
fn files_are_in_the_bucket_of_a_target_that_goes_up_and_down() {
    let (dir, programs) = (tempfile::tempdir().unwrap(), programs());
    let bench = workbench(dir.path(), &programs);
    let (target, platform) = (Fake::good().target(), Platform::directory());
    let bucket = bench.create_bucket(&target, &platform, None).unwrap();
    assert!(
        matches!(bench.create_bucket(&target, &platform, None), Err(ActionError::HasBucket(_, own)) if own == bucket)
    );
    while_up(&bench, &target, &platform, &|station| {
        assert_eq!(station.bucket, bucket);
        fs::write(station.point.join("file"), "hello").unwrap();
        assert_eq!(bench.stations().unwrap(), std::slice::from_ref(station));
        assert!(matches!(bench.clean_bucket(&target, &platform, None, false), Err(ActionError::IsUp { .. })));
        assert!(matches!(
            bench.hold(
                &Mounting { target: &target, platform: &platform, bucket: None, point: None },
                &|_| {},
                &AtomicBool::new(true)
            ),
            Err(ActionError::IsUp { .. })
        ));
    });
    let stored = dir.path().join("servers/directory").join(&bucket).join("file");
    assert_eq!(fs::read(&stored).unwrap(), b"hello");
    assert_eq!(bench.stations().unwrap(), []);
    assert!(matches!(bench.down("fake"), Err(ActionError::IsDown(_))));
    while_up(&bench, &target, &platform, &|station| {
        assert_eq!(fs::read(station.point.join("file")).unwrap(), b"hello");
    });
    assert_eq!(bench.clean_bucket(&target, &platform, None, false).unwrap(), bucket);
    assert!(!stored.exists() && stored.parent().unwrap().exists());
    bench.remove_bucket(&target, &platform, None, false).unwrap();
    assert!(!stored.parent().unwrap().exists());
    assert!(matches!(bench.remove_bucket(&target, &platform, None, false), Err(ActionError::NoBucket(_))));
    bench.clean_all().unwrap();
    assert!(!dir.path().join("servers").exists());
}

#[test]
fn a_bucket_of_others_is_changed_only_if_the_user_says_so() {
    let (dir, programs) = (tempfile::tempdir().unwrap(), programs());
    let bench = workbench(dir.path(), &programs);
    let (target, platform) = (Fake::good().target(), Platform::directory());
    let theirs = dir.path().join("servers/directory/theirs");
    fs::create_dir_all(&theirs).unwrap();
    fs::write(theirs.join("precious"), "data").unwrap();
    let (clean, remove) = (Workbench::clean_bucket, Workbench::remove_bucket);
    for change in [clean, remove] {
        let refused = change(&bench, &target, &platform, Some("theirs"), false);
        assert!(matches!(refused, Err(ActionError::NotOurs(name)) if name == "theirs"));
    }
    // A creation that fails leaves the bucket unknown.
    assert!(bench.create_bucket(&target, &platform, Some("theirs")).is_err());
    let refused = remove(&bench, &target, &platform, Some("theirs"), false);
    assert!(matches!(refused, Err(ActionError::NotOurs(_))), "{refused:?}");
    assert!(theirs.join("precious").exists());
    clean(&bench, &target, &platform, Some("theirs"), true).unwrap();
    assert!(!theirs.join("precious").exists());
}

/// The paper's program: a user adds install, mount and unmount, and may replace the other actions.
#[test]
fn a_package_can_have_its_own_action_for_a_bucket() {
    let (dir, programs) = (tempfile::tempdir().unwrap(), programs());
    let bench = workbench(dir.path(), &programs);
    let create = r#"create-bucket = ["/bin/sh", "-ec", 'mkdir "$$1"; touch "$$1/made-by-package"', "x", "${endpoint}/${bucket}"]"#;
    let text = Fake::good().file().replace("[actions]", &format!("[actions]\n{create}"));
    let mut catalog = bench::Catalog::default();
    catalog.add(Path::new("fake.toml"), &text).unwrap();
    let target = catalog.targets("fake").unwrap().remove(0);
    let bucket = bench.create_bucket(&target, &Platform::directory(), None).unwrap();
    assert!(dir.path().join("servers/directory").join(bucket).join("made-by-package").exists());
}

#[test]
fn a_mount_whose_process_ends_is_reported() {
    let (dir, programs) = (tempfile::tempdir().unwrap(), programs());
    let bench = workbench(dir.path(), &programs);
    let (target, platform) = (Fake::good().target(), Platform::directory());
    let mounting = Mounting { target: &target, platform: &platform, bucket: None, point: None };
    let unmount = |station: &Station| {
        assert!(std::process::Command::new("umount").arg(&station.point).status().unwrap().success());
    };
    let held = bench.hold(&mounting, &unmount, &AtomicBool::new(false));
    assert!(matches!(held, Err(ActionError::Died(_))));
    assert_eq!(bench.stations().unwrap(), []);
}
