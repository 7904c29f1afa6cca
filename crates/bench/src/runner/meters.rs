//! Counters that are read at the beginning and the end of a job.

use super::endpoint::Endpoint;
use crate::outcome::{Clocks, Measurement};
use harness::{Histogram, Traffic, Usage, process_usage};
use std::time::Duration;

/// Counters at the beginning of a job.
pub(super) struct Meters {
    traffic: Option<Traffic>,
    server_cpu_seconds: Option<f64>,
    /// CPU time of this process.
    own_cpu: Option<Duration>,
}

/// The work of a job, done by the testbed or by a program.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    pub(super) span: Duration,
    pub(super) files: u64,
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) latency: Option<Histogram>,
}

impl Meters {
    pub(super) fn read(endpoint: &Endpoint) -> Self {
        Self {
            traffic: endpoint.traffic(),
            server_cpu_seconds: endpoint.server_cpu_seconds(),
            own_cpu: process_usage::cpu_time(std::process::id()).ok(),
        }
    }

    /// Returns the traffic since this reading; `None` if it is not counted.
    pub(super) fn traffic_until_now(&self, endpoint: &Endpoint) -> Option<Traffic> {
        Some(endpoint.traffic()?.since(self.traffic.as_ref()?))
    }

    /// Returns the CPU time of this process since the beginning, that of the proxy included.
    pub(super) fn own_usage(&self) -> Option<Usage> {
        let cpu = process_usage::cpu_time(std::process::id()).ok()?.checked_sub(self.own_cpu?)?;
        Some(Usage { cpu, memory_peak_bytes: None })
    }

    /// Returns the measurement of a job that is done.
    pub(super) fn measurement(
        &self,
        done: &Done,
        clocks: Clocks,
        usage: Option<Usage>,
        endpoint: &Endpoint,
    ) -> Measurement {
        let server = endpoint.server_cpu_seconds().zip(self.server_cpu_seconds);
        Measurement {
            files: done.files,
            bytes: done.bytes,
            operations: done.operations,
            latency: done.latency.clone(),
            clocks,
            cpu_seconds: usage.map(|usage| usage.cpu.as_secs_f64()),
            server_cpu_seconds: server.map(|(now, before)| now - before),
            memory_peak_bytes: usage.and_then(|usage| usage.memory_peak_bytes),
            traffic: self.traffic_until_now(endpoint),
        }
    }
}
