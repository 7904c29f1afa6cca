//! Answers the HTTP requests of a handler's clients.

use super::wire::{Failure, Opened, Page, read_cursor};
use super::{Report, Token};
use crate::part::Part;
use crate::{Ruleset, ViewError, ViewId, Views};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum length of a ruleset in a request.
const RULESET_BYTES_MAX: usize = 1 << 20;
/// Timeout for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for the listing of a bucket. Afterwards the answer is "not yet", so that clients can tell a long
/// listing from a dead handler.
const LISTING_WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum number of objects in an answer.
const OBJECTS_MAX: usize = 10_000;

/// The shared result of opening a view.
type Opening = Shared<BoxFuture<'static, Result<ViewId, Arc<ViewError>>>>;

/// Answers requests for the views of a handler.
#[derive(Debug)]
pub(super) struct Service {
    views: Arc<dyn Views>,
    report: Report,
    part: Part,
    token: Option<Token>,
    /// Views that are being opened, by the text of the ruleset. The listing goes on after a client was answered "not
    /// yet".
    opening: Mutex<HashMap<String, Opening>>,
}

impl Service {
    pub(super) fn new(views: Arc<dyn Views>, report: Report, part: Part, token: Option<Token>) -> Arc<Self> {
        Arc::new(Self { views, report, part, token, opening: Mutex::default() })
    }

    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if !self.is_authorized(&request) {
            return refused(StatusCode::UNAUTHORIZED, "this request needs the handler's token");
        }
        let path = request.uri().path().to_owned();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match (request.method(), segments.as_slice()) {
            (&Method::POST, ["v1", "views"]) => self.open(request).await,
            (&Method::GET, ["v1", "views", view, "changes"]) => {
                let query = request.uri().query().unwrap_or_default().to_owned();
                self.changes(view, &query).await
            }
            (&Method::GET, ["v1", "report"]) => json(StatusCode::OK, (self.report.0)().into()),
            _ => refused(StatusCode::NOT_FOUND, "the handler has no such path"),
        }
    }

    fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        request.headers().get(AUTHORIZATION).is_some_and(|value| token.is_header(value.as_bytes()))
    }

    async fn open(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if let Some(message) = self.part_mismatch(request.uri().query()) {
            return refused(StatusCode::UNPROCESSABLE_ENTITY, &message);
        }
        let body = Limited::new(request.into_body(), RULESET_BYTES_MAX).collect();
        let Ok(Ok(body)) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
            return refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the ruleset is longer than 1 MiB, or was not received within 30 s",
            );
        };
        self.open_ruleset(&body.to_bytes()).await
    }

    /// Returns an error message if the client takes this for the handler of another part, `None` if not. Without this
    /// check, the objects of that part would silently be missing.
    fn part_mismatch(&self, query: Option<&str>) -> Option<String> {
        let asked = query.and_then(|query| query.strip_prefix("part=")).unwrap_or("1/1");
        let own = self.part.to_string();
        (asked != own).then(|| {
            let name = if self.part == Part::ALL { String::new() } else { format!("{own}=") };
            format!(
                "this handler has part {own} of all objects, not {asked}; name it with --handler {name}URL"
            )
        })
    }

    async fn open_ruleset(self: &Arc<Self>, body: &[u8]) -> Response<Full<Bytes>> {
        let rulesets = std::str::from_utf8(body).ok().and_then(|text| crate::read(text).ok());
        let Some(Ok([ruleset])) = rulesets.map(<[Ruleset; 1]>::try_from) else {
            return refused(StatusCode::BAD_REQUEST, "the body must be one ruleset");
        };
        match tokio::time::timeout(LISTING_WAIT_MAX, self.open_shared(ruleset)).await {
            Ok(Ok(view)) => ok_json(&Opened { view: view.0 }),
            Ok(Err(error)) => view_error(&error),
            Err(_) => json(StatusCode::ACCEPTED, Bytes::from_static(b"{}")),
        }
    }

    /// Opens a view in a task of its own, or returns the result of the task that is opening the same one.
    fn open_shared(self: &Arc<Self>, ruleset: Ruleset) -> Opening {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let text = ruleset.to_yaml();
        if let Some(known) = opening.get(&text) {
            return known.clone();
        }
        let (service, key) = (self.clone(), text.clone());
        let opened = async move {
            let opened = service.views.open(&ruleset).await.map_err(Arc::new);
            service.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            opened
        };
        let opened = opened.boxed().shared();
        opening.insert(text, opened.clone());
        tokio::spawn(opened.clone());
        opened
    }

    async fn changes(&self, view: &str, query: &str) -> Response<Full<Bytes>> {
        let Ok(view) = view.parse() else { return view_error(&ViewError::Unknown) };
        let (mut since, mut limit) = (None, OBJECTS_MAX);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("since", text)) => match read_cursor(text) {
                    Some(cursor) => since = Some(cursor),
                    None => return refused(StatusCode::BAD_REQUEST, "'since' is not a cursor of a handler"),
                },
                Some(("limit", text)) => match text.parse() {
                    Ok(wanted) => limit = OBJECTS_MAX.min(wanted),
                    Err(_) => return refused(StatusCode::BAD_REQUEST, "'limit' is not a number"),
                },
                _ => return refused(StatusCode::BAD_REQUEST, "the parameters are 'since' and 'limit'"),
            }
        }
        match self.views.changes(ViewId(view), since.as_ref(), limit.max(1)).await {
            Ok(changes) => ok_json(&Page::new(&changes)),
            Err(error) => view_error(&error),
        }
    }
}

fn ok_json(body: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(body) {
        Ok(body) => json(StatusCode::OK, body.into()),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn view_error(error: &ViewError) -> Response<Full<Bytes>> {
    let status = match error {
        ViewError::Unknown => StatusCode::NOT_FOUND,
        ViewError::Unreachable(_) => StatusCode::BAD_GATEWAY,
        ViewError::Refused(_) | ViewError::TooLarge(_) | ViewError::Store { .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    with_failure(status, &Failure::from(error))
}

/// Returns the answer to a malformed or refused request.
pub(super) fn refused(status: StatusCode, says: &str) -> Response<Full<Bytes>> {
    with_failure(
        status,
        &Failure { kind: "refused".to_owned(), says: says.to_owned(), failed_container: None },
    )
}

fn with_failure(status: StatusCode, failure: &Failure) -> Response<Full<Bytes>> {
    json(status, serde_json::to_vec(failure).unwrap_or_default().into())
}

fn json(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changes, Cursor};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Views that need a minute to open.
    #[derive(Debug, Default)]
    struct Slow(AtomicUsize);

    #[async_trait::async_trait]
    impl Views for Slow {
        async fn open(&self, _: &Ruleset) -> Result<ViewId, ViewError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(ViewId(7))
        }

        async fn changes(&self, _: ViewId, _: Option<&Cursor>, _: usize) -> Result<Changes, ViewError> {
            Err(ViewError::Unknown)
        }
    }

    /// However often clients ask for the view meanwhile, it is opened once.
    #[tokio::test(start_paused = true)]
    async fn a_long_listing_is_distinguished_from_a_dead_handler() {
        let slow = Arc::new(Slow::default());
        let service = Service::new(slow.clone(), Report(Arc::new(String::new)), Part::ALL, None);
        let ruleset = b"set: {container: bucket}";
        let mut answers = 0;
        loop {
            let (one, other) = tokio::join!(service.open_ruleset(ruleset), service.open_ruleset(ruleset));
            assert_eq!(one.status(), other.status());
            match one.status() {
                StatusCode::ACCEPTED => answers += 1,
                status => break assert_eq!(status, StatusCode::OK),
            }
        }
        assert_eq!((answers, slow.0.load(Ordering::Relaxed)), (5, 1));
        assert!(service.opening.lock().unwrap().is_empty());
    }
}
