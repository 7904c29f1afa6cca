//! Numbers made of a trace: pure computations.

use crate::model::{Caches, CpuTime, Measured, Metrics, Request, WhatIf};
use crate::trace::Trace;

/// What the whole trace says.
pub fn metrics(_trace: &Trace) -> Metrics {
    Metrics {
        seconds: 0.0,
        lost_events: 0,
        layers: unfilled(),
        layers_by_call: Vec::new(),
        io: unfilled(),
        chains: unfilled(),
        heatmaps: Vec::new(),
        caches: Caches {
            dentry_misses: unfilled(),
            inode_misses: unfilled(),
            page_insertions: unfilled(),
            page_evictions: unfilled(),
            page_miss_ratio: unfilled(),
        },
        locks: unfilled(),
        cpu: Measured::Is { value: CpuTime::default(), source: String::new(), proxy_for: None },
    }
}

/// What one phase of the trace says; `None` if it was never marked.
pub fn metrics_of_phase(_trace: &Trace, _phase: &str) -> Option<Metrics> {
    None
}

/// A storage device's parameters.
#[derive(Debug, Clone)]
pub struct DeviceModel;

impl DeviceModel {
    /// From a parameters file's text (TOML; those of the crate are in `devices/`).
    pub fn parse(_text: &str) -> Result<Self, String> {
        Ok(Self)
    }

    /// The crate's own: the paper's hard disk and solid-state drive.
    pub fn known() -> Vec<Self> {
        Vec::new()
    }
}

/// What the same requests would cost on another device (Figure 6).
pub fn what_if(_requests: &[Request], _model: &DeviceModel) -> WhatIf {
    WhatIf {
        device: String::new(),
        source: String::new(),
        busy_seconds: 0.0,
        seconds: 0.0,
        by_kind: Vec::new(),
    }
}

fn unfilled<T>() -> Measured<T> {
    Measured::NotAvailable { why: "not built yet".into() }
}
