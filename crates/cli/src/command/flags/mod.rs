//! Flags that several commands share, and the settings that they become. Each flag of `tenon mount` is also a `key=value` option of `mount -o`.
//!
//! Only commands read flags: all other modules take the settings.

pub(crate) mod console;
pub(crate) mod endpoint;
pub(crate) mod library;
pub(crate) mod views;
pub(crate) mod volume;

use crate::bucket::credentials::StoreSettings;
use crate::command::units;
use crate::process::files::read_secret;
use crate::process::logging::{self, LogFile, LogFormat};
use crate::serving::metrics::{self, MetricsSettings};
use crate::serving::trace_export::TraceExportSettings;
use anyhow::{Context, Result};
use clap::Args;
use otlp::{CollectorSettings, CollectorUrl, Headers};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store_s3::Addressing;

/// Flags for reaching the object store. Secrets are never flags: `ps` shows flags to everybody.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Object store")]
pub(crate) struct StoreFlags {
    /// URL of an S3-compatible server, like http://127.0.0.1:9000 (default: AWS)
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Profile in the AWS credentials and config files
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// File whose first line is ACCESS-KEY:SECRET-KEY, readable by its owner only
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    access_key_file: Option<PathBuf>,
    /// Send requests without a signature (public buckets)
    #[arg(long)]
    no_sign_request: bool,
    /// Put the bucket in the URL's path (the default with --endpoint-url)
    #[arg(long, conflicts_with = "virtual_host_style")]
    force_path_style: bool,
    /// Put the bucket in the URL's host name
    #[arg(long)]
    virtual_host_style: bool,
    /// PEM file of certificate authorities to trust in addition to the system's
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// Open a pool of drives although some are missing; access to what may be on a missing drive fails
    #[arg(long)]
    degraded: bool,
    /// How long to retry a failing request before reporting an error
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    pub(crate) retry_timeout: Duration,
}

impl StoreFlags {
    pub(crate) fn settings(&self) -> StoreSettings {
        let addressing = match (self.force_path_style, self.virtual_host_style) {
            (true, _) => Some(Addressing::Path),
            (_, true) => Some(Addressing::Host),
            _ => None,
        };
        StoreSettings {
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            profile: self.profile.clone(),
            access_key_file: self.access_key_file.clone(),
            access_key: None,
            is_anonymous: self.no_sign_request,
            addressing,
            ca_bundle: self.ca_bundle.clone(),
            degraded: self.degraded,
            retry_timeout: self.retry_timeout,
        }
    }
}

/// The flags of [`StoreFlags`] as arguments of another command.
#[derive(Debug)]
pub(crate) struct StoreArguments {
    pub(crate) endpoint_url: Option<String>,
    pub(crate) region: Option<String>,
    /// Flags that choose credentials.
    pub(crate) credentials: Vec<String>,
    pub(crate) others: Vec<String>,
}

impl StoreFlags {
    /// Returns the flags as arguments of another command. Paths become absolute.
    pub(crate) fn arguments(&self) -> Result<StoreArguments> {
        let path = |flag: &str, path: &Option<PathBuf>| {
            let absolute = path.as_deref().map(std::path::absolute).transpose();
            let absolute = absolute.with_context(|| format!("cannot resolve the path of --{flag}"))?;
            anyhow::Ok(absolute.map(|path| format!("--{flag}={}", path.display())))
        };
        let switch = |flag: &str, is_given: bool| is_given.then(|| format!("--{flag}"));
        let credentials = [
            self.profile.as_ref().map(|profile| format!("--profile={profile}")),
            path("access-key-file", &self.access_key_file)?,
            switch("no-sign-request", self.no_sign_request),
        ];
        let others = [
            path("ca-bundle", &self.ca_bundle)?,
            switch("force-path-style", self.force_path_style),
            switch("virtual-host-style", self.virtual_host_style),
            Some(format!("--retry-timeout={}ms", self.retry_timeout.as_millis())),
        ];
        Ok(StoreArguments {
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            credentials: credentials.into_iter().flatten().collect(),
            others: others.into_iter().flatten().collect(),
        })
    }
}

/// Flags of metrics.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsFlags {
    /// Serve metrics for Prometheus at this address, as /metrics (default port: 8366)
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = metrics_address)]
    metrics: Option<SocketAddr>,
}

impl MetricsFlags {
    /// Returns the settings. Requests to an S3 endpoint are counted only if something shows them: metrics, or the console.
    pub(crate) fn settings(&self, has_console: bool) -> MetricsSettings {
        let is_shown = has_console || self.metrics.is_some();
        MetricsSettings { address: self.metrics, endpoint: is_shown.then(Arc::default) }
    }
}

fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let without_port = |text: &str| {
        let host: IpAddr = text.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(SocketAddr::new(host, metrics::DEFAULT_PORT))
    };
    let address = text.parse().ok().or_else(|| without_port(text));
    address.ok_or_else(|| "write an IP address, with or without a port, like 127.0.0.1:8366".to_owned())
}

/// Flags of traces.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TraceFlags {
    /// Send traces of operations to the OpenTelemetry collector at this URL, by OTLP over HTTP (usual port: 4318)
    #[arg(long, value_name = "URL")]
    otlp: Option<CollectorUrl>,
    /// Share of the operations that are sent, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share, requires = "otlp")]
    otlp_sample: f64,
    /// File of headers for the collector, one a line, such as `Authorization: Bearer TOKEN`; only its owner may have access to it
    #[arg(long, value_name = "FILE", requires = "otlp")]
    otlp_headers: Option<PathBuf>,
}

impl TraceFlags {
    /// Returns the settings of the export, if there is one. The store's certificate authorities are trusted too.
    ///
    /// # Errors
    /// The file of headers cannot be used.
    pub(crate) fn settings(&self, ca_bundle: Option<PathBuf>) -> Result<Option<TraceExportSettings>> {
        let Some(url) = self.otlp.clone() else { return Ok(None) };
        let headers = match &self.otlp_headers {
            Some(path) => read_secret(path)
                .and_then(|text| Ok(text.parse()?))
                .with_context(|| format!("--otlp-headers {}", path.display()))?,
            None => Headers::default(),
        };
        let collector = CollectorSettings { url, headers, ca_bundle };
        Ok(Some(TraceExportSettings { collector, share: self.otlp_sample }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a number from 0 to 1, like 0.01".to_owned())
}

/// Flags of logging.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogFlags {
    /// Log level: error, warn, info, debug or trace, or a filter like "info,fuse=debug"
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
    /// Log to this file instead of the state directory (or standard error with -f)
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Format of a line in the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl LogFlags {
    /// Returns the absolute path of the log file; `None` if `--log-file` is not given.
    pub(crate) fn absolute_path(&self) -> Result<Option<PathBuf>> {
        self.log_file.as_deref().map(std::path::absolute).transpose().context("cannot resolve the log file")
    }

    /// Opens the log file, if there is one, and starts logging to it or to standard error.
    pub(crate) fn start(&self, path: Option<&Path>) -> Result<Option<LogFile>> {
        let file = path.map(LogFile::open).transpose()?;
        logging::start(&self.log_level, self.log_format, file.clone())?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_metrics_has_a_default() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:8366"),
            ("0.0.0.0:9000", "0.0.0.0:9000"),
            ("::1", "[::1]:8366"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(metrics_address(text).unwrap().to_string(), address);
        }
        assert!(metrics_address("localhost").is_err());
    }
}
