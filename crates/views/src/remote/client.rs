//! Client of a handler that can be reached at one of several addresses.

use super::Token;
use super::wire::{Failure, Opened, Page, cursor_text};
use crate::part::Part;
use crate::{Changes, Cursor, Ruleset, ViewError, ViewId, Views};
use bytes::Bytes;
use connect::{CertificateError, HttpClient, http_client, innermost};
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for an answer. A handler that is still listing a bucket says so earlier.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Wait between two requests for a view whose bucket is being listed; the handler delays each answer itself.
const LISTING_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum length of an answer: more than 10,000 objects with all the metadata that S3 allows.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Attempts at one address; the second is for an answer that was lost on the way.
const ATTEMPTS: usize = 2;

/// Addresses of equivalent handlers, and how to connect.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// Addresses, as `http://host:port` or `https://host:port`. If one does not answer, the next is asked.
    pub addresses: Vec<String>,
    /// The part of all objects that the handler has.
    pub part: Part,
    /// The secret that the handlers share with their clients; `None` sends none.
    pub token: Option<Token>,
    /// A PEM file of certificates to trust besides those of the machine, if any.
    pub ca_bundle: Option<PathBuf>,
}

/// Error in the configuration of a client.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// An address is malformed.
    #[error("'{0}' is not the address of a handler; write http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The token cannot be sent as a header.
    #[error("the handler's token cannot be sent in an HTTP header")]
    Token,
}

/// Client of several equivalent handlers.
#[derive(Debug)]
pub struct RemoteViews {
    addresses: Vec<Uri>,
    /// Path of the request that opens a view.
    open_path: String,
    authorization: Option<HeaderValue>,
    client: HttpClient<Full<Bytes>>,
    /// Index of the address that answered last.
    current: AtomicUsize,
    view_numbers: Mutex<ViewNumbers>,
}

/// Views, numbered by this client, because every handler numbers them differently.
#[derive(Debug, Default)]
struct ViewNumbers {
    rulesets: Vec<String>,
    /// The handler's number of a view, by index of the address and this client's number.
    at_address: HashMap<(usize, u64), u64>,
}

/// A request to a handler.
enum HandlerRequest {
    /// Opens the view of this number of the client.
    Open(u64),
    /// Asks for the changes of the view of this number of the client, with the query string.
    Changes(u64, String),
    /// Asks for the handler's report about itself.
    Report,
}

/// Result of a request to one address.
enum Reply {
    Received(StatusCode, Bytes),
    /// The handler cannot be reached, does not answer in time, is overloaded or has an internal error; holds the
    /// reason.
    Failed(String),
}

impl RemoteViews {
    /// Returns a client. Connections are made on the first request.
    ///
    /// # Errors
    /// If an address or the certificates cannot be used.
    pub fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        let addresses: Vec<Uri> =
            config.addresses.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err(RemoteError::Address(String::new()));
        }
        let is_tls = addresses.iter().any(|address| address.scheme_str() == Some("https"));
        let client = http_client(CONNECT_TIMEOUT, config.ca_bundle.as_deref(), is_tls)?;
        let authorization = config.token.as_ref().map(|token| {
            let mut value = HeaderValue::from_str(&token.header()).map_err(|_| RemoteError::Token)?;
            value.set_sensitive(true);
            Ok::<_, RemoteError>(value)
        });
        let authorization = authorization.transpose()?;
        let open_path = format!("/v1/views?part={}", config.part);
        Ok(Self {
            addresses,
            open_path,
            authorization,
            client,
            current: AtomicUsize::new(0),
            view_numbers: Mutex::default(),
        })
    }

    /// Returns the handler's report about itself, as JSON.
    ///
    /// # Errors
    /// If no handler can be reached, or its answer is an error or malformed.
    pub async fn report(&self) -> Result<String, ViewError> {
        let body = self.send_to_any(&HandlerRequest::Report).await?;
        String::from_utf8(body.into()).map_err(|_| malformed_answer())
    }

    /// Sends a request to the address that answered last, then to the others until one answers. Returns that answer,
    /// which may be an error.
    async fn send_to_any(&self, request: &HandlerRequest) -> Result<Bytes, ViewError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut why = String::new();
        for step in 0..self.addresses.len() {
            let index = (first + step) % self.addresses.len();
            for _ in 0..ATTEMPTS {
                match self.send_to(index, request).await {
                    Ok(answer) => {
                        self.current.store(index, Ordering::Relaxed);
                        return answer;
                    }
                    Err(error) => why = format!("{}: {error}", self.addresses[index]),
                }
            }
        }
        Err(ViewError::Unreachable(why))
    }

    /// Sends a request to one address. The inner result is the handler's answer. The outer error says why there is
    /// none, so that another address should be tried.
    async fn send_to(
        &self,
        index: usize,
        request: &HandlerRequest,
    ) -> Result<Result<Bytes, ViewError>, String> {
        match request {
            HandlerRequest::Open(view) => {
                let opened = self.open_at(index, *view).await?;
                Ok(opened.map(|_| Bytes::new()))
            }
            HandlerRequest::Changes(view, query) => self.changes_at(index, *view, query).await,
            HandlerRequest::Report => self.ask(index, Method::GET, "/v1/report", String::new()).await,
        }
    }

    /// Opens a view at an address. Returns the handler's number of the view, with errors as in [`Self::send_to`]. Waits
    /// while the handler lists the bucket.
    async fn open_at(&self, index: usize, view_number: u64) -> Result<Result<u64, ViewError>, String> {
        let ruleset =
            usize::try_from(view_number).ok().and_then(|at| self.view_numbers().rulesets.get(at).cloned());
        let Some(ruleset) = ruleset else { return Ok(Err(ViewError::Unknown)) };
        loop {
            match self.exchange(index, Method::POST, &self.open_path, ruleset.clone()).await {
                Reply::Failed(why) => return Err(why),
                // The bucket is being listed. There is no timeout, because listings end and the handler answers
                // meanwhile.
                Reply::Received(StatusCode::ACCEPTED, _) => tokio::time::sleep(LISTING_POLL_INTERVAL).await,
                Reply::Received(status, body) => {
                    let body = check_status(status, body);
                    let opened = body.and_then(|body| {
                        serde_json::from_slice::<Opened>(&body).map_err(|_| malformed_answer())
                    });
                    let number = opened.map(|opened| opened.view);
                    if let Ok(number) = number {
                        self.view_numbers().at_address.insert((index, view_number), number);
                    }
                    return Ok(number);
                }
            }
        }
    }

    async fn ask(
        &self,
        index: usize,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Result<Bytes, ViewError>, String> {
        match self.exchange(index, method, path, body).await {
            Reply::Received(status, body) => Ok(check_status(status, body)),
            Reply::Failed(why) => Err(why),
        }
    }

    async fn exchange(&self, index: usize, method: Method, path: &str, body: String) -> Reply {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.send(index, method, path, body)).await {
            Ok(Ok((status, _))) if is_handler_failure(status) => Reply::Failed(status.to_string()),
            Ok(Ok((status, body))) => Reply::Received(status, body),
            Ok(Err(why)) => Reply::Failed(why),
            Err(_) => Reply::Failed(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
        }
    }

    async fn send(
        &self,
        index: usize,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(StatusCode, Bytes), String> {
        let root = self.addresses[index].to_string();
        let uri = format!("{}{path}", root.trim_end_matches('/'));
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().map_err(|_| "the path is too long".to_owned())?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tenon/", env!("CARGO_PKG_VERSION"))));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let answer = self.client.request(request).await.map_err(|error| innermost(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }

    fn view_numbers(&self) -> MutexGuard<'_, ViewNumbers> {
        self.view_numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests changes from one address, with errors as in [`Self::send_to`]. Opens the view there first if it is not
    /// open.
    async fn changes_at(
        &self,
        index: usize,
        view_number: u64,
        query: &str,
    ) -> Result<Result<Bytes, ViewError>, String> {
        let path = |number: u64| format!("/v1/views/{number}/changes?{query}");
        let number = self.view_numbers().at_address.get(&(index, view_number)).copied();
        if let Some(number) = number {
            match self.ask(index, Method::GET, &path(number), String::new()).await? {
                Err(ViewError::Unknown) => {}
                answer => return Ok(answer),
            }
        }
        match self.open_at(index, view_number).await? {
            Ok(number) => self.ask(index, Method::GET, &path(number), String::new()).await,
            Err(error) => Ok(Err(error)),
        }
    }
}

#[async_trait::async_trait]
impl Views for RemoteViews {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let view = self.view_numbers().number(&ruleset.to_yaml());
        self.send_to_any(&HandlerRequest::Open(view)).await?;
        Ok(ViewId(view))
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let since = since.map(|since| format!("&since={}", cursor_text(since))).unwrap_or_default();
        let query = format!("limit={limit}{since}");
        let body = self.send_to_any(&HandlerRequest::Changes(view.0, query)).await?;
        let page: Page = serde_json::from_slice(&body).map_err(|_| malformed_answer())?;
        page.read().ok_or_else(malformed_answer)
    }
}

impl ViewNumbers {
    /// Returns this client's number of the view of a ruleset, which is added if it is not known.
    fn number(&mut self, ruleset: &str) -> u64 {
        let known = self.rulesets.iter().position(|known| known == ruleset);
        let number = known.unwrap_or_else(|| {
            self.rulesets.push(ruleset.to_owned());
            self.rulesets.len() - 1
        });
        number as u64
    }
}

/// Parses the address of a handler.
fn address(text: &str) -> Result<Uri, RemoteError> {
    let malformed = || RemoteError::Address(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| malformed())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    if is_http && has_host && uri.query().is_none() { Ok(uri) } else { Err(malformed()) }
}

/// Returns whether the handler is overloaded or failing, so that another address should be tried.
fn is_handler_failure(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// Returns the body of a success, or the error that the body of another answer describes.
fn check_status(status: StatusCode, body: Bytes) -> Result<Bytes, ViewError> {
    if status.is_success() {
        return Ok(body);
    }
    let failure = serde_json::from_slice::<Failure>(&body);
    Err(failure.map_or_else(
        |_| ViewError::Refused(format!("the handler refuses the request with HTTP status {status}")),
        ViewError::from,
    ))
}

fn malformed_answer() -> ViewError {
    ViewError::Refused(
        "the handler's answer is malformed; check that client and handler have the same version".to_owned(),
    )
}
