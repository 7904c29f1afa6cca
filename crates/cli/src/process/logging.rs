//! Logging: one subscriber, which writes to standard error or to a file that can be rotated.

use crate::process::files;
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// A log file. Clones are cheap and write to the same file.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl LogFile {
    /// Opens the file for appending.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = files::open_to_append(path).with_context(|| {
            format!("cannot write the log {}; choose another with --log-file", path.display())
        })?;
        Ok(Self { path: path.to_owned(), file: Arc::new(Mutex::new(file)) })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the path again, after a rotation moved the file away.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let file = files::open_to_append(&self.path)?;
        *self.lock() = file;
        Ok(())
    }

    /// Redirects this process's standard error to the file, for output that no subscriber handles, like a panic's
    /// message.
    pub(crate) fn redirect_stderr(&self) -> io::Result<()> {
        Ok(rustix::stdio::dup2_stderr(&*self.lock())?)
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to `file`, or to standard error if there is none.
pub(crate) fn start(level: &str, format: LogFormat, file: Option<LogFile>) -> Result<()> {
    let filter = EnvFilter::try_new(filter(level))
        .map_err(|_| anyhow!("'{level}' is not a log level; use error, warn, info, debug or trace"))?;
    // Internal errors are reported on standard error, which may be the log that failed: a second failure would end
    // the process.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).log_internal_errors(false);
    let started = match (file, format) {
        (Some(file), LogFormat::Text) => builder.with_writer(file).try_init(),
        (Some(file), LogFormat::Json) => builder.json().with_writer(file).try_init(),
        (None, LogFormat::Text) => builder.with_writer(io::stderr).try_init(),
        (None, LogFormat::Json) => builder.json().with_writer(io::stderr).try_init(),
    };
    started.map_err(|error| anyhow!("cannot start logging: {error}"))
}

/// Reopens a log file, if there is one, at each SIGHUP: logrotate has moved the file away. Without this, SIGHUP ends the process. Must
/// be called inside the runtime.
pub(crate) fn reopen_on_hangup(file: Option<LogFile>) -> Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot watch signals")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let Some(file) = &file else { continue };
            if let Err(error) = file.reopen() {
                let path = file.path().display();
                tracing::warn!("cannot reopen the log {path}, which continues in the old file: {error}");
            }
        }
    });
    Ok(())
}

/// Returns a filter that silences the S3 protocol layer, unless it is named: the layer logs a line at ERROR for each
/// refused request, the text of malformed bodies, and computed signatures.
fn filter(level: &str) -> String {
    if level.contains("s3s") { level.to_owned() } else { format!("{level},s3s=off") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_rotated_log_continues_at_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"before\n").unwrap();
        fs::rename(&path, dir.path().join("log.1")).unwrap();
        log.reopen().unwrap();
        log.write_all(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after\n");
        assert_eq!(fs::read_to_string(dir.path().join("log.1")).unwrap(), "before\n");
    }
}
