//! A receiver of posts on loopback, whose responses a test chooses.

use events::ObjectEvent;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use listen::{Limits, Listener};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A post that was received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedPost {
    pub(crate) authorization: Option<String>,
    pub(crate) event: ObjectEvent,
}

/// Returns status and delay of the response to a request, by the request's number.
pub(crate) type Answers = Box<dyn Fn(usize) -> (StatusCode, Duration) + Send + Sync>;

pub(crate) struct Receiver {
    listener: Listener,
    posts: Arc<Mutex<Vec<ReceivedPost>>>,
}

impl Receiver {
    /// Starts a receiver that accepts everything at once.
    pub(crate) async fn start() -> Self {
        Self::start_with_answers("127.0.0.1:0", Box::new(|_| (StatusCode::OK, Duration::ZERO))).await
    }

    pub(crate) async fn start_with_answers(address: &str, answers: Answers) -> Self {
        let posts: Arc<Mutex<Vec<ReceivedPost>>> = Arc::default();
        let (answers, recorded) = (Arc::new(answers), posts.clone());
        let answer = move |request, _| answer(request, answers.clone(), recorded.clone());
        let listener = Listener::start(address.parse().unwrap(), Limits::default(), None, answer);
        Self { listener: listener.await.unwrap(), posts }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/events", self.listener.url())
    }

    pub(crate) fn posts(&self) -> Vec<ReceivedPost> {
        self.posts.lock().unwrap().clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: Arc<Answers>,
    recorded: Arc<Mutex<Vec<ReceivedPost>>>,
) -> Response<Empty<Bytes>> {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let authorization = header(http::header::AUTHORIZATION);
    let message = request.into_body().collect().await.unwrap().to_bytes();
    let [event] = events::aws::parse(&message).unwrap().try_into().unwrap();
    let number = {
        let mut recorded = recorded.lock().unwrap();
        recorded.push(ReceivedPost { authorization, event });
        recorded.len() - 1
    };
    let (status, after) = answers(number);
    tokio::time::sleep(after).await;
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = status;
    answer
}
