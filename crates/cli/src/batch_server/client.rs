//! Clients of a batch server.

use crate::control::batch_protocol::{BatchAnswer, BatchRequest};
use crate::process;
use anyhow::{Context, Result};
use bytes::Bytes;
use connect::HttpClient;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Maximum time in which a connection is made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A batch server that a URL names, and a token for it.
#[derive(Debug)]
pub(crate) struct ServerClient {
    url: String,
    token: HeaderValue,
    http: HttpClient<Full<Bytes>>,
    runtime: Runtime,
}

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The server does not answer.
    #[error("the batch server at {url} does not answer: {error:#}")]
    Unreachable {
        /// URL of the server.
        url: String,
        /// The reason.
        error: anyhow::Error,
    },
    /// The server has refused the request.
    #[error("{0}")]
    Refused(String),
}

impl ServerClient {
    /// Makes a client of the server at `url`, which trusts the certificates of the machine and those in `ca_bundle`.
    pub(crate) fn new(url: &str, token: &str, ca_bundle: Option<&Path>) -> Result<Self> {
        let mut token =
            HeaderValue::from_str(&format!("Bearer {token}")).context("the token is not a line of text")?;
        token.set_sensitive(true);
        let http = connect::http_client(CONNECT_TIMEOUT, ca_bundle, url.starts_with("https:"))?;
        Ok(Self { url: url.to_owned(), token, http, runtime: process::runtime()? })
    }

    /// Sends a request, and waits for its answer: at most for the time `patience`, if there is one.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Option<Duration>,
    ) -> Result<Bytes, CallError> {
        let answered = async {
            let request = Request::builder()
                .method(method)
                .uri(format!("{}{path}", self.url))
                .header(AUTHORIZATION, &self.token)
                .header(CONTENT_TYPE, "application/json")
                .body(Full::from(body))
                .with_context(|| format!("'{}' is not a URL", self.url))?;
            let response = self.http.request(request).await.map_err(anyhow::Error::from)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            anyhow::Ok((status, body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes()))
        };
        let answered = self.runtime.block_on(async {
            match patience {
                Some(patience) => {
                    tokio::time::timeout(patience, answered).await.context("no answer in time")?
                }
                None => answered.await,
            }
        });
        let (status, body) =
            answered.map_err(|error| CallError::Unreachable { url: self.url.clone(), error })?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let error = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
        Err(CallError::Refused(match error["error"].as_str() {
            Some(error) => error.to_owned(),
            None => format!("{} answers with the status {status}; is it a batch server?", self.url),
        }))
    }
}

/// A client that asks for batches of the server's mount.
pub(crate) struct RemoteBatches(ServerClient);

impl RemoteBatches {
    /// Makes a client as [`ServerClient::new`] does.
    pub(crate) fn new(url: &str, token: &str, ca_bundle: Option<&Path>) -> Result<Self> {
        Ok(Self(ServerClient::new(url, token, ca_bundle)?))
    }

    /// Sends a request, and waits for its answer as long as the server takes.
    pub(crate) fn ask(&self, request: &BatchRequest) -> Result<BatchAnswer> {
        let body = serde_json::to_vec(request)?.into();
        let body = self.0.send(Method::POST, super::PATH, body, None)?;
        serde_json::from_slice(&body).context("the answer of the batch server does not fit")
    }
}
