//! Everything that is taken while a workload runs: times, CPU, the device's counters, a trace.

use crate::metrics;
use crate::model::{Metrics, Naming, Scope, TraceError, WhatIf, WorkloadResult};
use crate::setup::{DeviceCounters, SetupError};
use crate::trace::{Recorded, Recorder, Recording, Trace};
use crate::workload::{Done, Scale, Usage, UsageMeter, Workload};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a workload took.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// How often it was done, each time with nothing cached; all else is the sum.
    pub passes: usize,
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

    /// That it can begin, before hours of preparing.
    ///
    /// # Errors
    /// As [`Probe::start`].
    pub fn check(server: Option<u32>, scope: &Scope, is_traced: bool) -> Result<(), ProbeError> {
        count(&scope.devices)?;
        UsageMeter::start(server, None)?;
        if is_traced {
            Recorder::check(scope)?;
        }
        Ok(())
    }

    /// Ends it. What was traced is yet to be looked at; the server may end meanwhile.
    ///
    /// # Errors
    /// As [`Probe::start`].
    pub fn stop(self, done: Done) -> Result<Watched, ProbeError> {
        let usage = self.usage.stop()?;
        let io = count(&self.devices)?.since(&self.io);
        let recorded = self.recording.map(Recording::end).transpose()?;
        let measured = Measurement { passes: 1, done, usage, io, ..Measurement::default() };
        Ok(Watched { measured, recorded })
    }
}

/// What a workload took, with a trace that is yet to be looked at.
#[derive(Debug)]
pub struct Watched {
    measured: Measurement,
    recorded: Option<Recorded>,
}

impl Watched {
    /// What the trace says, named by what is known now if that is more than when it began; and the trace.
    pub fn digest(self, naming: Option<Naming>) -> (Measurement, Option<Trace>) {
        let renamed = |recorded: Recorded| match naming {
            Some(naming) => recorded.named(naming),
            None => recorded,
        };
        let trace = self.recorded.map(|recorded| renamed(recorded).digest());
        let modelled = |trace: &Trace| {
            let requests = trace.requests();
            metrics::DeviceModel::known().iter().map(|model| metrics::what_if(requests, model)).collect()
        };
        let what_if = trace.as_ref().map(modelled).unwrap_or_default();
        let metrics = trace.as_ref().map(metrics::metrics);
        (Measurement { metrics, what_if, ..self.measured }, trace)
    }
}

fn count(devices: &[PathBuf]) -> Result<DeviceCounters, SetupError> {
    DeviceCounters::of_all(devices.iter().map(Path::new))
}

impl Measurement {
    /// Adds a further pass.
    pub(super) fn add_pass(&mut self, pass: &Self) {
        self.passes += pass.passes;
        self.done.add_pass(&pass.done);
        self.usage.add(&pass.usage);
        self.io = self.io.plus(&pass.io);
        self.settle_secs = self.settle_secs.zip(pass.settle_secs).map(|(one, other)| one + other);
    }

    /// Seconds for each operation: runs last some time, and do as much as they can.
    pub fn secs_per_operation(&self) -> f64 {
        self.done.wall_secs / self.done.operations().max(1) as f64
    }

    /// CPU seconds of the server for each operation; not a number where no process was named.
    pub fn server_secs_per_operation(&self) -> f64 {
        self.usage.server_secs.unwrap_or(f64::NAN) / self.done.operations().max(1) as f64
    }

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

    /// The p50 of R-O was that of its few slow PUTs, as that of the slower kind was shown without saying so.
    #[test]
    fn latencies_are_of_all_operations() {
        let mut measured = Measurement::default();
        (0..95).for_each(|_| measured.done.get.latency.record(Duration::from_millis(1)));
        (0..5).for_each(|_| measured.done.put.latency.record(Duration::from_millis(100)));
        let shown = measured.result(Workload::ReadOnly, &Scale::tiny(), Measurement::default()).latency;
        let of = |name: &str| shown.iter().find(|(other, _)| other == name).unwrap().1;
        assert!((of("p50") / 0.001 - 1.0).abs() < 0.04, "{shown:?}");
        assert!((of("p99") / 0.1 - 1.0).abs() < 0.04, "{shown:?}");
    }
}
