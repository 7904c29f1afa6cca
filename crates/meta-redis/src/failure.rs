//! Errors of commands, by what the engine can do after them.

use meta::EngineError;
use meta_remote::{Failure, one_line};
use redis::{RedisError, ServerErrorKind};

/// Returns the failure of a command.
pub(crate) fn failure(error: RedisError) -> Failure {
    let Some(code) = error.code() else {
        return Failure::Lost(one_line(&error.to_string()));
    };
    let reason = format!(
        "the database answered: {}",
        one_line(&format!("{code} {}", error.detail().unwrap_or_default()))
    );
    match code {
        // The server starts, is a replica by now, or does not know the scripts: another connection may find it as it should be.
        "LOADING" | "READONLY" | "MASTERDOWN" | "NOSCRIPT" => Failure::Lost(reason),
        // A script of another client runs, or replicas are missing.
        "BUSY" | "TRYAGAIN" | "NOREPLICAS" => Failure::Aborted(reason),
        "OOM" => Failure::Refused(EngineError::Full(
            "the memory of Redis is full (maxmemory): free memory or raise the limit".into(),
        )),
        // The server refuses changes because it cannot write its files.
        "MISCONF" => Failure::Refused(EngineError::Full(reason)),
        _ => Failure::Refused(EngineError::Unavailable(reason)),
    }
}

/// Returns whether the server refuses a command because of the user's rights, or does not know it.
pub(crate) fn is_command_missing(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError))
}

/// Returns the failure of an answer that the scripts do not give.
pub(crate) fn unexpected() -> Failure {
    Failure::Refused(EngineError::Corrupt("an unexpected answer of the database".into()))
}
