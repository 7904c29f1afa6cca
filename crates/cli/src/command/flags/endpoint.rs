//! Flags of the S3 endpoint.

use crate::endpoint::EndpointSettings;
use crate::endpoint::access_log::AccessLogSettings;
use crate::endpoint::meter::EndpointMeter;
use crate::endpoint::tls::TlsFiles;
use crate::endpoint::webhooks::{NamedValue, WebhookSettings};
use crate::process::logging::LogFormat;
use crate::volume::Volume;
use anyhow::{Result, bail};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Flags of the S3 endpoint.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "S3 endpoint")]
pub(crate) struct EndpointFlags {
    /// Name of the bucket (default: the volume's name)
    #[arg(long, value_name = "NAME", conflicts_with = "directories_as_buckets")]
    bucket: Option<String>,
    /// Serve each directory at the volume's root as a bucket, instead of the whole volume as one bucket
    #[arg(long)]
    directories_as_buckets: bool,
    /// TOML file of users, readable by its owner only; reloaded when it changes (default: one user, created at the
    /// first start)
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: TlsFlags,
    /// Domain of the endpoint, so that clients may name a bucket in the host, as BUCKET.NAME (repeatable)
    #[arg(long, value_name = "NAME")]
    domain: Vec<String>,
    /// Compute the MD5 of every object stored by a single request; on a drive it becomes the etag
    #[arg(long)]
    md5: bool,
    /// Declare that everything stored is encrypted at rest: requests for AES256 are accepted instead of refused
    #[arg(long)]
    encrypted_at_rest: bool,
    /// Maximum concurrent requests; one user gets at most 7/8 of what others leave, further requests are answered
    /// with SlowDown
    #[arg(long, value_name = "COUNT", default_value = "256")]
    max_requests: usize,
    /// Write a line for each request to this file, or to standard error with "-"; SIGHUP reopens the file
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Format of a line in the access log
    #[arg(long, value_name = "FORMAT", default_value = "text", requires = "access_log")]
    access_log_format: LogFormat,
    /// Receiver of events; notification configurations name it as arn:tenon:sqs::NAME:webhook (repeatable)
    #[arg(long, value_name = "NAME=URL", value_parser = parse_named_value)]
    webhook: Vec<NamedValue>,
    /// File whose first line is a receiver's token, readable by its owner only (default: the variable
    /// TENON_WEBHOOK_TOKEN_NAME)
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_named_value)]
    webhook_token: Vec<NamedValue>,
}

/// Flags of a certificate.
#[derive(Debug, Clone, Args)]
pub(crate) struct TlsFlags {
    /// PEM file of the certificate chain, for https
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsFlags {
    /// Returns the files of the certificate, if there is one.
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { chain: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }
}

impl EndpointFlags {
    /// Returns the settings of an endpoint, whose requests `meter` counts. Webhooks trust the certificate authorities of `ca_bundle` too.
    pub(crate) fn settings(
        &self,
        address: SocketAddr,
        ca_bundle: Option<PathBuf>,
        memory_limit_bytes: u64,
        meter: Option<Arc<EndpointMeter>>,
    ) -> EndpointSettings {
        let access_log =
            |path: &PathBuf| AccessLogSettings { path: path.clone(), format: self.access_log_format };
        let (urls, token_files) = (self.webhook.clone(), self.webhook_token.clone());
        EndpointSettings {
            address,
            users: self.users.clone(),
            tls: self.tls.files(),
            domains: self.domain.clone(),
            md5: self.md5,
            encrypted_at_rest: self.encrypted_at_rest,
            requests_max: self.max_requests,
            access_log: self.access_log.as_ref().map(access_log),
            meter,
            webhooks: WebhookSettings { urls, token_files, ca_bundle },
            memory_limit_bytes,
        }
    }

    /// Returns the name of the one bucket: the given name, or the volume's. Returns `None` if directories are the buckets.
    pub(crate) fn bucket_name(&self, volume: &Volume) -> Result<Option<String>> {
        if self.directories_as_buckets {
            return Ok(None);
        }
        let name = self.bucket.clone().unwrap_or_else(|| volume.bucket_name());
        if store::bucket_name::check(&name).is_err() {
            bail!(
                "'{name}' is not a valid bucket name (3 to 63 lower-case letters, digits, '-' and '.'); give one with --bucket"
            );
        }
        Ok(Some(name))
    }
}

/// Maximum length of a receiver's name, in bytes.
const NAME_BYTES_MAX: usize = 32;

fn parse_named_value(text: &str) -> Result<NamedValue, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_known) {
        return Err("write NAME=VALUE; NAME has 1 to 32 lower-case letters, digits and '-'".to_owned());
    }
    Ok(NamedValue { name: name.to_owned(), value: value.to_owned() })
}
