//! A source that others post to: MinIO, Ceph, Tenon's endpoint, EventBridge, SNS, Pub/Sub.
//!
//! Owns the listener, who may post, and how much. A post is answered with success once what it says will not be lost.
//!
//! Refuses: to keep what it cannot hand on; a sender that is told 503 sends it again.

use super::{Message, Source, SourceError};
use crate::Authorization;
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use listen::{Limits, Listener};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// The longest post: AWS, OpenIO and Pub/Sub stay far below it.
const BODY_BYTES_MAX: usize = 1 << 20;
/// What posts may take together, in units of [`UNIT_BYTES`].
const UNITS_MAX: usize = 64 << 10;
const UNIT_BYTES: usize = 1 << 10;
/// Posts that may wait to be received.
const WAITING_MAX: usize = 4096;
/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How long a sender waits for its answer, before it is told to come again.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Attributes of Pub/Sub, which a push without an envelope has as headers.
pub(crate) const ATTRIBUTE_PREFIX: &str = "x-goog-pubsub-attr-";

/// A source that listens. Dropping it closes the listener; who waits for an answer is told to come again.
#[derive(Debug)]
pub struct WebhookSource {
    listener: Listener,
    posts: mpsc::Receiver<Post>,
    /// Who waits for the end of what was received.
    answers: Vec<oneshot::Sender<()>>,
}

/// A post on its way.
#[derive(Debug)]
struct Post {
    message: Message,
    answer: oneshot::Sender<()>,
}

impl WebhookSource {
    /// Listens at an address, for posts to a path; port 0 takes a free one.
    ///
    /// # Errors
    /// [`SourceError::Refused`] if the address is not to be had, or if others could post to it without a secret.
    pub async fn listen(
        address: SocketAddr,
        path: &str,
        secret: Option<Authorization>,
    ) -> Result<Self, SourceError> {
        if secret.is_none() && !address.ip().is_loopback() {
            let reason = format!(
                "a webhook at {address} is open to everybody: give it a secret, or listen at 127.0.0.1"
            );
            return Err(SourceError::Refused(reason));
        }
        let (sender, posts) = mpsc::channel(WAITING_MAX);
        let gate =
            Arc::new(Gate { path: path.into(), secret, sender, units: Arc::new(Semaphore::new(UNITS_MAX)) });
        let answer = move |request, _| gate.clone().answer(request);
        let listener = Listener::start(address, Limits::default(), None, answer).await;
        let listener = listener.map_err(|error| SourceError::Refused(error.to_string()))?;
        Ok(Self { listener, posts, answers: Vec::new() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

#[async_trait::async_trait]
impl Source for WebhookSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let mut posts = Vec::new();
        if self.posts.recv_many(&mut posts, max).await == 0 {
            return Err(SourceError::Unavailable(format!("nobody listens at {} any more", self.address())));
        }
        let (messages, answers): (Vec<_>, Vec<_>) =
            posts.into_iter().map(|post| (post.message, post.answer)).unzip();
        self.answers.extend(answers);
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        for answer in self.answers.drain(..) {
            // An error says that the sender waits no longer; it will come again.
            answer.send(()).ok();
        }
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.posts.len() as u64))
    }
}

/// What a connection needs to know.
#[derive(Debug)]
struct Gate {
    path: Box<str>,
    secret: Option<Authorization>,
    sender: mpsc::Sender<Post>,
    units: Arc<Semaphore>,
}

impl Gate {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Empty<Bytes>> {
        let status = match self.take(request).await {
            Ok(()) => StatusCode::OK,
            Err(status) => status,
        };
        let mut answer = Response::new(Empty::new());
        *answer.status_mut() = status;
        if status == StatusCode::METHOD_NOT_ALLOWED {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        answer
    }

    /// Takes a post, and waits until what it says will not be lost.
    async fn take(&self, request: Request<Incoming>) -> Result<(), StatusCode> {
        let secret = self.secret.as_ref();
        if secret.is_some_and(|secret| !secret.is(request.headers().get(AUTHORIZATION))) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        if request.uri().path() != &*self.path {
            return Err(StatusCode::NOT_FOUND);
        }
        if request.method() != Method::POST {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        let units = units(&request)?;
        let Ok(_room) = self.units.try_acquire_many(units) else {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        };
        let message = message(request).await?;
        let (answer, answered) = oneshot::channel();
        let post = Post { message, answer };
        self.sender.try_send(post).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        match tokio::time::timeout(ANSWER_WITHIN, answered).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// How much room a post may take: what it says, or the most that it may.
fn units(request: &Request<Incoming>) -> Result<u32, StatusCode> {
    let length = match request.headers().get(CONTENT_LENGTH) {
        None => BODY_BYTES_MAX,
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            length.ok_or(StatusCode::BAD_REQUEST)?
        }
    };
    if length > BODY_BYTES_MAX {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    Ok((length / UNIT_BYTES + 1) as u32)
}

async fn message(request: Request<Incoming>) -> Result<Message, StatusCode> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    let body = tokio::time::timeout(BODY_WITHIN, body).await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
    let body = body.map_err(|error| {
        let is_long = error.is::<http_body_util::LengthLimitError>();
        if is_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST }
    })?;
    let attribute = |(name, value): (&http::HeaderName, &HeaderValue)| {
        let name = name.as_str().strip_prefix(ATTRIBUTE_PREFIX)?;
        Some((name.to_owned(), value.to_str().ok()?.to_owned()))
    };
    Ok(Message { body: body.to_bytes(), attributes: head.headers.iter().filter_map(attribute).collect() })
}
