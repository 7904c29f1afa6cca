//! One request in, one answer out: what stands around the S3 operations.

use http::header::{HOST, SERVER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::CORSConfiguration;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3Result, s3_error};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Clock, Entropy};
use tokio::sync::watch;

use crate::access::Gate;
use crate::authorization;
use crate::buckets::Bucket;
use crate::conditions;
use crate::cors::Asked;
use crate::error::{custom, from_store, not_implemented};
use crate::lifecycle::{self, Expired};
use crate::mending::Mending;
use crate::named::{Hosts, Named, domains_of};
use crate::notify::{Notifier, Received};
use crate::ops::settings;
use crate::places;
use crate::query;
use crate::routes::{Routes, is_sts};
use crate::service::Service;
use crate::sessions::Sessions;
use crate::users::Users;
use crate::wire::{self, DOCUMENT_BYTES_MAX, Verifier};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The longest form of a request to STS.
pub(crate) const STS_BYTES_MAX: usize = 8 << 10;

/// Headers that ask for what is not implemented: overlooked, they would leave data less safe than its owner thinks.
const NOT_IMPLEMENTED: [&str; 5] = [
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-write-offset-bytes",
];

/// How an endpoint answers.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Who may come in, which may change while the endpoint serves. With none at all nobody may.
    pub users: Users,
    /// The region that buckets say they are in.
    pub region: String,
    /// Domains below which a bucket's name is the host's first label; without any, buckets are named in paths.
    pub domains: Vec<String>,
    /// Where notification configurations can send events, by name.
    pub webhooks: BTreeMap<String, events::Webhook>,
    /// Whether etags of new objects are MD5s, as far as the store calls objects as it is told. It costs more than all else.
    pub md5: bool,
}

/// An S3 endpoint over some buckets. Clones share it.
#[derive(Clone)]
pub struct Endpoint {
    verifier: Verifier,
    service: S3Service,
    hosts: Hosts,
    shared: Arc<Shared>,
}

/// What all operations need.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) buckets: Arc<dyn Buckets>,
    pub(crate) users: Users,
    pub(crate) sessions: Sessions,
    pub(crate) region: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<Entropy>,
    pub(crate) notifier: Arc<Notifier>,
    /// Whether etags are to be MD5s.
    pub(crate) md5: bool,
}

impl Shared {
    pub(crate) async fn bucket(&self, name: &str) -> S3Result<Bucket> {
        let store = self.buckets.open(name).await.map_err(from_store)?;
        Ok(Bucket { name: name.to_owned(), store })
    }

    /// The access key of the user whose rights a signer has.
    pub(crate) fn user_of(&self, signer: Option<&str>) -> Option<String> {
        let signer = signer?;
        Some(self.sessions.user_of(signer).unwrap_or_else(|| signer.to_owned()))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint over `buckets`; an error names a domain that is none. To be called in a runtime, in which events are told.
    pub fn new(
        buckets: Arc<dyn Buckets>,
        options: EndpointOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> Result<Self, String> {
        let EndpointOptions { users, region, domains, webhooks, md5 } = options;
        let sessions = Sessions::new(users.clone(), clock.clone(), entropy.clone());
        let notifier = Arc::new(Notifier::start(webhooks, region.clone(), users.clone(), clock.clone()));
        let shared =
            Shared { buckets, users, sessions: sessions.clone(), region, md5, clock, entropy, notifier };
        let shared = Arc::new(shared);
        let gate = Gate(shared.clone());
        let mut builder = S3ServiceBuilder::new(Service { shared: shared.clone(), gate: gate.clone() });
        // Signatures were checked before; without this nothing would be asked of the gate.
        builder.set_auth(sessions.clone());
        builder.set_access(gate.clone());
        builder.set_route(Routes { shared: shared.clone(), gate });
        let mut config = S3Config::default();
        config.xml_max_body_size = DOCUMENT_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        if let Some(hosts) = domains_of(&domains)? {
            builder.set_host(hosts);
        }
        let verifier = Verifier::new(sessions, domains_of(&domains)?);
        let hosts = Hosts::new(&domains)?;
        Ok(Self { verifier, service: builder.build(), hosts, shared })
    }

    /// Answers a request.
    pub async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let id = format!("{:016X}", self.shared.entropy.next_u64());
        let received = Received { id: id.clone(), method: request.method().clone() };
        request.extensions_mut().insert(received);
        let (head, body) = request.into_parts();
        let named = self.hosts.named(&head);
        let mending = Mending::of(&head, &named);
        let asked = match head.method {
            Method::OPTIONS => Ok(None),
            _ => Asked::of(&head.method, &head.headers),
        };
        let answered = match (refused(&head), &asked) {
            (Some(error), _) => Err(error),
            (None, Err(odd)) => Err(again(odd)),
            (None, Ok(_)) if head.method == Method::OPTIONS => {
                self.preflight(&head, named.bucket.as_deref()).await
            }
            (None, Ok(_)) => self.serve(head, body, &named).await,
        };
        let answer = answered.unwrap_or_else(error_response);
        let mut answer = mending.mend(answer, &id).await;
        if let (Ok(Some(asked)), Some(bucket)) = (asked, named.bucket)
            && let Ok(Some(headers)) = self.cors(&bucket).await.map(|cors| asked.answer(&cors?))
        {
            answer.headers_mut().extend(headers);
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            answer.headers_mut().insert(REQUEST_ID, id);
        }
        answer.headers_mut().insert(SERVER, HeaderValue::from_static("Tenon"));
        answer
    }

    /// Hears what happens to objects of all buckets through this endpoint, from now on.
    pub fn subscribe(&self) -> events::Subscription {
        self.shared.notifier.subscribe()
    }

    /// What the webhooks did so far, by their names.
    pub fn webhooks(&self) -> BTreeMap<String, events::WebhookCounts> {
        self.shared.notifier.counts()
    }

    /// Changes that nobody was told of, as they came faster than objects could be looked at.
    pub fn events_lost(&self) -> u64 {
        self.shared.notifier.lost()
    }

    /// Acts on the lifecycle rules of all buckets now. A server does it by itself, once a day.
    pub async fn expire(&self) -> Expired {
        lifecycle::expire_all(&self.shared).await
    }

    /// As [`Endpoint::expire`], whenever it is time, until the end.
    pub(crate) async fn keep_expiring(self, ends: watch::Receiver<bool>) {
        lifecycle::run(self.shared, ends).await;
    }

    /// Returns when all events are told and delivered, or given up after about `patience`; webhooks take none afterwards.
    pub async fn finish(&self, patience: Duration) {
        self.shared.notifier.finish(patience).await;
    }

    /// The answer to a request that has no place.
    pub(crate) fn slow_down() -> Response<Body> {
        error_response(s3_error!(SlowDown, "Please reduce your request rate."))
    }

    /// The answer to a request that found something that cannot be.
    pub(crate) fn broken() -> Response<Body> {
        error_response(s3_error!(InternalError, "We encountered an internal error, please try again."))
    }

    async fn serve(&self, head: Parts, body: Body, named: &Named) -> S3Result<Response<Body>> {
        let _place = places::for_document(&head).await?;
        let (shared, now) = (&self.shared, self.shared.clock.now());
        if wire::is_post(&head, named) {
            let (put, posted) =
                wire::read_post(head, body, named, &shared.region, &shared.sessions, now).await?;
            return Ok(posted.answer(self.call(put).await?));
        }
        authorization::check(&head, &shared.region, &shared.sessions, now)?;
        let (body, signed) = match is_sts(&head.method, &head.uri) {
            false => (body, Body::empty()),
            true => twice(body).await?,
        };
        let signer = match self.verifier.verify(&head, signed).await {
            Ok(signer) => signer,
            Err(answer) => return Ok(*answer),
        };
        // That there is no bucket is said before what is wrong with a copy's source, or with what a document says.
        let (copies, brings_document) = (wire::copies(&head), wire::brings_document(&head));
        let bucket = named.bucket.as_deref();
        if let Some(bucket) = bucket.filter(|_| copies) {
            shared.bucket(bucket).await?;
        }
        let plain = wire::plain(head, body, named, signer.as_ref()).await?;
        if let Some(bucket) = bucket.filter(|_| brings_document) {
            shared.bucket(bucket).await?;
        }
        self.call(plain).await
    }

    async fn call(&self, request: Request<Body>) -> S3Result<Response<Body>> {
        let answered = self.service.call(request).await;
        answered.map_err(|error| {
            tracing::warn!(?error, "a request could not be answered");
            s3_error!(InternalError, "We encountered an internal error. Please try again.")
        })
    }

    /// Answers a browser that asks before it sends a request.
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

/// What is refused before anybody looks who asks.
fn refused(head: &Parts) -> Option<S3Error> {
    if let Some(word) = head.uri.query().and_then(query::unknown_word) {
        return Some(not_implemented(&format!("A query with '{word}'")));
    }
    if let Err(error) = wire::check_form(head) {
        return Some(error);
    }
    let is_write = [Method::PUT, Method::POST].contains(&head.method);
    let if_none_match = head.headers.get(http::header::IF_NONE_MATCH);
    if is_write && if_none_match.is_some_and(|value| value.as_bytes() != b"*") {
        return Some(conditions::unusual());
    }
    NOT_IMPLEMENTED.iter().find(|name| head.headers.contains_key(**name)).map(|name| {
        s3_error!(
            NotImplemented,
            "A header you provided implies functionality that is not implemented: {name}"
        )
    })
}

/// A short body, to be read twice.
async fn twice(mut body: Body) -> S3Result<(Body, Body)> {
    let bytes = body.store_all_limited(STS_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| s3_error!(MaxMessageLengthExceeded, "Your request was too big."))?;
    Ok((Body::from(bytes.clone()), Body::from(bytes)))
}

/// The same error once more.
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

/// Where an object can be fetched, as CompleteMultipartUpload says.
pub(crate) fn location(headers: &HeaderMap, bucket: &str, key: &str) -> String {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("localhost");
    format!("http://{host}/{bucket}/{key}")
}
