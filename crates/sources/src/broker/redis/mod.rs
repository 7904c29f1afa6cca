//! Redis: sources for lists, streams and channels.

mod channel;
mod list;
mod stream;

use super::broker_url::{BrokerAccess, BrokerUrl, UrlForm};
use super::connection::{TIMEOUT, connect, with_timeout};
use events::{Source, SourceError};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, Value,
};
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinHandle;
use url::Url;

const FORM: UrlForm = UrlForm {
    scheme: "redis",
    tls_scheme: Some("rediss"),
    port: 6379,
    parameters: &["stream", "group", "list", "channel"],
    example: "redis://HOST:PORT/0?stream=KEY&group=NAME, ?list=KEY, or ?channel=NAME",
};

/// Time for which Redis holds a blocking request if there is no message: well below [`TIMEOUT`].
const BLOCK_TIME: Duration = Duration::from_secs(2);

/// Time after which a source that was silent, or has not acknowledged a message, counts as dead, so that others take over its
/// messages. Several times [`BLOCK_TIME`], so that no living source is taken for dead.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// Interval at which a source looks for messages of dead sources.
const TAKEOVER_INTERVAL: Duration = Duration::from_secs(5);

/// Opens the source of a `redis:` URL. Nothing is sent to the server yet.
///
/// # Errors
/// If the URL does not describe a source.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let url = BrokerUrl::parse(url, access, &FORM)?;
    let database = if url.path.is_empty() { "0" } else { &url.path };
    let database = database.parse().map_err(|_| FORM.refuse("its path must be the number of a database"))?;
    let server = Server { url, database };
    let given = ["stream", "list", "channel"].map(|name| server.url.parameter(name));
    match given {
        [Some(key), None, None] => {
            let group = server.url.required("group", &FORM)?;
            Ok(Box::new(stream::StreamSource::new(key.to_owned(), group.to_owned(), server)))
        }
        [None, Some(key), None] => Ok(Box::new(list::ListSource::new(key.to_owned(), server))),
        [None, None, Some(name)] => Ok(Box::new(channel::ChannelSource::new(name.to_owned(), server))),
        _ => Err(FORM.refuse("it must have exactly one of 'stream', 'list' and 'channel'")),
    }
}

/// A Redis server and the number of a database.
#[derive(Debug)]
struct Server {
    url: BrokerUrl,
    database: i64,
}

/// A connection, which is closed when this is dropped.
struct Link {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
    /// A blocking request that is in flight, possibly one whose caller no longer waits.
    open: Option<Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>>,
}

impl Link {
    /// Returns the answer to a blocking request. If an earlier one is still in flight, because its caller was dropped, returns the answer to
    /// that one instead. Requests sent meanwhile are answered after it.
    async fn blocking_request(&mut self, request: impl FnOnce() -> Pipeline) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let open = self.open.get_or_insert_with(|| {
            let request = request();
            Box::pin(async move { request.query_async(&mut connection).await })
        });
        let answer = open.await;
        self.open = None;
        answer
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl Server {
    async fn connect(&self, config: AsyncConnectionConfig) -> Result<Link, SourceError> {
        let stream = connect(&self.url).await?;
        let config = config.set_response_timeout(Some(TIMEOUT));
        let login = self.login();
        let greeted = with_timeout(&self.url, MultiplexedConnection::new_with_config(&login, stream, config));
        let (connection, driver) = greeted.await?.map_err(|error| self.error(&error))?;
        Ok(Link { connection, driver: tokio::spawn(driver), open: None })
    }

    fn login(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(login) = &self.url.login {
            let user = if login.user.is_empty() { "default" } else { &login.user };
            info = info.set_username(user).set_password(&login.password);
        }
        info
    }

    /// Converts an error. Those that somebody must fix become [`SourceError::Refused`].
    fn error(&self, error: &RedisError) -> SourceError {
        let code = error.code().unwrap_or_default();
        let detail = error.detail().unwrap_or_default();
        let is_login = matches!(error.kind(), redis::ErrorKind::AuthenticationFailed);
        if is_login || matches!(code, "WRONGPASS" | "NOAUTH") {
            return self.url.refused("Redis rejected the user or the password: correct them");
        }
        match code {
            "NOPERM" => self.url.refused(format_args!("this user lacks a permission: {detail}")),
            "WRONGTYPE" => self.url.refused("the key has another type than the URL states: name another key"),
            _ => self.url.unavailable(error),
        }
    }
}

/// Returns the elements of an array or a set; none for any other value.
fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) | Value::Set(elements) => elements,
        _ => Vec::new(),
    }
}

/// Returns the bytes of a string; `None` for any other value.
fn string_bytes(value: Value) -> Option<bytes::Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into_bytes().into()),
        _ => None,
    }
}
