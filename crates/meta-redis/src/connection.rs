//! Connections to the server.

use crate::address::Address;
use crate::failure::{failure, unexpected};
use crate::request::Arguments;
use crate::scripts::Script;
use crate::stream::{self, Bytes};
use crate::values::Values;
use crate::{sentinels, server};
use meta_remote::{Failure, Listener, Notice, OpenError, SessionId, one_line};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, Value,
};
use rustls::ClientConfig;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time within which a connection must be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of the server, and the password, the TLS settings and the keys for connections to it.
pub(crate) struct Endpoint {
    address: Address,
    /// The user, the password and the number of the database.
    info: RedisConnectionInfo,
    /// The user and the password for the Sentinels; empty if they have none.
    sentinel_info: RedisConnectionInfo,
    tls: Option<TlsConnector>,
    /// The prefix of all keys of the volume. The braces make a proxy for several servers put them on one.
    prefix: String,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(address: &Address, password: Option<&str>, prefix: String) -> Result<Self, OpenError> {
        let mut info = RedisConnectionInfo::default().set_db(address.number).set_skip_set_lib_name();
        if let Some(user) = &address.user {
            info = info.set_username(user);
        }
        if let Some(password) = password {
            info = info.set_password(password);
        }
        let tls = match address.is_encrypted {
            true => {
                let settings = connect::tls_config(address.ca_bundle());
                let unusable = |error: connect::CertificateError| refused(address, error.to_string());
                let settings: ClientConfig = settings.map_err(unusable)?;
                Some(TlsConnector::from(Arc::new(settings)))
            }
            false => None,
        };
        let mut sentinel_info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &address.sentinel_user {
            sentinel_info = sentinel_info.set_username(user);
        }
        Ok(Self { address: address.clone(), info, sentinel_info, tls, prefix })
    }

    /// Logs in at the Sentinels with a password.
    pub(crate) fn with_sentinel_password(self, password: Option<&str>) -> Self {
        let Some(password) = password else { return self };
        Self { sentinel_info: self.sentinel_info.set_password(password), ..self }
    }

    /// Returns the prefix of all keys of the volume.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the hosts and ports of the address.
    pub(crate) fn host(&self) -> String {
        self.address.hosts()
    }

    /// Connects, and loads the scripts. Fails if the server is a replica.
    pub(crate) async fn connect(&self) -> Result<Connection, OpenError> {
        self.connect_with(None).await
    }

    /// Connects, checks that the server can keep metadata, and warns if it may lose some.
    pub(crate) async fn connect_checked(&self) -> Result<Connection, OpenError> {
        let connection = self.connect().await?;
        server::check(&connection, &self.host()).await?;
        Ok(connection)
    }

    /// Connects, and subscribes to the notifications of other sessions than `own`. Passes them to `listener`, and [`Notice::Commit`] when the
    /// connection ends.
    pub(crate) async fn connect_listening(
        &self,
        own: SessionId,
        listener: Listener,
    ) -> Result<Connection, OpenError> {
        let channel = format!("{}commits", self.prefix);
        let connection = self.connect_with(Some((own, listener))).await?;
        let subscribed = connection.redis.clone().subscribe(channel).await;
        subscribed.map_err(|error| OpenError::Engine(failure(error).into_engine_error()))?;
        Ok(connection)
    }

    /// Connects within [`CONNECT_TIMEOUT`]. `listener` is the own session, and the function that takes notifications of others.
    async fn connect_with(&self, listener: Option<(SessionId, Listener)>) -> Result<Connection, OpenError> {
        let connected = timeout(CONNECT_TIMEOUT, self.connect_unbounded(listener)).await;
        connected.map_err(|_| refused(&self.address, "no answer in time".into()))?
    }

    async fn connect_unbounded(
        &self,
        listener: Option<(SessionId, Listener)>,
    ) -> Result<Connection, OpenError> {
        let (hosts, tls) = (&self.address.hosts, self.tls.as_ref());
        let found = match (&self.address.primary, hosts.first()) {
            (Some(primary), _) => {
                Some(sentinels::find_primary(hosts, primary, &self.sentinel_info, tls).await)
            }
            (None, host) => host.cloned().map(Ok),
        };
        let host = found.unwrap_or_else(|| Err("no host".into()));
        let host = host.map_err(|reason| refused(&self.address, reason))?;
        let stream = stream::open(&host, tls).await;
        let stream = stream.map_err(|error| refused(&self.address, error.to_string()))?;
        let mut connection = self.begin(stream, listener).await?;
        let role = connection.load_scripts().await.map_err(|error| self.refused(&error))?;
        match role.as_str() {
            "master" => Ok(connection),
            _ => Err(OpenError::Unsuitable {
                host: host.to_string(),
                reason: "it is a replica: use the address of the primary server".into(),
            }),
        }
    }

    /// Logs in on a stream, and starts the task that moves its bytes.
    async fn begin(
        &self,
        stream: Box<dyn Bytes>,
        listener: Option<(SessionId, Listener)>,
    ) -> Result<Connection, OpenError> {
        // No timeout here: the callers limit the time of each call.
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut info = self.info.clone();
        let end_listener = listener.as_ref().map(|(_, listener)| listener.clone());
        if let Some((own, listener)) = listener {
            info = info.set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(move |push: PushInfo| {
                if let Some(notice) = notice_of(&push, own) {
                    listener(notice);
                }
                Ok::<(), ()>(())
            });
        }
        let begun = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (redis, driver) = begun.map_err(|error| self.refused(&error))?;
        let is_open = Arc::new(AtomicBool::new(true));
        let is_running = is_open.clone();
        tokio::spawn(async move {
            driver.await;
            is_running.store(false, Ordering::Release);
            if let Some(listener) = end_listener {
                listener(Notice::Commit);
            }
        });
        Ok(Connection { redis, is_open, hashes: Arc::default(), prefix: self.prefix.as_bytes().into() })
    }

    /// Returns the error for a connection that the server has refused.
    fn refused(&self, error: &RedisError) -> OpenError {
        refused(&self.address, refusal(error))
    }
}

/// Returns the reason for which a server, or a Sentinel, refuses a connection.
pub(crate) fn refusal(error: &RedisError) -> String {
    match error.detail() {
        _ if error.kind() == ErrorKind::AuthenticationFailed => "the user or the password is wrong".into(),
        Some(detail) => format!("{} {detail}", error.code().unwrap_or_default()),
        None => error.to_string(),
    }
}

fn refused(address: &Address, reason: String) -> OpenError {
    OpenError::Connect { host: address.hosts(), reason: one_line(&reason) }
}

/// Returns the notification of another session than `own` in a message. The end of the connection counts as a commit.
fn notice_of(push: &PushInfo, own: SessionId) -> Option<Notice> {
    match (&push.kind, push.data.last()) {
        (PushKind::Message, Some(Value::BulkString(sent))) => {
            Notice::parse(&String::from_utf8_lossy(sent), own)
        }
        (PushKind::Disconnection, _) => Some(Notice::Commit),
        _ => None,
    }
}

/// A connection with loaded scripts. Calls do not wait for each other.
#[derive(Clone)]
pub struct Connection {
    redis: MultiplexedConnection,
    /// False once the connection has ended.
    is_open: Arc<AtomicBool>,
    /// The hashes of the scripts, in the order of [`Script::ALL`].
    hashes: Arc<[String]>,
    /// The prefix of all keys of the volume.
    prefix: Arc<[u8]>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}

impl Connection {
    /// Returns false once the connection has ended.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Loads the scripts, and returns the server's role.
    async fn load_scripts(&mut self) -> Result<String, RedisError> {
        let mut loads = redis::pipe();
        loads.cmd("ROLE");
        for script in Script::ALL {
            loads.cmd("SCRIPT").arg("LOAD").arg(script.text());
        }
        let (role, hashes): (Value, Vec<String>) = {
            let mut answers: Vec<Value> = loads.query_async(&mut self.redis).await?;
            let hashes = answers.split_off(1.min(answers.len()));
            let hashes = hashes.into_iter().map(redis::from_redis_value).collect::<Result<_, _>>()?;
            (answers.pop().unwrap_or_default(), hashes)
        };
        self.hashes = hashes.into();
        let role = Values::of(role).and_then(|mut values| values.bytes()).unwrap_or_default();
        Ok(String::from_utf8_lossy(&role).into_owned())
    }

    /// Runs a script with the prefix of the volume's keys and these arguments.
    pub(crate) async fn run(&self, script: Script, arguments: &Arguments) -> Result<Value, Failure> {
        let hash = self.hashes.get(script as usize).ok_or_else(unexpected)?;
        let mut command = redis::cmd("EVALSHA");
        command.arg(hash).arg(1).arg(&*self.prefix);
        for argument in &arguments.0 {
            command.arg(argument.as_slice());
        }
        self.send(command).await
    }

    /// Runs a command on one of the volume's keys.
    pub(crate) async fn call(&self, name: &str, key: &str, arguments: &[&[u8]]) -> Result<Value, Failure> {
        let mut command = redis::cmd(name);
        command.arg(self.key(key));
        for argument in arguments {
            command.arg(*argument);
        }
        self.send(command).await
    }

    /// Returns one of the volume's keys.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        [&*self.prefix, name.as_bytes()].concat()
    }

    /// Sends a command and returns its answer.
    pub(crate) async fn send(&self, command: Cmd) -> Result<Value, Failure> {
        self.ask(command).await.map_err(failure)
    }

    /// Like `send`, with the library's error.
    pub(crate) async fn ask(&self, command: Cmd) -> Result<Value, RedisError> {
        command.query_async(&mut self.redis.clone()).await
    }

    /// Returns the keys of the volume.
    pub(crate) async fn keys(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
        let pattern = [&*self.prefix, b"*"].concat();
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let mut page = Values::of(self.send(command).await?)?;
            cursor = String::from_utf8(page.bytes()?).map_err(|_| unexpected())?;
            let mut found = page.array()?;
            while !found.is_empty() {
                keys.push(found.bytes()?);
            }
            if cursor == "0" {
                return Ok(keys);
            }
        }
    }
}
