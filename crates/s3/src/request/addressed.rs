//! The first stages: a request as received, and with the bucket, key and operation that it names.

use http::header::{CONTENT_LENGTH, IF_NONE_MATCH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use s3s::{Body, S3Error, S3Result, s3_error};
use std::net::IpAddr;

use crate::access_log::{LogContext, RequestFacts, encoded_key};
use crate::addressing::{Domains, Target};
use crate::authentication::named_access_key;
use crate::conditions;
use crate::context::EndpointContext;
use crate::cors::CorsRequest;
use crate::encryption;
use crate::error::custom;
use crate::error_document::ErrorContext;
use crate::operations::{Handler, Operation};
use crate::query::Query;
use crate::response::{ResponseContext, cors_configuration, is_part_head, requested_expires};
use crate::scope::Connection;
use crate::wire;

/// Headers of features that are not implemented. Ignoring them would leave data less safe than its owner thinks.
const NOT_IMPLEMENTED: [&str; 1] = ["x-amz-write-offset-bytes"];

/// A request as received.
pub(crate) struct Received {
    id: String,
    head: Parts,
    body: Body,
}

/// A request whose target and operation are known.
pub(crate) struct Addressed {
    pub(super) id: String,
    /// The head as received, which the signature covers.
    pub(super) signed: Parts,
    /// The head in path style, with the headers that a presigned URL carries in its query.
    pub(super) head: Parts,
    pub(super) body: Body,
    pub(super) target: Target,
    pub(super) operation: &'static Operation,
    pub(super) query: Query,
    pub(super) facts: RequestFacts,
}

impl Received {
    /// Returns a request as received. `id` is the request id that the response will show.
    pub(crate) fn new(request: Request<Body>, id: String) -> Self {
        let (head, body) = request.into_parts();
        Self { id, head, body }
    }

    /// Determines what a request names. Refuses it if the endpoint has nothing like that. The facts for its response
    /// are known in either case.
    pub(crate) fn address(
        self,
        domains: &Domains,
        is_encrypted: bool,
    ) -> (ResponseContext, S3Result<Addressed>) {
        let Self { id, head: signed, body } = self;
        let mut head = signed.clone();
        let (target, rewritten) = match domains.resolve(&head) {
            Ok(target) => {
                let rewritten = rewrite(&mut head, &target);
                (target, rewritten)
            }
            Err(error) => (Target::default(), Err(error)),
        };
        let query = Query::of(&head.uri);
        let found = rewritten
            .and_then(|()| Operation::find(&head.method, target.kind(), &query, &head.headers))
            .and_then(|operation| check_head(&head, operation, is_encrypted).map(|()| operation));
        let cors = match head.method {
            Method::OPTIONS => Ok(None),
            _ => CorsRequest::of_request(&head.method, &head.headers),
        };
        let (cors, found) = match cors {
            Ok(cors) => (cors, found),
            Err(error) => (None, found.and(Err(error))),
        };
        let facts = RequestFacts::default();
        let bucket = target.bucket().map(str::to_owned);
        let key = encoded_key(&head.uri, bucket.as_deref());
        let response = ResponseContext {
            error_context: ErrorContext {
                resource: head.uri.path().to_owned(),
                method: head.method.to_string(),
                upload: query.get("uploadId").map(str::to_owned),
                access_key: named_access_key(&head, &query),
            },
            operation: found.as_ref().ok().copied(),
            is_part: is_part_head(&head.method, &query),
            expires: requested_expires(&query),
            cors,
            log: LogContext { id: id.clone(), bucket, key, facts: facts.clone() },
        };
        let addressed =
            found.map(|operation| Addressed { id, signed, head, body, target, operation, query, facts });
        (response, addressed)
    }
}

impl Addressed {
    pub(crate) fn is_preflight(&self) -> bool {
        self.operation.handler == Handler::Preflight
    }

    /// Answers a CORS preflight request, which needs no signature.
    pub(crate) async fn preflight(self, context: &EndpointContext) -> S3Result<Response<Body>> {
        let bucket = self.target.bucket().ok_or_else(cors_disabled)?;
        context.open_bucket(bucket).await?;
        let request = CorsRequest::preflight(&self.head.headers)?;
        let configuration = cors_configuration(context, bucket).await?.ok_or_else(cors_disabled)?;
        let headers = request.response_headers(&configuration).ok_or_else(|| {
            forbidden("This CORS request is not allowed. This is usually because the evalution of Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.")
        })?;
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = headers;
        Ok(response)
    }

    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.connection().map(|connection| connection.peer)
    }

    pub(super) fn bucket_url(&self) -> String {
        let is_tls = self.connection().is_some_and(|connection| connection.is_tls);
        self.target.bucket_url(&self.head.headers, is_tls)
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.head.extensions.get()
    }
}

/// Rewrites a request to path style, and turns headers carried in the query of a presigned URL into headers.
fn rewrite(head: &mut Parts, target: &Target) -> S3Result<()> {
    head.uri = target.to_path_style(&head.uri)?;
    wire::unhoist(head)
}

/// Refuses headers that the operation, or the endpoint, does not support.
fn check_head(head: &Parts, operation: &Operation, is_encrypted: bool) -> S3Result<()> {
    wire::check_head(head)?;
    let headers = &head.headers;
    let is_write = [Method::PUT, Method::POST].contains(&head.method);
    if is_write && headers.get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() != b"*") {
        return Err(conditions::unsupported_condition());
    }
    encryption::check(headers, is_encrypted)?;
    let has_length = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    if operation.needs_length() && !has_length {
        return Err(s3_error!(MissingContentLength));
    }
    match NOT_IMPLEMENTED.iter().find(|name| headers.contains_key(**name)) {
        None => Ok(()),
        Some(name) => Err(s3_error!(
            NotImplemented,
            "A header you provided implies functionality that is not implemented: {name}"
        )),
    }
}

fn cors_disabled() -> S3Error {
    forbidden("CORS is not enabled for this bucket.")
}

fn forbidden(why: &str) -> S3Error {
    custom("AccessForbidden", StatusCode::FORBIDDEN, format!("CORSResponse: {why}"))
}
