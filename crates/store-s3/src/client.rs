//! Sending calls: addressing, signing, timeouts and retries.

use super::call::{Call, Target};
use super::config::{Addressing, ConfigError, Endpoint, S3Config};
use super::credentials::{Credentials, CredentialsCache, CredentialsError, ProviderContext};
use super::escape;
use super::failure::{self, Failure};
use super::learned::Learned;
use super::min_throughput::MinThroughput;
use super::request_counts::{RequestCounts, RequestKind};
use super::retry::{Retry, RetryPolicy, RetryQuota};
use super::sign::{self, Signable, Signer};
use super::upload::{Progress, Upload};
use bytes::{Bytes, BytesMut};
use connect::HttpClient;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Clock, Entropy};
use tokio::time::Instant;

/// Maximum length of a response document in bytes. A page of 1,000 keys of 1,024 bytes, percent-encoded, needs about
/// 3.5 MB.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

pub(super) const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-crc64nvme");
/// Bytes of a body that extend the response timeout by one [`Timeouts::answer`](super::Timeouts::answer) (50 KB per
/// second): the last bytes that the transport took may still be in buffers on the way to the server.
const BUFFERED_BYTES: u64 = 1 << 20;

const REQUEST_PAYER: HeaderName = HeaderName::from_static("x-amz-request-payer");

/// A connection pool to a server, and the state that its calls share.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) config: S3Config,
    pub(super) endpoint: Endpoint,
    pub(super) counts: Arc<RequestCounts>,
    http: HttpClient<Upload>,
    credentials_cache: CredentialsCache,
    signer: Signer,
    quota: Arc<RetryQuota>,
    clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<Entropy>,
    pub(super) learned: Learned,
    user_agent: HeaderValue,
    /// Whether the signatures of requests leave out the bodies.
    sends_unsigned: bool,
}

/// A successful response with its whole body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Client {
    pub(super) fn new(
        config: S3Config,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Result<Self, ConfigError> {
        let endpoint = Endpoint::of(&config)?;
        let value = |name: &str, text: &str| {
            HeaderValue::from_str(text).map_err(|_| {
                ConfigError::Value(format!(
                    "invalid {name} {text:?}: HTTP headers cannot contain these characters"
                ))
            })
        };
        value("region", &config.region)?;
        let ca_bundle = config.ca_bundle.as_deref();
        let context = ProviderContext { ca_bundle: config.ca_bundle.clone(), clock: clock.clone() };
        Ok(Self {
            http: connect::http_client(config.timeouts.connect, ca_bundle, endpoint.is_tls())?,
            credentials_cache: CredentialsCache::new(config.credentials.clone(), context, entropy.clone()),
            signer: Signer::new(&config.region, "s3"),
            quota: Arc::new(RetryQuota::new(&config.retry)),
            user_agent: value("user agent", &config.user_agent)?,
            sends_unsigned: endpoint.sends_unsigned(config.unsigned_payload),
            counts: Arc::default(),
            learned: Learned::default(),
            config,
            endpoint,
            clock,
            entropy,
        })
    }

    /// Returns the retry state of a new call.
    pub(super) fn retry(&self) -> Retry {
        self.retry_with(self.config.retry)
    }

    pub(super) fn retry_with(&self, policy: RetryPolicy) -> Retry {
        Retry::new(policy, self.quota.clone(), self.entropy.clone())
    }

    /// Sends a call, with retries, and returns its response.
    pub(super) async fn fetch(&self, call: &Call) -> Result<Answer, Failure> {
        self.fetch_as(call, &mut self.retry(), Ok).await
    }

    /// Sends a call, with retries, and returns the result of `read` for the response. A failure of `read` is retried
    /// like a failed call.
    pub(super) async fn fetch_as<T>(
        &self,
        call: &Call,
        retry: &mut Retry,
        read: impl Fn(Answer) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        loop {
            let answered = self.attempt_document(call, retry).await.and_then(&read);
            match answered {
                Ok(value) => {
                    retry.record_success();
                    return Ok(value);
                }
                Err(failure) => retry.wait_or_fail(failure).await?,
            }
        }
    }

    /// Makes one attempt and reads the whole response. An error document in response to a copy or a completion is an
    /// error even with status 200: servers begin to respond before they know the result.
    async fn attempt_document(&self, call: &Call, retry: &mut Retry) -> Result<Answer, Failure> {
        let response = self.attempt(call, retry).await?;
        let (head, body) = response.into_parts();
        let body = if call.method == Method::HEAD { Bytes::new() } else { self.document(body).await? };
        if call.is_slow() && super::xml::parse_error(&body).is_some() {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return Err(Failure::from_response(call, status, &head.headers, &body));
        }
        Ok(Answer { headers: head.headers, body })
    }

    /// Gets credentials for the next request, unless they are cached.
    pub(super) async fn sign_in(&self) -> Result<(), CredentialsError> {
        self.credentials_cache.current().await.map(drop)
    }

    /// Makes one attempt, up to the head of a successful response. If the server reports that the credentials have expired,
    /// repeats the attempt with new credentials.
    pub(super) async fn attempt(
        &self,
        call: &Call,
        retry: &mut Retry,
    ) -> Result<Response<Incoming>, Failure> {
        let credentials = self.credentials_cache.current().await?;
        let answered = self.attempt_as(call, retry, credentials.as_deref()).await;
        let credentials_expired = answered.as_ref().err().and_then(|failure| failure.credentials_expired);
        if let (Some(used), Some(certainty)) = (&credentials, credentials_expired)
            && self.credentials_cache.report_expired(used, certainty)
        {
            let credentials = self.credentials_cache.current().await?;
            return self.attempt_as(call, retry, credentials.as_deref()).await;
        }
        answered
    }

    /// Makes one attempt of a call with given credentials, and counts it.
    async fn attempt_as(
        &self,
        call: &Call,
        retry: &mut Retry,
        credentials: Option<&Credentials>,
    ) -> Result<Response<Incoming>, Failure> {
        self.counts.add(call.kind);
        if retry.begin_attempt() {
            self.counts.add_retry();
        }
        let began = Instant::now();
        let answered = self.exchange(call, credentials).await;
        let error = answered.as_ref().err().map(|failure| &failure.error);
        self.counts.record_outcome(call, began, error);
        answered
    }

    /// Sends one request and waits for the head of its response. An error response is an error.
    async fn exchange(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
    ) -> Result<Response<Incoming>, Failure> {
        let progress = (!call.body.is_empty()).then(Progress::default);
        let request = self.request(call, progress.as_ref(), credentials)?;
        let response = self.answer(call, request, progress, credentials).await?;
        tracing::debug!(kind = call.kind.name(), key = ?call.key(), status = response.status().as_u16(), "S3 request");
        self.learned.attribute_listings.note_server(response.headers());
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        // Without a document, the error is derived from the status alone.
        let body = self.document(body).await.unwrap_or_default();
        Err(Failure::from_response(call, head.status, &head.headers, &body))
    }

    /// Waits for the head of the response. The timeout restarts while the server accepts bytes of the request. After
    /// that, slow operations and long bodies may take longer, as long as the server responds to a HEAD of the bucket
    /// meanwhile.
    async fn answer(
        &self,
        call: &Call,
        request: Request<Upload>,
        progress: Option<Progress>,
        credentials: Option<&Credentials>,
    ) -> Result<Response<Incoming>, Failure> {
        let limit = self.config.timeouts.answer;
        let until = Instant::now() + self.answer_timeout(call);
        let mut response = self.http.request(request);
        let taken = || progress.as_ref().map_or(0, |taken| taken.load(Ordering::Relaxed));
        let mut seen = taken();
        loop {
            match tokio::time::timeout(limit, &mut response).await {
                Ok(answered) => return answered.map_err(|error| self.transport(&error)),
                Err(_) if taken() > seen => seen = taken(),
                Err(_) if Instant::now() < until => tokio::select! {
                    answered = &mut response => return answered.map_err(|error| self.transport(&error)),
                    is_there = self.probe_server(call, credentials) => if !is_there { return Err(self.timed_out(2 * limit)) },
                },
                Err(_) => return Err(self.timed_out(limit)),
            }
        }
    }

    /// Returns how long a reachable server may take to respond: `slow_answer` if the server moves data itself,
    /// otherwise at most that and more for a longer body, because its last bytes may still be in buffers on the way.
    fn answer_timeout(&self, call: &Call) -> Duration {
        let timeouts = &self.config.timeouts;
        let buffered = timeouts.answer.mul_f64(call.body.len() as f64 / BUFFERED_BYTES as f64);
        let longest = if call.is_slow() { timeouts.slow_answer } else { timeouts.answer + buffered };
        longest.min(timeouts.slow_answer)
    }

    /// Sends a HEAD of the bucket, which is cheap for the server. Returns whether there was any response.
    async fn probe_server(&self, call: &Call, credentials: Option<&Credentials>) -> bool {
        let Some(bucket) = &call.bucket else { return false };
        let head = Call::bucket_call(RequestKind::HeadBucket, Method::HEAD, bucket.clone());
        self.counts.add(head.kind);
        let Ok(request) = self.request(&head, None, credentials) else { return false };
        let answer = tokio::time::timeout(self.config.timeouts.answer, self.http.request(request)).await;
        answer.is_ok_and(|answered| answered.is_ok())
    }

    /// Receives a whole response document. A body above the limit is an error.
    async fn document(&self, mut body: Incoming) -> Result<Bytes, Failure> {
        let (mut pieces, mut throughput) = (BytesMut::new(), MinThroughput::default());
        while let Some(frame) = self.frame(&mut body, &mut throughput).await? {
            if pieces.len() + frame.len() > DOCUMENT_BYTES_MAX {
                return Err(Failure::malformed("the response is too long"));
            }
            if pieces.is_empty() && hyper::body::Body::is_end_stream(&body) {
                return Ok(frame);
            }
            throughput.add_bytes(frame.len() as u64);
            pieces.extend_from_slice(&frame);
        }
        Ok(pieces.freeze())
    }

    /// Receives the next bytes of a body; `None` at its end.
    pub(super) async fn frame(
        &self,
        body: &mut Incoming,
        throughput: &mut MinThroughput,
    ) -> Result<Option<Bytes>, Failure> {
        let limit = self.config.timeouts.stall;
        loop {
            let began = Instant::now();
            let frame = tokio::time::timeout(limit.saturating_sub(throughput.waited()), body.frame()).await;
            throughput.add_waiting(began.elapsed());
            match frame.map_err(|_| self.timed_out(limit))? {
                None => return Ok(None),
                // Frames of trailers have no data and are skipped.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => {
                        self.counts.add_received(data.len());
                        return Ok(Some(data));
                    }
                    _ => {}
                },
                Some(Err(error)) => {
                    return Err(Failure::no_response(format!(
                        "{}: {}",
                        self.endpoint,
                        failure::chain(&error)
                    )));
                }
            }
        }
    }

    /// Returns the failure of a request that got no response.
    fn transport(&self, error: &hyper_util::client::legacy::Error) -> Failure {
        let text = format!("{}: {}", self.endpoint, failure::chain(error));
        if error.is_connect() { Failure::not_connected(text) } else { Failure::no_response(text) }
    }

    fn timed_out(&self, limit: Duration) -> Failure {
        Failure::no_response(format!("{}: no data for {} s", self.endpoint, limit.as_secs_f32()))
    }

    fn request(
        &self,
        call: &Call,
        progress: Option<&Progress>,
        credentials: Option<&Credentials>,
    ) -> Result<Request<Upload>, Failure> {
        let address = self.address(call)?;
        let mut headers = call.headers.clone();
        headers.insert(HOST, address.host.clone());
        if let Some(checksum) = &call.checksum {
            headers.insert(CHECKSUM, HeaderValue::from_str(checksum).map_err(|_| refused("checksum"))?);
        }
        if self.config.requester_pays {
            headers.insert(REQUEST_PAYER, HeaderValue::from_static("requester"));
        }
        if let Some(credentials) = credentials {
            let payload = self.payload_hash(call);
            let (path, query) = address.path_and_query();
            let signable = Signable { method: call.method.as_str(), path, query, payload: &payload };
            self.signer.sign(signable, &mut headers, credentials, self.clock.now());
        }
        headers.insert(USER_AGENT, self.user_agent.clone());
        if call.method == Method::PUT || call.method == Method::POST {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(call.body.len()));
        }
        let body = progress.map_or_else(Upload::empty, |taken| Upload::of(&call.body, taken.clone()));
        let mut request = Request::new(body);
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = address.into_uri(&self.endpoint)?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn payload_hash(&self, call: &Call) -> std::borrow::Cow<'static, str> {
        match (call.body.is_empty(), self.sends_unsigned) {
            (true, _) => sign::EMPTY_SHA256.into(),
            (false, true) => sign::UNSIGNED_PAYLOAD.into(),
            (false, false) => sign::sha256_hex(call.body.pieces().iter().map(AsRef::as_ref)).into(),
        }
    }

    fn address(&self, call: &Call) -> Result<Address, Failure> {
        let mut path = Vec::with_capacity(128);
        path.extend_from_slice(self.endpoint.base_path.as_bytes());
        let mut authority = self.endpoint.authority.clone();
        if let Some(bucket) = &call.bucket {
            match self.endpoint.addressing(self.config.addressing, bucket) {
                Addressing::Path => {
                    path.push(b'/');
                    escape::push_path(&mut path, bucket.as_bytes());
                }
                Addressing::Host => {
                    authority =
                        format!("{bucket}.{authority}").parse().map_err(|_| refused("bucket's name"))?;
                }
            }
        }
        if let Target::Object(key) = &call.target {
            path.push(b'/');
            escape::push_path(&mut path, key.as_bytes());
        }
        if path.len() == self.endpoint.base_path.len() {
            path.push(b'/');
        }
        let path_len = path.len();
        push_query(&mut path, call);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| refused("host"))?;
        Ok(Address { authority, host, text: path, path_len })
    }
}

/// The address of a request. `text` is the encoded path, followed by `?` and the sorted query if there is one.
#[derive(Debug)]
struct Address {
    authority: Authority,
    host: HeaderValue,
    text: Vec<u8>,
    /// Length of the path in `text`.
    path_len: usize,
}

impl Address {
    fn path_and_query(&self) -> (&[u8], &[u8]) {
        let (path, query) = self.text.split_at(self.path_len);
        (path, query.strip_prefix(b"?").unwrap_or_default())
    }

    fn into_uri(self, endpoint: &Endpoint) -> Result<Uri, Failure> {
        let path = PathAndQuery::from_maybe_shared(Bytes::from(self.text)).map_err(|_| refused("path"))?;
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(endpoint.scheme.clone());
        parts.authority = Some(self.authority);
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).map_err(|_| refused("path"))
    }
}

/// Appends `?name=value&...`, sorted as the signature requires.
fn push_query(out: &mut Vec<u8>, call: &Call) {
    let mut sorted: Vec<_> = call.query.iter().collect();
    sorted.sort_unstable();
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        out.push(if index == 0 { b'?' } else { b'&' });
        escape::push_query(out, name.as_bytes());
        out.push(b'=');
        escape::push_query(out, value.as_bytes());
    }
}

/// Returns the failure of a request that HTTP cannot express.
fn refused(what: &str) -> Failure {
    store::StoreError::Invalid(format!("a request cannot contain this {what}")).into()
}
