//! The plan of a run: targets, platforms, jobs, and the limits of each phase.

use super::endpoint::EndpointOptions;
use crate::package::Target;
use crate::plan::{Grid, Session};
use crate::platform::Platform;
use crate::results::{Conditions, Results};
use crate::workload::{Scale, Workload};
use harness::Shape;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The plan of a run: the cells, and how they are measured.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Packages with their versions.
    pub targets: Vec<Target>,
    /// Object stores.
    pub platforms: Vec<Platform>,
    /// Jobs.
    pub workload: Workload,
    /// Numbers and sizes of files.
    pub scale: Scale,
    /// Number of repeats.
    pub repeats: u32,
    /// Seed of the order of small files.
    pub seed: u64,
    /// Time limits.
    pub limits: Limits,
    /// The network that the proxy imitates.
    pub shape: Shape,
    /// How jobs are done.
    pub method: Method,
    /// Directory for everything that the run creates.
    pub scratch: PathBuf,
    /// Directory of the journal.
    pub state: PathBuf,
    /// Description of the machine.
    pub machine: String,
}

/// How jobs are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Method {
    /// Whether the kernel's caches are dropped before reads.
    pub drops_caches: bool,
    /// Whether free memory is filled before each job.
    pub fills_memory: bool,
    /// Whether files are copied by `cp`, as the paper's program does.
    pub as_paper: bool,
}

/// Time limits of the phases of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Formatting and mounting.
    pub mount: Duration,
    /// The job.
    pub job: Duration,
    /// Syncing and unmounting.
    pub unmount: Duration,
}

/// Programs that the testbed itself starts, and where packages' programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Path of Tenon.
    pub tenon: PathBuf,
    /// Path of MinIO, if it is installed.
    pub minio: Option<PathBuf>,
    /// Directories with programs.
    pub search_path: Vec<PathBuf>,
    /// Variables that packages inherit, by name.
    pub inherited: BTreeMap<String, String>,
}

impl RunPlan {
    /// Returns the conditions of all results.
    pub fn conditions(&self) -> Conditions {
        Conditions {
            machine: self.machine.clone(),
            scale: self.scale,
            seed: self.seed,
            latency_ms: self.shape.latency.as_millis() as u64,
            bandwidth_bytes: self.shape.bandwidth_bytes,
            drops_caches: self.method.drops_caches,
            as_paper: self.method.as_paper,
        }
    }

    /// Returns the sessions that are left when earlier results are kept.
    pub(super) fn sessions(&self, results: &Results) -> Vec<Session> {
        let platforms: Vec<String> = self.platforms.iter().map(|platform| platform.name.clone()).collect();
        let targets: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        let grid = Grid {
            platforms: &platforms,
            targets: &targets,
            workload: &self.workload,
            repeats: self.repeats,
        };
        grid.sessions(&results.done())
    }

    pub(super) fn endpoint_options(&self) -> EndpointOptions {
        EndpointOptions {
            shape: self.shape,
            capacity_bytes: self.workload.capacity_bytes(&self.scale),
            keeps_data: false,
        }
    }

    pub(super) fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.to_string() == name)
    }

    pub(super) fn platform(&self, name: &str) -> Option<&Platform> {
        self.platforms.iter().find(|platform| platform.name == name)
    }
}

impl Programs {
    /// Returns the search path as the variable `PATH`. Directories that it cannot name are left out.
    pub(crate) fn search_path_text(&self) -> String {
        let names: Vec<&str> = self.search_path.iter().filter_map(|dir| dir.to_str()).collect();
        names.join(":")
    }

    /// Returns the path of a program.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.search_path.iter().map(|dir| dir.join(name)).find(|file| file.is_file())
    }
}
