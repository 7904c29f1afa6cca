//! Connections to the database.

use crate::address::{Address, TlsMode};
use crate::error::{Failure, OpenError, describe};
use crate::statements::Statements;
use crate::tls::Tls;
use futures_util::join;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

/// Time within which a connection must be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which sent bytes may stay unacknowledged before a connection counts as lost.
const UNACKED_MAX: Duration = Duration::from_secs(20);

/// Idle time before the peer is probed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Settings of each connection, as far as the database knows them. Plans are made once, and find rows by their keys: a plan that was made for
/// an empty table would otherwise read all of it later. Commits are durable when they are answered.
const SETTINGS: &str = "
    SELECT set_config(w.name, w.value, false) FROM (VALUES
        ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'),
        ('enable_mergejoin', 'off'), ('enable_material', 'off'), ('jit', 'off')
    ) AS w(name, value) JOIN pg_settings s ON s.name = w.name;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// The address of the database, with everything that a connection needs.
pub(crate) struct Endpoint {
    config: Config,
    tls: Option<Tls>,
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

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Connects without preparing anything.
    pub(crate) async fn connect_bare(&self) -> Result<Client, OpenError> {
        let refused = |error: tokio_postgres::Error| OpenError::Connect {
            host: self.host.clone(),
            reason: describe(&error),
        };
        match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(refused)?;
                tokio::spawn(connection);
                Ok(client)
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(refused)?;
                tokio::spawn(connection);
                Ok(client)
            }
        }
    }

    /// Connects and prepares the statements on the volume's tables.
    pub(crate) async fn connect(&self) -> Result<Connection, OpenError> {
        let client = self.connect_bare().await?;
        let failed = |error| OpenError::Engine(Failure::from(error).into_engine_error());
        client
            .batch_execute(&format!("SET search_path TO {}; {SETTINGS}", self.schema))
            .await
            .map_err(failed)?;
        let statements = Statements::prepare(&client).await.map_err(failed)?;
        Ok(Connection { client, statements })
    }
}

/// A connection with prepared statements.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
}

impl Connection {
    /// Runs a statement in a transaction that holds the lock of the head. All of it is sent at once, so it takes one round trip.
    pub(crate) async fn run_locked(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let (begun, locked, rows, committed) = join!(
            self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
            self.client.query(&self.statements.lock_head, &[]),
            self.client.query(statement, parameters),
            self.client.batch_execute("COMMIT"),
        );
        begun?;
        locked?;
        // After a failed statement the database answers COMMIT with a rollback.
        let rows = rows?;
        committed?;
        Ok(rows)
    }
}
