//! The endpoint: takes one request through checks, authentication, admission and the S3 operation to its response.

use http::header::{CONTENT_LENGTH, HOST, SERVER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::CORSConfiguration;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3Result, s3_error};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Clock, Entropy};
use tokio::sync::watch;

use crate::access_log::{AccessLog, Answered, Learned, key_of};
use crate::addressing::{Hosts, Named, encoded_path};
use crate::admission::{Admission, Admitted, Client, Holder, Share};
use crate::authentication;
use crate::authorizer::Gate;
use crate::bucket::Bucket;
use crate::conditions;
use crate::cors::Asked;
use crate::encryption;
use crate::error::{custom, from_store};
use crate::lifecycle::{self, Expired};
use crate::notify::{Notifier, Received};
use crate::operation_table::{self, Target};
use crate::ops::settings;
use crate::policy_condition::Peer;
use crate::preauthorizer::EarlyAccess;
use crate::response_fixups::Mending;
use crate::routes::{Routes, is_sts};
use crate::service::Service;
use crate::sessions::Sessions;
use crate::users::Users;
use crate::wire::{self, DOCUMENT_BYTES_MAX, Signer, Verifier};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The maximum length of an STS request body, in bytes.
pub(crate) const STS_BYTES_MAX: usize = 8 << 10;

/// Headers of features that are not implemented. Ignoring them would leave data less safe than its owner thinks.
const NOT_IMPLEMENTED: [&str; 1] = ["x-amz-write-offset-bytes"];

/// Marks requests that came over TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secure;

/// The configuration of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// The users, who may change while the endpoint serves. Without any user, only requests that bucket policies allow
    /// to everybody succeed.
    pub users: Users,
    /// The region that all buckets report.
    pub region: String,
    /// Domains for virtual-hosted-style requests: the host's first label below one of them is the bucket. Without any,
    /// only path-style requests work.
    pub domains: Vec<String>,
    /// Webhooks that notification configurations can send events to, by name.
    pub webhooks: BTreeMap<String, events::Webhook>,
    /// Whether etags of new objects are MD5s, as far as the store lets callers choose etags. MD5 costs more CPU time
    /// than everything else in a PUT.
    pub md5: bool,
    /// Whether the operator states that all stored data is encrypted at rest. If so, requests for `AES256` are accepted
    /// and responses show that header; otherwise they are refused.
    pub encrypted: bool,
}

/// An S3 endpoint over some buckets. Clones share one state.
#[derive(Clone)]
pub struct Endpoint {
    verifier: Verifier,
    early_access: EarlyAccess,
    service: S3Service,
    hosts: Hosts,
    shared: Arc<Shared>,
    access_log: Option<AccessLog>,
}

/// The state that all operations share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) buckets: Arc<dyn Buckets>,
    pub(crate) users: Users,
    pub(crate) sessions: Sessions,
    pub(crate) region: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<Entropy>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) admission: Arc<Admission>,
    /// Whether etags of new objects are MD5s.
    pub(crate) md5: bool,
    /// Whether the operator states that all stored data is encrypted at rest.
    pub(crate) encrypted: bool,
}

impl Shared {
    pub(crate) async fn bucket(&self, name: &str) -> S3Result<Bucket> {
        let store = self.buckets.open(name).await.map_err(from_store)?;
        Ok(Bucket { name: name.to_owned(), store })
    }

    /// Returns the access key of the user in whose name a signer acts. Session keys map to their user.
    pub(crate) fn user_of(&self, signer: Option<&str>) -> Option<String> {
        let signer = signer?;
        Some(self.sessions.user_of(signer).unwrap_or_else(|| signer.to_owned()))
    }
}

impl Shared {
    /// Returns the client that a request's slots and memory are charged to, by signer and address.
    fn admitted(&self, signer: Option<&str>, peer: Option<IpAddr>) -> Admitted {
        let holder = self.user_of(signer).map_or(Holder::Anonymous, Holder::User);
        Admitted { admission: self.admission.clone(), client: Client { holder, peer } }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Returns an endpoint over `buckets`. The error text names an invalid domain. Must be called within a Tokio
    /// runtime, which runs the event workers.
    pub fn new(
        buckets: Arc<dyn Buckets>,
        options: EndpointOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Result<Self, String> {
        let EndpointOptions { users, region, domains, webhooks, md5, encrypted } = options;
        let sessions = Sessions::new(users.clone(), clock.clone(), entropy.clone());
        let notifier = Arc::new(Notifier::start(webhooks, region.clone(), users.clone(), clock.clone()));
        let shared = Arc::new(Shared {
            buckets,
            users,
            sessions: sessions.clone(),
            region,
            md5,
            encrypted,
            clock,
            entropy,
            notifier,
            admission: Arc::new(Admission::new()),
        });
        let gate = Gate(shared.clone());
        let mut builder = S3ServiceBuilder::new(Service { shared: shared.clone(), gate: gate.clone() });
        // Signatures are checked before; but without an auth provider `s3s` would not call the authorizer.
        builder.set_auth(sessions.clone());
        builder.set_access(gate.clone());
        builder.set_route(Routes { shared: shared.clone(), gate: gate.clone() });
        let mut config = S3Config::default();
        config.xml_max_body_size = DOCUMENT_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let early_access = EarlyAccess::new(gate, sessions.clone());
        let verifier = Verifier::new(sessions);
        let hosts = Hosts::new(&domains)?;
        Ok(Self { verifier, early_access, service: builder.build(), hosts, shared, access_log: None })
    }

    /// Returns an endpoint that writes an access log.
    #[must_use]
    pub fn with_access_log(self, log: AccessLog) -> Self {
        Self { access_log: Some(log), ..self }
    }

    pub(crate) fn access_log(&self) -> Option<&AccessLog> {
        self.access_log.as_ref()
    }

    pub(crate) fn now(&self) -> store::Timestamp {
        self.shared.clock.now()
    }

    /// Sets the limits of admission control. Must be called before the first request.
    pub(crate) fn limit(&self, requests: usize, body_bytes: u64) {
        self.shared.admission.resize(requests, body_bytes);
    }

    /// Handles a request and returns its response.
    pub async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let id = format!("{:016X}", self.shared.entropy.next_u64());
        let received = Received { id: id.clone(), method: request.method().clone() };
        request.extensions_mut().insert(received);
        let learned = Learned::default();
        if self.access_log.is_some() {
            request.extensions_mut().insert(learned.clone());
        }
        let (signed, body) = request.into_parts();
        let mut head = signed.clone();
        let named = self.hosts.named(&head);
        let resolved = named.as_ref().map_or_else(|odd| Err(again(odd)), |named| resolve(&mut head, named));
        let named = named.unwrap_or_default();
        let key = key_of(&head.uri, named.bucket.as_deref());
        let asked_of = Answered { id: id.clone(), bucket: named.bucket.clone(), key, learned };
        let mending = Mending::of(&head, &named);
        let asked = match head.method {
            Method::OPTIONS => Ok(None),
            _ => Asked::of(&head.method, &head.headers),
        };
        let is_encrypted = self.shared.encrypted;
        let refused = resolved.err().or_else(|| refused(&head, &named, is_encrypted));
        let encryption = encryption::shown(&head.method, named.target(), &head.uri).filter(|_| is_encrypted);
        let mut place = None;
        let answered = match (refused, &asked) {
            (Some(error), _) => Err(error),
            (None, Err(odd)) => Err(again(odd)),
            (None, Ok(_)) if head.method == Method::OPTIONS => {
                self.preflight(&head, named.bucket.as_deref()).await
            }
            (None, Ok(_)) => self.serve(&signed, head, body, &named, &mut place).await,
        };
        let answer = answered.unwrap_or_else(error_response);
        let mut answer = mending.mend(answer, &id).await;
        if let Some((name, value)) = encryption.filter(|_| answer.status().is_success()) {
            answer.headers_mut().insert(name, value);
        }
        if let (Ok(Some(asked)), Some(bucket)) = (asked, named.bucket)
            && let Ok(Some(headers)) = self.cors(&bucket).await.map(|cors| asked.answer(&cors?))
        {
            answer.headers_mut().extend(headers);
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            answer.headers_mut().insert(REQUEST_ID, id);
        }
        answer.headers_mut().insert(SERVER, HeaderValue::from_static("Tenon"));
        answer.extensions_mut().insert(asked_of);
        // The request keeps its slot until its response is sent.
        answer.extensions_mut().insert(Arc::new(place));
        answer
    }

    /// Subscribes to the events of all buckets, from now on. Only changes made through this endpoint have events.
    pub fn subscribe(&self) -> events::Subscription {
        self.shared.notifier.subscribe()
    }

    /// Returns the delivery counts of all webhooks, by name.
    pub fn webhooks(&self) -> BTreeMap<String, events::WebhookCounts> {
        self.shared.notifier.counts()
    }

    /// Returns the number of events dropped because objects changed faster than the event workers could read them.
    pub fn events_lost(&self) -> u64 {
        self.shared.notifier.lost()
    }

    /// Applies the lifecycle rules of all buckets now. A server does so once a day by itself.
    pub async fn expire(&self) -> Expired {
        lifecycle::expire_all(&self.shared).await
    }

    /// Applies lifecycle rules periodically until `ends` becomes true.
    pub(crate) async fn keep_expiring(self, ends: watch::Receiver<bool>) {
        lifecycle::run(self.shared, ends).await;
    }

    /// Waits until all events are dispatched and delivered, for at most about `patience`. Webhooks accept no events
    /// afterwards.
    pub async fn finish(&self, patience: Duration) {
        self.shared.notifier.finish(patience).await;
    }

    /// Returns the response to a request whose handler panicked.
    pub(crate) fn broken() -> Response<Body> {
        error_response(s3_error!(InternalError, "We encountered an internal error, please try again."))
    }

    /// Serves a request that passed the early checks. `signed` is the head as received; `head` is the same head in path
    /// style, with the headers that a presigned URL carries. Stores the request's slot in `slot`.
    async fn serve(
        &self,
        signed: &Parts,
        head: Parts,
        body: Body,
        named: &Named,
        place: &mut Option<Share>,
    ) -> S3Result<Response<Body>> {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let peer = head.extensions.get::<Peer>().map(|peer| peer.0);
        if wire::is_post(&head, named) {
            let reading = wire::read_post(head, body, named, &shared.region, &shared.sessions, now);
            let (mut put, posted) = shared.admission.read_unproven(peer, reading).await?;
            let admitted = shared.admitted(Signer::of(put.extensions()), peer);
            admitted.note(put.extensions());
            *place = Some(shared.admission.admit(&admitted.client)?);
            encryption::check(put.headers(), shared.encrypted)?;
            put.extensions_mut().insert(admitted);
            return Ok(posted.answer(self.call(put).await?));
        }
        authentication::check(signed, &shared.region, &shared.sessions, now)?;
        let (body, form) = match is_sts(&head.method, &head.uri) {
            false => (body, Body::empty()),
            true => shared.admission.read_unproven(peer, twice(body)).await?,
        };
        let signer = match self.verifier.verify(signed, form).await {
            Ok(signer) => signer,
            Err(answer) => return Ok(*answer),
        };
        // Only the key whose signature was verified counts, whatever access key other parts of the request name.
        let access_key = signer.as_ref().map(|signer| signer.access_key.as_str());
        authentication::check_token(signed, access_key, &shared.sessions)?;
        let reads_body_first = wire::reads_body_first(&head, named) && !body.is_end_stream();
        if reads_body_first && let Err(answer) = self.early_access.check(&head, signer.as_ref()).await {
            return Ok(*answer);
        }
        let admitted = shared.admitted(access_key, peer);
        admitted.note(&head.extensions);
        *place = Some(shared.admission.admit(&admitted.client)?);
        // A missing bucket is reported before an invalid copy source or document.
        let bucket = named.bucket.as_deref();
        if let Some(bucket) = bucket.filter(|_| wire::copies(&head) || wire::brings_document(&head)) {
            shared.bucket(bucket).await?;
        }
        let _document = match reads_body_first {
            true => admitted.document(body.size_hint().exact(), DOCUMENT_BYTES_MAX as u64).await?,
            false => None,
        };
        let mut plain = wire::plain(head, body, named, signer.as_ref()).await?;
        plain.extensions_mut().insert(admitted);
        self.call(plain).await
    }

    async fn call(&self, request: Request<Body>) -> S3Result<Response<Body>> {
        let answered = self.service.call(request).await;
        answered.map_err(|error| {
            tracing::warn!(?error, "a request could not be answered");
            s3_error!(InternalError, "We encountered an internal error. Please try again.")
        })
    }

    /// Answers a CORS preflight request.
    async fn preflight(&self, head: &Parts, bucket: Option<&str>) -> S3Result<Response<Body>> {
        let forbidden =
            |why: &str| custom("AccessForbidden", StatusCode::FORBIDDEN, format!("CORSResponse: {why}"));
        let bucket = bucket.ok_or_else(|| forbidden("CORS is not enabled for this bucket."))?;
        self.shared.bucket(bucket).await?;
        let asked = Asked::before(&head.headers)?;
        let cors = self.cors(bucket).await?;
        let cors = cors.ok_or_else(|| forbidden("CORS is not enabled for this bucket."))?;
        let headers = asked.answer(&cors).ok_or_else(|| {
            forbidden("This CORS request is not allowed. This is usually because the evalution of Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.")
        })?;
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = headers;
        Ok(response)
    }

    async fn cors(&self, bucket: &str) -> S3Result<Option<CORSConfiguration>> {
        let Ok(bucket) = self.shared.bucket(bucket).await else { return Ok(None) };
        bucket.setting(settings::CORS).await
    }
}

/// Rewrites a request to path style, and turns headers carried in the query of a presigned URL into headers.
fn resolve(head: &mut Parts, named: &Named) -> S3Result<()> {
    head.extensions.insert(BucketUrl::of(head, named));
    head.uri = named.path_style(&head.uri)?;
    wire::unhoist(head)
}

/// Returns the error for a request that is refused before authentication, if any.
fn refused(head: &Parts, named: &Named, is_encrypted: bool) -> Option<S3Error> {
    let query = head.uri.query().unwrap_or_default();
    if head.method != Method::OPTIONS
        && let Err(error) = operation_table::check(&head.method, named.target(), query)
    {
        return Some(error);
    }
    if let Err(error) = wire::check_form(head) {
        return Some(error);
    }
    let is_write = [Method::PUT, Method::POST].contains(&head.method);
    let if_none_match = head.headers.get(http::header::IF_NONE_MATCH);
    if is_write && if_none_match.is_some_and(|value| value.as_bytes() != b"*") {
        return Some(conditions::unusual());
    }
    if let Err(error) = encryption::check(&head.headers, is_encrypted) {
        return Some(error);
    }
    if is_write && named.target() == Target::Object && lacks_length(head) {
        return Some(s3_error!(MissingContentLength));
    }
    NOT_IMPLEMENTED.iter().find(|name| head.headers.contains_key(**name)).map(|name| {
        s3_error!(
            NotImplemented,
            "A header you provided implies functionality that is not implemented: {name}"
        )
    })
}

/// Whether a request that must declare the length of its body does not.
fn lacks_length(head: &Parts) -> bool {
    let has = |name: &HeaderName| head.headers.contains_key(name);
    let has_no_body = wire::copies(head) || operation_table::has_word(&head.uri, "renameObject");
    head.method == Method::PUT && !has_no_body && !has(&CONTENT_LENGTH) && !has(&TRANSFER_ENCODING)
}

/// Reads a short body and returns two copies of it.
async fn twice(mut body: Body) -> S3Result<(Body, Body)> {
    let bytes = body.store_all_limited(STS_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| s3_error!(MaxMessageLengthExceeded, "Your request was too big."))?;
    Ok((Body::from(bytes.clone()), Body::from(bytes)))
}

/// Returns a copy of an error, without its headers.
fn again(error: &S3Error) -> S3Error {
    let message = error.message().unwrap_or_default().to_owned();
    let mut same = S3Error::with_message(error.code().clone(), message);
    if let Some(status) = error.status_code() {
        same.set_status_code(status);
    }
    same
}

fn error_response(error: S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// The URL of the requested bucket, as the client addressed it.
#[derive(Debug, Clone)]
pub(crate) struct BucketUrl(String);

impl BucketUrl {
    fn of(head: &Parts, named: &Named) -> Self {
        let scheme = head.extensions.get::<Secure>().map_or("http", |_| "https");
        let host = head.headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("localhost");
        Self(format!("{scheme}://{host}{}", named.path_of_bucket()))
    }
}

/// Returns the URL of an object, for responses to completed uploads and form posts.
pub(crate) fn location(extensions: &http::Extensions, key: &str) -> String {
    let bucket = extensions.get::<BucketUrl>().map_or("", |url| url.0.as_str());
    format!("{bucket}/{}", encoded_path(key))
}
