//! A receiver of events on loopback, which answers as it is told.

use events::ObjectEvent;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) authorization: Option<String>,
    pub(crate) event: ObjectEvent,
}

/// What a receiver answers to its requests: the first, the second and so on.
pub(crate) type Answers = Box<dyn Fn(usize) -> (StatusCode, Duration) + Send + Sync>;

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    _serving: JoinSet<()>,
}

impl Receiver {
    /// Takes everything, at once.
    pub(crate) async fn start() -> Self {
        Self::answering("127.0.0.1:0", Box::new(|_| (StatusCode::OK, Duration::ZERO))).await
    }

    pub(crate) async fn answering(address: &str, answers: Answers) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (answers, noted) = (Arc::new(answers), got.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // Ends with the receiver, as do the connections.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, noted) = (answers.clone(), noted.clone());
                let answer = service_fn(move |request| answer(request, answers.clone(), noted.clone()));
                connections.spawn(async move {
                    let serving = hyper::server::conn::http1::Builder::new();
                    serving.serve_connection(TokioIo::new(stream), answer).await.ok();
                });
            }
        });
        Self { address, got, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: Arc<Answers>,
    noted: Arc<Mutex<Vec<Got>>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
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
    Ok(answer)
}
