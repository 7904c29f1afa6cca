//! The facts of a request that later stages and operations take: resolved once, and not read from its head again.

use s3s::S3Result;
use s3s::dto::CopySource;
use std::net::IpAddr;
use std::sync::Arc;

use crate::addressing::{Target, encode_path};
use crate::admission::AdmittedClient;
use crate::error::internal;
use crate::identity::Identity;
use crate::operations::Operation;
use crate::policy_condition::RequestContext;
use crate::query::Query;

/// The connection that a request came over, among the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// The address of the client.
    pub(crate) peer: IpAddr,
    pub(crate) is_tls: bool,
    /// The sender of a request from this process, which has no signature; `None` for requests from the network.
    pub(crate) identity: Option<Identity>,
}

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The access key whose signature was verified, or that of the user in whose name this process sends the request;
    /// `None` for an unsigned request.
    pub(crate) signer: Option<String>,
    /// The access key of the user in whose name the request acts. Session keys map to their user.
    pub(crate) user: Option<String>,
    /// The account that slots and memory are charged to.
    pub(crate) admitted: AdmittedClient,
    pub(crate) request_context: RequestContext,
}

/// The facts of an authenticated request. They are among its extensions once it is authorized.
#[derive(Debug, Clone)]
pub(crate) struct RequestScope {
    /// The request id that the response shows.
    pub(crate) id: String,
    pub(crate) operation: &'static Operation,
    pub(crate) target: Target,
    pub(crate) query: Query,
    /// The URL of the bucket, as the client addressed it.
    pub(crate) bucket_url: String,
    pub(crate) caller: Caller,
    /// The source of a copy, once it is parsed; `None` for other operations.
    pub(crate) copy_source: Option<CopySource>,
}

impl RequestScope {
    /// Returns the scope of an authorized request. Only authorized requests have one.
    pub(crate) fn of(extensions: &http::Extensions) -> S3Result<Arc<Self>> {
        extensions.get::<Arc<Self>>().cloned().ok_or_else(internal)
    }
}

/// Returns the URL of an object, for responses to completed uploads and forms.
pub(crate) fn object_url(bucket_url: &str, key: &str) -> String {
    format!("{bucket_url}/{}", encode_path(key))
}
