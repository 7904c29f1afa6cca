//! The check of a server's settings: metadata must not be evicted, and must survive a restart.

use crate::connection::Connection;
use crate::failure::{failure, is_command_missing};
use crate::values::Values;
use meta_remote::OpenError;
use redis::Value;
use std::collections::HashMap;

/// The first major version of Redis that has all that the scripts use.
const VERSION_MIN: u32 = 7;

/// Fails if the server cannot keep metadata, and warns if it may lose acknowledged changes.
///
/// Refused are versions before 7, clusters, eviction, and a server without an append-only file. `appendfsync` may be other than
/// `always`, with a warning: the server then loses the changes of about the last second, or of the time that the kernel keeps written pages.
pub(crate) async fn check(connection: &Connection, host: &str) -> Result<(), OpenError> {
    let mut info = redis::cmd("INFO");
    info.arg("everything");
    let found = connection.send(info).await.map_err(|failure| failure.into_engine_error())?;
    let unsuitable = |reason: String| Err(OpenError::Unsuitable { host: host.to_owned(), reason });
    let Some(info) = parse(found) else {
        return unsuitable("it does not describe itself (INFO)".into());
    };
    let value = |name: &str| info.get(name).map(String::as_str).unwrap_or_default();
    let version = value("redis_version");
    if version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0) < VERSION_MIN {
        return unsuitable(format!("it is version {version}, but version {VERSION_MIN} is needed"));
    }
    if value("redis_mode") == "cluster" || value("cluster_enabled") == "1" {
        return unsuitable("Redis Cluster is not supported: use a server without cluster mode".into());
    }
    if !matches!(value("maxmemory_policy"), "" | "noeviction") {
        return unsuitable(format!(
            "maxmemory-policy is {}, with which it removes records when its memory is full: set it to noeviction",
            value("maxmemory_policy")
        ));
    }
    if value("aof_enabled") == "0" {
        return unsuitable(
            "appendonly is no, so a restart loses all files: set appendonly yes and appendfsync always"
                .into(),
        );
    }
    warn_of_losses(connection, host).await
}

/// Warns if a crash of the server may lose acknowledged changes, or if the server does not report its settings.
async fn warn_of_losses(connection: &Connection, host: &str) -> Result<(), OpenError> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("appendfsync");
    let answer = match connection.ask(config).await {
        Ok(answer) => answer,
        Err(error) if is_command_missing(&error) => Value::Nil,
        Err(error) => return Err(OpenError::Engine(failure(error).into_engine_error())),
    };
    let setting = Values::of(answer).and_then(|mut values| {
        values.bytes()?;
        values.bytes()
    });
    match setting.as_deref() {
        Ok(b"always") => {}
        Ok(other) => tracing::warn!(
            "Redis at {host} has appendfsync {}: if the server crashes, changes of files and names that it acknowledged are lost; with appendfsync always none are",
            String::from_utf8_lossy(other)
        ),
        Err(_) => tracing::warn!(
            "Redis at {host} does not report its appendfsync: unless it is always, changes of files and names that the server acknowledged are lost if it crashes"
        ),
    }
    Ok(())
}

/// Returns the values of a server's description by their names; `None` if the answer is not text.
fn parse(info: Value) -> Option<HashMap<String, String>> {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let pair =
        |line: &str| line.trim_end().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(text.lines().filter_map(pair).collect())
}
