//! Requests from this process, in the name of users whose secret was checked.
//!
//! Invariant: requests of an [`Identity`] pass the same stages as requests from the network, except the verification of
//! the signature.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use s3s::StdError;
use std::net::IpAddr;
use std::time::Duration;

use crate::context::EndpointContext;
use crate::endpoint::Endpoint;
use crate::identity::Identity;
use crate::query::Query;
use crate::request_handler::RequestHandler;
use crate::scope::Connection;
use crate::users::Role;
use crate::wire;

/// The time after which a request body that makes no progress fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The body of a request from this process, or of its response.
pub type Body = UnsyncBoxBody<Bytes, StdError>;

impl Endpoint {
    /// Returns the user of an access key; `None` if there is none or the secret is wrong. Takes a time that does not depend
    /// on how much of the secret is right.
    pub fn identify(&self, access_key: &str, secret_key: &str) -> Option<Identity> {
        Identity::check(self.users(), access_key, secret_key)
    }

    /// Returns the role of a user; `None` if the user no longer exists or has another secret.
    pub fn role(&self, identity: &Identity) -> Option<Role> {
        identity.user(self.users()).map(|user| user.role)
    }

    /// Returns whether a user may perform an IAM action, such as `s3:PutObject`, on a bucket or, with `key`, an object.
    /// False as well if the bucket's policy cannot be read, or if the user no longer exists or has another secret.
    pub async fn allows(
        &self,
        identity: &Identity,
        peer: IpAddr,
        action: &str,
        bucket: &str,
        key: Option<&str>,
    ) -> bool {
        let (context, query) = (self.context(), Query::default());
        let caller = context.caller(Some(identity.access_key().to_owned()), Some(peer), &query);
        let is_allowed = self.authorizer().authorize(&caller, action, Some(bucket), key).await.is_ok();
        is_allowed && identity.is_current(&context.users)
    }

    /// Sends a request in path style in the name of a user. `peer` is the address of the client for whom it is sent. The
    /// response is `AccessDenied` if the user no longer exists or has another secret.
    pub async fn send(&self, identity: &Identity, peer: IpAddr, request: Request<Body>) -> Response<Body> {
        let connection = Connection { peer, is_tls: false, identity: Some(identity.clone()) };
        let handler = RequestHandler::new(self.clone(), STALL_TIMEOUT);
        handler.handle(request, connection).await.map(BodyExt::boxed_unsync)
    }

    /// Returns a presigned URL of a GET request that is valid for `validity`. `root` is the endpoint's URL, `path` the
    /// encoded path and `query` the encoded query, sorted by name. `None` if the user no longer exists or has another
    /// secret.
    pub fn presign(
        &self,
        identity: &Identity,
        root: &str,
        (path, query): (&str, &str),
        validity: Duration,
    ) -> Option<String> {
        let user = identity.user(self.users())?;
        let EndpointContext { region, clock, .. } = self.context();
        let keys = (user.access_key.as_str(), user.secret_key.as_str());
        Some(wire::presigned_url(keys, region, clock.now(), root, (path, query), validity))
    }
}
