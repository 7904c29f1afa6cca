//! `tenon bench probe`: tries which features of a file system each package has.

use super::run::MOUNT_TIMEOUT;
use super::surroundings::{Places, platforms};
use analyze::compare::Conditions;
use anyhow::{Context, Result};
use bench::{Limits, Method, ProbeEvent, RunPlan, Scale, Workload};
use clap::Args;
use harness::Shape;
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of a feature.
const FEATURE_TIMEOUT: Duration = Duration::from_secs(30);

/// Try which features of a file system each package has on a mount.
///
/// Needs root for mounts. A feature that a package documents, but that does not work here, is shown as a no with its error.
#[derive(Debug, Args)]
pub(super) struct Probe {
    /// Packages to try, separated by commas (default: all)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Object store: minio, tenon-dir, tenon-drive, directory, aws, or NAME=URL, with settings
    #[arg(long, value_name = "PLATFORM", default_value = "minio")]
    platform: String,
    /// Write the findings to this file, for the report
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directory for everything that is created
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
    #[command(flatten)]
    places: Places,
}

impl Probe {
    pub(super) fn run(self) -> Result<ExitCode> {
        let plan = RunPlan {
            targets: self.places.targets(&self.packages)?,
            platforms: platforms(&[self.platform])?,
            workload: Workload::paper()?,
            scale: Scale::TINY,
            repeats: 1,
            seed: 1,
            limits: Limits { mount: MOUNT_TIMEOUT, job: FEATURE_TIMEOUT, unmount: MOUNT_TIMEOUT },
            shape: Shape::default(),
            method: Method::default(),
            scratch: self.scratch,
            state: self.places.state(),
            machine: Conditions::this_machine(),
        };
        let programs = self.places.programs(plan.targets.iter().map(|target| &target.package))?;
        let columns = RefCell::new(Vec::new());
        let observe = |event: ProbeEvent<'_>| match event {
            ProbeEvent::Tried(name, finding) => eprintln!("{name}, {}: {}", finding.feature, finding.verdict),
            ProbeEvent::Ended((name, Err(failure))) => eprintln!("{name}: {failure}"),
            ProbeEvent::Ended((name, Ok(findings))) => {
                columns.borrow_mut().push((name.clone(), findings.clone()));
            }
        };
        let probed = bench::probe_all(&plan, &programs, &observe);
        // The findings so far are shown also if the platform failed.
        let columns = columns.into_inner();
        print!("{}", bench::matrix(&columns).to_text());
        if let Some(path) = &self.out {
            let text = serde_json::to_string(&columns)?;
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        probed?;
        Ok(ExitCode::SUCCESS)
    }
}
