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

use crate::access_log::{AccessLog, LogContext, RequestFacts, encoded_key};
use crate::addressing::{Domains, Resource, encode_path};
use crate::admission::{Admission, AdmittedClient, Client, Holder, Permit};
use crate::authentication;
use crate::authorizer::Authorizer;
use crate::bucket::Bucket;
use crate::conditions;
use crate::cors::CorsRequest;
use crate::encryption;
use crate::error::{custom, from_store};
use crate::lifecycle::{self, Expired};
use crate::notify::{Notifier, ReceivedRequest};
use crate::operations::{self, ResourceKind};
use crate::ops::settings;
use crate::policy_condition::Peer;
use crate::preauthorizer::Preauthorizer;
use crate::response::ResponseFixups;
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
pub(crate) struct OverTls;

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
    preauthorizer: Preauthorizer,
    service: S3Service,
    domains: Domains,
    context: Arc<EndpointContext>,
    access_log: Option<AccessLog>,
}

/// The state that all operations share.
#[derive(Debug)]
pub(crate) struct EndpointContext {
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

impl EndpointContext {
    pub(crate) async fn open_bucket(&self, name: &str) -> S3Result<Bucket> {
        let store = self.buckets.open(name).await.map_err(from_store)?;
        Ok(Bucket { name: name.to_owned(), store })
    }

    /// Returns the access key of the user in whose name a signer acts. Session keys map to their user.
    pub(crate) fn user_of(&self, signer: Option<&str>) -> Option<String> {
        let signer = signer?;
        Some(self.sessions.user_of(signer).unwrap_or_else(|| signer.to_owned()))
    }
}

impl EndpointContext {
    /// Returns the client that a request's slots and memory are charged to, by signer and address.
    fn admitted_client(&self, signer: Option<&str>, peer: Option<IpAddr>) -> AdmittedClient {
        let holder = self.user_of(signer).map_or(Holder::Anonymous, Holder::User);
        AdmittedClient { admission: self.admission.clone(), client: Client { holder, peer } }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("context", &self.context).finish_non_exhaustive()
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
        let context = Arc::new(EndpointContext {
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
        let authorizer = Authorizer(context.clone());
        let mut builder =
            S3ServiceBuilder::new(Service { context: context.clone(), authorizer: authorizer.clone() });
        // Signatures are checked before; but without an auth provider `s3s` would not call the authorizer.
        builder.set_auth(sessions.clone());
        builder.set_access(authorizer.clone());
        builder.set_route(Routes { context: context.clone(), authorizer: authorizer.clone() });
        let mut config = S3Config::default();
        config.xml_max_body_size = DOCUMENT_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let preauthorizer = Preauthorizer::new(authorizer, sessions.clone());
        let verifier = Verifier::new(sessions);
        let domains = Domains::new(&domains)?;
        Ok(Self { verifier, preauthorizer, service: builder.build(), domains, context, access_log: None })
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
        self.context.clock.now()
    }

    /// Sets the limits of admission control. Must be called before the first request.
    pub(crate) fn set_limits(&self, requests: usize, body_bytes: u64) {
        self.context.admission.resize(requests, body_bytes);
    }

    /// Handles a request and returns its response.
    pub async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let id = format!("{:016X}", self.context.entropy.next_u64());
        let received = ReceivedRequest { id: id.clone(), method: request.method().clone() };
        request.extensions_mut().insert(received);
        let facts = RequestFacts::default();
        if self.access_log.is_some() {
            request.extensions_mut().insert(facts.clone());
        }
        let (signed, body) = request.into_parts();
        let mut head = signed.clone();
        let resource = self.domains.resolve(&head);
        let resolved = resource
            .as_ref()
            .map_or_else(|error| Err(clone_error(error)), |resource| resolve(&mut head, resource));
        let resource = resource.unwrap_or_default();
        let key = encoded_key(&head.uri, resource.bucket.as_deref());
        let log_context = LogContext { id: id.clone(), bucket: resource.bucket.clone(), key, facts };
        let fixups = ResponseFixups::of(&head, &resource);
        let cors_request = match head.method {
            Method::OPTIONS => Ok(None),
            _ => CorsRequest::of_request(&head.method, &head.headers),
        };
        let is_encrypted = self.context.encrypted;
        let refused = resolved.err().or_else(|| reject_early(&head, &resource, is_encrypted));
        let encryption =
            encryption::response_header(&head.method, resource.kind(), &head.uri).filter(|_| is_encrypted);
        let mut slot = None;
        let answered = match (refused, &cors_request) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(clone_error(error)),
            (None, Ok(_)) if head.method == Method::OPTIONS => {
                self.preflight(&head, resource.bucket.as_deref()).await
            }
            (None, Ok(_)) => self.serve(&signed, head, body, &resource, &mut slot).await,
        };
        let answer = answered.unwrap_or_else(error_response);
        let mut answer = fixups.apply(answer, &id).await;
        if let Some((name, value)) = encryption.filter(|_| answer.status().is_success()) {
            answer.headers_mut().insert(name, value);
        }
        if let (Ok(Some(cors_request)), Some(bucket)) = (cors_request, resource.bucket)
            && let Ok(Some(headers)) =
                self.cors(&bucket).await.map(|cors| cors_request.response_headers(&cors?))
        {
            answer.headers_mut().extend(headers);
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            answer.headers_mut().insert(REQUEST_ID, id);
        }
        answer.headers_mut().insert(SERVER, HeaderValue::from_static("Tenon"));
        answer.extensions_mut().insert(log_context);
        // The request keeps its slot until its response is sent.
        answer.extensions_mut().insert(Arc::new(slot));
        answer
    }

    /// Subscribes to the events of all buckets, from now on. Only changes made through this endpoint have events.
    pub fn subscribe(&self) -> events::Subscription {
        self.context.notifier.subscribe()
    }

    /// Returns the delivery counts of all webhooks, by name.
    pub fn webhooks(&self) -> BTreeMap<String, events::WebhookCounts> {
        self.context.notifier.counts()
    }

    /// Returns the number of events dropped because objects changed faster than the event workers could read them.
    pub fn events_lost(&self) -> u64 {
        self.context.notifier.lost()
    }

    /// Applies the lifecycle rules of all buckets now. A server does so once a day by itself.
    pub async fn expire(&self) -> Expired {
        lifecycle::expire_all(&self.context).await
    }

    /// Applies lifecycle rules periodically until `ends` becomes true.
    pub(crate) async fn run_lifecycle_worker(self, ends: watch::Receiver<bool>) {
        lifecycle::run(self.context, ends).await;
    }

    /// Waits until all events are dispatched and delivered, for at most about `patience`. Webhooks accept no events
    /// afterwards.
    pub async fn finish(&self, patience: Duration) {
        self.context.notifier.finish(patience).await;
    }

    /// Returns the response to a request whose handler panicked.
    pub(crate) fn internal_error_response() -> Response<Body> {
        error_response(s3_error!(InternalError, "We encountered an internal error, please try again."))
    }

    /// Serves a request that passed the early checks. `signed` is the head as received; `head` is the same head in path
    /// style, with the headers that a presigned URL carries. Stores the request's slot in `slot`.
    async fn serve(
        &self,
        signed: &Parts,
        head: Parts,
        body: Body,
        resource: &Resource,
        slot: &mut Option<Permit>,
    ) -> S3Result<Response<Body>> {
        let (context, now) = (&self.context, self.context.clock.now());
        let peer = head.extensions.get::<Peer>().map(|peer| peer.0);
        if wire::is_form_post(&head, resource) {
            let reading = wire::read_form_post(head, body, resource, &context.region, &context.sessions, now);
            let (mut put, form_response) = context.admission.read_pre_auth(peer, reading).await?;
            let admitted = context.admitted_client(Signer::of(put.extensions()), peer);
            admitted.note_user(put.extensions());
            *slot = Some(context.admission.admit(&admitted.client)?);
            encryption::check(put.headers(), context.encrypted)?;
            put.extensions_mut().insert(admitted);
            return Ok(form_response.into_response(self.call(put).await?));
        }
        authentication::check(signed, &context.region, &context.sessions, now)?;
        let (body, form) = match is_sts(&head.method, &head.uri) {
            false => (body, Body::empty()),
            true => context.admission.read_pre_auth(peer, duplicate_body(body)).await?,
        };
        let signer = match self.verifier.verify(signed, form).await {
            Ok(signer) => signer,
            Err(answer) => return Ok(*answer),
        };
        // Only the key whose signature was verified counts, whatever access key other parts of the request name.
        let access_key = signer.as_ref().map(|signer| signer.access_key.as_str());
        authentication::check_token(signed, access_key, &context.sessions)?;
        let reads_body_first = wire::is_body_read_first(&head, resource) && !body.is_end_stream();
        if reads_body_first && let Err(answer) = self.preauthorizer.check(&head, signer.as_ref()).await {
            return Ok(*answer);
        }
        let admitted = context.admitted_client(access_key, peer);
        admitted.note_user(&head.extensions);
        *slot = Some(context.admission.admit(&admitted.client)?);
        // A missing bucket is reported before an invalid copy source or document.
        let bucket = resource.bucket.as_deref();
        if let Some(bucket) = bucket.filter(|_| wire::is_copy(&head) || wire::has_document(&head)) {
            context.open_bucket(bucket).await?;
        }
        let _document = match reads_body_first {
            true => admitted.acquire_document(body.size_hint().exact(), DOCUMENT_BYTES_MAX as u64).await?,
            false => None,
        };
        let mut plain = wire::to_plain(head, body, resource, signer.as_ref()).await?;
        plain.extensions_mut().insert(admitted);
        self.call(plain).await
    }

    async fn call(&self, request: Request<Body>) -> S3Result<Response<Body>> {
        let answered = self.service.call(request).await;
        answered.map_err(|error| {
            tracing::warn!(?error, "cannot answer a request");
            s3_error!(InternalError, "We encountered an internal error. Please try again.")
        })
    }

    /// Answers a CORS preflight request.
    async fn preflight(&self, head: &Parts, bucket: Option<&str>) -> S3Result<Response<Body>> {
        let forbidden =
            |why: &str| custom("AccessForbidden", StatusCode::FORBIDDEN, format!("CORSResponse: {why}"));
        let bucket = bucket.ok_or_else(|| forbidden("CORS is not enabled for this bucket."))?;
        self.context.open_bucket(bucket).await?;
        let cors_request = CorsRequest::preflight(&head.headers)?;
        let cors = self.cors(bucket).await?;
        let cors = cors.ok_or_else(|| forbidden("CORS is not enabled for this bucket."))?;
        let headers = cors_request.response_headers(&cors).ok_or_else(|| {
            forbidden("This CORS request is not allowed. This is usually because the evalution of Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.")
        })?;
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = headers;
        Ok(response)
    }

    async fn cors(&self, bucket: &str) -> S3Result<Option<CORSConfiguration>> {
        let Ok(bucket) = self.context.open_bucket(bucket).await else { return Ok(None) };
        bucket.setting(settings::CORS).await
    }
}

/// Rewrites a request to path style, and turns headers carried in the query of a presigned URL into headers.
fn resolve(head: &mut Parts, resource: &Resource) -> S3Result<()> {
    head.extensions.insert(BucketUrl::of(head, resource));
    head.uri = resource.to_path_style(&head.uri)?;
    wire::unhoist(head)
}

/// Returns the error for a request that is refused before authentication, if any.
fn reject_early(head: &Parts, resource: &Resource, is_encrypted: bool) -> Option<S3Error> {
    let query = head.uri.query().unwrap_or_default();
    if head.method != Method::OPTIONS
        && let Err(error) = operations::check(&head.method, resource.kind(), query)
    {
        return Some(error);
    }
    if let Err(error) = wire::check_head(head) {
        return Some(error);
    }
    let is_write = [Method::PUT, Method::POST].contains(&head.method);
    let if_none_match = head.headers.get(http::header::IF_NONE_MATCH);
    if is_write && if_none_match.is_some_and(|value| value.as_bytes() != b"*") {
        return Some(conditions::unsupported_condition());
    }
    if let Err(error) = encryption::check(&head.headers, is_encrypted) {
        return Some(error);
    }
    if is_write && resource.kind() == ResourceKind::Object && is_missing_length(head) {
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
fn is_missing_length(head: &Parts) -> bool {
    let has = |name: &HeaderName| head.headers.contains_key(name);
    let has_no_body = wire::is_copy(head) || operations::has_parameter(&head.uri, "renameObject");
    head.method == Method::PUT && !has_no_body && !has(&CONTENT_LENGTH) && !has(&TRANSFER_ENCODING)
}

/// Reads a short body and returns two copies of it.
async fn duplicate_body(mut body: Body) -> S3Result<(Body, Body)> {
    let bytes = body.store_all_limited(STS_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| s3_error!(MaxMessageLengthExceeded, "Your request was too big."))?;
    Ok((Body::from(bytes.clone()), Body::from(bytes)))
}

/// Returns a copy of an error, without its headers.
fn clone_error(error: &S3Error) -> S3Error {
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
    fn of(head: &Parts, resource: &Resource) -> Self {
        let scheme = head.extensions.get::<OverTls>().map_or("http", |_| "https");
        let host = head.headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("localhost");
        Self(format!("{scheme}://{host}{}", resource.bucket_path()))
    }
}

/// Returns the URL of an object, for responses to completed uploads and form posts.
pub(crate) fn location(extensions: &http::Extensions, key: &str) -> String {
    let bucket = extensions.get::<BucketUrl>().map_or("", |url| url.0.as_str());
    format!("{bucket}/{}", encode_path(key))
}
