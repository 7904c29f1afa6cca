//! Settings of a console.

use std::time::Duration;

/// Settings of a console.
#[derive(Debug, Clone)]
pub struct ConsoleOptions {
    /// URL at which clients reach the S3 endpoint; `None` if the process serves only the console, whose pages then
    /// offer no presigned links.
    pub endpoint_url: Option<String>,
    /// Interval between the points of plots, and between updates of the page with the plots.
    pub sample_interval: Duration,
    /// Length of an upload above which it is sent to the endpoint in parts, and of these parts, in bytes: at least 5 MiB,
    /// at most 5 GiB. The parts are longer if there would be more than 10,000.
    pub part_bytes: u64,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self { endpoint_url: None, sample_interval: Duration::from_secs(10), part_bytes: 1 << 30 }
    }
}
