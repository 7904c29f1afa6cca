//! The asking side of the control socket.

use super::protocol::{Answer, Pending, Request, Status};
use super::socket;
use crate::registry::Mount;
use crate::state;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A connection to one mount's daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    pid: u32,
    state: PathBuf,
}

impl Client {
    /// Reaches the daemon of `mount`.
    pub(crate) fn connect(mount: &Mount) -> Result<Self> {
        let pid = mount.holder.pid;
        let stream = socket::connect(&mount.state).with_context(|| {
            format!("cannot reach process {pid}, which mounts {}", mount.holder.mount_point.display())
        })?;
        Ok(Self { stream: BufReader::new(stream), pid, state: mount.state.clone() })
    }

    /// Waits for no answer longer than this from now on.
    pub(crate) fn answers_within(self, patience: Duration) -> Result<Self> {
        self.stream.get_ref().set_read_timeout(Some(patience)).context("cannot set a timeout")?;
        Ok(self)
    }

    /// How the mount is.
    pub(crate) fn status(&mut self) -> Result<Status> {
        match self.ask(&Request::Status, |_| {})? {
            Answer::Status(status) => Ok(*status),
            other => self.unexpected(&other),
        }
    }

    /// Sends a request and waits for its answer; what comes before it goes to `progress`.
    pub(crate) fn ask(&mut self, request: &Request, mut progress: impl FnMut(Pending)) -> Result<Answer> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).with_context(|| self.lost())?;
        loop {
            match self.receive()? {
                Answer::Progress(pending) => progress(pending),
                Answer::Failed { reason } => bail!("{reason}"),
                answer => return Ok(answer),
            }
        }
    }

    /// Like `ask`, for requests with progress of their own, which goes to `progress`. Returns the first answer that is none.
    pub(crate) fn ask_long(
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

    /// Returns when the daemon has ended and its state directory is at rest.
    pub(crate) fn wait_for_end(mut self) -> Result<()> {
        let _ = self.stream.read_to_end(&mut Vec::new());
        // The connection goes before the process does, and with it what it has open.
        state::wait_until_free(&self.state)
    }

    /// An answer that does not fit the request.
    pub(crate) fn unexpected<T>(&self, answer: &Answer) -> Result<T> {
        bail!("process {} gave an answer that does not fit: {answer:?}; is it an older Tenon?", self.pid)
    }

    fn receive(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).with_context(|| self.lost())?;
        if read == 0 {
            return Err(anyhow!(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)).context(self.lost()));
        }
        serde_json::from_str(&line).with_context(|| {
            format!("process {} gave an answer that is not understood; is it an older Tenon?", self.pid)
        })
    }

    fn lost(&self) -> String {
        format!("process {} ended before it answered; its log says why", self.pid)
    }
}
