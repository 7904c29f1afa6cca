//! Measurement of a workload: times, CPU, the devices' counters, and optionally a trace.

use crate::metrics;
use crate::model::{Metrics, Naming, Scope, TraceError, WhatIf, WorkloadResult};
use crate::setup::{DeviceCounters, SetupError};
use crate::trace::{Recorded, Recorder, Recording, Trace};
use crate::workload::{Done, Scale, Usage, UsageMeter, Workload};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The measurement of a workload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// Number of passes; a workload that is repeated begins each pass with cold caches. All other fields but
    /// `metrics` and `what_if` are sums over the passes.
    pub passes: usize,
    /// Completed operations and their latencies.
    pub done: Done,
    /// CPU time.
    pub usage: Usage,
    /// Requests to the devices.
    pub io: DeviceCounters,
    /// Seconds from the end of the workload until all its data was on the medium; `None` if not measured.
    pub settle_secs: Option<f64>,
    /// Metrics of the trace; `None` without a trace.
    pub metrics: Option<Metrics>,
    /// Cost of the traced requests on modelled devices.
    pub what_if: Vec<WhatIf>,
}

/// Reasons why a measurement fails.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The trace failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The devices' counters cannot be read.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The CPU times of processes cannot be read.
    #[error("/proc: {0}")]
    Usage(#[from] std::io::Error),
}

/// A measurement in progress.
#[derive(Debug)]
pub struct Probe {
    devices: Vec<PathBuf>,
    io: DeviceCounters,
    recording: Option<Recording>,
    usage: UsageMeter,
}

impl Probe {
    /// Starts to measure the CPU time of a server process, the devices' counters and, if `is_traced`, a trace of the scope.
    ///
    /// # Errors
    /// If the process or a device does not exist, or tracing is not possible.
    pub fn start(server: Option<u32>, scope: Scope, is_traced: bool) -> Result<Self, ProbeError> {
        let devices = scope.devices.clone();
        let name = devices.first().and_then(|device| device.file_name()?.to_str().map(str::to_owned));
        Ok(Self {
            recording: is_traced.then(|| Recorder::start(scope)).transpose()?,
            io: read_counters(&devices)?,
            usage: UsageMeter::start(server, name.as_deref())?,
            devices,
        })
    }

    /// Checks that a measurement can start, to fail before hours of preparation.
    ///
    /// # Errors
    /// As [`Probe::start`].
    pub fn check(server: Option<u32>, scope: &Scope, is_traced: bool) -> Result<(), ProbeError> {
        read_counters(&scope.devices)?;
        UsageMeter::start(server, None)?;
        if is_traced {
            Recorder::check(scope)?;
        }
        Ok(())
    }

    /// Ends the measurement of a workload that has done this. The trace is not analyzed yet; the server may be stopped before
    /// [`Watched::digest`].
    ///
    /// # Errors
    /// If the CPU times, the devices' counters or the trace cannot be read.
    pub fn stop(self, done: Done) -> Result<Watched, ProbeError> {
        let usage = self.usage.stop()?;
        let io = read_counters(&self.devices)?.since(&self.io);
        let recorded = self.recording.map(Recording::end).transpose()?;
        let measured = Measurement { passes: 1, done, usage, io, ..Measurement::default() };
        Ok(Watched { measured, recorded })
    }
}

/// A finished measurement whose trace is not analyzed yet.
#[derive(Debug)]
pub struct Watched {
    measured: Measurement,
    recorded: Option<Recorded>,
}

impl Watched {
    /// Analyzes the trace, if there is one, and returns the complete measurement with the trace. `naming` replaces that of the scope.
    pub fn digest(self, naming: Option<Naming>) -> (Measurement, Option<Trace>) {
        let with_naming = |recorded: Recorded| match naming {
            Some(naming) => recorded.named(naming),
            None => recorded,
        };
        let trace = self.recorded.map(|recorded| with_naming(recorded).digest());
        let modelled = |trace: &Trace| {
            let requests = trace.requests();
            metrics::DeviceModel::known().iter().map(|model| metrics::what_if(requests, model)).collect()
        };
        let what_if = trace.as_ref().map(modelled).unwrap_or_default();
        let metrics = trace.as_ref().map(metrics::metrics);
        (Measurement { metrics, what_if, ..self.measured }, trace)
    }
}

fn read_counters(devices: &[PathBuf]) -> Result<DeviceCounters, SetupError> {
    DeviceCounters::of_all(devices.iter().map(Path::new))
}

impl Measurement {
    /// Adds another pass.
    pub(super) fn add_pass(&mut self, pass: &Self) {
        self.passes += pass.passes;
        self.done.add_pass(&pass.done);
        self.usage.add(&pass.usage);
        self.io = self.io.plus(&pass.io);
        self.settle_secs = self.settle_secs.zip(pass.settle_secs).map(|(one, other)| one + other);
    }

    /// Returns the seconds per operation. Runs have a minimum duration, so their numbers of operations differ.
    pub fn secs_per_operation(&self) -> f64 {
        self.done.wall_secs / self.done.operations().max(1) as f64
    }

    /// Returns the server's CPU seconds per operation; NaN if no server process was given.
    pub fn server_secs_per_operation(&self) -> f64 {
        self.usage.server_secs.unwrap_or(f64::NAN) / self.done.operations().max(1) as f64
    }

    /// Returns the operations per second.
    pub fn rate(&self) -> f64 {
        self.done.operations() as f64 / self.done.wall_secs
    }

    /// Returns the bytes of object content per second.
    pub fn throughput(&self) -> f64 {
        self.done.bytes() as f64 / self.done.wall_secs
    }

    /// Returns the server's CPU seconds per GiB of object content; `None` if there was no content or no server process was given.
    pub fn server_secs_per_gib(&self) -> Option<f64> {
        let gib = self.done.bytes() as f64 / (1u64 << 30) as f64;
        self.usage.server_secs.filter(|_| gib > 0.0).map(|secs| secs / gib)
    }

    /// Makes the result for reports, with metrics and what-if of a traced run of the same workload.
    pub fn result(&self, workload: Workload, scale: &Scale, traced: Self) -> WorkloadResult {
        let latency = self.done.latency();
        WorkloadResult {
            workload: workload.name().to_owned(),
            scale: workload.scale(scale),
            seconds: self.done.wall_secs,
            operations: self.done.operations(),
            bytes: self.done.bytes(),
            errors: self.done.errors,
            latency: [("p50", 0.5), ("p99", 0.99), ("max", 1.0)]
                .map(|(name, share)| (name.to_owned(), latency.quantile(share).as_secs_f64()))
                .to_vec(),
            metrics: traced.metrics,
            what_if: traced.what_if,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A bug: the report showed the latency of the slower kind of operation, so the p50 of R-O was that of its few slow PUTs.
    #[test]
    fn latencies_include_all_operations() {
        let mut measured = Measurement::default();
        (0..95).for_each(|_| measured.done.get.latency.record(Duration::from_millis(1)));
        (0..5).for_each(|_| measured.done.put.latency.record(Duration::from_millis(100)));
        let shown = measured.result(Workload::ReadOnly, &Scale::tiny(), Measurement::default()).latency;
        let seconds = |name: &str| shown.iter().find(|(other, _)| other == name).unwrap().1;
        assert!((seconds("p50") / 0.001 - 1.0).abs() < 0.04, "{shown:?}");
        assert!((seconds("p99") / 0.1 - 1.0).abs() < 0.04, "{shown:?}");
    }
}
