//! A source to which others post: MinIO, Ceph, Tenon's endpoint, EventBridge, SNS, Pub/Sub.
//!
//! Owns the listener, the authentication of senders, and the limits on posts. A post is answered with success once its events can no
//! longer be lost.
//!
//! Refuses to store messages that it cannot pass on. A sender that gets 503 posts again.

use super::authorization::Authorization;
use crate::{Message, Source, SourceError};
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

/// Maximum length of a post. AWS, OpenIO and Pub/Sub stay far below it.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum memory of all posts together, in units of [`UNIT_BYTES`].
const UNITS_MAX: usize = 64 << 10;
const UNIT_BYTES: usize = 1 << 10;
/// Maximum number of posts that wait to be received.
const QUEUE_MAX: usize = 4096;
/// Timeout for the arrival of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time until a post is acknowledged; then the sender gets 503 and posts again.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Prefix of the headers in which a Pub/Sub push without an envelope carries the message's attributes.
pub(crate) const ATTRIBUTE_PREFIX: &str = "x-goog-pubsub-attr-";

/// A source that listens for posts. Dropping it closes the listener; senders that wait for a response get 503.
#[derive(Debug)]
pub struct WebhookSource {
    listener: Listener,
    posts: mpsc::Receiver<Post>,
    /// Waiting senders of the posts that were received and not acknowledged yet.
    answers: Vec<oneshot::Sender<()>>,
}

/// A post that waits to be received.
#[derive(Debug)]
struct Post {
    message: Message,
    answer: oneshot::Sender<()>,
}

impl WebhookSource {
    /// Listens at an address for posts to a path. Port 0 chooses a free port.
    ///
    /// # Errors
    /// [`SourceError::Refused`] if the address cannot be bound, or if other machines could post to it without a secret.
    pub async fn listen(
        address: SocketAddr,
        path: &str,
        secret: Option<Authorization>,
    ) -> Result<Self, SourceError> {
        if secret.is_none() && !address.ip().is_loopback() {
            let reason = format!(
                "a webhook at {address} would accept posts from anybody: give it a secret, or listen at 127.0.0.1"
            );
            return Err(SourceError::Refused(reason));
        }
        let (sender, posts) = mpsc::channel(QUEUE_MAX);
        let handler = Arc::new(PostHandler {
            path: path.into(),
            secret,
            sender,
            units: Arc::new(Semaphore::new(UNITS_MAX)),
        });
        let answer = move |request, _| handler.clone().handle(request);
        let listener = Listener::start(address, Limits::default(), None, answer).await;
        let listener = listener.map_err(|error| SourceError::Refused(error.to_string()))?;
        Ok(Self { listener, posts, answers: Vec::new() })
    }

    /// Returns the address of the listening socket.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

#[async_trait::async_trait]
impl Source for WebhookSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let mut posts = Vec::new();
        if self.posts.recv_many(&mut posts, max).await == 0 {
            return Err(SourceError::Unavailable(format!("the listener at {} has ended", self.address())));
        }
        let (messages, answers): (Vec<_>, Vec<_>) =
            posts.into_iter().map(|post| (post.message, post.answer)).unzip();
        self.answers.extend(answers);
        Ok(messages)
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        for answer in self.answers.drain(..) {
            // An error means that the sender no longer waits; it will post again.
            answer.send(()).ok();
        }
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.posts.len() as u64))
    }
}

/// The handler of posts, shared by all connections.
#[derive(Debug)]
struct PostHandler {
    path: Box<str>,
    secret: Option<Authorization>,
    sender: mpsc::Sender<Post>,
    units: Arc<Semaphore>,
}

impl PostHandler {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Empty<Bytes>> {
        let status = match self.accept(request).await {
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

    /// Accepts a post, and waits until it was received and acknowledged.
    async fn accept(&self, request: Request<Incoming>) -> Result<(), StatusCode> {
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
        let units = reserved_units(&request)?;
        let Ok(_room) = self.units.try_acquire_many(units) else {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        };
        let message = read_message(request).await?;
        let (answer, answered) = oneshot::channel();
        let post = Post { message, answer };
        self.sender.try_send(post).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        match tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, answered).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// Returns the memory to reserve for a post: its stated length, or the maximum if it states none.
fn reserved_units(request: &Request<Incoming>) -> Result<u32, StatusCode> {
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

async fn read_message(request: Request<Incoming>) -> Result<Message, StatusCode> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    let body = tokio::time::timeout(BODY_TIMEOUT, body).await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
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
