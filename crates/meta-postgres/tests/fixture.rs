//! Engines on a PostgreSQL that the tests share, and what they contain.

use meta::{Commit, Engine, LogCap, Moment, OpContext, Origin, Reader, Rows};
use meta_postgres::{Address, OpenError, PostgresEngine, PostgresOptions};
use servers::Postgres;
use std::ops::Bound;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Timestamp;

pub(crate) const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

/// The consumer for which the whole log is kept.
pub(crate) const ALL: &str = "all";

/// A new volume in a database.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) address: Address,
    password: &'static str,
    id: String,
}

/// Returns the server that the tests share.
pub(crate) fn shared_server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(servers::postgres)
}

impl Volume {
    /// Makes the tables of a new volume on the shared server.
    pub(crate) fn new() -> Self {
        Self::on(shared_server())
    }

    pub(crate) fn on(server: &Postgres) -> Self {
        Self::at(&server.url(), server)
    }

    /// Makes the tables of a new volume, which is reached at another address than the server's.
    pub(crate) fn at(url: &str, server: &Postgres) -> Self {
        static VOLUMES: AtomicU64 = AtomicU64::new(1);
        let id = format!("{:032x}", VOLUMES.fetch_add(1, Ordering::Relaxed));
        let (address, password) = (Address::parse(url).unwrap(), server.password());
        PostgresEngine::create(&Address::parse(&server.url()).unwrap(), Some(password), &id).unwrap();
        Self { address, password, id }
    }

    pub(crate) fn try_open(&self, options: PostgresOptions) -> Result<PostgresEngine, OpenError> {
        PostgresEngine::open(&self.address, Some(self.password), &self.id, options)
    }

    pub(crate) fn open(&self, options: PostgresOptions) -> PostgresEngine {
        self.try_open(options).unwrap()
    }

    /// Opens the engine, with a log that is kept for the consumer [`ALL`].
    pub(crate) fn open_with_log(&self, options: PostgresOptions) -> PostgresEngine {
        let engine = self.open(PostgresOptions { log_cap: LogCap::UNLIMITED, ..options });
        if engine.cursor(ALL).is_err() {
            engine.register(ALL, meta::Seqno(0)).unwrap();
        }
        engine
    }

    /// Runs a statement on the volume's tables with PostgreSQL's own client.
    pub(crate) fn psql(&self, statement: &str) -> String {
        let (address, id) = (&self.address, &self.id);
        let url =
            format!("postgres://{}@127.0.0.1:{}/{}", address.user(), address.port(), address.database());
        let ran = std::process::Command::new("psql")
            .env("PGPASSWORD", self.password)
            .args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet", &url])
            .args(["-c", &format!("SET search_path TO tenon_{id}"), "-c", statement])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }
}

/// Returns options with which an unreachable database fails a call soon.
pub(crate) fn impatient() -> PostgresOptions {
    PostgresOptions { budget: Duration::from_secs(1), ..PostgresOptions::default() }
}

pub(crate) fn table(engine: &dyn Reader) -> Rows {
    engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap()
}

pub(crate) fn put(key: &str, value: &str) -> Commit {
    Commit { puts: vec![(key.into(), value.as_bytes().into())], ..Commit::default() }
}
