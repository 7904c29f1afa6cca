//! Request addressing: the bucket and key that a request names, by path or by host.
//!
//! Decided once, here: virtual-hosted-style requests are rewritten to path style, and `s3s` sees nothing else.

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::host::MultiDomain;
use s3s::path::S3Path;
use s3s::{S3Result, s3_error};
use std::sync::Arc;

use crate::headers;
use crate::operations::ResourceKind;

/// The domains of virtual-hosted-style requests, without ports, the longest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Domains(Arc<[String]>);

/// The bucket and the key of a request, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    bucket: Option<String>,
    key: Option<String>,
    /// Whether the host names the bucket (virtual-hosted style).
    is_virtual_hosted: bool,
}

impl Target {
    pub(crate) fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the target that has another key in the same bucket.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// Fails with `InvalidBucketName` or `KeyTooLongError` for names that no bucket or object can have.
    pub(crate) fn check_names(&self) -> S3Result<()> {
        if self.bucket().is_some_and(|bucket| !s3s::path::check_bucket_name(bucket)) {
            return Err(s3_error!(InvalidBucketName));
        }
        match self.key().is_some_and(|key| !s3s::path::check_key(key)) {
            true => Err(s3_error!(KeyTooLongError)),
            false => Ok(()),
        }
    }

    /// Returns whether `s3s` has read the same target from a request.
    pub(crate) fn is_same(&self, path: &S3Path) -> bool {
        path.get_bucket_name() == self.bucket() && path.get_object_key() == self.key()
    }

    pub(crate) fn kind(&self) -> ResourceKind {
        match (&self.bucket, &self.key) {
            (None, _) => ResourceKind::Service,
            (Some(_), None) => ResourceKind::Bucket,
            (Some(_), Some(_)) => ResourceKind::Object,
        }
    }

    /// Returns the URL of the bucket, as the client addressed it; that of the endpoint if the request names no bucket.
    pub(crate) fn bucket_url(&self, headers: &HeaderMap, is_tls: bool) -> String {
        let scheme = if is_tls { "https" } else { "http" };
        let host = headers::text(headers, HOST).unwrap_or("localhost");
        match &self.bucket {
            Some(bucket) if !self.is_virtual_hosted => format!("{scheme}://{host}/{}", encode_path(bucket)),
            _ => format!("{scheme}://{host}"),
        }
    }

    /// Returns a request's URI in path style. Fails with `InvalidURI` if the result is no URI.
    pub(crate) fn to_path_style(&self, uri: &Uri) -> S3Result<Uri> {
        let Some(bucket) = self.bucket.as_deref().filter(|_| self.is_virtual_hosted) else {
            return Ok(uri.clone());
        };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("/{bucket}{}{query}", uri.path()).parse().map_err(|_| s3_error!(InvalidURI))
    }
}

impl Domains {
    /// Parses the configured domains. The error text names an invalid domain.
    pub(crate) fn new(domains: &[String]) -> Result<Self, String> {
        if !domains.is_empty() {
            MultiDomain::new(domains).map_err(|error| error.to_string())?;
        }
        let mut domains: Vec<String> =
            domains.iter().map(|domain| without_port(domain).to_ascii_lowercase()).collect();
        domains.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        Ok(Self(domains.into()))
    }

    /// Returns the bucket and key that a request names. Errors: `InvalidURI` if the path is not UTF-8, `InvalidRequest`
    /// for a repeated Host header, `InvalidBucketName` if the host names no possible bucket.
    pub(crate) fn resolve(&self, head: &Parts) -> S3Result<Target> {
        let path = percent_encoding::percent_decode_str(head.uri.path()).decode_utf8();
        let path = path.map_err(|_| s3_error!(InvalidURI))?;
        let path = path.strip_prefix('/').ok_or_else(|| s3_error!(InvalidURI))?;
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if let Some(bucket) = self.bucket(head)? {
            return Ok(Target { bucket: Some(bucket), key: given(path), is_virtual_hosted: true });
        }
        match path.split_once('/') {
            None => Ok(Target { bucket: given(path), key: None, is_virtual_hosted: false }),
            Some((bucket, key)) => {
                Ok(Target { bucket: Some(bucket.to_owned()), key: given(key), is_virtual_hosted: false })
            }
        }
    }

    /// Returns the bucket that the Host header names; `None` for a host below none of the domains.
    fn bucket(&self, head: &Parts) -> S3Result<Option<String>> {
        let mut hosts = head.headers.get_all(HOST).iter();
        let host = hosts.next().map(HeaderValue::to_str).and_then(Result::ok).unwrap_or_default();
        if hosts.next().is_some() {
            return Err(s3_error!(InvalidRequest, "The header Host is given more than once"));
        }
        let host = without_port(host).trim_end_matches('.').to_ascii_lowercase();
        let below = |domain: &String| match host.strip_suffix(domain.as_str()) {
            Some("") => Some(None),
            Some(rest) => rest.strip_suffix('.').map(|bucket| Some(bucket.to_owned())),
            None => None,
        };
        let Some(bucket) = self.0.iter().find_map(below).flatten() else { return Ok(None) };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match !bucket.is_empty() && bucket.chars().all(is_of_name) {
            true => Ok(Some(bucket)),
            false => Err(s3_error!(InvalidBucketName)),
        }
    }
}

/// Bytes that a URL path keeps unencoded.
const PATH: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Percent-encodes a bucket or key for the path of a URL.
pub(crate) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, &PATH).to_string()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(host: &str, path: &str) -> Parts {
        http::Request::get(path).header("host", host).body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_bucket_is_in_the_path_or_the_host() {
        let domains = Domains::new(&["s3.example.com".to_owned()]).unwrap();
        for (host, path, bucket, key, path_style) in [
            ("s3.example.com", "/", None, None, "/"),
            ("s3.example.com", "/b", Some("b"), None, "/b"),
            ("s3.example.com:9000", "/b/", Some("b"), None, "/b/"),
            ("s3.example.com", "/b/k/", Some("b"), Some("k/"), "/b/k/"),
            ("s3.example.com", "/b%2Fk", Some("b"), Some("k"), "/b%2Fk"),
            ("s3.example.com", "//k", Some(""), Some("k"), "//k"),
            ("b.s3.example.com", "/?delete", Some("b"), None, "/b/?delete"),
            ("b.s3.example.com:9000", "/k", Some("b"), Some("k"), "/b/k"),
            ("B.S3.example.com.", "/a/k%20?x=1", Some("b"), Some("a/k "), "/b/a/k%20?x=1"),
            ("a.b.s3.example.com", "//k", Some("a.b"), Some("/k"), "/a.b//k"),
            ("127.0.0.1:9000", "/b/k", Some("b"), Some("k"), "/b/k"),
            ("[::1]:9000", "/b/k", Some("b"), Some("k"), "/b/k"),
            ("localhost:9000", "/b/k", Some("b"), Some("k"), "/b/k"),
            ("others3.example.com", "/b/k", Some("b"), Some("k"), "/b/k"),
        ] {
            let head = head(host, path);
            let target = domains.resolve(&head).unwrap();
            assert_eq!((target.bucket(), target.key()), (bucket, key), "{host}{path}");
            let written = target.to_path_style(&head.uri).unwrap();
            assert_eq!(written.to_string(), path_style, "{host}{path}");
        }
    }

    #[test]
    fn a_host_that_cannot_be_a_bucket_is_refused() {
        let domains = Domains::new(&["s3.example.com:9000".to_owned()]).unwrap();
        for host in
            ["a/b.s3.example.com", "a?b.s3.example.com:9000", ".s3.example.com", "a%2f.s3.example.com"]
        {
            domains.resolve(&head(host, "/k")).unwrap_err();
        }
        let two = http::Request::get("/k").header("host", "a.s3.example.com").header("host", "b");
        domains.resolve(&two.body(()).unwrap().into_parts().0).unwrap_err();
        assert_eq!(domains.resolve(&head("s3.example.com", "/b")).unwrap().bucket(), Some("b"));
    }
}
