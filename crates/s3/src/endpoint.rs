//! The endpoint: takes a request through its stages to its response.

use http::{Request, Response};
use s3s::Body;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Buckets, Clock, Entropy};
use tokio::sync::watch;

use crate::access_log::AccessLog;
use crate::addressing::Domains;
use crate::admission::{Admission, Permit};
use crate::authorizer::Authorizer;
use crate::context::EndpointContext;
use crate::error::internal;
use crate::lifecycle::{self, Expired};
use crate::notify::Notifier;
use crate::operations::DOCUMENT_BYTES_MAX;
use crate::request::{Addressed, Confirmation, Received, Refusal};
use crate::response::error_response;
use crate::routes::Routes;
use crate::service::Service;
use crate::sessions::Sessions;
use crate::users::Users;
use crate::wire::Verifier;

/// The configuration of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// The users, who may change while the endpoint serves. Without any user, only requests that a bucket's policy or
    /// ACL allows to everybody succeed.
    pub users: Users,
    /// The region that all buckets report.
    pub region: String,
    /// Domains for virtual-hosted-style requests: the part of the host before one of them is the bucket. Without any,
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
    authorizer: Authorizer,
    service: S3Service,
    domains: Domains,
    context: Arc<EndpointContext>,
    access_log: Option<AccessLog>,
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
        let domains = Domains::new(&domains)?;
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
            observer: OnceLock::new(),
        });
        let authorizer = Authorizer(context.clone());
        let service = build_service(&context, authorizer.clone());
        let verifier = Verifier::new(sessions);
        Ok(Self { verifier, authorizer, service, domains, context, access_log: None })
    }

    /// Returns an endpoint that writes an access log.
    #[must_use]
    pub fn with_access_log(self, log: AccessLog) -> Self {
        Self { access_log: Some(log), ..self }
    }

    /// Returns the endpoint's users.
    pub fn users(&self) -> &Users {
        &self.context.users
    }

    /// Returns the region that all buckets report.
    pub fn region(&self) -> &str {
        &self.context.region
    }

    pub(crate) fn context(&self) -> &EndpointContext {
        &self.context
    }

    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.authorizer
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
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let received = Received::new(request, self.context.request_id());
        let (response, addressed) = received.address(&self.domains, self.context.encrypted);
        let mut slot = None;
        let answered = match addressed {
            Err(error) => Err(Refusal::Error(error)),
            Ok(request) if request.is_preflight() => {
                request.preflight(&self.context).await.map_err(Refusal::Error)
            }
            Ok(request) => self.serve(request, &mut slot).await,
        };
        let answer = answered.unwrap_or_else(Refusal::into_response);
        let mut answer = response.complete(answer, &self.context).await;
        // The request keeps its slot until its response is sent.
        answer.extensions_mut().insert(Arc::new(slot));
        answer
    }

    /// Takes a request through the remaining stages. Stores its slot in `slot`.
    async fn serve(&self, request: Addressed, slot: &mut Option<Permit>) -> Result<Response<Body>, Refusal> {
        let request = request.authenticate(&self.verifier, &self.context).await?;
        let (request, permit) = request.admit()?;
        *slot = Some(permit);
        let request = request.authorize(&self.authorizer).await?;
        Ok(request.run(&self.service).await?)
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
    pub async fn apply_lifecycle_rules(&self) -> Expired {
        lifecycle::expire_all(&self.context).await
    }

    /// Applies lifecycle rules periodically until `ends` becomes true.
    pub(crate) async fn run_lifecycle_worker(self, ends: watch::Receiver<bool>) {
        lifecycle::run(self.context, ends).await;
    }

    /// Waits until all events are dispatched and delivered, for at most about `patience`. Webhooks accept no events
    /// afterwards.
    pub async fn shut_down(&self, patience: Duration) {
        self.context.notifier.shut_down(patience).await;
    }

    /// Returns the response to a request whose handler panicked.
    pub(crate) fn internal_error_response() -> Response<Body> {
        error_response(internal())
    }
}

/// Returns the `s3s` service that parses authorized requests, calls their operations and writes the responses.
fn build_service(context: &Arc<EndpointContext>, authorizer: Authorizer) -> S3Service {
    let mut builder = S3ServiceBuilder::new(Service { context: context.clone(), authorizer });
    // Signatures are checked before; but without an auth provider `s3s` would not ask for confirmation.
    builder.set_auth(context.sessions.clone());
    builder.set_access(Confirmation);
    builder.set_route(Routes(context.clone()));
    let mut config = S3Config::default();
    config.xml_max_body_size = DOCUMENT_BYTES_MAX;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.build()
}
