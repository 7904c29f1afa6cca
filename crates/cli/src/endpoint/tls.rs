//! The certificate of an endpoint: read when the endpoint starts, and again whenever its files change.
//!
//! Invariant: the certificate in force belongs to its key. If changed files are invalid, the earlier certificate stays, as it does while
//! only one of the two files has been replaced.

use crate::endpoint::watched_files::WatchedFiles;
use anyhow::{Context, Result, bail};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// PEM files of a certificate chain and its private key.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    /// Refuses files that cannot be used.
    pub(crate) fn check(&self) -> Result<()> {
        self.read(&provider()).map(drop)
    }

    /// Reads the certificate and its key. Later changes of the files are followed.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>> {
        // The process may change its working directory.
        let files = Self { chain: std::path::absolute(&self.chain)?, key: std::path::absolute(&self.key)? };
        let watched = WatchedFiles::new(vec![files.chain.clone(), files.key.clone()]);
        let provider = provider();
        let certificate = Arc::new(Certificate { current: RwLock::new(files.read(&provider)?) });
        let config =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let config = config.with_no_client_auth().with_cert_resolver(certificate.clone());
        watched.on_change(move || certificate.reload(&files, &provider))?;
        Ok(Arc::new(config))
    }

    fn read(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>> {
        let Self { chain, key } = self;
        let about = |path: &Path| format!("cannot use {}", path.display());
        let certificates: Vec<CertificateDer> =
            CertificateDer::pem_file_iter(chain).and_then(Iterator::collect).with_context(|| about(chain))?;
        if certificates.is_empty() {
            bail!("{} contains no certificate", chain.display());
        }
        let mode = std::fs::metadata(key).with_context(|| about(key))?.mode();
        if mode & 0o007 != 0 {
            bail!(
                "{} is a private key, but its permissions allow access to all users; run `chmod o= {}`",
                key.display(),
                key.display()
            );
        }
        let key = PrivateKeyDer::from_pem_file(key).with_context(|| about(key))?;
        CertifiedKey::from_der(certificates, key, provider).map(Arc::new).with_context(|| about(chain))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The certificate in force.
#[derive(Debug)]
struct Certificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over changed files. If they are unusable, the certificate in force stays.
    fn reload(&self, files: &TlsFiles, provider: &CryptoProvider) {
        match files.read(provider) {
            Ok(read) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
                tracing::info!("reloaded the certificate {}", files.chain.display());
            }
            Err(error) => {
                tracing::error!("cannot reload the certificate, so the earlier one stays: {error:#}");
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
