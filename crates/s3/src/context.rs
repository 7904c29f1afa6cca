//! The state that all operations of an endpoint share.

use metrics::SampledObserver;
use s3s::S3Result;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use store::{Buckets, Clock, Entropy};

use crate::admission::{Admission, AdmittedClient, Client, Holder};
use crate::bucket::Bucket;
use crate::error::from_store;
use crate::notify::{Cause, Notifier};
use crate::policy_condition::RequestContext;
use crate::query::Query;
use crate::scope::{Caller, RequestScope};
use crate::sessions::Sessions;
use crate::traced_request::TracedRequest;
use crate::users::Users;

/// The shared state of an endpoint.
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
    /// The observer of a share of the requests.
    pub(crate) observer: OnceLock<SampledObserver<TracedRequest>>,
}

impl EndpointContext {
    pub(crate) async fn open_bucket(&self, name: &str) -> S3Result<Bucket> {
        let store = self.buckets.open(name).await.map_err(from_store)?;
        Ok(Bucket { name: name.to_owned(), store })
    }

    /// Opens the bucket of a request. If the operation changes objects, their events are emitted when the bucket is
    /// dropped.
    pub(crate) async fn open_target(&self, scope: &RequestScope) -> S3Result<Bucket> {
        let bucket = self.open_bucket(scope.target.bucket().unwrap_or_default()).await?;
        match scope.operation.mutation {
            Some(mutation) => Ok(self.notifier.observe(bucket, Cause::of(scope, mutation))),
            None => Ok(bucket),
        }
    }

    /// Returns the sender of a request, by verified access key and address. Session keys map to their user.
    pub(crate) fn caller(&self, signer: Option<String>, peer: Option<IpAddr>, query: &Query) -> Caller {
        let user = signer.clone().map(|signer| self.sessions.user_of(&signer).unwrap_or(signer));
        let holder = user.clone().map_or(Holder::Anonymous, Holder::User);
        let admitted = AdmittedClient { admission: self.admission.clone(), client: Client { holder, peer } };
        Caller { signer, user, admitted, request_context: RequestContext::of(query, peer) }
    }

    /// Returns a new request id.
    pub(crate) fn request_id(&self) -> String {
        format!("{:016X}", self.entropy.next_u64())
    }
}
