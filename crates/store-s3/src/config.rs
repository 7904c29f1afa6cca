//! Configuration of an S3 client.

use super::credentials::CredentialsSource;
use super::retry::RetryPolicy;
use http::Uri;
use http::uri::{Authority, Scheme};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default region: of AWS's oldest endpoint, and for servers that ignore the region.
pub const DEFAULT_REGION: &str = "us-east-1";

/// The configuration of a client.
#[derive(Debug, Clone)]
pub struct S3Config {
    /// The URL: `http://` or `https://`, host, and optionally port and base path; `None` for AWS.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The place of the bucket's name; `None`: in the path if `endpoint` is set, in the host for AWS.
    pub addressing: Option<Addressing>,
    /// The source of the credentials that sign requests.
    pub credentials: CredentialsSource,
    /// Whether signatures omit the SHA-256 of request bodies.
    pub unsigned_payload: UnsignedPayload,
    /// Whether PUTs and parts have a CRC-64/NVME, which the server verifies and stores.
    pub checksums: bool,
    /// A PEM file of additional trusted certificates.
    pub ca_bundle: Option<PathBuf>,
    /// Time limits of each attempt at a request.
    pub timeouts: Timeouts,
    /// Limits of the retries of a request.
    pub retry: RetryPolicy,
    /// The value of the `User-Agent` header.
    pub user_agent: String,
    /// Whether to accept the costs of requests to a requester-pays bucket.
    pub requester_pays: bool,
    /// `x-amz-server-side-encryption` of new objects: `AES256`, or `aws:kms`.
    pub encryption: Option<String>,
    /// The KMS key of new objects, with `aws:kms`.
    pub encryption_key: Option<String>,
    /// The storage class of new objects whose attributes have none.
    pub storage_class: Option<String>,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: DEFAULT_REGION.to_owned(),
            addressing: None,
            credentials: CredentialsSource::Anonymous,
            unsigned_payload: UnsignedPayload::Auto,
            checksums: true,
            ca_bundle: None,
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
            user_agent: concat!("tenon/", env!("CARGO_PKG_VERSION")).to_owned(),
            requester_pays: false,
            encryption: None,
            encryption_key: None,
            storage_class: None,
        }
    }
}

/// The place of the bucket's name in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// `https://endpoint/bucket/key`.
    Path,
    /// `https://bucket.endpoint/key`.
    Host,
}

/// When signatures omit the hash of the body. Hashing costs more CPU time than the rest of a request (0.56 CPU-s/GiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsignedPayload {
    /// Signatures omit the hash if the connection protects the body: TLS, or a loopback address.
    Auto,
    /// Signatures always omit the hash.
    Always,
    /// Signatures never omit the hash.
    Never,
}

/// Timeouts of requests.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Time to establish a connection.
    pub connect: Duration,
    /// Time until the head of the response, from the last byte of the request that was sent.
    pub answer: Duration,
    /// Maximum time until the head of the response, as long as the server responds to other requests meanwhile. For calls
    /// in which the server moves data itself (copies, joining parts), and for long bodies that may still be in buffers.
    pub slow_answer: Duration,
    /// Time without progress of a response body. A few bytes do not count as progress (see `min_throughput`).
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(20),
            slow_answer: Duration::from_secs(300),
            stall: Duration::from_secs(20),
        }
    }
}

/// An invalid configuration. The message is one line and contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The endpoint is not a server's URL.
    #[error("endpoint '{url}': {reason}")]
    Endpoint {
        /// The URL as it was given.
        url: String,
        /// The error in the URL.
        reason: &'static str,
    },
    /// A name or value cannot be sent in a request.
    #[error("{0}")]
    Value(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] connect::CertificateError),
}

/// A server's address, split into its parts.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    /// Prefix of every path: empty, or `/base` without a final slash.
    pub(super) base_path: String,
    /// Whether the server is one of AWS.
    is_aws: bool,
}

impl Endpoint {
    pub(super) fn of(config: &S3Config) -> Result<Self, ConfigError> {
        Self::given_or_aws(config.endpoint.as_deref(), "s3", &config.region)
    }

    /// Parses a URL, or returns the endpoint of an AWS service in a region.
    pub(super) fn given_or_aws(url: Option<&str>, service: &str, region: &str) -> Result<Self, ConfigError> {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        match url {
            Some(url) => Self::parse(url),
            None => Self::parse(&format!("https://{service}.{region}.{domain}")),
        }
    }

    pub(super) fn parse(url: &str) -> Result<Self, ConfigError> {
        let wrong = |reason| ConfigError::Endpoint { url: without_login(url), reason };
        let uri: Uri = url.parse().map_err(|_| wrong("not a URL; write http://host:port or https://host"))?;
        let parts = uri.into_parts();
        let scheme =
            parts.scheme.ok_or_else(|| wrong("no scheme; write http://host:port or https://host"))?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(wrong("neither http:// nor https://"));
        }
        let authority = parts.authority.ok_or_else(|| wrong("no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("holds a user name; give credentials by flags, environment or profile"));
        }
        let path = parts.path_and_query.as_ref();
        if path.is_some_and(|path| path.query().is_some()) {
            return Err(wrong("holds a query"));
        }
        let base_path = path.map_or("", |path| path.path()).trim_end_matches('/').to_owned();
        let is_aws =
            authority.host().ends_with(".amazonaws.com") || authority.host().ends_with(".amazonaws.com.cn");
        Ok(Self { scheme, authority, base_path, is_aws })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns whether the server is AWS itself, whose abilities are known.
    pub(super) fn is_aws(&self) -> bool {
        self.is_aws
    }

    /// Returns the place of a bucket's name. On AWS, a name with a dot goes in the path, because AWS's wildcard certificate
    /// does not match it as part of the host.
    pub(super) fn addressing(&self, asked: Option<Addressing>, bucket: &str) -> Addressing {
        match asked {
            Some(addressing) => addressing,
            None if self.is_aws && !bucket.contains('.') => Addressing::Host,
            None => Addressing::Path,
        }
    }

    /// Returns whether signatures omit the hash of the body.
    pub(super) fn sends_unsigned(&self, asked: UnsignedPayload) -> bool {
        match asked {
            UnsignedPayload::Always => true,
            UnsignedPayload::Never => false,
            UnsignedPayload::Auto => self.is_tls() || is_loopback(self.authority.host()),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.base_path)
    }
}

/// Returns a URL for an error message, without user name and password.
fn without_login(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}...{}", &url[..scheme + 3], &url[at..]),
        (None, Some(at)) => format!("...{}", &url[at..]),
        _ => url.to_owned(),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Endpoint::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn invalid_endpoints_are_refused_in_one_line() {
        assert!(
            refused("localhost:9000").contains("no scheme")
                || refused("localhost:9000").contains("not a URL")
        );
        assert!(refused("ftp://x").contains("neither"));
        assert!(refused("http://x/?a=b").contains("query"));
        assert!(refused("").contains("endpoint ''"));
        let text = refused("http://user:hush@x");
        assert!(text.contains("user name") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn bodies_are_unsigned_on_protected_connections() {
        for (url, unsigned) in [
            ("https://s3.example.com", true),
            ("http://127.0.0.1:9000", true),
            ("http://[::1]:9000", true),
            ("http://localhost", true),
            ("http://s3.example.com", false),
        ] {
            assert_eq!(
                Endpoint::parse(url).unwrap().sends_unsigned(UnsignedPayload::Auto),
                unsigned,
                "{url}"
            );
        }
    }

    #[test]
    fn buckets_go_in_the_host_for_aws_only() {
        let aws = Endpoint::of(&S3Config { region: "eu-west-1".to_owned(), ..S3Config::default() }).unwrap();
        assert_eq!(aws.to_string(), "https://s3.eu-west-1.amazonaws.com");
        assert_eq!(aws.addressing(None, "plain"), Addressing::Host);
        assert_eq!(aws.addressing(None, "with.dot"), Addressing::Path);
        let own = Endpoint::parse("http://store:9000/base/").unwrap();
        assert_eq!((own.addressing(None, "plain"), own.base_path.as_str()), (Addressing::Path, "/base"));
    }
}
