//! A handler behind one of several addresses.

use super::Token;
use super::wire::{Failure, Opened, Page, cursor_text};
use crate::part::Part;
use crate::{Changes, Cursor, Ruleset, ViewError, ViewId, Views};
use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::s3::{ConfigError, HttpClient, http_client};

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer may take; a handler that has to list a bucket says "not yet" sooner.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Between two questions whether a bucket is listed, each of which the handler takes its time for.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// More than any answer: 10,000 objects with all the metadata that S3 lets them have.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// An answer that was lost on the way is asked for once more at the same address.
const ATTEMPTS: usize = 2;

/// Where a handler is, and how it is asked.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// `http://host:port` or `https://host:port`; where the first does not answer the next is asked.
    pub addresses: Vec<String>,
    /// Of which part of all objects it is.
    pub part: Part,
    /// The secret that it shares with its clients.
    pub token: Option<Token>,
    /// A PEM file of certificates to trust besides the machine's.
    pub ca_bundle: Option<PathBuf>,
}

/// Why a handler cannot be asked, by what was configured.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// Not an address of a handler.
    #[error("'{0}' is no address of a handler: write http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// Certificates.
    #[error(transparent)]
    Certificates(#[from] ConfigError),
    /// The token.
    #[error("the handler's token cannot be sent")]
    Token,
}

/// The client of handlers that are each as good as the others.
#[derive(Debug)]
pub struct RemoteViews {
    addresses: Vec<Uri>,
    /// What is asked to open a view.
    open_path: String,
    authorization: Option<HeaderValue>,
    client: HttpClient<Full<Bytes>>,
    /// The one that answered last.
    current: AtomicUsize,
    known: Mutex<Known>,
}

/// Views by numbers of this client's own, as every handler has others.
#[derive(Debug, Default)]
struct Known {
    rulesets: Vec<String>,
    /// By address and number.
    there: HashMap<(usize, u64), u64>,
}

/// What a handler is asked for.
enum Wish {
    Open(u64),
    /// Of a view, by a query.
    Changes(u64, String),
    Report,
}

/// What came of asking one address.
enum Answer {
    Said(StatusCode, Bytes),
    /// It does not answer, or is in trouble.
    Dead(String),
}

impl RemoteViews {
    /// A client; it connects when it is asked.
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
        let client = http_client(CONNECT_WITHIN, config.ca_bundle.as_deref(), is_tls)?;
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
            known: Mutex::default(),
        })
    }

    /// What a handler says of itself, as JSON.
    ///
    /// # Errors
    /// If none can be reached.
    pub async fn report(&self) -> Result<String, ViewError> {
        let body = self.anywhere(&Wish::Report).await?;
        String::from_utf8(body.into()).map_err(|_| nonsense())
    }

    /// Asks the address that answered last, and then the others.
    async fn anywhere(&self, wish: &Wish) -> Result<Bytes, ViewError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut why = String::new();
        for step in 0..self.addresses.len() {
            let at = (first + step) % self.addresses.len();
            for _ in 0..ATTEMPTS {
                match self.at(at, wish).await {
                    Ok(answer) => {
                        self.current.store(at, Ordering::Relaxed);
                        return answer;
                    }
                    Err(error) => why = format!("{}: {error}", self.addresses[at]),
                }
            }
        }
        Err(ViewError::Unreachable(why))
    }

    async fn at(&self, at: usize, wish: &Wish) -> Result<Result<Bytes, ViewError>, String> {
        match wish {
            Wish::Open(view) => {
                let opened = self.open_at(at, *view).await?;
                Ok(opened.map(|_| Bytes::new()))
            }
            Wish::Changes(view, query) => self.changes_at(at, *view, query).await,
            Wish::Report => self.ask(at, Method::GET, "/v1/report", String::new()).await,
        }
    }

    /// The number that a handler gives a ruleset, which may have to be listed for first.
    async fn open_at(&self, at: usize, view: u64) -> Result<Result<u64, ViewError>, String> {
        let ruleset = usize::try_from(view).ok().and_then(|view| self.known().rulesets.get(view).cloned());
        let Some(ruleset) = ruleset else { return Ok(Err(ViewError::Unknown)) };
        loop {
            match self.exchange(at, Method::POST, &self.open_path, ruleset.clone()).await {
                Answer::Dead(why) => return Err(why),
                // A listing has an end; who waits for it is told that it goes on.
                Answer::Said(StatusCode::ACCEPTED, _) => tokio::time::sleep(ASKED_EVERY).await,
                Answer::Said(status, body) => {
                    let body = judged(status, body);
                    let opened =
                        body.and_then(|body| serde_json::from_slice::<Opened>(&body).map_err(|_| nonsense()));
                    let there = opened.map(|opened| opened.view);
                    if let Ok(there) = there {
                        self.known().there.insert((at, view), there);
                    }
                    return Ok(there);
                }
            }
        }
    }

    async fn ask(
        &self,
        at: usize,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Result<Bytes, ViewError>, String> {
        match self.exchange(at, method, path, body).await {
            Answer::Said(status, body) => Ok(judged(status, body)),
            Answer::Dead(why) => Err(why),
        }
    }

    async fn exchange(&self, at: usize, method: Method, path: &str, body: String) -> Answer {
        match tokio::time::timeout(ANSWER_WITHIN, self.send(at, method, path, body)).await {
            Ok(Ok((status, _))) if is_in_trouble(status) => Answer::Dead(status.to_string()),
            Ok(Ok((status, body))) => Answer::Said(status, body),
            Ok(Err(why)) => Answer::Dead(why),
            Err(_) => Answer::Dead("no answer in time".to_owned()),
        }
    }

    async fn send(
        &self,
        at: usize,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(StatusCode, Bytes), String> {
        let root = self.addresses[at].to_string();
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What changed, at one address; the view is opened there if it is not.
    async fn changes_at(
        &self,
        at: usize,
        view: u64,
        query: &str,
    ) -> Result<Result<Bytes, ViewError>, String> {
        let path = |there: u64| format!("/v1/views/{there}/changes?{query}");
        let there = self.known().there.get(&(at, view)).copied();
        if let Some(there) = there {
            match self.ask(at, Method::GET, &path(there), String::new()).await? {
                Err(ViewError::Unknown) => {}
                answer => return Ok(answer),
            }
        }
        match self.open_at(at, view).await? {
            Ok(there) => self.ask(at, Method::GET, &path(there), String::new()).await,
            Err(error) => Ok(Err(error)),
        }
    }
}

#[async_trait::async_trait]
impl Views for RemoteViews {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let view = self.known().number(&ruleset.to_yaml());
        self.anywhere(&Wish::Open(view)).await?;
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
        let body = self.anywhere(&Wish::Changes(view.0, query)).await?;
        let page: Page = serde_json::from_slice(&body).map_err(|_| nonsense())?;
        page.read().ok_or_else(nonsense)
    }
}

impl Known {
    fn number(&mut self, ruleset: &str) -> u64 {
        let known = self.rulesets.iter().position(|known| known == ruleset);
        let at = known.unwrap_or_else(|| {
            self.rulesets.push(ruleset.to_owned());
            self.rulesets.len() - 1
        });
        at as u64
    }
}

fn address(text: &str) -> Result<Uri, RemoteError> {
    let wrong = || RemoteError::Address(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    if is_http && has_host && uri.query().is_none() { Ok(uri) } else { Err(wrong()) }
}

/// Another may do better, and this one later.
fn is_in_trouble(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

fn judged(status: StatusCode, body: Bytes) -> Result<Bytes, ViewError> {
    if status.is_success() {
        return Ok(body);
    }
    let failure = serde_json::from_slice::<Failure>(&body);
    Err(failure.map_or_else(|_| ViewError::Refused(format!("the handler answers {status}")), ViewError::from))
}

fn nonsense() -> ViewError {
    ViewError::Refused("the handler's answer makes no sense: is it of another version?".to_owned())
}

/// The innermost cause: the outer ones say that something went wrong.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
