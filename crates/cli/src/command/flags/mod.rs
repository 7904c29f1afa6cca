//! Flags that several commands share, and the settings that they become. Each flag of `tenon mount` is also a `key=value` option of `mount -o`.
//!
//! Only commands read flags: the parts below take the settings.

pub(crate) mod endpoint;
pub(crate) mod views;
pub(crate) mod volume;

use crate::bucket::credentials::StoreSettings;
use crate::command::units;
use crate::process::logging::{self, LogFile, LogFormat};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
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
            is_anonymous: self.no_sign_request,
            addressing,
            ca_bundle: self.ca_bundle.clone(),
            degraded: self.degraded,
            retry_timeout: self.retry_timeout,
        }
    }
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
    /// Returns the absolute path of the named log file.
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
