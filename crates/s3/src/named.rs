//! Which bucket and key a request names, in its path or by its host.

use http::header::HOST;
use http::request::Parts;
use s3s::host::{MultiDomain, S3Host as _};
use std::sync::Arc;

/// The domains below which a bucket's name is the host's first label.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts(Option<Arc<MultiDomain>>);

/// What a request names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    pub(crate) bucket: Option<String>,
    pub(crate) has_key: bool,
}

impl Named {
    pub(crate) fn is_bucket(&self) -> bool {
        self.bucket.is_some() && !self.has_key
    }
}

impl Hosts {
    /// An error names a domain that is none.
    pub(crate) fn new(domains: &[String]) -> Result<Self, String> {
        let hosts = domains_of(domains)?;
        Ok(Self(hosts.map(Arc::new)))
    }

    /// What `head` names.
    pub(crate) fn named(&self, head: &Parts) -> Named {
        let path = head.uri.path().trim_start_matches('/');
        if let Some(bucket) = self.bucket(head) {
            return Named { bucket: Some(bucket), has_key: !path.is_empty() };
        }
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let bucket = (!bucket.is_empty()).then(|| bucket.to_owned());
        Named { bucket, has_key: !key.is_empty() }
    }

    fn bucket(&self, head: &Parts) -> Option<String> {
        let host = head.headers.get(HOST)?.to_str().ok()?;
        // An address is no name below a domain.
        let is_address =
            host.parse::<std::net::SocketAddr>().is_ok() || host.parse::<std::net::IpAddr>().is_ok();
        if is_address {
            return None;
        }
        let found = self.0.as_ref()?.parse_host_header(host).ok()?;
        found.bucket().map(str::to_owned)
    }
}

/// As the protocol layer reads hosts.
pub(crate) fn domains_of(domains: &[String]) -> Result<Option<MultiDomain>, String> {
    match domains {
        [] => Ok(None),
        domains => MultiDomain::new(domains).map(Some).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_in_the_path_or_the_host() {
        let hosts = Hosts::new(&["s3.example.com".to_owned()]).unwrap();
        for (host, path, bucket, has_key) in [
            ("s3.example.com", "/", None, false),
            ("s3.example.com", "/b", Some("b"), false),
            ("s3.example.com", "/b/", Some("b"), false),
            ("s3.example.com", "/b/k/", Some("b"), true),
            ("b.s3.example.com", "/", Some("b"), false),
            ("b.s3.example.com", "/k", Some("b"), true),
            ("127.0.0.1:9000", "/b/k", Some("b"), true),
        ] {
            let request = http::Request::get(path).header("host", host).body(()).unwrap();
            let named = hosts.named(&request.into_parts().0);
            assert_eq!((named.bucket.as_deref(), named.has_key), (bucket, has_key), "{host}{path}");
        }
    }
}
