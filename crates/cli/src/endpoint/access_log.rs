//! The record of an endpoint's finished requests: the access log, which is a file that can be rotated or standard error, and the meter.

use crate::endpoint::meter::EndpointMeter;
use crate::process::logging::{self, LogFile, LogFormat};
use anyhow::{Context as _, Result};
use s3::{AccessLog, AccessRecord};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the access log.
#[derive(Debug, Clone)]
pub(crate) struct AccessLogSettings {
    /// The file; `-` is standard error.
    pub(crate) path: PathBuf,
    pub(crate) format: LogFormat,
}

/// Returns a record of finished requests in the log of the settings, the meter, or both; `None` if there is neither. Must be called
/// within a runtime, so that SIGHUP reopens the file.
pub(crate) fn open(
    settings: Option<&AccessLogSettings>,
    meter: Option<&Arc<EndpointMeter>>,
) -> Result<Option<AccessLog>> {
    let log = settings.map(open_log).transpose()?;
    let meter = meter.map(Arc::clone);
    if log.is_none() && meter.is_none() {
        return Ok(None);
    }
    Ok(Some(AccessLog::new(move |record| {
        if let Some(meter) = &meter {
            meter.record(record);
        }
        if let Some(write) = &log {
            write(record);
        }
    })))
}

/// A function that writes one record.
type WriteRecord = Box<dyn Fn(&AccessRecord) + Send + Sync>;

fn open_log(settings: &AccessLogSettings) -> Result<WriteRecord> {
    let AccessLogSettings { path, format } = settings.clone();
    let line = move |record: &AccessRecord| match format {
        LogFormat::Text => record.to_text() + "\n",
        LogFormat::Json => record.to_json() + "\n",
    };
    if path == Path::new("-") {
        return Ok(Box::new(move |record| {
            io::stderr().write_all(line(record).as_bytes()).ok();
        }));
    }
    let path = std::path::absolute(path).context("cannot resolve the access log's path")?;
    let file = LogFile::open(&path)?;
    logging::reopen_on_hangup(Some(file.clone()))?;
    Ok(Box::new(move |record| {
        // A full disk must not stop requests.
        file.clone().write_all(line(record).as_bytes()).ok();
    }))
}
