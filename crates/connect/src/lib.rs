//! Outgoing HTTP connections of all clients: TCP options suitable for S3, a pool of connections, TLS with the
//! certificates of the machine and of a CA bundle.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An HTTP client with a connection pool; `B` is the type of request bodies.
pub type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// An error of the certificates to trust: a file that cannot be read, or no certificate at all. The message is one
/// line.
#[derive(Debug, thiserror::Error)]
#[error("the trusted certificates cannot be used: {0}")]
pub struct CertificateError(String);

/// Time after which an idle connection is closed. Shorter than servers' timeouts (20 s and more), so that a request
/// rarely uses a connection that the server is closing.
const IDLE: Duration = Duration::from_secs(15);

/// TCP keepalive, which detects peers that vanished: the idle time before the first probe, the interval of probes, and
/// the maximum time that sent bytes may stay unacknowledged.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const UNACKED_MAX: Duration = Duration::from_secs(20);

/// Maximum length of the read buffer and of the write buffer of a connection, in bytes.
const BUFFER_BYTES_MAX: usize = 512 << 10;

/// Makes a client for `http` URLs and, if `is_tls`, for `https` URLs. It trusts the machine's certificates and the
/// certificates in the PEM file `ca_bundle`. Its requests fail if connecting takes longer than `connect_within`.
/// Fails like [`tls_config`]; without `is_tls` an empty set of certificates is no error.
pub fn http_client<B>(
    connect_within: Duration,
    ca_bundle: Option<&Path>,
    is_tls: bool,
) -> Result<HttpClient<B>, CertificateError>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_within));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_tcp_user_timeout(Some(UNACKED_MAX));
    let tls = tls(ca_bundle, is_tls)?;
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http1_max_buf_size(BUFFER_BYTES_MAX)
        .build(connector))
}

/// Makes a TLS configuration for other clients, which trusts the machine's certificates and the certificates in the PEM
/// file `ca_bundle`.
///
/// # Errors
/// If there is no trusted certificate, or the file does not contain certificates.
pub fn tls_config(ca_bundle: Option<&Path>) -> Result<ClientConfig, CertificateError> {
    tls(ca_bundle, true)
}

fn tls(ca_bundle: Option<&Path>, is_tls: bool) -> Result<ClientConfig, CertificateError> {
    let mut roots = RootCertStore::empty();
    if is_tls {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(path) = ca_bundle {
        for certificate in read_bundle(path)? {
            roots.add(certificate).map_err(|error| unusable(path, &error))?;
        }
    }
    if is_tls && roots.is_empty() {
        let reason =
            "no trusted certificates on this machine: install ca-certificates or specify a CA bundle";
        return Err(CertificateError(reason.to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CertificateError(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn read_bundle(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let certificates: Vec<_> =
        certificates.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if certificates.is_empty() {
        return Err(CertificateError(format!("{} contains no certificate", path.display())));
    }
    Ok(certificates)
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> CertificateError {
    CertificateError(format!("{}: {error}", path.display()))
}

/// Returns the text of the innermost cause of an error, which is the actual reason.
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
