//! Batches of a mount, for processes without access to its control socket: an HTTP server that asks the mount on behalf of clients with tokens.
//!
//! A request of a client is `POST /batches` with a [`BatchRequest`] as JSON and `Authorization: Bearer TOKEN`. The answer is a [`BatchAnswer`], or an object
//! with the field `error`. Servers that verify batches, which have tokens of another kind, send the requests of [`verifiers`].
//!
//! Owns the file of tokens, the permissions of tokens, and both ends of the protocol. Out of scope: batches themselves, which the mount owns.
//!
//! Invariants:
//! - a client without a token that is valid now causes no request to the mount;
//! - a client learns of, and changes, only batches of its token's directory and of directories below it;
//! - a verifier has access only to the batches that it has leased, and clients have none to leases.

pub(crate) mod client;
mod permission;
pub(crate) mod tokens;
pub(crate) mod verifiers;

use crate::batch_server::permission::{Denied, Permission};
use crate::batch_server::tokens::{Grant, Right, TokenFile};
use crate::control::batch_protocol::{BatchAnswer, BatchRequest};
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::state::registry::Registry;
use anyhow::Result;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use listen::{Limits, Listener};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The path of all requests.
const PATH: &str = "/batches";

/// Maximum length of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Maximum time in which the body of a request arrives.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of connections.
const CONNECTIONS_MAX: u32 = 256;

/// A server of the batches of one volume. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct BatchServer(Listener);

/// The volume of a server, and who may use it.
#[derive(Debug)]
struct Served {
    /// The volume, or its mount point.
    of: String,
    tokens: TokenFile,
}

/// The reason why a request has no answer.
#[derive(Debug)]
enum Failure {
    /// The token is missing, unknown or no longer valid.
    Unauthorized(String),
    /// The token does not permit the request.
    Denied(Denied),
    /// The request is not one of the protocol.
    Invalid(String),
    /// The mount has refused or failed.
    Failed(String),
}

impl BatchServer {
    /// Serves the batches of the mount that `of` names, at an address; port 0 picks a free port.
    pub(crate) async fn start(
        of: String,
        tokens: TokenFile,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<Self> {
        let served = Arc::new(Served { of, tokens });
        let answer = move |request: http::Request<_>, _| {
            let served = Arc::clone(&served);
            async move {
                let (head, body) = request.into_parts();
                let (path, is_of_verifier) = (head.uri.path(), head.uri.path().starts_with(verifiers::PATH));
                if !is_of_verifier && (path != PATH || head.method != Method::POST) {
                    return failure(&Failure::Invalid(format!("only POST {PATH} is supported")));
                }
                // A client without a token must not make the server read.
                let grant = match served.grant(&head.headers) {
                    Ok(grant) => grant,
                    Err(error) => return failure(&error),
                };
                let bytes_max = if is_of_verifier { verifiers::PIECE_BYTES } else { REQUEST_BYTES_MAX };
                let body = Limited::new(body, bytes_max).collect();
                let Ok(Ok(body)) = tokio::time::timeout(REQUEST_TIMEOUT, body).await else {
                    return failure(&Failure::Invalid(
                        "the request is too long, or did not arrive".to_owned(),
                    ));
                };
                let answered = match is_of_verifier {
                    true => served.verify(grant, head.method, path.to_owned(), body.to_bytes()).await,
                    false => served
                        .answer(grant, body.to_bytes())
                        .await
                        .map(|answer| json(StatusCode::OK, &answer)),
                };
                answered.unwrap_or_else(|error| failure(&error))
            }
        };
        let limits = Limits { connections: CONNECTIONS_MAX, ..Limits::default() };
        Ok(Self(Listener::start(address, limits, tls, answer).await?))
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        self.0.url()
    }
}

impl Served {
    /// Returns what the token of a request grants.
    fn grant(&self, headers: &HeaderMap) -> Result<Grant, Failure> {
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let Some(token) = token else {
            return Err(Failure::Unauthorized("the request has no token".to_owned()));
        };
        self.tokens.find(token.trim()).map_err(|error| Failure::Unauthorized(error.to_string()))
    }

    /// Answers a request of a verifier.
    async fn verify(
        self: Arc<Self>,
        grant: Grant,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<Response<Full<Bytes>>, Failure> {
        if grant.right != Right::Verifier {
            return Err(Failure::Denied(Denied::NotAVerifier));
        }
        let work = move || self.answer_verifier(&grant.name, &method, &path, &body);
        let answered = tokio::task::spawn_blocking(work).await;
        let bytes = answered
            .unwrap_or_else(|error| Err(Failure::Failed(format!("the request was interrupted: {error}"))))?;
        Ok(Response::new(Full::from(bytes)))
    }

    /// Answers a request of a client.
    async fn answer(self: Arc<Self>, grant: Grant, body: Bytes) -> Result<BatchAnswer, Failure> {
        let permission = Permission::new(grant).map_err(Failure::Denied)?;
        let request = serde_json::from_slice::<BatchRequest>(&body)
            .map_err(|error| Failure::Invalid(format!("the request is not one about batches: {error}")))?;
        tracing::info!(token = permission.token(), ?request, "request");
        let answered = tokio::task::spawn_blocking(move || self.ask(&permission, request)).await;
        answered.unwrap_or_else(|error| Err(Failure::Failed(format!("the request was interrupted: {error}"))))
    }

    /// Asks the mount, if the permission extends to the request.
    fn ask(&self, permission: &Permission, request: BatchRequest) -> Result<BatchAnswer, Failure> {
        let failed = |error: anyhow::Error| Failure::Failed(format!("{error:#}"));
        let mount = Registry::of_user().find(&self.of).map_err(failed)?;
        let ask = |request: BatchRequest| -> Result<BatchAnswer> {
            let mut client = Client::connect(&mount)?;
            match client.ask(&Request::Batch(request), |_| {})? {
                Answer::Batch(answer) => Ok(answer),
                other => client.unexpected(&other),
            }
        };
        let list = || match ask(BatchRequest::List).map_err(failed)? {
            BatchAnswer::Batches { batches } => Ok(batches),
            other => Err(Failure::Failed(format!("the mount gave an answer that does not fit: {other:?}"))),
        };
        let request = match request {
            BatchRequest::List => return Ok(BatchAnswer::Batches { batches: permission.visible(list()?) }),
            BatchRequest::Begin { path_hex, .. } => BatchRequest::Begin {
                path_hex: permission.path(&path_hex).map_err(Failure::Denied)?,
                mount_point_hex: mount_point_hex(&mount.holder.mount_point),
            },
            BatchRequest::End { path_hex, patience_secs, lazy } => BatchRequest::End {
                path_hex: permission.path(&path_hex).map_err(Failure::Denied)?,
                patience_secs,
                lazy,
            },
            BatchRequest::Progress { id: None, directories } => {
                let open = permission.visible(list()?).into_iter();
                let mut open = open.filter(|batch| batch.merged.is_none() && batch.expired.is_none());
                let (Some(batch), None) = (open.next(), open.next()) else {
                    return Err(Failure::Failed("not exactly one batch is open; name one".to_owned()));
                };
                BatchRequest::Progress { id: Some(batch.id), directories }
            }
            BatchRequest::Progress { id: Some(_), .. }
            | BatchRequest::Conflicts { .. }
            | BatchRequest::Retry { .. }
            | BatchRequest::Forget { .. }
            | BatchRequest::Discard { .. } => {
                let id = id_of(&request).unwrap_or_default();
                if !permission.visible(list()?).iter().any(|batch| batch.id == id) {
                    return Err(Failure::Denied(Denied::Batch(id.to_owned())));
                }
                request
            }
        };
        ask(request).map_err(failed)
    }
}

/// Returns the id of the batch that a request names.
fn id_of(request: &BatchRequest) -> Option<&str> {
    match request {
        BatchRequest::Progress { id, .. } => id.as_deref(),
        BatchRequest::Conflicts { id, .. }
        | BatchRequest::Retry { id, .. }
        | BatchRequest::Forget { id, .. }
        | BatchRequest::Discard { id } => Some(id),
        BatchRequest::Begin { .. } | BatchRequest::End { .. } | BatchRequest::List => None,
    }
}

fn mount_point_hex(mount_point: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    store::hex(mount_point.as_os_str().as_bytes())
}

fn failure(failure: &Failure) -> Response<Full<Bytes>> {
    let (status, text) = match failure {
        Failure::Unauthorized(text) => (StatusCode::UNAUTHORIZED, text.clone()),
        Failure::Denied(denied) => (StatusCode::FORBIDDEN, denied.to_string()),
        Failure::Invalid(text) => (StatusCode::BAD_REQUEST, text.clone()),
        Failure::Failed(text) => (StatusCode::CONFLICT, text.clone()),
    };
    if status != StatusCode::CONFLICT {
        tracing::warn!(status = status.as_u16(), "refused: {text}");
    }
    let mut response = json(status, &serde_json::json!({ "error": text }));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_string(body).unwrap_or_default();
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
