//! A run of the testbed for a test, with small files and short time limits.

use bench::{
    Limits, Method, Outcome, Platform, Programs, Record, Results, RunError, RunPlan, Scale, Target, Workload,
    run,
};
use harness::Shape;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Small files, so that a test takes seconds.
pub(crate) const SCALE: Scale = Scale {
    big_files: 8,
    big_bytes: 256 << 10,
    small_files: 32,
    small_bytes: 16 << 10,
    single_bytes: 1 << 20,
    empty_files: 20,
    blocks: 16,
};

/// A run with a directory of its own.
#[derive(Debug)]
pub(crate) struct BenchRun {
    pub(crate) plan: RunPlan,
    dir: PathBuf,
    /// Removes the directory at the end, unless it belongs to another process.
    _owned: Option<tempfile::TempDir>,
}

impl BenchRun {
    pub(crate) fn new(targets: Vec<Target>, platform: Platform) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = Self::in_directory(dir.path(), targets, platform);
        Self { _owned: Some(dir), ..run }
    }

    /// Returns a run in the directory of another process.
    pub(crate) fn in_directory(dir: &Path, targets: Vec<Target>, platform: Platform) -> Self {
        let seconds = Duration::from_secs;
        let plan = RunPlan {
            targets,
            platforms: vec![platform],
            workload: Workload::paper().unwrap(),
            scale: SCALE,
            repeats: 1,
            seed: 1,
            limits: Limits { mount: seconds(10), job: seconds(60), unmount: seconds(10) },
            shape: Shape::default(),
            method: Method::default(),
            state: dir.join("state"),
            scratch: dir.join("scratch"),
            machine: "a test's machine".to_owned(),
        };
        Self { plan, dir: dir.to_owned(), _owned: None }
    }

    /// Leaves only these jobs.
    pub(crate) fn jobs(mut self, names: &[&str]) -> Self {
        self.plan.workload.jobs.retain(|job| names.contains(&job.name.as_str()));
        self
    }

    /// Replaces the workload.
    pub(crate) fn workload(mut self, name: &str) -> Self {
        self.plan.workload = Workload::find(name).unwrap();
        self
    }

    pub(crate) fn results_path(&self) -> PathBuf {
        self.dir.join("results.jsonl")
    }

    pub(crate) fn run_until(&self, is_stopped: &AtomicBool, each: &dyn Fn()) -> Result<(), RunError> {
        let mut results = Results::open(&self.results_path(), &self.plan.conditions()).unwrap();
        run(&self.plan, &programs(), &mut results, &environment, &|_| each(), is_stopped)
    }

    /// Runs, and checks that nothing is left on the machine.
    pub(crate) fn run(&self) -> Vec<Record> {
        self.run_until(&AtomicBool::new(false), &|| {}).unwrap();
        self.check_nothing_is_left();
        Results::read(&self.results_path()).unwrap()
    }

    /// Runs, and returns the error that ends the run.
    pub(crate) fn try_run(&self) -> Result<Vec<Record>, RunError> {
        self.run_until(&AtomicBool::new(false), &|| {})?;
        Ok(Results::read(&self.results_path()).unwrap())
    }

    pub(crate) fn check_nothing_is_left(&self) {
        let scratch = self.plan.scratch.display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&scratch), "a mount is left");
        assert!(!has_loop_device_in(&scratch), "a loop device is left");
        let left: Vec<_> = std::fs::read_dir(&self.plan.scratch).into_iter().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!has_process_in(&scratch), "a process is left");
    }
}

/// Returns the outcome of a job in the first repeat.
pub(crate) fn outcome<'r>(records: &'r [Record], job: &str) -> &'r Outcome {
    let found = records.iter().find(|record| record.cell.job == job && record.cell.repeat == 0);
    &found.unwrap_or_else(|| panic!("no result of {job}")).outcome
}

/// Whether the file of a loop device is below the directory.
fn has_loop_device_in(dir: &str) -> bool {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut files =
        devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.any(|file| file.starts_with(dir))
}

/// Whether a process has the directory among its arguments.
pub(crate) fn has_process_in(dir: &str) -> bool {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut others = processes.filter(|entry| entry.file_name().to_string_lossy() != own);
    others.any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(dir)
    })
}

pub(crate) fn programs() -> Programs {
    Programs {
        tenon: PathBuf::from("/no/tenon"),
        minio: Some(servers::program("minio")),
        search_path: ["/bin", "/usr/bin", "/sbin", "/usr/sbin"].map(PathBuf::from).to_vec(),
        inherited: Default::default(),
    }
}

/// Returns variables with the credentials of the servers that tests start.
pub(crate) fn environment(name: &str) -> Option<String> {
    let server = servers::shared_minio;
    match name {
        "LAB_ACCESS" => Some(server().access_key().to_owned()),
        "LAB_SECRET" => Some(server().secret_key().to_owned()),
        _ => None,
    }
}
