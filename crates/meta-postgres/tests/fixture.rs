//! Volumes in a PostgreSQL that the tests share, or in one of their own.

use meta::Commit;
use meta_postgres::{Address, Postgres, PostgresEngine};
use meta_remote::conformance;
use meta_remote::{OpenError, RemoteOptions};
use servers::Postgres as Server;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// A new volume in a database.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) address: Address,
    server: SocketAddr,
    password: &'static str,
    id: String,
}

/// A volume with a server of its own.
pub(crate) struct OwnVolume {
    volume: Volume,
    server: Mutex<Server>,
}

/// Returns the server that the tests share.
pub(crate) fn shared_server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(servers::postgres)
}

impl Volume {
    /// Makes the tables of a new volume on the shared server.
    pub(crate) fn new() -> Self {
        Self::on(shared_server())
    }

    fn on(server: &Server) -> Self {
        static VOLUMES: AtomicU64 = AtomicU64::new(1);
        let id = format!("{:032x}", VOLUMES.fetch_add(1, Ordering::Relaxed));
        let (address, password) = (Address::parse(&server.url()).unwrap(), server.password());
        let volume = Self { address, server: server.address(), password, id };
        PostgresEngine::create(volume.postgres(&volume.address)).unwrap();
        volume
    }

    fn postgres(&self, address: &Address) -> Postgres {
        Postgres::new(address, Some(self.password), &self.id).unwrap()
    }

    pub(crate) fn try_open(&self, options: RemoteOptions) -> Result<PostgresEngine, OpenError> {
        PostgresEngine::open(self.postgres(&self.address), options)
    }

    pub(crate) fn open(&self, options: RemoteOptions) -> PostgresEngine {
        self.try_open(options).unwrap()
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

impl conformance::Volume for Volume {
    type Database = Postgres;

    fn database(&self) -> Postgres {
        self.postgres(&self.address)
    }

    fn database_at(&self, address: SocketAddr) -> Postgres {
        self.postgres(&Address::parse(&format!("postgres://tenon@{address}/tenon")).unwrap())
    }

    fn server(&self) -> SocketAddr {
        self.server
    }

    fn silence_sessions(&self, seconds: i64) {
        self.psql(&format!("UPDATE session SET used_at = used_at - interval '{seconds} s'"));
    }
}

impl OwnVolume {
    pub(crate) fn new() -> Self {
        let server = servers::postgres();
        Self { volume: Volume::on(&server), server: Mutex::new(server) }
    }
}

impl conformance::Volume for OwnVolume {
    type Database = Postgres;

    fn database(&self) -> Postgres {
        self.volume.database()
    }

    fn database_at(&self, address: SocketAddr) -> Postgres {
        self.volume.database_at(address)
    }

    fn server(&self) -> SocketAddr {
        self.volume.server
    }

    fn silence_sessions(&self, seconds: i64) {
        self.volume.silence_sessions(seconds);
    }
}

impl conformance::OwnServer for OwnVolume {
    fn stop(&self) {
        self.server.lock().unwrap().stop();
    }

    fn restart(&self) {
        self.server.lock().unwrap().restart();
    }

    fn remember(&self) {
        self.server.lock().unwrap().keep_data();
    }

    fn go_back(&self) {
        self.server.lock().unwrap().go_back();
    }
}

pub(crate) fn put(key: &str, value: &str) -> Commit {
    Commit { puts: vec![(key.into(), value.as_bytes().into())], ..Commit::default() }
}
