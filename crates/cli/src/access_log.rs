//! Where the endpoint's access log goes: a file that can be rotated, or standard error.

use crate::flags::{EndpointFlags, LogFormat};
use crate::logging::LogFile;
use anyhow::{Context as _, Result};
use s3::{AccessLog, AccessRecord};
use std::io::{self, Write as _};
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Opens the access log, if there is to be one. To be called in a runtime, in which SIGHUP opens the file anew.
pub(crate) fn of(flags: &EndpointFlags) -> Result<Option<AccessLog>> {
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
    reopen_at_hangup(file.clone())?;
    Ok(Some(AccessLog::new(move |record| {
        // A full disk must not stop requests.
        file.clone().write_all(line(record).as_bytes()).ok();
    })))
}

fn reopen_at_hangup(file: LogFile) -> Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if let Err(error) = file.reopen() {
                tracing::warn!("the access log goes on in the old file: {error}");
            }
        }
    });
    Ok(())
}
