//! Forwarding of other clients' requests to an endpoint, signed anew with credentials that those clients do not have.
//!
//! Owns the removal of the client's signature, the decoding of bodies whose chunks are signed, and the canonical form of path and query.
//! Refuses to judge a request: callers decide which clients may be forwarded. Nothing is repeated: retries are the client's.

use super::aws_chunked::AwsChunked;
use super::config::{ConfigError, Endpoint, S3Config};
use super::credentials::{CredentialsCache, CredentialsError, ProviderContext};
use super::escape;
use super::sign::{
    Signable, Signer, UNSIGNED_PAYLOAD, X_AMZ_CONTENT_SHA256, X_AMZ_DATE, X_AMZ_SECURITY_TOKEN,
};
use bytes::Bytes;
use connect::{HttpClient, http_client, innermost};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either};
use hyper::body::Incoming;
use std::sync::Arc;
use store::{Clock, Entropy};

const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");
/// Headers of one connection, of the client's signature, or of a body in chunks.
const DROPPED: [HeaderName; 11] = [
    HOST,
    AUTHORIZATION,
    CONNECTION,
    EXPECT,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    X_AMZ_DATE,
    X_AMZ_SECURITY_TOKEN,
    DECODED_LENGTH,
    TRAILER,
];

type ForwardedBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A client that forwards requests to one endpoint.
#[derive(Debug)]
pub struct Forwarder {
    endpoint: Endpoint,
    host: HeaderValue,
    http: HttpClient<ForwardedBody>,
    credentials_cache: CredentialsCache,
    signer: Signer,
    clock: Arc<dyn Clock>,
}

/// The reason why a request was not forwarded. The message contains no secret.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The request is invalid and cannot be sent; holds the reason.
    #[error("invalid request: {0}")]
    Request(String),
    /// The credentials cannot be obtained.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The endpoint cannot be reached or does not answer; holds the reason.
    #[error("{0}")]
    Unavailable(String),
}

impl Forwarder {
    /// Makes a forwarder to the endpoint of a configuration, with its credentials.
    ///
    /// # Errors
    /// If the endpoint is no URL, or there are no trusted certificates for an `https` URL.
    pub fn new(config: S3Config, clock: Arc<dyn Clock>, entropy: Arc<Entropy>) -> Result<Self, ConfigError> {
        let endpoint = Endpoint::of(&config)?;
        let ca_bundle = config.ca_bundle;
        let http = http_client(config.timeouts.connect, ca_bundle.as_deref(), endpoint.is_tls())?;
        let host = HeaderValue::from_str(endpoint.authority.as_str())
            .map_err(|error| ConfigError::Value(error.to_string()))?;
        let context = ProviderContext { ca_bundle, clock: clock.clone() };
        Ok(Self {
            host,
            http,
            credentials_cache: CredentialsCache::new(config.credentials, context, entropy),
            signer: Signer::new(&config.region, "s3"),
            clock,
            endpoint,
        })
    }

    /// Sends a request to the endpoint and returns its response, whose body is still arriving.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward<B>(&self, request: Request<B>) -> Result<Response<Incoming>, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let invalid = |error: &dyn std::fmt::Display| ForwardError::Request(error.to_string());
        let payload = Payload::of(&parts.headers);
        let length = payload.length(&parts.headers);
        DROPPED.iter().for_each(|name| drop(parts.headers.remove(name)));
        payload.strip_encoding(&mut parts.headers);
        parts.headers.insert(HOST, self.host.clone());
        if let Some(length) = length {
            parts.headers.insert(CONTENT_LENGTH, length);
        }
        let path = canonical_path(&self.endpoint.base_path, parts.uri.path());
        let query = canonical_query(parts.uri.query().unwrap_or_default());
        if let Some(credentials) = self.credentials_cache.current().await? {
            let signable = Signable {
                method: parts.method.as_str(),
                path: &path,
                query: &query,
                payload: payload.signed(),
            };
            self.signer.sign(signable, &mut parts.headers, &credentials, self.clock.now());
        }
        let target = match query.is_empty() {
            true => path,
            false => [path.as_slice(), b"?", &query].concat(),
        };
        parts.uri = Uri::builder()
            .scheme(self.endpoint.scheme.clone())
            .authority(self.endpoint.authority.clone())
            .path_and_query(PathAndQuery::try_from(target).map_err(|error| invalid(&error))?)
            .build()
            .map_err(|error| invalid(&error))?;
        let body = match payload {
            Payload::Plain(_) => Either::Left(body.map_err(Into::into)),
            Payload::Chunked => Either::Right(AwsChunked::new(body)),
        };
        let sent = self.http.request(Request::from_parts(parts, body.boxed_unsync())).await;
        sent.map_err(|error| ForwardError::Unavailable(innermost(&error)))
    }
}

/// How the client that sent the request protects its body.
enum Payload {
    /// As it is, with this value in the signature.
    Plain(String),
    /// In chunks, each with a signature, or followed by a checksum (`aws-chunked`).
    Chunked,
}

impl Payload {
    fn of(headers: &HeaderMap) -> Self {
        let stated = headers.get(X_AMZ_CONTENT_SHA256).and_then(|value| value.to_str().ok());
        match stated {
            Some(value) if value.starts_with("STREAMING-") => Self::Chunked,
            Some(value) => Self::Plain(value.to_owned()),
            None => Self::Plain(UNSIGNED_PAYLOAD.to_owned()),
        }
    }

    /// Returns the payload hash that the forwarded request is signed with.
    fn signed(&self) -> &str {
        match self {
            Self::Plain(value) => value,
            Self::Chunked => UNSIGNED_PAYLOAD,
        }
    }

    /// Returns the length of the body that is forwarded; `None` if the client does not state it.
    fn length(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let name = match self {
            Self::Plain(_) => CONTENT_LENGTH,
            Self::Chunked => DECODED_LENGTH,
        };
        headers.get(name).cloned()
    }

    /// Removes the encoding that [`AwsChunked`] undoes.
    fn strip_encoding(&self, headers: &mut HeaderMap) {
        let Self::Chunked = self else { return };
        let encodings = headers.remove(CONTENT_ENCODING);
        let encodings = encodings.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kept = encodings.split(',').map(str::trim).filter(|one| !one.is_empty() && *one != "aws-chunked");
        if let Ok(value) = HeaderValue::from_str(&kept.collect::<Vec<_>>().join(","))
            && !value.is_empty()
        {
            headers.insert(CONTENT_ENCODING, value);
        }
    }
}

/// Returns the path as the signature covers it.
fn canonical_path(base: &str, path: &str) -> Vec<u8> {
    let mut canonical = base.as_bytes().to_vec();
    escape::push_path(&mut canonical, &escape::percent_decode(path.as_bytes()));
    canonical
}

/// Returns the query encoded and sorted, every name with a value, without parameters of a signature.
fn canonical_query(query: &str) -> Vec<u8> {
    let encoded = |text: &str| {
        let mut out = Vec::new();
        escape::push_query(&mut out, &escape::percent_decode(text.as_bytes()));
        out
    };
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = query
        .split('&')
        .filter(|part| !part.is_empty() && !part.starts_with("X-Amz-"))
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (encoded(name), encoded(value)))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<Vec<u8>> =
        pairs.into_iter().map(|(name, value)| [name.as_slice(), b"=", &value].concat()).collect();
    pairs.join(&b'&')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_query_are_canonical() {
        assert_eq!(canonical_path("", "/b/a%2fb c+d/"), b"/b/a/b%20c%2Bd/");
        let query = canonical_query("uploads&prefix=a/b&X-Amz-Date=1&max-keys=2&Key=%2B");
        assert_eq!(String::from_utf8(query).unwrap(), "Key=%2B&max-keys=2&prefix=a%2Fb&uploads=");
    }

    #[test]
    fn only_the_encoding_of_chunks_is_removed() {
        let headers = [
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("content-encoding", "aws-chunked,gzip"),
        ];
        let mut headers: HeaderMap = headers
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        Payload::of(&headers).strip_encoding(&mut headers);
        assert_eq!(headers[CONTENT_ENCODING], "gzip");
    }
}
