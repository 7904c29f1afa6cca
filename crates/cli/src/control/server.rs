//! The server of the control socket.

use super::protocol::{Answer, Request};
use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Maximum length of all requests on one connection, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// Maximum number of requests in progress.
const REQUESTS_MAX: u32 = 32;

/// The answers to requests on a control socket.
pub(crate) trait Service: Send + Sync + 'static {
    /// Carries out one request, and sends progress through `replies`. Returns the answer.
    fn answer(&self, request: Request, replies: &mut Replies) -> impl Future<Output = Answer> + Send;
}

/// The connection to a client, for progress and answers.
#[derive(Debug)]
pub(crate) struct Replies(OwnedWriteHalf);

impl Replies {
    /// Sends one line. Ignores that the client may have disconnected.
    pub(crate) async fn send(&mut self, answer: &Answer) {
        self.try_send(answer).await;
    }

    /// Sends one line. Returns whether the client is still connected.
    pub(crate) async fn try_send(&mut self, answer: &Answer) -> bool {
        let Ok(mut line) = serde_json::to_string(answer) else { return true };
        line.push('\n');
        self.0.write_all(line.as_bytes()).await.is_ok()
    }
}

/// A control socket that is being served.
#[derive(Debug)]
pub(crate) struct ControlServer {
    accepting: AbortHandle,
    answering: Arc<Semaphore>,
}

impl ControlServer {
    /// Starts to answer all connections.
    pub(crate) fn start(listener: StdListener, service: Arc<impl Service>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let answering = Arc::new(Semaphore::new(REQUESTS_MAX as usize));
        let accepting = tokio::spawn(accept(listener, service, Arc::clone(&answering))).abort_handle();
        Ok(Self { accepting, answering })
    }

    /// Accepts no more connections, and waits at most `patience` until all requests are answered.
    pub(crate) async fn stop(self, patience: Duration) {
        self.accepting.abort();
        let _ = tokio::time::timeout(patience, self.answering.acquire_many(REQUESTS_MAX)).await;
    }
}

async fn accept(listener: UnixListener, service: Arc<impl Service>, answering: Arc<Semaphore>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::spawn(serve_connection(stream, Arc::clone(&service), Arc::clone(&answering))))
            }
            Err(error) => tracing::warn!("the control socket cannot accept a connection: {error}"),
        }
    }
}

async fn serve_connection(stream: UnixStream, service: Arc<impl Service>, answering: Arc<Semaphore>) {
    let (reader, writer) = stream.into_split();
    let mut lines = BufReader::new(reader.take(REQUEST_BYTES_MAX)).lines();
    let mut replies = Replies(writer);
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(_permit) = answering.acquire().await else { return };
        let answer = match serde_json::from_str(&line) {
            Ok(request) => service.answer(request, &mut replies).await,
            Err(error) => Answer::Failed { reason: format!("the request cannot be understood: {error}") },
        };
        replies.send(&answer).await;
    }
}
