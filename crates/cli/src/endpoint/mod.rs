//! The S3 endpoint of a volume: its buckets, users, certificate and limits.

pub(crate) mod access_log;
pub(crate) mod users;
pub(crate) mod webhooks;

use crate::bucket::ProcessContext;
use crate::command::flags::{EndpointFlags, StoreFlags};
use crate::endpoint::access_log;
use crate::endpoint::users;
use crate::endpoint::webhooks;
use crate::process::descriptors;
use crate::serving::open_volume::OpenVolume;
use crate::state::StateDir;
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use s3::{Endpoint, EndpointOptions, Limits, Server};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use store::{Buckets, ObjectStore, StoreError};
use vfs::{DirectoryBuckets, Objects};

/// Request bodies may take 1/`BODIES_SHARE` of the memory limit.
const BODIES_SHARE: u64 = 5;

/// Region that the buckets report.
const REGION: &str = "us-east-1";

/// Refuses unusable files of users or certificates, before anything is opened.
pub(crate) fn check(flags: &EndpointFlags) -> Result<()> {
    if let Some(path) = &flags.users {
        users::check(path)?;
    }
    if let (Some(chain), Some(key)) = (&flags.tls_cert, &flags.tls_key) {
        tls_config(chain, key)?;
    }
    Ok(())
}

/// Starts the endpoint of a volume.
pub(crate) async fn start_volume(
    opened: &OpenVolume,
    address: SocketAddr,
    flags: &EndpointFlags,
    store: &StoreFlags,
    memory_limit: u64,
    (state, context): (&StateDir, &ProcessContext),
) -> Result<Server> {
    let name = bucket_name(&opened.volume, flags)?;
    let (buckets, description): (Arc<dyn Buckets>, String) = match name {
        None => {
            let buckets = Arc::new(DirectoryBuckets::new(Arc::clone(&opened.fs)));
            (buckets, "the directories at its root are the buckets".to_owned())
        }
        Some(name) => {
            let description = format!("bucket {name}");
            let store = Arc::new(Objects::new(Arc::clone(&opened.fs), b""));
            (Arc::new(VolumeBucket { name, store }), description)
        }
    };
    let server = start_buckets(buckets, address, flags, store, memory_limit, (state, context)).await?;
    tracing::info!("objects of {} are served at {}: {description}", opened.volume.url(), server.url());
    Ok(server)
}

/// Starts an endpoint for some buckets.
pub(crate) async fn start_buckets(
    buckets: Arc<dyn Buckets>,
    address: SocketAddr,
    flags: &EndpointFlags,
    store: &StoreFlags,
    memory_limit: u64,
    (state, context): (&StateDir, &ProcessContext),
) -> Result<Server> {
    let users = users::load(flags.users.as_deref(), state, context)?;
    let tls = match (&flags.tls_cert, &flags.tls_key) {
        (Some(chain), Some(key)) => Some(Arc::new(tls_config(chain, key)?)),
        _ => None,
    };
    if tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            "{address} is served by plain http: others on the network can read objects and replay requests; give a certificate with --tls-cert and --tls-key"
        );
    }
    let webhooks = webhooks::start(flags, store, state, context)?;
    let domains = flags.domain.clone();
    let (region, encrypted) = (REGION.to_owned(), flags.encrypted_at_rest);
    let options = EndpointOptions { users, region, domains, webhooks, md5: flags.md5, encrypted };
    let endpoint = Endpoint::new(buckets, options, context.clock.clone(), context.entropy.clone());
    let mut endpoint = endpoint.map_err(|error| anyhow!("--domain: {error}"))?;
    if let Some(log) = access_log::open(flags)? {
        endpoint = endpoint.with_access_log(log);
    }
    let limits = limits(flags, memory_limit);
    Ok(Server::start(endpoint, address, limits, tls).await?)
}

/// Returns the limits for clients, as far as this process has file descriptors for them.
fn limits(flags: &EndpointFlags, memory_limit: u64) -> Limits {
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
    let body_bytes = (memory_limit / BODIES_SHARE).min(usual.body_bytes);
    Limits { connections, requests: flags.max_requests.max(1), body_bytes }
}

/// A volume served as one bucket.
#[derive(Debug)]
struct VolumeBucket {
    name: String,
    store: Arc<Objects>,
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

/// Returns the name of the one bucket: the given name, or the volume's. Returns `None` if directories are the
/// buckets.
fn bucket_name(volume: &Volume, flags: &EndpointFlags) -> Result<Option<String>> {
    if flags.directories_as_buckets {
        return Ok(None);
    }
    let name = flags.bucket.clone().unwrap_or_else(|| volume.bucket_name());
    if store::bucket_name::check(&name).is_err() {
        bail!(
            "'{name}' is not a valid bucket name (3 to 63 lower-case letters, digits, '-' and '.'); give one with --bucket"
        );
    }
    Ok(Some(name))
}

/// Loads a certificate chain and its private key from PEM files.
pub(crate) fn tls_config(chain: &Path, key: &Path) -> Result<ServerConfig> {
    let about = |path: &Path| format!("cannot use {}", path.display());
    let certificates: Vec<CertificateDer> =
        CertificateDer::pem_file_iter(chain).and_then(Iterator::collect).with_context(|| about(chain))?;
    let mode = std::fs::metadata(key).with_context(|| about(key))?.mode();
    if mode & 0o007 != 0 {
        bail!(
            "{} is a private key but all users can read it; run `chmod o= {}`",
            key.display(),
            key.display()
        );
    }
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| about(key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    config.with_no_client_auth().with_single_cert(certificates, key).with_context(|| about(chain))
}
