//! Redis: lists, streams, and channels.

mod channel;
mod list;
mod stream;

use super::broker_url::{BrokerAccess, Form, Place};
use super::connection::{PATIENCE, connect, within};
use crate::source::{Source, SourceError};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, Value,
};
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinHandle;
use url::Url;

const FORM: Form = Form {
    scheme: "redis",
    tls_scheme: Some("rediss"),
    port: 6379,
    parameters: &["stream", "group", "list", "channel"],
    example: "redis://HOST:PORT/0?stream=KEY&group=NAME, ?list=KEY, or ?channel=NAME",
};

/// How long Redis keeps a question open while there is nothing: well below [`PATIENCE`].
const WAIT: Duration = Duration::from_secs(2);

/// A source that has not been heard of for so long, or has not acknowledged a message, is dead, and others take over what it has.
/// [`WAIT`] several times, so that nobody is by mistake.
const DEAD: Duration = Duration::from_secs(20);

/// How often a source looks whether others died and left messages.
const LOOK_FOR_LEFT: Duration = Duration::from_secs(5);

/// The source of a `redis:` URL. Nothing is asked of the server yet.
///
/// # Errors
/// If the URL says no source.
pub(super) fn open(url: &Url, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let place = Place::read(url, access, &FORM)?;
    let database = if place.path.is_empty() { "0" } else { &place.path };
    let database = database.parse().map_err(|_| FORM.refuse("its path is not a database's number"))?;
    let server = Server { place, database };
    let given = ["stream", "list", "channel"].map(|name| server.place.parameter(name));
    match given {
        [Some(key), None, None] => {
            let group = server.place.required("group", &FORM)?;
            Ok(Box::new(stream::Stream::new(key.to_owned(), group.to_owned(), server)))
        }
        [None, Some(key), None] => Ok(Box::new(list::List::new(key.to_owned(), server))),
        [None, None, Some(name)] => Ok(Box::new(channel::Subscribed::new(name.to_owned(), server))),
        _ => Err(FORM.refuse("it wants one of 'stream', 'list' and 'channel'")),
    }
}

/// A Redis, and which of its databases.
#[derive(Debug)]
struct Server {
    place: Place,
    database: i64,
}

/// A connection, which ends with this.
struct Link {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
    /// A question that Redis keeps open, and for whose answer nobody may be waiting.
    open: Option<Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>>,
}

impl Link {
    /// The answer to `question`, or to the one before if nobody waited for that to the end. What is asked meanwhile comes after it.
    async fn wait(&mut self, question: impl FnOnce() -> Pipeline) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let open = self.open.get_or_insert_with(|| {
            let question = question();
            Box::pin(async move { question.query_async(&mut connection).await })
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
        let stream = connect(&self.place).await?;
        let config = config.set_response_timeout(Some(PATIENCE));
        let login = self.login();
        let greeted = within(&self.place, MultiplexedConnection::new_with_config(&login, stream, config));
        let (connection, driver) = greeted.await?.map_err(|error| self.error(&error))?;
        Ok(Link { connection, driver: tokio::spawn(driver), open: None })
    }

    fn login(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(login) = &self.place.login {
            let user = if login.user.is_empty() { "default" } else { &login.user };
            info = info.set_username(user).set_password(&login.password);
        }
        info
    }

    /// What an error means to who has to do something about it.
    fn error(&self, error: &RedisError) -> SourceError {
        let code = error.code().unwrap_or_default();
        let detail = error.detail().unwrap_or_default();
        let is_login = matches!(error.kind(), redis::ErrorKind::AuthenticationFailed);
        if is_login || matches!(code, "WRONGPASS" | "NOAUTH") {
            return self.place.refused("Redis knows no such user with this password: give the right ones");
        }
        match code {
            "NOPERM" => self.place.refused(format_args!("this user may not do what is needed: {detail}")),
            "WRONGTYPE" => self.place.refused("the key holds something else than the URL says: name another"),
            _ => self.place.unavailable(error),
        }
    }
}

/// The elements of an array.
fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) | Value::Set(elements) => elements,
        _ => Vec::new(),
    }
}

/// A string's bytes.
fn bytes(value: Value) -> Option<bytes::Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into_bytes().into()),
        _ => None,
    }
}
