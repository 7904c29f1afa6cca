//! A receiver of events on loopback, which answers as it is told.

use events::ObjectEvent;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use listen::{Limits, Listener};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) authorization: Option<String>,
    pub(crate) event: ObjectEvent,
}

/// What a receiver answers to its requests: the first, the second and so on.
pub(crate) type Answers = Box<dyn Fn(usize) -> (StatusCode, Duration) + Send + Sync>;

pub(crate) struct Receiver {
    listener: Listener,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    /// Takes everything, at once.
    pub(crate) async fn start() -> Self {
        Self::answering("127.0.0.1:0", Box::new(|_| (StatusCode::OK, Duration::ZERO))).await
    }

    pub(crate) async fn answering(address: &str, answers: Answers) -> Self {
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (answers, noted) = (Arc::new(answers), got.clone());
        let answer = move |request, _| answer(request, answers.clone(), noted.clone());
        let listener = Listener::start(address.parse().unwrap(), Limits::default(), None, answer);
        Self { listener: listener.await.unwrap(), got }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/events", self.listener.url())
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: Arc<Answers>,
    noted: Arc<Mutex<Vec<Got>>>,
) -> Response<Empty<Bytes>> {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let authorization = header(http::header::AUTHORIZATION);
    let message = request.into_body().collect().await.unwrap().to_bytes();
    let [event] = events::aws::parse(&message).unwrap().try_into().unwrap();
    let number = {
        let mut noted = noted.lock().unwrap();
        noted.push(Got { authorization, event });
        noted.len() - 1
    };
    let (status, after) = answers(number);
    tokio::time::sleep(after).await;
    let mut answer = Response::new(Empty::new());
    *answer.status_mut() = status;
    answer
}
