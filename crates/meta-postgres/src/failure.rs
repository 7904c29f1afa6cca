//! Errors of statements, by what the engine can do after them.

use meta::EngineError;
use meta_remote::{Failure, one_line};
use tokio_postgres::error::SqlState;

/// Returns the failure of a statement.
pub(crate) fn failure(error: tokio_postgres::Error) -> Failure {
    let Some(answer) = error.as_db_error() else {
        return match is_unencodable(&error) {
            true => Failure::Refused(EngineError::Unavailable(describe(&error))),
            false => Failure::Lost(describe(&error)),
        };
    };
    let reason = format!("the database answered: {}", one_line(answer.message()));
    let state = answer.code();
    match state.code().get(..2).unwrap_or_default() {
        _ if *state == SqlState::CHECK_VIOLATION || *state == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => {
            Failure::Merge(
                "a link count or the usage of a quota would leave its range, or a record has no such number"
                    .into(),
            )
        }
        // Serialization failures and deadlocks.
        "40" => Failure::Aborted(reason),
        // The server shuts down, starts or has cancelled the statement; exceptions of the connection.
        "57" | "08" => Failure::Lost(reason),
        _ if *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Failure::Lost(reason),
        _ if *state == SqlState::DISK_FULL => Failure::Refused(EngineError::Full(reason)),
        _ => Failure::Refused(EngineError::Unavailable(reason)),
    }
}

/// Returns whether the client library could not encode a statement's parameters. Nothing of the statement was sent, and another connection
/// fails likewise. The library's kinds of errors are private, so the text decides.
fn is_unencodable(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    ["error serializing parameter", "error encoding message"].iter().any(|kind| text.starts_with(kind))
        || text.starts_with("expected ") && text.contains(" parameters but got ")
}

/// Returns the text of an error with its cause, as one line.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(_) => one_line(&format!("{error}: {}", connect::innermost(error))),
        None => one_line(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::connection::Endpoint;

    /// Regression: such an error counted as a lost connection, so the statement was repeated on new connections for the whole budget, and the
    /// outcome of its commit counted as unknown.
    #[test]
    fn a_statement_that_cannot_be_encoded_is_refused_and_the_connection_stays() {
        let server = servers::postgres();
        let address = Address::parse(&server.url()).unwrap();
        let endpoint = Endpoint::new(&address, Some(server.password()), "public".into()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = endpoint.connect_bare().await.unwrap();
            let failed = client.query("SELECT $1::int8", &[&"text"]).await.unwrap_err();
            let found = failure(failed);
            assert!(matches!(found, Failure::Refused(EngineError::Unavailable(_))), "{found:?}");
            client.batch_execute("SELECT 1").await.unwrap();
            let ended = client.query("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await.unwrap_err();
            assert!(matches!(failure(ended), Failure::Lost(_)));
            let closed = client.query("SELECT 1", &[]).await.unwrap_err();
            assert!(matches!(failure(closed), Failure::Lost(_)));
        });
    }
}
