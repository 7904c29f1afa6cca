//! `tenon trace`: shows each operation on a mount with the store's requests that it caused, or records them in a file that
//! `tenon bench` replays.

mod recording;
mod steps;

use crate::command::output::print_line;
use crate::command::trace::recording::Recording;
use crate::command::units;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::live_messages::{TraceBatch, TraceFilter, TracedCall, TracedRequest};
use crate::control::protocol::{Answer, Request};
use crate::process::signals::StopSignals;
use crate::state::registry::{Registry, absolute};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::Duration;

/// Time for which a trace continues after its end (the command's, Ctrl-C or the duration), for operations that the kernel sends late,
/// above all RELEASE.
const LATE_OPERATIONS_TIMEOUT: Duration = Duration::from_millis(300);

/// Show each operation on a mount, with the store requests that it causes
///
/// Shows the requests of the kernel, with the time from arrival to reply, and below each the requests to the store that were made for
/// it. Requests to the store without an operation in progress, such as those of the write-back log, are shown if no condition is given.
/// Operations in batches are shown too, if the batch is mounted when the trace begins.
/// Answers of the kernel from its caches are not shown. Operations that fulfil all conditions are shown until Ctrl-C, or while COMMAND
/// runs. With --out, `tenon bench` can replay the file.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Mount point, directory in a mount, or volume
    #[arg(value_name = "DIR|VOLUME")]
    of: String,
    /// Show these operations only, such as READ,WRITE
    #[arg(long, value_name = "OPERATION,...", value_delimiter = ',')]
    operation: Vec<String>,
    /// Show operations on this file, below this directory, or on paths or names that match a pattern like '*.csv'
    #[arg(long, value_name = "PATH|PATTERN")]
    path: Option<String>,
    /// Show operations of this process only
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Show operations that take at least this long
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    slower_than: Duration,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Write a trace that `tenon bench` replays, instead of showing operations
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,
    /// Print one JSON object per operation
    #[arg(long)]
    json: bool,
    /// Run a command, and trace until it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where operations are reported.
enum Output {
    /// Lines for readers.
    Lines,
    /// JSON objects.
    Json,
    /// A file that can be replayed.
    File(Box<Recording>),
}

impl Trace {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (mount, directory) = self.find()?;
        let mut client = Client::connect(&mount)?;
        let request = Request::Trace(self.filter(mount.holder.mount_points(), directory));
        let mut output = match &self.out {
            Some(file) => Output::File(Box::new(Recording::create(file, &mount.holder.volume)?)),
            None if self.json => Output::Json,
            None => Output::Lines,
        };
        let (mut command, mut lost) = (None, 0);
        let stream = client.stream()?;
        let mut is_begun = false;
        client.observe(&request, |answer| {
            let Answer::Traced(batch) = answer else { return Ok(false) };
            if !std::mem::replace(&mut is_begun, true) {
                // The first message says that the trace has begun.
                output.begin()?;
                command = self.begin(stream.try_clone()?)?;
            }
            lost += batch.lost;
            output.add(batch)?;
            Ok(true)
        })?;
        output.finish()?;
        if lost > 0 {
            eprintln!(
                "tenon: {lost} operations or requests are missing, because they came faster than they could be reported"
            );
        }
        match command.map(thread::JoinHandle::join) {
            Some(Ok(code)) => Ok(code),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    /// Finds the mount that the argument names, or that contains the directory that the argument names. Returns it with the directory's path
    /// in the volume; `None` for a whole mount.
    fn find(&self) -> Result<(LiveMount, Option<String>)> {
        let registry = Registry::of_user();
        let unknown = match registry.find(&self.of) {
            Ok(mount) => return Ok((mount, None)),
            Err(error) => error,
        };
        let path = absolute(&self.of);
        let Ok((mount, inside)) = registry.containing(&path) else { return Err(unknown) };
        if self.path.is_some() {
            bail!("{} is in a mount: leave --path out, or name the mount", self.of);
        }
        Ok((mount, Some(String::from_utf8_lossy(&inside).into_owned())))
    }

    /// Returns the conditions, `directory` among them. A path of this machine that is in a mount point becomes the path in the volume; any other text is taken
    /// as a path in the volume, or a pattern.
    fn filter<'a>(
        &self,
        mount_points: impl Iterator<Item = &'a std::path::Path>,
        directory: Option<String>,
    ) -> TraceFilter {
        let mut mount_points = mount_points;
        let path = self.path.as_ref().map(|path| {
            let full = absolute(path);
            let inside = mount_points.find_map(|mount_point| full.strip_prefix(mount_point).ok());
            inside.map_or_else(|| path.trim_matches('/').to_owned(), |path| path.display().to_string())
        });
        let path = path.or(directory);
        let has_conditions =
            path.is_some() || self.pid.is_some() || !self.operation.is_empty() || !self.slower_than.is_zero();
        TraceFilter {
            operations: self.operation.clone(),
            path,
            pid: self.pid,
            slower_than_us: u64::try_from(self.slower_than.as_micros()).unwrap_or(u64::MAX),
            background: !has_conditions && self.out.is_none(),
        }
    }

    /// Starts the command, if there is one, and what ends the trace: the end of the command, Ctrl-C, or the duration. Returns a thread
    /// that ends with the exit code of the command; `None` without a command.
    fn begin(&self, stream: UnixStream) -> Result<Option<thread::JoinHandle<ExitCode>>> {
        let end = move |stream: &UnixStream| {
            thread::sleep(LATE_OPERATIONS_TIMEOUT);
            // The reader finds the end of the stream.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        };
        let (signaled, limited) =
            (stream.try_clone()?, self.duration.map(|limit| (limit, stream.try_clone())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut signals = runtime.block_on(async { StopSignals::new() })?;
        thread::spawn(move || {
            runtime.block_on(signals.wait());
            end(&signaled);
        });
        if let Some((limit, Ok(stream))) = limited {
            thread::spawn(move || {
                thread::sleep(limit);
                end(&stream);
            });
        }
        let Some((program, arguments)) = self.command.split_first() else { return Ok(None) };
        let mut child =
            Command::new(program).args(arguments).spawn().with_context(|| format!("cannot run {program}"))?;
        Ok(Some(thread::spawn(move || {
            let code = wait_for(&mut child);
            end(&stream);
            code
        })))
    }
}

/// Waits for a process. Returns its exit code; 1 if a signal ended it.
fn wait_for(child: &mut Child) -> ExitCode {
    let code = child.wait().ok().and_then(|status| status.code());
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

impl Output {
    fn begin(&self) -> Result<()> {
        match self {
            Self::Lines => print_line(HEADER),
            Self::Json | Self::File(_) => Ok(()),
        }
    }

    fn add(&mut self, batch: TraceBatch) -> Result<()> {
        match self {
            Self::Lines => {
                batch.operations.iter().try_for_each(|call| print_line(&describe(call)))?;
                batch.background.iter().try_for_each(|request| print_line(&describe_background(request)))
            }
            Self::Json => {
                for call in &batch.operations {
                    print_line(&serde_json::to_string(call)?)?;
                }
                for request in &batch.background {
                    print_line(&serde_json::json!({ "background": request }).to_string())?;
                }
                Ok(())
            }
            Self::File(recording) => batch.operations.into_iter().try_for_each(|call| recording.add(call)),
        }
    }

    /// Ends the output. Prints where a recorded trace is.
    fn finish(self) -> Result<()> {
        match self {
            Self::Lines | Self::Json => Ok(()),
            Self::File(recording) => {
                let summary = recording.finish()?;
                eprintln!("{summary}");
                Ok(())
            }
        }
    }
}

const HEADER: &str = "      time s    took ms  operation        process                result      path";

/// Formats an operation, with a line for each of its requests.
fn describe(call: &TracedCall) -> String {
    let process = format!("{} {}", call.process.pid, call.process.program);
    let result = call.error.as_deref().unwrap_or("ok");
    let path = if call.path.is_empty() { "." } else { &call.path };
    let mut text = format!(
        "{:>12.6} {:>10.3}  {:<15}  {process:<21}  {result:<10}  {path}",
        call.at_us as f64 / 1e6,
        call.took_us as f64 / 1e3,
        call.operation,
    );
    // Writing to a string cannot fail.
    let _ = match (call.offset, call.bytes) {
        (Some(offset), Some(bytes)) => write!(text, " {offset}+{bytes}"),
        (None, Some(bytes)) => write!(text, " to {bytes} bytes"),
        _ => Ok(()),
    };
    if let Some(to) = &call.to {
        let _ = write!(text, " -> {to}");
    }
    for request in &call.requests {
        let _ = write!(text, "\n{}", describe_request(request, ""));
    }
    text
}

/// Formats a request that was not made for an operation in progress.
fn describe_background(request: &TracedRequest) -> String {
    let cause = match request.operation {
        0 => "(background)",
        _ => "(after reply)",
    };
    describe_request(request, cause)
}

fn describe_request(request: &TracedRequest, cause: &str) -> String {
    let kind = format!("  {}", request.kind);
    let mut text = format!(
        "{:>12.6} {:>10.3}  {kind:<15}  {cause:<21}  {:<10}  {}",
        request.at_us as f64 / 1e6,
        request.took_us as f64 / 1e3,
        request.outcome,
        request.key
    );
    if request.sent_bytes > 0 {
        let _ = write!(text, " {} bytes", request.sent_bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::live_messages::TracedProcess;

    #[test]
    fn operations_are_lines_with_their_requests_below() {
        let request = TracedRequest {
            operation: 1,
            at_us: 1_000_500,
            took_us: 2_500,
            kind: "GET".into(),
            key: "dir/file".to_owned(),
            sent_bytes: 0,
            outcome: "ok".into(),
        };
        let call = TracedCall {
            id: 1,
            at_us: 1_000_000,
            took_us: 3_500,
            operation: "READ".into(),
            path: "dir/file".to_owned(),
            to: None,
            offset: Some(4096),
            bytes: Some(100),
            process: TracedProcess { pid: 7, thread: 8, program: "cat".to_owned() },
            error: None,
            requests: vec![request],
        };
        let lines: Vec<Vec<String>> = describe(&call)
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        assert_eq!(lines[0], ["1.000000", "3.500", "READ", "7", "cat", "ok", "dir/file", "4096+100"]);
        assert_eq!(lines[1], ["1.000500", "2.500", "GET", "ok", "dir/file"]);
        let columns = |line: &str| line.find("dir/file");
        let text = describe(&call);
        assert_eq!(columns(text.lines().next().unwrap()), HEADER.find("path"));
        assert_eq!(columns(text.lines().nth(1).unwrap()), HEADER.find("path"));
    }
}
