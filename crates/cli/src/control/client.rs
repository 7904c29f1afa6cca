//! The client of the control socket.

use super::holder::LiveMount;
use super::protocol::{Answer, Pending, Request, Status};
use super::socket;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time after which [`Client::wait_for_close`] says what it may be waiting for.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// A connection to the process that mounts or serves one volume.
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
            let at = mount.holder.mount_point.display();
            format!("cannot reach process {pid}, which mounts or serves a volume at {at}")
        })?;
        Ok(Self { stream: BufReader::new(stream), pid })
    }

    /// Sets a timeout for each answer from now on. An answer that does not come in time is an error.
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

    /// Sends a request that has progress messages of its own. Returns the first answer for which `progress` returns
    /// false.
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

    /// Returns another handle of the connection. Its shutdown ends [`Client::observe`].
    pub(crate) fn stream(&self) -> Result<UnixStream> {
        self.stream.get_ref().try_clone().context("cannot use the connection")
    }

    /// Sends a request that has answers for a while. Passes them to `on_answer` until this returns false or the connection ends.
    pub(crate) fn observe(
        &mut self,
        request: &Request,
        mut on_answer: impl FnMut(Answer) -> Result<bool>,
    ) -> Result<()> {
        let mut answer = self.ask(request, |_| {})?;
        while on_answer(answer)? {
            let mut line = String::new();
            if self.stream.read_line(&mut line).with_context(|| self.lost_message())? == 0
                || !line.ends_with('\n')
            {
                return Ok(());
            }
            answer = self.parse(&line)?;
        }
        Ok(())
    }

    /// Waits until the daemon closes the connection, at its end. The daemon still has its state directory locked then. Calls `while_waiting` with what
    /// the wait may be for, if it takes long.
    pub(crate) fn wait_for_close(mut self, while_waiting: impl Fn(&str)) {
        let _ = self.stream.get_ref().set_read_timeout(Some(LONG_WAIT));
        while let Err(error) = self.stream.read_to_end(&mut Vec::new()) {
            if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                return;
            }
            while_waiting(&format!(
                "waiting for process {} to end: programs still use the mount, or another mount namespace (a container's) has a copy of it",
                self.pid
            ));
        }
    }

    /// Returns the error for an answer that does not fit the request.
    pub(crate) fn unexpected<T>(&self, answer: &Answer) -> Result<T> {
        bail!(
            "process {} gave an answer that does not fit: {answer:?}; is it another version of Tenon?",
            self.pid
        )
    }

    /// Waits for the next message. The end of the connection is an error.
    fn receive(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).with_context(|| self.lost_message())?;
        if read == 0 {
            return Err(anyhow!(std::io::Error::from(ErrorKind::UnexpectedEof)).context(self.lost_message()));
        }
        self.parse(&line)
    }

    fn parse(&self, line: &str) -> Result<Answer> {
        serde_json::from_str(line).with_context(|| {
            format!(
                "process {} gave an answer that cannot be understood; is it another version of Tenon?",
                self.pid
            )
        })
    }

    /// Returns the context of an error of the connection.
    fn lost_message(&self) -> String {
        format!("process {} ended before it answered, or takes too long; its log may say why", self.pid)
    }
}
