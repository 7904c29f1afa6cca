//! Setup, measurement and removal of systems.

use analyze::compare::Probe;
use analyze::setup::{Backing, Programs, Running, SetupError, System};
use analyze::workload::{Load, Scale, Workload};
use harness::{Error, MemoryLimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use store::{Clock, Entropy, SystemClock};

const DEVICE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 1 << 30;

fn clock_and_entropy() -> (Arc<dyn Clock>, Arc<Entropy>) {
    (Arc::new(SystemClock), Arc::new(Entropy::new(1)))
}

fn programs(minio: PathBuf) -> Programs {
    Programs {
        minio: Some(minio),
        tenon: "/bin/false".into(),
        secret: "not-a-secret-but-long-enough".into(),
        regions: |_| Ok(Vec::new()),
    }
}

/// Returns the loop devices, mounts, processes and files below a directory.
fn leftovers(scratch: &Path) -> Vec<String> {
    let shown = scratch.to_str().unwrap();
    // The kernel writes a space as an octal escape.
    let escaped = shown.replace(' ', "\\040");
    let devices = Command::new("losetup").arg("--all").output().unwrap().stdout;
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let processes = Command::new("ps").args(["-eo", "args"]).output().unwrap().stdout;
    let all = [String::from_utf8(devices).unwrap(), mounts, String::from_utf8(processes).unwrap()];
    let lines = all
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains(shown) || line.contains(&escaped));
    let files = std::fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    lines.map(str::to_owned).chain(files).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_is_measured_and_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let backing = Backing::new(scratch.path(), DEVICE_BYTES).unwrap();
    let programs = programs(servers::program("minio"));
    let mut running =
        Running::start(System::MinioExt4, &backing, &programs, MEMORY_BYTES, clock_and_entropy())
            .await
            .unwrap();
    let scale = Scale {
        size_bytes: 1 << 20,
        objects: 8,
        operations: 60,
        threads: 6,
        enumerated: 1200,
        enumerated_bytes: 100,
        ..Scale::tiny()
    };
    let load = Load::new(running.clients(3, &clock_and_entropy()).unwrap(), "analyze/", 1, 2);

    Workload::ReadWrite.prepare(&load, &scale, running.free_bytes().unwrap()).await.unwrap();
    running.settle().unwrap();
    let probe = Probe::start(running.pid(), running.scope(), false).unwrap();
    let watched = probe.stop(Workload::ReadWrite.perform(&load, &scale).await.unwrap()).unwrap();
    let (measured, _) = watched.digest(None);
    let done = &measured.done;
    assert_eq!((done.operations(), done.errors, done.bytes()), (60, 0, 60 << 20));
    assert!(done.compared > 5, "{done:?}");
    assert!(measured.io.written_bytes >= done.put.amount, "{:?}", measured.io);
    assert!(measured.io.flushes > 0, "{:?}", measured.io);
    let usage = measured.usage;
    let server = usage.server_secs.unwrap();
    assert!(server > 0.0 && usage.machine_secs >= server + usage.client_secs - 0.1, "{usage:?}");
    load.clean().await.unwrap();

    // Objects that do not fit are refused before any is put.
    let error = Workload::WriteOnly.prepare(&load, &Scale::paper(), running.free_bytes().unwrap()).await;
    assert!(error.unwrap_err().to_string().contains("larger device"));

    Workload::Enumerate.prepare(&load, &scale, running.free_bytes().unwrap()).await.unwrap();
    let before = running.pid();
    running.restart_cold().unwrap();
    assert_ne!(running.pid(), before);
    let listed = Workload::Enumerate.perform(&load, &scale).await.unwrap();
    assert_eq!((listed.list.amount, listed.list.latency.count()), (1200, 2));

    drop((running, backing));
    assert_eq!(leftovers(scratch.path()), Vec::<String>::new());
}

/// The server does not start after device, file system, mount and control group were created.
#[tokio::test(flavor = "multi_thread")]
async fn s337_a_failed_setup_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let backing = Backing::new(scratch.path(), DEVICE_BYTES).unwrap();
    let programs = programs("/bin/false".into());
    let failed =
        Running::start(System::MinioExt4, &backing, &programs, MEMORY_BYTES, clock_and_entropy()).await;
    assert!(matches!(failed, Err(SetupError::Machine(Error::NotServing { .. }))), "{failed:?}");
    drop(backing);
    assert_eq!(leftovers(scratch.path()), Vec::<String>::new());
}

/// A bug: mounts and devices were not removed, as the kernel names them by the path without symbolic links, and writes a space as `\040`.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_behind_a_link_and_with_a_space_is_cleaned_up() {
    let root = tempfile::tempdir().unwrap();
    let (dir, link) = (root.path().join("a place"), root.path().join("a link"));
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let backing = Backing::new(&link, DEVICE_BYTES).unwrap();
    let programs = programs("/bin/false".into());
    let failed =
        Running::start(System::MinioExt4, &backing, &programs, MEMORY_BYTES, clock_and_entropy()).await;
    assert!(matches!(failed, Err(SetupError::Machine(Error::NotServing { .. }))), "{failed:?}");
    drop(backing);
    assert_eq!(leftovers(&dir), Vec::<String>::new());
}

#[test]
fn too_little_space_is_detected_before_anything_is_created() {
    let scratch = tempfile::tempdir().unwrap();
    let error = Backing::new(scratch.path(), 1 << 50).unwrap_err();
    assert!(error.to_string().contains("--scratch"), "{error}");
    assert_eq!(leftovers(scratch.path()), Vec::<String>::new());
}

#[test]
fn the_memory_limit_is_described() {
    let about = MemoryLimit::probe().about(1 << 30);
    assert!(about.contains("1024 MiB") || about.starts_with("not limited: "), "{about}");
}
