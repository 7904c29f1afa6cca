//! beanstalkd, the event queue on every OpenIO node (beanstalkd's `doc/protocol.txt`).

use bytes::{Buf as _, Bytes, BytesMut};
use events::{Message, Source, SourceError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The default port.
const PORT: u16 = 11300;
/// Time for which the server holds a request until a job arrives.
const WAIT_SECS: u64 = 20;
/// Timeout of a response that needs no waiting.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a job. The server's default limit is 64 KiB.
const JOB_BYTES_MAX: usize = 16 << 20;
/// Maximum length of a response line.
const LINE_BYTES_MAX: usize = 512;
/// Maximum length of a tube's statistics, which have about twenty lines.
const STATISTICS_BYTES_MAX: usize = 64 << 10;
/// Minimum number of jobs requested at once.
const RESERVE_MIN: usize = 16;

/// A tube of a server. Received jobs are reserved by the connection. When the connection ends, they are delivered again.
pub(super) struct Beanstalkd {
    host: Box<str>,
    port: u16,
    tube: Box<str>,
    connection: Option<Connection>,
    /// The jobs that were received and not acknowledged yet.
    jobs: Vec<u64>,
    /// The number of jobs in the last batch.
    last_count: usize,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    unread: BytesMut,
}

impl std::fmt::Debug for Beanstalkd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "beanstalkd://{}:{}/{}", self.host, self.port, self.tube)
    }
}

impl Beanstalkd {
    pub(super) fn new(host: &str, port: Option<u16>, tube: &str) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.unwrap_or(PORT);
        Self { host: host.into(), port, tube: tube.into(), connection: None, jobs: Vec::new(), last_count: 0 }
    }

    fn unavailable(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::Unavailable(format!("{self:?}: {reason}"))
    }

    /// Takes the connection out, or connects. The caller puts it back after the last response, so that a dropped call ends the connection.
    async fn take_connection(&mut self) -> Result<Connection, SourceError> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        // Jobs reserved by an earlier connection are ready again.
        self.jobs.clear();
        let connected = tokio::time::timeout(RESPONSE_TIMEOUT, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err("no response in time".to_owned()));
        connected.map_err(|reason| self.unavailable(reason))
    }

    async fn connect(&self) -> Result<Connection, String> {
        let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut connection = Connection { stream, unread: BytesMut::new() };
        if &*self.tube == "default" {
            return Ok(connection);
        }
        connection.send(&format!("watch {}\r\nignore default\r\n", self.tube)).await?;
        for _ in 0..2 {
            let line = connection.read_line().await?;
            if !line.starts_with("WATCHING ") {
                return Err(format!("unexpected response '{line}' to 'watch'"));
            }
        }
        Ok(connection)
    }

    /// Reserves available jobs. Returns none if no job arrived for a while.
    async fn reserve(
        &mut self,
        connection: &mut Connection,
        max: usize,
    ) -> Result<Vec<(u64, Bytes)>, String> {
        let wait = Duration::from_secs(WAIT_SECS) + RESPONSE_TIMEOUT;
        connection.send(&format!("reserve-with-timeout {WAIT_SECS}\r\n")).await?;
        let mut jobs: Vec<_> = with_timeout(wait, connection.read_job()).await?.into_iter().collect();
        if jobs.is_empty() {
            return Ok(jobs);
        }
        // Requests all further jobs in one exchange: up to twice as many as the last batch had.
        let more = (max - 1).min(2 * self.last_count.max(RESERVE_MIN));
        connection.send(&"reserve-with-timeout 0\r\n".repeat(more)).await?;
        for _ in 0..more {
            jobs.extend(with_timeout(RESPONSE_TIMEOUT, connection.read_job()).await?);
        }
        self.last_count = jobs.len();
        Ok(jobs)
    }

    async fn delete(&self, connection: &mut Connection) -> Result<(), String> {
        let commands: String = self.jobs.iter().map(|job| format!("delete {job}\r\n")).collect();
        connection.send(&commands).await?;
        for job in &self.jobs {
            match &*with_timeout(RESPONSE_TIMEOUT, connection.read_line()).await? {
                "DELETED" => {}
                // The reservation expired, so the server delivers the job again.
                "NOT_FOUND" => {
                    tracing::debug!(source = ?self, job, "a processed job is not reserved by this client any more; unless it was deleted, it is delivered again")
                }
                line => return Err(format!("unexpected response '{line}' to 'delete'")),
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Source for Beanstalkd {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            let mut connection = self.take_connection().await?;
            let jobs = self.reserve(&mut connection, max.max(1)).await;
            let jobs = jobs.map_err(|reason| self.unavailable(reason))?;
            self.connection = Some(connection);
            if !jobs.is_empty() {
                self.jobs.extend(jobs.iter().map(|(id, _)| id));
                return Ok(jobs.into_iter().map(|(_, body)| Message::from(body)).collect());
            }
        }
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        // Without the connection its reservations are gone, and the jobs are delivered again.
        let Some(mut connection) = self.connection.take() else {
            self.jobs.clear();
            return Err(self.unavailable("the connection ended before the jobs were acknowledged"));
        };
        let deleted = self.delete(&mut connection).await;
        self.jobs.clear();
        deleted.map_err(|reason| self.unavailable(reason))?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(mut connection) = self.connection.take() else { return Ok(None) };
        let ready = with_timeout(RESPONSE_TIMEOUT, connection.count_ready(&self.tube)).await;
        let ready = ready.map_err(|reason| self.unavailable(reason))?;
        self.connection = Some(connection);
        Ok(ready)
    }
}

/// Runs `work` with a timeout.
async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err("no response in time".to_owned()))
}

impl Connection {
    async fn send(&mut self, commands: &str) -> Result<(), String> {
        let sent = self.stream.write_all(commands.as_bytes());
        with_timeout(RESPONSE_TIMEOUT, async { sent.await.map_err(|error| error.to_string()) }).await
    }

    /// Reads the response to a reservation; `None` if there was no job.
    async fn read_job(&mut self) -> Result<Option<(u64, Bytes)>, String> {
        loop {
            if let Some(job) = take_job(&mut self.unread)? {
                return Ok(job);
            }
            self.read().await?;
        }
    }

    /// Returns the number of jobs of a tube that are ready; `None` if the server's statistics do not have it.
    async fn count_ready(&mut self, tube: &str) -> Result<Option<u64>, String> {
        self.send(&format!("stats-tube {tube}\r\n")).await?;
        let head = self.read_line().await?;
        let length: Option<usize> = head.strip_prefix("OK ").and_then(|length| length.parse().ok());
        let length = length.filter(|length| *length <= STATISTICS_BYTES_MAX);
        let length = length.ok_or_else(|| format!("unexpected response '{head}' to 'stats-tube'"))?;
        while self.unread.len() < length + 2 {
            self.read().await?;
        }
        let response = self.unread.split_to(length + 2);
        let response = String::from_utf8_lossy(&response);
        let ready = response.lines().find_map(|line| line.strip_prefix("current-jobs-ready: "));
        Ok(ready.and_then(|count| count.trim().parse().ok()))
    }

    async fn read_line(&mut self) -> Result<String, String> {
        loop {
            if let Some((line, length)) = parse_line(&self.unread)? {
                self.unread.advance(length);
                return Ok(line);
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.unread).await {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Takes the response to a reservation from the bytes read so far. The inner `None` means that there was no job. Returns `None` while
/// the response is incomplete.
fn take_job(unread: &mut BytesMut) -> Result<Option<Option<(u64, Bytes)>>, String> {
    let Some((line, head)) = parse_line(unread)? else { return Ok(None) };
    if let "TIMED_OUT" | "DEADLINE_SOON" = &*line {
        unread.advance(head);
        return Ok(Some(None));
    }
    let unexpected = || format!("unexpected response '{line}' to 'reserve'");
    let mut words = line.strip_prefix("RESERVED ").ok_or_else(unexpected)?.split(' ');
    let (id, length) = (words.next(), words.next());
    let id = id.and_then(|id| id.parse().ok()).ok_or_else(unexpected)?;
    let length: usize = length.and_then(|length| length.parse().ok()).ok_or_else(unexpected)?;
    if length > JOB_BYTES_MAX {
        return Err(format!("a job of {length} bytes is too long"));
    }
    if unread.len() < head + length + 2 {
        return Ok(None);
    }
    unread.advance(head);
    let body = unread.split_to(length).freeze();
    unread.advance(2);
    Ok(Some(Some((id, body))))
}

/// Returns the first line and its length with the line feed; `None` while the line is incomplete.
fn parse_line(unread: &[u8]) -> Result<Option<(String, usize)>, String> {
    let start = &unread[..unread.len().min(LINE_BYTES_MAX)];
    match start.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = String::from_utf8_lossy(start[..end].trim_ascii_end()).into_owned();
            Ok(Some((line, end + 1)))
        }
        None if start.len() == LINE_BYTES_MAX => Err("a response line is too long".to_owned()),
        None => Ok(None),
    }
}

/// Reads a server's bytes in one piece and in two; both must give the same jobs.
#[cfg(feature = "fuzz")]
pub fn fuzz_jobs(bytes: &[u8]) {
    let all = |mut unread: BytesMut| {
        let mut jobs = Vec::new();
        while let Ok(Some(job)) = take_job(&mut unread) {
            jobs.push(job);
        }
        (jobs, unread)
    };
    let (whole, _) = all(BytesMut::from(bytes));
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let (mut jobs, mut unread) = all(BytesMut::from(first));
    unread.extend_from_slice(second);
    jobs.extend(all(unread).0);
    assert_eq!(jobs, whole);
}
