//! The S3 endpoint of a volume or of buckets: its users, certificate, webhooks, access log and limits.

pub(crate) mod access_log;
pub(crate) mod meter;
pub(crate) mod tls;
pub(crate) mod users;
pub(crate) mod volume_endpoint;
pub(crate) mod watched_files;
pub(crate) mod webhooks;

use crate::endpoint::access_log::AccessLogSettings;
use crate::endpoint::meter::EndpointMeter;
use crate::endpoint::tls::TlsFiles;
use crate::endpoint::webhooks::WebhookSettings;
use crate::process::context::ProcessContext;
use crate::process::descriptors;
use anyhow::{Result, anyhow};
use s3::{Endpoint, EndpointOptions, Limits, Server};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Buckets, ObjectStore, StoreError};
use vfs::Filesystem;

/// Request bodies may take 1/`BODIES_SHARE` of the memory limit.
const BODIES_SHARE: u64 = 5;

/// Region that the buckets report.
const REGION: &str = "us-east-1";

/// Settings of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSettings {
    /// Address to listen at, unless the endpoint is opened for the console alone.
    pub(crate) address: SocketAddr,
    /// File of users; `None` for the default user of the volume.
    pub(crate) users: Option<PathBuf>,
    /// Certificate, for https.
    pub(crate) tls: Option<TlsFiles>,
    /// Domains of the endpoint, below which a host name may name a bucket.
    pub(crate) domains: Vec<String>,
    /// Whether the MD5 of every object that a single request stores is computed.
    pub(crate) md5: bool,
    /// Whether the user declares that everything stored is encrypted at rest.
    pub(crate) encrypted_at_rest: bool,
    /// Maximum number of concurrent requests.
    pub(crate) requests_max: usize,
    pub(crate) access_log: Option<AccessLogSettings>,
    /// Meter of finished requests; `None` saves its cost.
    pub(crate) meter: Option<Arc<EndpointMeter>>,
    pub(crate) webhooks: WebhookSettings,
    /// Memory limit of the process, in bytes.
    pub(crate) memory_limit_bytes: u64,
}

impl EndpointSettings {
    /// Refuses unusable files of users or certificates, before anything is opened. Does not check the access log or
    /// the webhooks.
    pub(crate) fn check(&self) -> Result<()> {
        self.users.as_deref().map_or(Ok(()), users::check)?;
        self.tls.as_ref().map_or(Ok(()), TlsFiles::check)
    }
}

/// Returns the buckets of a volume: the volume as one bucket of this name, or without a name, the directories at its root.
pub(crate) fn buckets_of_volume(fs: &Arc<Filesystem>, name: Option<String>) -> Arc<dyn Buckets> {
    match name {
        None => vfs::directory_buckets(fs),
        Some(name) => Arc::new(VolumeBucket { name, store: vfs::objects(fs, b"") }),
    }
}

/// Opens an endpoint for some buckets. The default user and events that were not accepted are kept in `state_root`.
pub(crate) fn open(
    buckets: Arc<dyn Buckets>,
    settings: &EndpointSettings,
    state_root: &Path,
    context: &ProcessContext,
) -> Result<Endpoint> {
    let users = users::load(settings.users.as_deref(), state_root, context)?;
    let options = EndpointOptions {
        users,
        region: REGION.to_owned(),
        domains: settings.domains.clone(),
        webhooks: webhooks::start(&settings.webhooks, state_root, &context.entropy)?,
        md5: settings.md5,
        encrypted: settings.encrypted_at_rest,
    };
    let endpoint = Endpoint::new(buckets, options, context.clock.clone(), context.entropy.clone());
    let mut endpoint = endpoint.map_err(|error| anyhow!("--domain: {error}"))?;
    if let Some(log) = access_log::open(settings.access_log.as_ref(), settings.meter.as_ref())? {
        endpoint = endpoint.with_access_log(log);
    }
    Ok(endpoint)
}

/// Starts to serve an endpoint at the address of its settings.
pub(crate) async fn start(endpoint: Endpoint, settings: &EndpointSettings) -> Result<Server> {
    let address = settings.address;
    let tls = settings.tls.as_ref().map(TlsFiles::load).transpose()?;
    if tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            "{address} is served by plain http: others on the network can read objects and replay requests; give a certificate with --tls-cert and --tls-key"
        );
    }
    Ok(Server::start(endpoint, address, limits(settings), tls).await?)
}

/// Returns the limits for clients: the connections that this process has file descriptors for, the requests of the
/// settings, and a share of the memory for bodies.
fn limits(settings: &EndpointSettings) -> Limits {
    let usual = Limits::default();
    let descriptors = descriptors::raise_limit();
    let wanted = usual.connections.connections;
    let connections = descriptors::connections_within(descriptors, wanted);
    if connections < wanted {
        tracing::warn!(
            "clients may have only {connections} connections at a time, not {wanted}: this process may open {descriptors} files; raise that limit (`ulimit -n`, LimitNOFILE=)",
        );
    }
    let connections = listen::Limits { connections, ..usual.connections };
    let body_bytes = (settings.memory_limit_bytes / BODIES_SHARE).min(usual.body_bytes);
    Limits { connections, requests: settings.requests_max.max(1), body_bytes }
}

/// A volume served as one bucket.
#[derive(Debug)]
struct VolumeBucket {
    name: String,
    store: Arc<dyn ObjectStore>,
}

#[async_trait::async_trait]
impl Buckets for VolumeBucket {
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        if name != self.name {
            return Err(StoreError::NoSuchBucket(name.to_owned()));
        }
        Ok(self.store.clone())
    }

    async fn create(&self, _name: &str) -> store::Result<()> {
        Err(StoreError::Denied(format!("this endpoint serves one volume, the bucket '{}'", self.name)))
    }

    async fn delete(&self, name: &str) -> store::Result<()> {
        self.open(name).await?;
        Err(StoreError::Denied("a volume cannot be removed as a bucket".into()))
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        Ok(vec![self.name.clone()])
    }
}
