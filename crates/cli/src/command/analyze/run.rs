//! `tenon analyze run`: runs one workload on any storage node, with kernel tracing.

use super::scale::ScaleFlags;
use super::{OutputFlags, wait_for_signal, write};
use crate::command::flags::StoreFlags;
use crate::command::output::Progress;
use crate::command::units;
use crate::process;
use crate::process::context::ProcessContext;
use analyze::compare::{Measurement, Probe};
use analyze::model::{Naming, Scope, SystemResult};
use analyze::report;
use analyze::setup::drop_caches;
use analyze::trace::Recorder;
use analyze::workload::{Load, Workload};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use store::{Buckets, ObjectStore};
use store_s3::S3Buckets;

/// Run a workload on any S3 endpoint while the kernel traces the node's device, file system and processes.
///
/// Objects are stored below a prefix of their own and removed at the end. If the node runs on another machine, leave
/// out --device, --mount and --pid; then only times are measured.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Workload: W-O, R-O, R-W, put-4k, get-4k, put-64k, get-64k, get-64k-cold, enumerate, aged-R-O, aged-R-W
    #[arg(long, value_name = "NAME")]
    workload: Workload,
    /// Bucket to write to; it must exist
    #[arg(long, value_name = "NAME")]
    bucket: String,
    /// Block device that holds the node's data, like /dev/sdb (repeatable)
    #[arg(long, value_name = "DEVICE")]
    device: Vec<PathBuf>,
    /// Mount point of the file system on the device (repeatable)
    #[arg(long, value_name = "DIR", requires = "device", conflicts_with = "no_trace")]
    mount: Vec<PathBuf>,
    /// Process of the node (repeatable; CPU is measured for the first)
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// How the node names its files (default: files)
    #[arg(long, value_name = "KIND", requires = "mount")]
    naming: Option<NamingFlag>,
    /// Measure times only
    #[arg(long)]
    no_trace: bool,
    /// Keep the objects
    #[arg(long)]
    keep: bool,
    /// Capacity of the node, for the aged workloads
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    capacity: Option<u64>,
    /// Write the device's requests to this file, for `tenon analyze what-if`
    #[arg(long, value_name = "FILE", requires = "device", conflicts_with = "no_trace")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    scale: ScaleFlags,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// How to distinguish object data from metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NamingFlag {
    /// Each file holds the data of an object
    Files,
    /// Like MinIO: files named xl.meta hold metadata
    Minio,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode> {
        if self.workload.is_aged() && self.capacity.is_none() {
            bail!("{} needs the node's capacity: give --capacity", self.workload);
        }
        Probe::check(self.pid.first().copied(), &self.scope(), self.is_traced())?;
        self.output.check()?;
        if let Some(path) = &self.trace {
            write(path, "")?;
        }
        let progress = Progress::start();
        let runtime = process::runtime()?;
        let measured = runtime.block_on(self.measure(&progress))?;
        drop(progress);
        let result = self.result(&measured);
        print!("{}", report::terminal(std::slice::from_ref(&result)));
        let systems = [result];
        self.output.write(&report::json(&systems)?, &systems)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn measure(&self, progress: &Progress) -> Result<Measurement> {
        let (context, scale) = (ProcessContext::system()?, self.scale.scale());
        let clients = self.clients(scale.clients, &context).await?;
        let prefix = format!("tenon-analyze-{:016x}/", context.entropy.next_u64());
        let load = Load::new(clients, &prefix, scale.seed, scale.verify_every);
        progress.show(&format!("preparing {}: {}", self.workload, self.workload.scale(&scale)));
        let done = self.run_until_signal(&load, progress).await;
        if self.keep {
            progress.show(&format!("objects are kept below {prefix}"));
        } else {
            progress.show("removing the objects");
            let cleaned = load.clean().await;
            let removed = cleaned.with_context(|| format!("objects below {prefix} may be left"));
            // The first error is the one that matters.
            return done.and_then(|done| removed.map(|()| done));
        }
        done
    }

    /// Runs the workload, or stops it at a signal. Requests in flight are awaited then; otherwise the node could
    /// complete them after the objects were removed.
    async fn run_until_signal(&self, load: &Load, progress: &Progress) -> Result<Measurement> {
        let mut working = pin!(self.prepare_and_measure(load, progress));
        tokio::select! {
            done = &mut working => done,
            error = wait_for_signal() => {
                load.stop();
                // The signal is the reason for the end, whatever the outcome.
                drop(working.await);
                Err(error)
            }
        }
    }

    async fn prepare_and_measure(&self, load: &Load, progress: &Progress) -> Result<Measurement> {
        let (scale, workload) = (self.scale.scale(), self.workload);
        workload.prepare(load, &scale, self.capacity.unwrap_or(u64::MAX)).await?;
        if self.is_cold() {
            drop_caches().context("cannot drop the kernel's caches; run as root")?;
        }
        progress.show(&format!("measuring {workload}; {}", self.caches()));
        let probe = Probe::start(self.pid.first().copied(), self.scope(), self.is_traced())?;
        let (measured, trace) = probe.stop(workload.perform(load, &scale).await?)?.digest(None);
        if let (Some(path), Some(trace)) = (&self.trace, trace) {
            write(path, &serde_json::to_string(&trace.requests())?)?;
        }
        Ok(measured)
    }

    async fn clients(&self, count: usize, context: &ProcessContext) -> Result<Vec<Arc<dyn ObjectStore>>> {
        let store = self.store.settings();
        let mut clients: Vec<Arc<dyn ObjectStore>> = Vec::new();
        for _ in 0..count {
            let (clock, entropy) = (Arc::clone(&context.clock), Arc::clone(&context.entropy));
            let buckets = S3Buckets::new(store.s3_config(None)?, clock, entropy)?;
            buckets.sign_in().await?;
            let opened = buckets.open(&self.bucket).await;
            clients.push(opened.with_context(|| format!("cannot open the bucket {}", self.bucket))?);
        }
        Ok(clients)
    }

    fn is_traced(&self) -> bool {
        !self.no_trace && !self.device.is_empty()
    }

    /// Returns whether the kernel's caches are dropped before the measurement.
    fn is_cold(&self) -> bool {
        self.workload.is_cold() && !self.device.is_empty()
    }

    /// Describes the state of the caches at the beginning of the measurement.
    fn caches(&self) -> &'static str {
        match (self.workload.is_cold(), self.device.is_empty()) {
            (true, false) => "cold: the kernel's caches were dropped; the node's own are as they were",
            (true, true) => "warm: without --device the kernel's caches are not dropped",
            (false, _) => "warm: caches are as the preparation left them",
        }
    }

    fn scope(&self) -> Scope {
        let naming = match self.naming {
            None | Some(NamingFlag::Files) => Naming::Files,
            Some(NamingFlag::Minio) => Naming::Minio,
        };
        Scope {
            devices: self.device.clone(),
            mounts: self.mount.clone(),
            processes: self.pid.clone(),
            naming,
            ..Scope::default()
        }
    }

    fn result(&self, measured: &Measurement) -> SystemResult {
        let scale = self.scale.scale();
        let mut about = vec![
            ("caches".to_owned(), self.caches().to_owned()),
            ("client CPU".to_owned(), format!("{:.2} s", measured.usage.client_secs)),
            ("machine CPU".to_owned(), format!("{:.2} s", measured.usage.machine_secs)),
            ("bodies compared byte by byte".to_owned(), measured.done.compared.to_string()),
        ];
        if let Some(secs) = measured.usage.server_secs {
            about.push(("server CPU".to_owned(), format!("{secs:.2} s")));
        }
        if !self.device.is_empty() {
            about.push(("flushes of the device".to_owned(), measured.io.flushes.to_string()));
        }
        SystemResult {
            system: self.store.settings().endpoint_url.unwrap_or_else(|| self.bucket.clone()),
            about,
            capabilities: Recorder::probe(),
            throughput: Vec::new(),
            workloads: vec![measured.result(self.workload, &scale, measured.clone())],
        }
    }
}
