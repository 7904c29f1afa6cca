//! The client of the control socket.

use super::holder::LiveMount;
use super::protocol::{Answer, Pending, Request, Status};
use super::socket;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection to the daemon of one mount.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    pid: u32,
}

impl Client {
    /// Connects to the daemon of `mount`.
    pub(crate) fn connect(mount: &LiveMount) -> Result<Self> {
        let pid = mount.holder.pid;
        let stream = socket::connect(&mount.state).with_context(|| {
            format!("cannot reach process {pid}, which mounts {}", mount.holder.mount_point.display())
        })?;
        Ok(Self { stream: BufReader::new(stream), pid })
    }

    /// Sets a timeout for each answer from now on.
    pub(crate) fn with_timeout(self, patience: Duration) -> Result<Self> {
        self.stream.get_ref().set_read_timeout(Some(patience)).context("cannot set a timeout")?;
        Ok(self)
    }

    /// Requests the status of the mount.
    pub(crate) fn status(&mut self) -> Result<Status> {
        match self.ask(&Request::Status, |_| {})? {
            Answer::Status(status) => Ok(*status),
            other => self.unexpected(&other),
        }
    }

    /// Sends a request and waits for its answer. Progress messages before the answer are passed to `progress`. The
    /// answer `Failed` becomes an error.
    pub(crate) fn ask(&mut self, request: &Request, mut progress: impl FnMut(Pending)) -> Result<Answer> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).with_context(|| self.lost_message())?;
        loop {
            match self.receive()? {
                Answer::Progress(pending) => progress(pending),
                Answer::Failed { reason } => bail!("{reason}"),
                answer => return Ok(answer),
            }
        }
    }

    /// Like `ask`, for requests with progress messages of their own. Returns the first answer for which `progress`
    /// returns false.
    pub(crate) fn request_with_progress(
        &mut self,
        request: &Request,
        mut progress: impl FnMut(&Answer) -> bool,
    ) -> Result<Answer> {
        let mut answer = self.ask(request, |_| {})?;
        while progress(&answer) {
            answer = self.receive()?;
        }
        match answer {
            Answer::Failed { reason } => bail!("{reason}"),
            answer => Ok(answer),
        }
    }

    /// Waits until the daemon closes the connection, at its end. It still has its state directory then.
    pub(crate) fn wait_for_close(mut self) {
        let _ = self.stream.read_to_end(&mut Vec::new());
    }

    /// Returns the error for an answer that does not fit the request.
    pub(crate) fn unexpected<T>(&self, answer: &Answer) -> Result<T> {
        bail!(
            "process {} gave an answer that does not fit: {answer:?}; is it another version of Tenon?",
            self.pid
        )
    }

    fn receive(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).with_context(|| self.lost_message())?;
        if read == 0 {
            return Err(
                anyhow!(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)).context(self.lost_message())
            );
        }
        serde_json::from_str(&line).with_context(|| {
            format!(
                "process {} gave an answer that cannot be understood; is it another version of Tenon?",
                self.pid
            )
        })
    }

    fn lost_message(&self) -> String {
        format!("process {} ended before it answered; its log may say why", self.pid)
    }
}
