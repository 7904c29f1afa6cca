//! One request in, one answer out: what stands around the S3 operations.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPIRES, HOST, SERVER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::CORSConfiguration;
use s3s::host::MultiDomain;
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
use crate::error_document;
use crate::lifecycle::{self, Expired};
use crate::notify::{Notifier, Received};
use crate::ops::settings;
use crate::places;
use crate::query;
use crate::routes::Routes;
use crate::service::Service;
use crate::sessions::Sessions;
use crate::users::Users;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The longest XML of a request: a completion of 10,000 parts with checksums has 2 MB.
const XML_BYTES_MAX: usize = 4 << 20;
/// The longest object of a POST from a browser, which is held in memory.
const POST_BYTES_MAX: u64 = 64 << 20;
/// The longest form of such a POST, beside the object.
const FORM_BYTES_MAX: usize = 1 << 20;

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
    /// Who may come in. With none at all nobody may.
    pub users: Users,
    /// The region that buckets say they are in.
    pub region: String,
    /// Domains below which a bucket's name is the host's first label; without any, buckets are named in paths.
    pub domains: Vec<String>,
    /// Where notification configurations can send events, by name.
    pub webhooks: BTreeMap<String, events::Webhook>,
}

/// An S3 endpoint over some buckets. Clones share it.
#[derive(Clone)]
pub struct Endpoint {
    service: S3Service,
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
}

impl Shared {
    pub(crate) async fn bucket(&self, name: &str) -> S3Result<Bucket> {
        let store = self.buckets.open(name).await.map_err(from_store)?;
        Ok(Bucket { name: name.to_owned(), store })
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
        let EndpointOptions { users, region, domains, webhooks } = options;
        let sessions = Sessions::new(users.clone(), clock.clone(), entropy.clone());
        let owner = users.owner().to_owned();
        let notifier = Arc::new(Notifier::start(webhooks, region.clone(), owner, clock.clone()));
        let shared = Shared { buckets, users, sessions: sessions.clone(), region, clock, entropy, notifier };
        let shared = Arc::new(shared);
        let gate = Gate(shared.clone());
        let mut builder = S3ServiceBuilder::new(Service { shared: shared.clone(), gate: gate.clone() });
        builder.set_auth(sessions);
        builder.set_access(gate.clone());
        builder.set_route(Routes { shared: shared.clone(), gate });
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_BYTES_MAX;
        config.post_object_max_file_size = POST_BYTES_MAX;
        config.form_max_fields_size = FORM_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        if !domains.is_empty() {
            builder.set_host(MultiDomain::new(&domains).map_err(|error| error.to_string())?);
        }
        Ok(Self { service: builder.build(), shared })
    }

    /// Answers a request.
    pub async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let id = format!("{:016X}", self.shared.entropy.next_u64());
        let received = Received { id: id.clone(), method: request.method().clone() };
        request.extensions_mut().insert(received);
        let method = request.method().clone();
        let asked = Asked::of(&method, request.headers());
        let bucket = bucket_of(&request);
        let named = error_document::Asked::of(&request);
        let expires = wanted_expires(request.uri());
        let names_part = has_word(request.uri(), "partNumber");
        let sets_tags = method == Method::PUT && is_of_bucket(request.uri(), "tagging");
        let shows_attributes = has_word(request.uri(), "attributes");
        let (asked, is_odd) = match asked {
            Ok(asked) => (asked, None),
            Err(odd) => (None, Some(odd)),
        };
        let refused = refused(&request).or_else(|| match method {
            Method::OPTIONS => None,
            _ => is_odd
                .or_else(|| authorization::problem(&request, &self.shared.region, &self.shared.sessions)),
        });
        let answered = match refused {
            Some(error) => Err(error),
            None if method == Method::OPTIONS => self.preflight(&request, bucket.as_deref()).await,
            None => self.serve(request).await,
        };
        let response = answered.unwrap_or_else(error_response);
        let mut response = error_document::completed(response, &named, &id).await;
        if method == Method::HEAD && names_part && response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        if sets_tags && response.status() == StatusCode::OK {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        if shows_attributes && response.status() == StatusCode::OK {
            response = without_quotes(response).await;
        }
        if let Some(expires) = expires
            && response.status().is_success()
        {
            response.headers_mut().insert(EXPIRES, expires);
        }
        if matches!(response.status(), StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_LENGTH);
            response.headers_mut().remove(CONTENT_TYPE);
        }
        if let (Some(asked), Some(bucket), true) = (asked, bucket, method != Method::OPTIONS)
            && let Ok(Some(headers)) = self.cors(&bucket).await.map(|cors| asked.answer(&cors?))
        {
            response.headers_mut().extend(headers);
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response.headers_mut().insert(SERVER, HeaderValue::from_static("Tenon"));
        response
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

    async fn serve(&self, request: Request<Body>) -> S3Result<Response<Body>> {
        let _place = places::for_document(&request).await?;
        let answered = self.service.call(request).await;
        answered.map_err(|error| {
            tracing::warn!(?error, "a request could not be answered");
            s3_error!(InternalError, "We encountered an internal error. Please try again.")
        })
    }

    /// Answers a browser that asks before it sends a request.
    async fn preflight(&self, request: &Request<Body>, bucket: Option<&str>) -> S3Result<Response<Body>> {
        let forbidden =
            |why: &str| custom("AccessForbidden", StatusCode::FORBIDDEN, format!("CORSResponse: {why}"));
        let bucket = bucket.ok_or_else(|| forbidden("CORS is not enabled for this bucket."))?;
        self.shared.bucket(bucket).await?;
        let asked = Asked::before(request.headers())?;
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
fn refused(request: &Request<Body>) -> Option<S3Error> {
    if let Some(word) = request.uri().query().and_then(query::unknown_word) {
        return Some(not_implemented(&format!("A query with '{word}'")));
    }
    if let Some(length) =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
        && XML_BYTES_MAX < length
        && query::is_document(request.method(), request.uri().query().unwrap_or_default())
    {
        return Some(s3_error!(MaxMessageLengthExceeded, "Your request was too big."));
    }
    let is_write = [Method::PUT, Method::POST].contains(request.method());
    let if_none_match = request.headers().get(http::header::IF_NONE_MATCH);
    if is_write && if_none_match.is_some_and(|value| value.as_bytes() != b"*") {
        return Some(conditions::unusual());
    }
    let is_empty = |name: &str| request.headers().get(name).is_none_or(HeaderValue::is_empty);
    if has_word(request.uri(), "attributes") && is_empty("x-amz-object-attributes") {
        return Some(s3_error!(
            InvalidRequest,
            "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty"
        ));
    }
    let asked = |name: &&&str| request.headers().contains_key(**name);
    NOT_IMPLEMENTED.iter().find(asked).map(|name| {
        s3_error!(
            NotImplemented,
            "A header you provided implies functionality that is not implemented: {name}"
        )
    })
}

fn has_word(uri: &Uri, name: &str) -> bool {
    uri.query().unwrap_or_default().split('&').any(|word| word.split('=').next() == Some(name))
}

/// Whether a request is one about a bucket, not an object, and has a word in its query.
fn is_of_bucket(uri: &Uri, word: &str) -> bool {
    !uri.path().trim_matches('/').contains('/') && has_word(uri, word)
}

/// The `Expires` that a GET asks for, as it is written.
fn wanted_expires(uri: &Uri) -> Option<HeaderValue> {
    let query = uri.query()?.as_bytes();
    let (_, wanted) = url::form_urlencoded::parse(query).find(|(word, _)| word == "response-expires")?;
    HeaderValue::from_str(&wanted).ok()
}

/// GetObjectAttributes shows an object's tag without its quotes, other than all other answers.
async fn without_quotes(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let Ok(body) = body.collect().await else { return Response::from_parts(head, Body::empty()) };
    let text = String::from_utf8_lossy(&body.to_bytes())
        .replace("<ETag>\"", "<ETag>")
        .replace("\"</ETag>", "</ETag>")
        .replace("&quot;", "");
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Response::from_parts(head, Body::from(text))
}

/// The bucket that a path names; virtual hosts say it in the host.
fn bucket_of(request: &Request<Body>) -> Option<String> {
    let name = request.uri().path().trim_start_matches('/').split('/').next()?;
    (!name.is_empty()).then(|| name.to_owned())
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
