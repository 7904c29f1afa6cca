//! Everything that is taken while a workload runs: times, CPU, the device's counters, a trace.

use crate::metrics;
use crate::model::{Metrics, Scope, TraceError, WhatIf, WorkloadResult};
use crate::setup::{DeviceCounters, SetupError};
use crate::trace::{Recorder, Recording, Trace};
use crate::workload::{Done, Scale, Usage, UsageMeter, Workload};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What a workload took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measurement {
    /// What was done, how fast.
    pub done: Done,
    /// CPU.
    pub usage: Usage,
    /// What the devices were asked for.
    pub io: DeviceCounters,
    /// Seconds until what was acknowledged at the end was on the medium, with all else that the system had not written;
    /// `None` where nobody asked.
    pub settle_secs: Option<f64>,
    /// What the trace says; `None` without one.
    pub metrics: Option<Metrics>,
    /// The traced requests on modelled devices.
    pub what_if: Vec<WhatIf>,
}

/// Why a workload could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The devices.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The processes.
    #[error("/proc: {0}")]
    Usage(#[from] std::io::Error),
}

/// Watches from its start to its stop.
#[derive(Debug)]
pub struct Probe {
    devices: Vec<PathBuf>,
    io: DeviceCounters,
    recording: Option<Recording>,
    usage: UsageMeter,
}

impl Probe {
    /// Begins to watch a server's process, devices and, if that is wanted, the whole scope by a trace.
    ///
    /// # Errors
    /// If one of them is not there.
    pub fn start(server: Option<u32>, scope: Scope, is_traced: bool) -> Result<Self, ProbeError> {
        let devices = scope.devices.clone();
        let name = devices.first().and_then(|device| device.file_name()?.to_str().map(str::to_owned));
        Ok(Self {
            recording: is_traced.then(|| Recorder::start(scope)).transpose()?,
            io: count(&devices)?,
            usage: UsageMeter::start(server, name.as_deref())?,
            devices,
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`Probe::start`].
    pub fn stop(self, done: Done) -> Result<Measurement, ProbeError> {
        Ok(self.stop_with_trace(done)?.0)
    }

    /// Ends it, and gives the trace too.
    ///
    /// # Errors
    /// As [`Probe::start`].
    pub fn stop_with_trace(self, done: Done) -> Result<(Measurement, Option<Trace>), ProbeError> {
        let usage = self.usage.stop()?;
        let io = count(&self.devices)?.since(&self.io);
        let trace = self.recording.map(Recording::stop).transpose()?;
        let modelled = |trace: &Trace| {
            let requests = trace.requests();
            metrics::DeviceModel::known().iter().map(|model| metrics::what_if(requests, model)).collect()
        };
        let what_if = trace.as_ref().map(modelled).unwrap_or_default();
        let metrics = trace.as_ref().map(metrics::metrics);
        Ok((Measurement { done, usage, io, settle_secs: None, metrics, what_if }, trace))
    }
}

fn count(devices: &[PathBuf]) -> Result<DeviceCounters, SetupError> {
    DeviceCounters::of_all(devices.iter().map(Path::new))
}

impl Measurement {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.done.operations() as f64 / self.done.wall_secs
    }

    /// Bytes of bodies a second.
    pub fn throughput(&self) -> f64 {
        self.done.bytes() as f64 / self.done.wall_secs
    }

    /// CPU seconds of the server for each GiB of bodies; `None` of workloads without, or where no process was named.
    pub fn server_secs_per_gib(&self) -> Option<f64> {
        let gib = self.done.bytes() as f64 / (1u64 << 30) as f64;
        self.usage.server_secs.filter(|_| gib > 0.0).map(|secs| secs / gib)
    }

    /// As reports draw it, with what a traced run of the same said.
    pub fn result(&self, workload: Workload, scale: &Scale, traced: Self) -> WorkloadResult {
        let slowest = |share: f64| {
            let kinds = [&self.done.put, &self.done.get, &self.done.list];
            kinds.iter().map(|kind| kind.latency.quantile(share).as_secs_f64()).fold(0.0, f64::max)
        };
        WorkloadResult {
            workload: workload.name().to_owned(),
            scale: workload.scale(scale),
            seconds: self.done.wall_secs,
            operations: self.done.operations(),
            bytes: self.done.bytes(),
            errors: self.done.errors,
            latency: [("p50", 0.5), ("p99", 0.99), ("max", 1.0)]
                .map(|(name, share)| (name.to_owned(), slowest(share)))
                .to_vec(),
            metrics: traced.metrics,
            what_if: traced.what_if,
        }
    }
}
