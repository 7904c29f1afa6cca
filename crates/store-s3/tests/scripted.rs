//! A fake server that plays scripted responses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Entropy, SystemClock};
use store_s3::{Credentials, RetryPolicy, S3Buckets, S3Config, S3Store, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The server's reaction to a request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    after: Duration,
    bytes: Vec<u8>,
    end: End,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Close,
    Reset,
    Stall,
    Trickle,
}

/// Makes a response with this status line, these headers, this body and the correct length.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> Step {
    let length = body.len().to_string();
    let mut all = headers.to_vec();
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
        all.push(("content-length", &length));
    }
    all.push(("connection", "close"));
    let lines: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    Step::raw(&format!("HTTP/1.1 {status}\r\n{lines}\r\n{body}"))
}

/// Makes a response with an S3 error document.
pub(crate) fn error(status: &str, code: &str) -> Step {
    answer(status, &[], &format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>"))
}

/// Closes the connection without a response.
pub(crate) fn no_response() -> Step {
    Step::raw("")
}

impl Step {
    /// Sends these bytes.
    pub(crate) fn raw(text: &str) -> Self {
        Self { after: Duration::ZERO, bytes: text.as_bytes().to_vec(), end: End::Close }
    }

    /// Adds a delay before the response.
    pub(crate) fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    /// Resets the connection afterwards.
    pub(crate) fn then_reset(self) -> Self {
        Self { end: End::Reset, ..self }
    }

    /// Keeps the connection open afterwards, without sending anything.
    pub(crate) fn then_stall(self) -> Self {
        Self { end: End::Stall, ..self }
    }

    /// Sends single bytes at intervals afterwards.
    pub(crate) fn then_trickle(self) -> Self {
        Self { end: End::Trickle, ..self }
    }
}

/// The interval of the bytes of a trickle.
const TRICKLE_EVERY: Duration = Duration::from_millis(20);

/// A received request: its head in lower case, and its body.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A running server, which ends with the test's runtime.
#[derive(Debug)]
pub(crate) struct Scripted {
    endpoint: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Scripted {
    /// Plays the steps in order, one for each request, and repeats the last.
    pub(crate) async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let script = Arc::new(Mutex::new(steps.into_iter().collect::<VecDeque<_>>()));
        let record = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script.clone(), record.clone()));
            }
        });
        Self { endpoint, seen }
    }

    /// Returns the server's URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn config(&self) -> S3Config {
        let credentials = Credentials::new("AKIAEXAMPLE", "hush-this-is-secret", None).unwrap();
        let quick = Duration::from_millis(300);
        S3Config {
            endpoint: Some(self.endpoint.clone()),
            credentials: credentials.into(),
            timeouts: Timeouts { answer: quick, slow_answer: quick, stall: quick, ..Timeouts::default() },
            retry: RetryPolicy {
                attempts_max: 4,
                pause_first: Duration::from_millis(1),
                ..RetryPolicy::default()
            },
            ..S3Config::default()
        }
    }

    pub(crate) fn buckets(&self) -> S3Buckets {
        S3Buckets::new(self.config(), Arc::new(SystemClock), Arc::new(Entropy::new(7))).unwrap()
    }

    /// Returns a store for the bucket `bucket`, without sending a request.
    pub(crate) fn store(&self) -> S3Store {
        self.buckets().store("bucket").unwrap()
    }

    /// Returns the requests received so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the request lines received so far, without the protocol.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |seen: &Seen| seen.head.lines().next().unwrap_or_default().replace(" http/1.1", "");
        self.seen().iter().map(line).collect()
    }
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<VecDeque<Step>>>, record: Arc<Mutex<Vec<Seen>>>) {
    let Some(request) = read_request(&mut stream).await else { return };
    record.lock().unwrap().push(request);
    let step = {
        let mut script = script.lock().unwrap();
        if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
    };
    let Some(step) = step else { return };
    tokio::time::sleep(step.after).await;
    // The client may have closed the connection.
    let _ = stream.write_all(&step.bytes).await;
    match step.end {
        End::Close => drop(stream.shutdown().await),
        End::Reset => drop(stream.set_zero_linger()),
        End::Stall => std::future::pending().await,
        End::Trickle => {
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(TRICKLE_EVERY).await;
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_len = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_len]).to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(head_len);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Seen { head, body })
}
