//! Metrics of a process: their table, the collection of their samples, and the HTTP server for monitoring systems.
//!
//! Invariant: [`table::METRICS`] is the list of docs/metrics.md, and each of its metrics is in every text, with or without
//! samples.

mod collect;
mod process_figures;
mod server;
mod table;

pub(crate) use collect::{Figures, collect, collect_handler};
pub(crate) use server::{MetricsServer, MetricsSource};

use crate::endpoint::meter::EndpointMeter;
use std::net::SocketAddr;
use std::sync::Arc;

/// Port of metrics where an address names none. Prometheus has given away all ports of its own range, 9100 to 9999.
pub(crate) const DEFAULT_PORT: u16 = 8366;

/// Settings of the metrics of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricsSettings {
    /// Address to serve metrics at; `None` serves none.
    pub(crate) address: Option<SocketAddr>,
    /// Meter of the S3 endpoint.
    pub(crate) endpoint: Option<Arc<EndpointMeter>>,
}
