//! Connections to the database.

use crate::address::{Address, TlsMode};
use crate::failure::{describe, failure};
use crate::statements::Statements;
use crate::tls::Tls;
use futures_util::join;
use meta_remote::{Failure, Listener, Notice, OpenError, SessionId};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Statement};

/// Time within which a connection must be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which sent bytes may stay unacknowledged before a connection counts as lost.
const UNACKED_MAX: Duration = Duration::from_secs(20);

/// Idle time before a probe of TCP tests whether the database still answers.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Statements that set up each connection. Settings that the database does not know are left out. Plans are made once, and find rows by
/// their keys: a plan that was made for an empty table would otherwise read all of it later. Commits are durable when they are answered.
const SETTINGS: &str = "
    SELECT set_config(w.name, w.value, false) FROM (VALUES
        ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'),
        ('enable_mergejoin', 'off'), ('enable_material', 'off'), ('jit', 'off')
    ) AS w(name, value) JOIN pg_settings s ON s.name = w.name;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// The address of the database, and the password, the TLS settings and the schema for connections to it.
pub(crate) struct Endpoint {
    config: Config,
    tls: Option<Tls>,
    /// Host and port, for messages.
    host: String,
    schema: String,
}

impl Endpoint {
    pub(crate) fn new(address: &Address, password: Option<&str>, schema: String) -> Result<Self, OpenError> {
        let host = format!("{}:{}", address.host, address.port);
        let mut config = Config::new();
        config.host(&address.host).port(address.port).user(&address.user).dbname(&address.database);
        config.application_name("tenon").connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(KEEPALIVE).tcp_user_timeout(UNACKED_MAX);
        if let Some(password) = password {
            config.password(password);
        }
        let tls = match &address.tls {
            TlsMode::Disabled => None,
            TlsMode::Verified { .. } => {
                let settings = connect::tls_config(address.ca_bundle());
                let unusable = |error: connect::CertificateError| OpenError::Connect {
                    host: host.clone(),
                    reason: error.to_string(),
                };
                Some(Tls(Arc::new(settings.map_err(unusable)?)))
            }
        };
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, tls, host, schema })
    }

    /// Returns the name of the schema with the volume's tables.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Connects, without the settings and prepared statements of [`Self::connect`].
    pub(crate) async fn connect_bare(&self) -> Result<Client, OpenError> {
        self.connect_with(None).await
    }

    /// Connects. `listener` takes notifications of other sessions than this one.
    async fn connect_with(&self, listener: Option<(SessionId, Listener)>) -> Result<Client, OpenError> {
        let refused = |error: tokio_postgres::Error| OpenError::Connect {
            host: self.host.clone(),
            reason: describe(&error),
        };
        match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(refused)?;
                tokio::spawn(drive(connection, listener));
                Ok(client)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(refused)?;
                tokio::spawn(drive(connection, listener));
                Ok(client)
            }
        }
    }

    /// Connects, sets the connection up, and prepares the statements on the volume's tables.
    pub(crate) async fn connect(&self) -> Result<Connection, OpenError> {
        self.prepare(self.connect_bare().await?).await
    }

    /// Prepares a connection for the commits of a session, so that they notify other sessions. Changes nothing if the session is exclusive or
    /// the database has no notifications.
    pub(crate) async fn notifying(
        &self,
        mut connection: Connection,
        session: SessionId,
        is_exclusive: bool,
    ) -> Connection {
        if is_exclusive {
            return connection;
        }
        if let Ok(statement) = connection.client.prepare(NOTIFY).await {
            let (channel, commit) = (self.schema.clone(), Notice::Commit.text(session));
            connection.notification = Some(Notification { statement, channel, commit });
        }
        connection
    }

    /// Like `connect`, and listens to the notifications of other sessions than `own`. Returns false if the database has none.
    pub(crate) async fn connect_listening(
        &self,
        own: SessionId,
        listener: Listener,
    ) -> Result<(Connection, bool), OpenError> {
        let connection = self.prepare(self.connect_with(Some((own, listener))).await?).await?;
        let is_listening = connection.client.batch_execute(&format!("LISTEN {}", self.schema)).await.is_ok();
        Ok((connection, is_listening))
    }

    /// Sets a connection up, and prepares the statements on the volume's tables.
    pub(crate) async fn prepare(&self, client: Client) -> Result<Connection, OpenError> {
        client
            .batch_execute(&format!("SET search_path TO {}; {SETTINGS}", self.schema))
            .await
            .map_err(failed)?;
        let statements = Statements::prepare(&client).await.map_err(failed)?;
        Ok(Connection { client, statements, notification: None })
    }
}

fn failed(error: tokio_postgres::Error) -> OpenError {
    OpenError::Engine(failure(error).into_engine_error())
}

/// Sends notifications of commits, if there is another session.
const NOTIFY: &str = "SELECT pg_notify($1, $2) WHERE (SELECT count(*) FROM session) > 1";

/// Notifications of a session.
pub(crate) struct Notification {
    statement: Statement,
    channel: String,
    /// The one that goes with each commit.
    commit: String,
}

/// Moves the bytes of a connection until it ends.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    listener: Option<(SessionId, Listener)>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(sent), Some((own, listener))) = (message, &listener)
            && let Some(notice) = Notice::parse(sent.payload(), *own)
        {
            listener(notice);
        }
    }
    // The loss of the connection is seen when it is used next.
    if let Some((_, listener)) = listener {
        listener(Notice::Commit);
    }
}

/// A connection with prepared statements.
pub struct Connection {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    /// The notification to send with each commit; `None` if there is none to send.
    notification: Option<Notification>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_closed", &self.client.is_closed()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Runs a statement in a transaction that holds the lock of the head. All of it is sent at once, so it takes one round trip.
    pub(crate) async fn run_locked(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let (begun, locked, rows, notified, committed) = join!(
            self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
            self.client.query(&self.statements.lock_head, &[]),
            self.client.query(statement, parameters),
            self.notify(self.notification.as_ref().map(|sent| sent.commit.clone())),
            self.client.batch_execute("COMMIT"),
        );
        begun.map_err(failure)?;
        locked.map_err(failure)?;
        // After a failed statement the database rolls back, and COMMIT does not fail: the error of the statement counts.
        let rows = rows.map_err(failure)?;
        notified.map_err(failure)?;
        committed.map_err(failure)?;
        Ok(rows)
    }

    /// Sends a notification to other sessions, if there is one and the database has notifications.
    pub(crate) async fn notify(&self, text: Option<String>) -> Result<(), tokio_postgres::Error> {
        match (&self.notification, text) {
            (Some(Notification { statement, channel, .. }), Some(text)) => {
                self.client.query(statement, &[channel, &text]).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}
