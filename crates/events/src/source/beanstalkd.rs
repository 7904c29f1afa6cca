//! beanstalkd, which OpenIO has on every node (beanstalkd's `doc/protocol.txt`).

use super::{Message, Source, SourceError};
use bytes::{Buf as _, Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The port that it has unless somebody says another.
const PORT: u16 = 11300;
/// How long the server waits for a job before it says that there is none.
const WAIT_SECS: u64 = 20;
/// How long an answer may take that needs no wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The longest job; the server's default is 64 KiB.
const JOB_BYTES_MAX: usize = 16 << 20;
/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 512;
/// The longest statistics of a tube, which are about twenty lines.
const STATISTICS_BYTES_MAX: usize = 64 << 10;
/// How many jobs are asked for at once when the last time brought none.
const ASK_MIN: usize = 16;

/// A tube of a server. What was received is reserved by the connection: if that ends, it comes again.
pub(super) struct Beanstalkd {
    host: Box<str>,
    port: u16,
    tube: Box<str>,
    connection: Option<Connection>,
    /// The jobs that were received and are not yet processed.
    jobs: Vec<u64>,
    /// How many jobs the last batch had.
    last: usize,
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
        Self { host: host.into(), port, tube: tube.into(), connection: None, jobs: Vec::new(), last: 0 }
    }

    fn unavailable(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::Unavailable(format!("{self:?}: {reason}"))
    }

    /// The connection, which is not put back before everything on it was answered: who stops waiting ends it.
    async fn connection(&mut self) -> Result<Connection, SourceError> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        // What another connection had reserved is free again.
        self.jobs.clear();
        let connected = tokio::time::timeout(ANSWER_WITHIN, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err("no answer in time".to_owned()));
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
            let line = connection.line().await?;
            if !line.starts_with("WATCHING ") {
                return Err(format!("'{line}' to the tube's name"));
            }
        }
        Ok(connection)
    }

    /// Receives what is there; nothing, if there was nothing for a while.
    async fn reserve(
        &mut self,
        connection: &mut Connection,
        max: usize,
    ) -> Result<Vec<(u64, Bytes)>, String> {
        let wait = Duration::from_secs(WAIT_SECS) + ANSWER_WITHIN;
        connection.send(&format!("reserve-with-timeout {WAIT_SECS}\r\n")).await?;
        let mut jobs: Vec<_> = within(wait, connection.job()).await?.into_iter().collect();
        if jobs.is_empty() {
            return Ok(jobs);
        }
        // Whatever is there besides, in one exchange; more where more came the last time.
        let more = (max - 1).min(2 * self.last.max(ASK_MIN));
        connection.send(&"reserve-with-timeout 0\r\n".repeat(more)).await?;
        for _ in 0..more {
            jobs.extend(within(ANSWER_WITHIN, connection.job()).await?);
        }
        self.last = jobs.len();
        Ok(jobs)
    }

    async fn delete(&self, connection: &mut Connection) -> Result<(), String> {
        let commands: String = self.jobs.iter().map(|job| format!("delete {job}\r\n")).collect();
        connection.send(&commands).await?;
        for job in &self.jobs {
            match &*within(ANSWER_WITHIN, connection.line()).await? {
                "DELETED" => {}
                // Its time was over: it comes again.
                "NOT_FOUND" => tracing::debug!(source = ?self, job, "a job was no longer ours"),
                line => return Err(format!("'{line}' to a deletion")),
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Source for Beanstalkd {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            let mut connection = self.connection().await?;
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
        // Without a connection nothing is reserved any more, and it comes again.
        let Some(mut connection) = self.connection.take() else {
            self.jobs.clear();
            return Err(self.unavailable("the connection ended before the jobs were done"));
        };
        let deleted = self.delete(&mut connection).await;
        self.jobs.clear();
        deleted.map_err(|reason| self.unavailable(reason))?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(mut connection) = self.connection.take() else { return Ok(None) };
        let ready = within(ANSWER_WITHIN, connection.ready(&self.tube)).await;
        let ready = ready.map_err(|reason| self.unavailable(reason))?;
        self.connection = Some(connection);
        Ok(ready)
    }
}

/// What comes of some work, if it does not take too long.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

impl Connection {
    async fn send(&mut self, commands: &str) -> Result<(), String> {
        let sent = self.stream.write_all(commands.as_bytes());
        within(ANSWER_WITHIN, async { sent.await.map_err(|error| error.to_string()) }).await
    }

    /// The answer to a reservation; `None` if there is no job.
    async fn job(&mut self) -> Result<Option<(u64, Bytes)>, String> {
        loop {
            if let Some(job) = take_job(&mut self.unread)? {
                return Ok(job);
            }
            self.read().await?;
        }
    }

    /// How many jobs of a tube are ready.
    async fn ready(&mut self, tube: &str) -> Result<Option<u64>, String> {
        self.send(&format!("stats-tube {tube}\r\n")).await?;
        let head = self.line().await?;
        let length: Option<usize> = head.strip_prefix("OK ").and_then(|length| length.parse().ok());
        let length = length.filter(|length| *length <= STATISTICS_BYTES_MAX);
        let length = length.ok_or_else(|| format!("'{head}' to a question for statistics"))?;
        while self.unread.len() < length + 2 {
            self.read().await?;
        }
        let said = self.unread.split_to(length + 2);
        let said = String::from_utf8_lossy(&said);
        let ready = said.lines().find_map(|line| line.strip_prefix("current-jobs-ready: "));
        Ok(ready.and_then(|count| count.trim().parse().ok()))
    }

    async fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some((line, length)) = line(&self.unread)? {
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

/// Takes the answer to a reservation out of what was read, which is a job or says that there is none; `None` until it is all
/// there.
fn take_job(unread: &mut BytesMut) -> Result<Option<Option<(u64, Bytes)>>, String> {
    let Some((line, head)) = line(unread)? else { return Ok(None) };
    if let "TIMED_OUT" | "DEADLINE_SOON" = &*line {
        unread.advance(head);
        return Ok(Some(None));
    }
    let nonsense = || format!("'{line}' to a reservation");
    let mut words = line.strip_prefix("RESERVED ").ok_or_else(nonsense)?.split(' ');
    let (id, length) = (words.next(), words.next());
    let id = id.and_then(|id| id.parse().ok()).ok_or_else(nonsense)?;
    let length: usize = length.and_then(|length| length.parse().ok()).ok_or_else(nonsense)?;
    if length > JOB_BYTES_MAX {
        return Err(format!("a job of {length} bytes"));
    }
    if unread.len() < head + length + 2 {
        return Ok(None);
    }
    unread.advance(head);
    let body = unread.split_to(length).freeze();
    unread.advance(2);
    Ok(Some(Some((id, body))))
}

/// The first line, and how many bytes it takes; `None` until it is all there.
fn line(unread: &[u8]) -> Result<Option<(String, usize)>, String> {
    let start = &unread[..unread.len().min(LINE_BYTES_MAX)];
    match start.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = String::from_utf8_lossy(start[..end].trim_ascii_end()).into_owned();
            Ok(Some((line, end + 1)))
        }
        None if start.len() == LINE_BYTES_MAX => Err("an answer without an end".to_owned()),
        None => Ok(None),
    }
}

/// What a server sends: however it comes in pieces, the jobs are the same.
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
