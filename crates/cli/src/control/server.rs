//! The server of the control socket.

use super::protocol::{Answer, Request};
use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Maximum length of a request, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// Maximum number of requests in progress, without those that observe the process.
const REQUESTS_MAX: u32 = 32;
/// Maximum number of requests in progress that observe the process. They may last for hours.
const OBSERVING_MAX: usize = 16;

/// Answers the requests of a control socket.
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
    /// The task that accepts connections.
    accepting: AbortHandle,
    limits: Limits,
}

/// Permits for requests in progress.
#[derive(Debug, Clone)]
struct Limits {
    /// Permits for requests that are answered at once, and for those that observe the process.
    answering: Arc<Semaphore>,
    observing: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answering: Arc::new(Semaphore::new(REQUESTS_MAX as usize)),
            observing: Arc::new(Semaphore::new(OBSERVING_MAX)),
        }
    }
}

impl ControlServer {
    /// Starts to answer all connections.
    pub(crate) fn start(listener: StdListener, service: Arc<impl Service>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let limits = Limits::default();
        let accepting = tokio::spawn(accept(listener, service, limits.clone())).abort_handle();
        Ok(Self { accepting, limits })
    }

    /// Accepts no more connections, and waits at most `patience` until all requests are answered, except those that observe the
    /// process.
    pub(crate) async fn stop(self, patience: Duration) {
        self.accepting.abort();
        let _ = tokio::time::timeout(patience, self.limits.answering.acquire_many(REQUESTS_MAX)).await;
    }
}

async fn accept(listener: UnixListener, service: Arc<impl Service>, limits: Limits) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::spawn(serve_connection(stream, Arc::clone(&service), limits.clone())))
            }
            Err(error) => tracing::warn!("the control socket cannot accept a connection: {error}"),
        }
    }
}

/// Returns the next line; `None` at the end of the connection, if the connection fails, or if the line is longer than a request may be.
async fn next_request(reader: &mut BufReader<OwnedReadHalf>) -> Option<String> {
    let mut line = String::new();
    reader.take(REQUEST_BYTES_MAX).read_line(&mut line).await.ok()?;
    line.ends_with('\n').then_some(line)
}

/// Answers the requests of a client, one after another, until it disconnects.
async fn serve_connection(stream: UnixStream, service: Arc<impl Service>, limits: Limits) {
    let (reader, writer) = stream.into_split();
    let (mut reader, mut replies) = (BufReader::new(reader), Replies(writer));
    while let Some(line) = next_request(&mut reader).await {
        // Held until the answer is sent: the process may end when all permits are free.
        let mut answering = None;
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(request) if request.is_observing() => {
                let Ok(_permit) = limits.observing.try_acquire() else {
                    let reason = format!(
                        "{OBSERVING_MAX} commands observe the process already; end one of them first"
                    );
                    replies.send(&Answer::Failed { reason }).await;
                    continue;
                };
                tokio::select! {
                    answer = service.answer(request, &mut replies) => answer,
                    () = disconnected(&mut reader) => return,
                }
            }
            Ok(request) => {
                let Ok(permit) = limits.answering.acquire().await else { return };
                answering = Some(permit);
                service.answer(request, &mut replies).await
            }
            Err(error) => Answer::Failed { reason: format!("the request cannot be understood: {error}") },
        };
        replies.send(&answer).await;
        drop(answering);
    }
}

/// Waits until the client has closed the connection. Waits forever if the client has sent another request before.
async fn disconnected(reader: &mut BufReader<OwnedReadHalf>) {
    match reader.fill_buf().await {
        Ok(next) if !next.is_empty() => std::future::pending().await,
        Ok(_) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Resolving;

    impl Service for Resolving {
        async fn answer(&self, _: Request, _: &mut Replies) -> Answer {
            Answer::Resolved
        }
    }

    /// A regression test: the limit of a request was that of a connection, so that `tenon stats` ended after half an hour.
    #[tokio::test]
    async fn a_connection_has_any_number_of_requests() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let served = tokio::spawn(serve_connection(server, Arc::new(Resolving), Limits::default()));
        let request = serde_json::to_string(&Request::Status).unwrap() + "\n";
        let answer = serde_json::to_string(&Answer::Resolved).unwrap() + "\n";
        for _ in 0..2 * REQUEST_BYTES_MAX / request.len() as u64 {
            client.write_all(request.as_bytes()).await.unwrap();
            let mut found = vec![0; answer.len()];
            client.read_exact(&mut found).await.unwrap();
            assert_eq!(found, answer.as_bytes());
        }
        // A line without an end is not read without limit.
        client.write_all(&vec![b'x'; 2 * REQUEST_BYTES_MAX as usize]).await.ok();
        served.await.unwrap();
    }

    /// Gives an answer that no socket buffer holds.
    struct Talking;

    impl Service for Talking {
        async fn answer(&self, _: Request, _: &mut Replies) -> Answer {
            Answer::Failed { reason: "x".repeat(64 << 20) }
        }
    }

    /// A regression test: a process that had unmounted could end before the answer was sent, and `tenon umount` reported that
    /// nothing was mounted.
    #[tokio::test]
    async fn a_server_stops_after_its_answers_are_sent() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let limits = Limits::default();
        drop(tokio::spawn(serve_connection(server, Arc::new(Talking), limits.clone())));
        client.write_all((serde_json::to_string(&Request::Status).unwrap() + "\n").as_bytes()).await.unwrap();
        client.readable().await.unwrap();
        assert_eq!(limits.answering.available_permits(), REQUESTS_MAX as usize - 1);
        BufReader::new(&mut client).read_line(&mut String::new()).await.unwrap();
        drop(limits.answering.acquire_many(REQUESTS_MAX).await.unwrap());
    }

    /// Answers all requests but `Profile`, which it counts while they are in progress.
    #[derive(Default)]
    struct Profiling(tokio::sync::watch::Sender<usize>);

    /// Ends the count of a profile.
    struct Counted<'a>(&'a tokio::sync::watch::Sender<usize>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.send_modify(|count| *count -= 1);
        }
    }

    impl Service for Profiling {
        async fn answer(&self, request: Request, _: &mut Replies) -> Answer {
            if request.is_observing() {
                self.0.send_modify(|count| *count += 1);
                let _counted = Counted(&self.0);
                std::future::pending::<()>().await;
            }
            Answer::Resolved
        }
    }

    /// A regression test: 32 profiles, each up to an hour, left no permit for other requests, and continued after their clients had
    /// gone.
    #[tokio::test]
    async fn s722_requests_that_observe_leave_room_for_others_and_end_with_their_clients() {
        let (service, limits) = (Arc::new(Profiling::default()), Limits::default());
        let connect = || {
            let (client, server) = UnixStream::pair().unwrap();
            drop(tokio::spawn(serve_connection(server, Arc::clone(&service), limits.clone())));
            client
        };
        let ask = async |client: &mut UnixStream, request: &Request| {
            client.write_all((serde_json::to_string(request).unwrap() + "\n").as_bytes()).await.unwrap();
        };
        let answer = async |client: &mut UnixStream| {
            let mut line = String::new();
            BufReader::new(client).read_line(&mut line).await.unwrap();
            line
        };
        let mut count = service.0.subscribe();
        let mut profiles = Vec::new();
        for _ in 0..OBSERVING_MAX {
            let mut client = connect();
            ask(&mut client, &Request::Profile { secs: 3600 }).await;
            profiles.push(client);
        }
        count.wait_for(|count| *count == OBSERVING_MAX).await.unwrap();
        let mut client = connect();
        ask(&mut client, &Request::Profile { secs: 3600 }).await;
        assert!(answer(&mut client).await.contains("observe the process already"));
        for _ in 0..2 * REQUESTS_MAX {
            ask(&mut client, &Request::Status).await;
            assert_eq!(answer(&mut client).await, serde_json::to_string(&Answer::Resolved).unwrap() + "\n");
        }
        drop(profiles);
        count.wait_for(|count| *count == 0).await.unwrap();
    }
}
