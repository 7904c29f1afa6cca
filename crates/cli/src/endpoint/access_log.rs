//! The endpoint's access log: a file that can be rotated, or standard error.

use crate::process::logging::{LogFile, LogFormat};
use anyhow::{Context as _, Result};
use s3::{AccessLog, AccessRecord};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// Settings of the access log.
#[derive(Debug, Clone)]
pub(crate) struct AccessLogSettings {
    /// The file; `-` is standard error.
    pub(crate) path: PathBuf,
    pub(crate) format: LogFormat,
}

/// Opens the access log. Must be called within a runtime, so that SIGHUP reopens the file.
pub(crate) fn open(settings: &AccessLogSettings) -> Result<AccessLog> {
    let AccessLogSettings { path, format } = settings.clone();
    let line = move |record: &AccessRecord| match format {
        LogFormat::Text => record.to_text() + "\n",
        LogFormat::Json => record.to_json() + "\n",
    };
    if path == Path::new("-") {
        return Ok(AccessLog::new(move |record| {
            io::stderr().write_all(line(record).as_bytes()).ok();
        }));
    }
    let path = std::path::absolute(path).context("cannot resolve the access log's path")?;
    let file = LogFile::open(&path)?;
    reopen_on_hangup(file.clone())?;
    Ok(AccessLog::new(move |record| {
        // A full disk must not stop requests.
        file.clone().write_all(line(record).as_bytes()).ok();
    }))
}

fn reopen_on_hangup(file: LogFile) -> Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if let Err(error) = file.reopen() {
                tracing::warn!("cannot reopen the access log, which continues in the old file: {error}");
            }
        }
    });
    Ok(())
}
