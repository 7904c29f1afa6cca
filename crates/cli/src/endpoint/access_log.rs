//! The endpoint's access log: a file that can be rotated, or standard error.

use crate::command::flags::{EndpointFlags, LogFormat};
use crate::process::logging::LogFile;
use anyhow::{Context as _, Result};
use s3::{AccessLog, AccessRecord};
use std::io::{self, Write as _};
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Opens the access log, if the flags name one. Must be called within a runtime, so that SIGHUP reopens the file.
pub(crate) fn open(flags: &EndpointFlags) -> Result<Option<AccessLog>> {
    let Some(path) = &flags.access_log else { return Ok(None) };
    let format = flags.access_log_format;
    let line = move |record: &AccessRecord| match format {
        LogFormat::Text => record.to_text() + "\n",
        LogFormat::Json => record.to_json() + "\n",
    };
    if path == Path::new("-") {
        return Ok(Some(AccessLog::new(move |record| {
            io::stderr().write_all(line(record).as_bytes()).ok();
        })));
    }
    let path = std::path::absolute(path).context("cannot resolve the access log's path")?;
    let file = LogFile::open(&path)?;
    reopen_on_hangup(file.clone())?;
    Ok(Some(AccessLog::new(move |record| {
        // A full disk must not stop requests.
        file.clone().write_all(line(record).as_bytes()).ok();
    })))
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
