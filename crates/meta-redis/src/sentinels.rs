//! Sentinels, which know the primary server.

use crate::address::Host;
use crate::connection::refusal;
use crate::stream;
use crate::values::Values;
use meta_remote::one_line;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, Value};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use std::time::Duration;

/// Time within which a Sentinel must answer, before the next one is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Asks one Sentinel after another for the primary server, and returns the first answer. `info` has their user and password. Fails with the
/// reason of the last one.
pub(crate) async fn find_primary(
    sentinels: &[Host],
    primary: &str,
    info: &RedisConnectionInfo,
    tls: Option<&TlsConnector>,
) -> Result<Host, String> {
    let mut reason = String::new();
    for sentinel in sentinels {
        let asked = timeout(ANSWER_TIMEOUT, ask(sentinel, primary, info, tls)).await;
        match asked.unwrap_or_else(|_| Err("no answer in time".into())) {
            Ok(found) => return Ok(found),
            Err(error) => {
                reason =
                    format!("the Sentinel at {sentinel} does not name the server of '{primary}': {error}")
            }
        }
    }
    Err(one_line(&reason))
}

/// Asks one Sentinel for the primary server.
async fn ask(
    sentinel: &Host,
    primary: &str,
    info: &RedisConnectionInfo,
    tls: Option<&TlsConnector>,
) -> Result<Host, String> {
    let stream = stream::open(sentinel, tls).await.map_err(|error| error.to_string())?;
    let begun = MultiplexedConnection::new_with_config(info, stream, AsyncConnectionConfig::new()).await;
    let (mut redis, driver) = begun.map_err(|error| refusal(&error))?;
    tokio::spawn(driver);
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(primary);
    let answer: Value = command.query_async(&mut redis).await.map_err(|error| refused_command(&error))?;
    let unknown = || "it does not know this name".to_owned();
    let mut values = Values::of(answer).map_err(|_| unknown())?;
    let name = values.bytes().ok().and_then(|name| String::from_utf8(name).ok()).ok_or_else(unknown)?;
    let port = values.int().ok().and_then(|port| u16::try_from(port).ok()).ok_or_else(unknown)?;
    Ok(Host { name, port })
}

/// Returns the reason for which a Sentinel refuses a command.
fn refused_command(error: &RedisError) -> String {
    match error.code() {
        Some("NOAUTH") => {
            "it wants a password: put it into the file that TENON_REDIS_SENTINEL_PASSWORD_FILE names".into()
        }
        _ => refusal(error),
    }
}
