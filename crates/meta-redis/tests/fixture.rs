//! Volumes in a Redis that the tests share, or in one of their own.

use meta::Commit;
use meta_redis::{Address, Redis, RedisEngine};
use meta_remote::conformance;
use meta_remote::{OpenError, RemoteOptions};
use servers::Broker;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// A new volume in a database.
#[derive(Debug, Clone)]
pub(crate) struct Volume {
    server: SocketAddr,
    password: &'static str,
    id: String,
}

/// A volume with a server of its own.
pub(crate) struct OwnVolume {
    pub(crate) volume: Volume,
    server: Mutex<Broker>,
}

/// Returns the server that the tests share.
pub(crate) fn shared_server() -> &'static Broker {
    static SERVER: OnceLock<Broker> = OnceLock::new();
    SERVER.get_or_init(servers::redis)
}

impl Volume {
    /// Makes the keys of a new volume on the shared server.
    pub(crate) fn new() -> Self {
        Self::on(shared_server())
    }

    pub(crate) fn on(server: &Broker) -> Self {
        let volume = Self::unmade_on(server);
        RedisEngine::create(volume.redis(volume.server)).unwrap();
        volume
    }

    /// Describes a volume whose keys are not made.
    pub(crate) fn unmade_on(server: &Broker) -> Self {
        static VOLUMES: AtomicU64 = AtomicU64::new(1);
        let id = format!("{:032x}", VOLUMES.fetch_add(1, Ordering::Relaxed));
        Self { server: server.address(), password: server.password(), id }
    }

    pub(crate) fn redis(&self, address: SocketAddr) -> Redis {
        let address = Address::parse(&format!("redis://{address}")).unwrap();
        Redis::new(&address, Some(self.password), &self.id).unwrap()
    }

    pub(crate) fn try_open(&self, options: RemoteOptions) -> Result<RedisEngine, OpenError> {
        RedisEngine::open(self.redis(self.server), options)
    }

    pub(crate) fn open(&self, options: RemoteOptions) -> RedisEngine {
        self.try_open(options).unwrap()
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Runs a command with Redis's own client. `{}` in an argument is the prefix of the volume's keys.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        Self::cli_of(self.server, &self.id)(arguments)
    }

    /// Returns what runs commands as [`Self::cli`] on another server.
    pub(crate) fn cli_of(server: SocketAddr, id: &str) -> impl Fn(&[&str]) -> String + use<> {
        let (prefix, password) = (format!("tenon:{{{id}}}:"), shared_server().password());
        move |arguments| {
            let ran = Command::new("redis-cli")
                .env("REDISCLI_AUTH", password)
                .args(["--no-auth-warning", "-p", &server.port().to_string()])
                .args(arguments.iter().map(|argument| argument.replace("{}", &prefix)))
                .output()
                .unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            String::from_utf8_lossy(&ran.stdout).trim().to_owned()
        }
    }
}

/// Makes the last sign of life of all sessions older.
const SILENCE: &str = "
    local found = redis.call('HGETALL', KEYS[1])
    for at = 1, #found, 2 do
        local session = cmsgpack.unpack(found[at + 1])
        session.used_at = session.used_at - tonumber(ARGV[1])
        redis.call('HSET', KEYS[1], found[at], cmsgpack.pack(session))
    end";

impl conformance::Volume for Volume {
    type Database = Redis;

    fn database(&self) -> Redis {
        self.redis(self.server)
    }

    fn database_at(&self, address: SocketAddr) -> Redis {
        self.redis(address)
    }

    fn server(&self) -> SocketAddr {
        self.server
    }

    fn silence_sessions(&self, seconds: i64) {
        self.cli(&["EVAL", SILENCE, "1", "{}sessions", &seconds.to_string()]);
    }
}

impl OwnVolume {
    pub(crate) fn new() -> Self {
        let server = servers::redis();
        Self { volume: Volume::on(&server), server: Mutex::new(server) }
    }
}

impl conformance::Volume for OwnVolume {
    type Database = Redis;

    fn database(&self) -> Redis {
        self.volume.database()
    }

    fn database_at(&self, address: SocketAddr) -> Redis {
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
