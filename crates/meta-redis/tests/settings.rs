//! Settings of the server, its memory, credentials, and the history of the log.

use crate::fixture::{Volume, put, shared_server};
use meta::{Commit, CommitError, Engine, EngineError, Reader, Seqno};
use meta_redis::{Address, Redis, RedisEngine};
use meta_remote::{Connection as _, Database as _, OpenError, Position, RemoteOptions, SessionId};
use std::process::Command;
use tempfile::TempDir;

/// Returns the reason why a server with these settings is refused.
fn refusal(settings: &str) -> String {
    let server = servers::redis_with(settings);
    let volume = Volume::unmade_on(&server);
    match RedisEngine::create(volume.redis(server.address())) {
        Err(error @ OpenError::Unsuitable { .. }) => error.to_string(),
        other => panic!("{settings}: {other:?}"),
    }
}

#[test]
fn s661_a_server_that_would_lose_metadata_is_refused() {
    let evicting = refusal("appendfsync always\nmaxmemory-policy allkeys-lru");
    assert!(evicting.contains("set it to noeviction"), "{evicting}");
    let volatile = refusal("appendonly no");
    assert!(volatile.contains("set appendonly yes and appendfsync always"), "{volatile}");
    let cluster = refusal("appendfsync always\ncluster-enabled yes");
    assert!(cluster.contains("Redis Cluster is not supported"), "{cluster}");
    let primary = shared_server().address();
    let replica = refusal(&format!("appendfsync always\nreplicaof {} {}", primary.ip(), primary.port()));
    assert!(replica.contains("is a replica"), "{replica}");
    assert!([evicting, volatile, cluster, replica].iter().all(|line| line.lines().count() == 1));
}

/// When the memory is full, changes fail with an error that means ENOSPC, but removals succeed, and nothing is lost.
#[test]
fn s662_a_full_memory_is_no_space() {
    let server = servers::redis_with("appendfsync always\nmaxmemory 8mb");
    let volume = Volume::on(&server);
    let engine = volume.open(RemoteOptions::default());
    let large = "x".repeat(100_000);
    let mut stored = 0;
    let full = loop {
        match engine.commit(put(&format!("Xk{stored}"), &large)) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(stored > 10, "{stored}");
    assert!(
        matches!(&full, CommitError::Engine(EngineError::Full(reason)) if reason.contains("maxmemory")),
        "{full}"
    );
    assert!(
        engine.get(b"Xk0").unwrap().is_some()
            && engine.get(format!("Xk{stored}").as_bytes()).unwrap().is_none()
    );
    for number in 0..10 {
        let deletes = vec![format!("Xk{number}").into_bytes()];
        engine.commit(Commit { deletes, ..Commit::default() }).unwrap();
    }
    engine.commit(put("Xagain", &large)).unwrap();
}

#[test]
fn wrong_credentials_are_one_clear_line() {
    let address = Address::parse(&format!("redis://{}", shared_server().address())).unwrap();
    let create = |password| RedisEngine::create(Redis::new(&address, password, "0000b").unwrap());
    let wrong = "not-the-password";
    let refused = create(Some(wrong)).unwrap_err().to_string();
    assert!(refused.contains("the password is wrong") && !refused.contains(wrong), "{refused}");
    assert_eq!(refused.lines().count(), 1);
    let missing = create(None).unwrap_err().to_string();
    assert!(missing.contains("NOAUTH") || missing.contains("Authentication required"), "{missing}");
}

#[test]
fn metadata_of_a_later_version_is_refused() {
    let volume = Volume::new();
    volume.cli(&["HSET", "{}head", "version", "99"]);
    let newer = volume.try_open(RemoteOptions::default()).unwrap_err().to_string();
    assert!(newer.contains("version 99") && newer.contains("newer Tenon"), "{newer}");
}

/// A reader that knows another writer of the commit at its position sees that the server has lost commits, although it has more commits since.
#[tokio::test(flavor = "multi_thread")]
async fn another_history_of_the_log_is_noticed() {
    let volume = Volume::new();
    let engine = volume.open(RemoteOptions::default());
    (0..5).for_each(|number| assert!(engine.commit(put("Xk", &number.to_string())).is_ok()));
    let connection = volume.redis(shared_server().address()).connect().await.unwrap();
    let after =
        |seqno, writer| connection.changes_after(Position { seqno: Seqno(seqno), writer }, SessionId(1), 100);
    let all = after(0, None).await.unwrap();
    assert_eq!((all.commits.len(), all.is_other_history), (5, false));
    let writer = after(2, None).await.unwrap().to.writer.unwrap();
    assert_eq!(writer[2], 5, "the group that made the newest commit");
    let known = Some([writer[0], writer[1], 3]);
    assert!(!after(3, known).await.unwrap().is_other_history);
    assert!(after(3, Some([writer[0], writer[1], 4])).await.unwrap().is_other_history);
    assert!(after(3, Some([writer[0] - 1, writer[1], 3])).await.unwrap().is_other_history);
}

/// Snapshots and staged runs of a dead process do not stay in the server's memory.
#[test]
fn leftovers_of_a_session_are_removed() {
    let volume = Volume::new();
    let options = || RemoteOptions { holder: "one".into(), ..RemoteOptions::default() };
    let engine = volume.open(options());
    engine.commit(put("Xk", "1")).unwrap();
    let (snapshot, run) = (engine.snapshot().unwrap(), engine.begin_run());
    let mut run = run.unwrap();
    run.put(b"Xrun", b"1").unwrap();
    let staged = run.finish().unwrap();
    engine.commit(put("Xk", "2")).unwrap();
    assert_eq!(&*snapshot.get(b"Xk").unwrap().unwrap().value, b"1");
    let keys = || volume.cli(&["KEYS", "{}*"]);
    assert!(keys().contains("snapshot-order") && keys().contains("run-records"), "{}", keys());
    let again = volume.open(options());
    assert!(!keys().contains("snapshot") && !keys().contains("run"), "{}", keys());
    assert!(snapshot.get(b"Xk").is_err(), "a snapshot that has ended does not show another state");
    drop((staged, snapshot, again));
}

/// Makes an authority, `ca.pem`, and a certificate of it for `localhost`.
const CERTIFICATES: &str = "
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=tests -days 2
    openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost
    echo 'subjectAltName = DNS:localhost' >names
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 2 -out it.pem
    chmod -R a+rX .";

#[test]
fn connections_are_encrypted_and_certificates_are_verified() {
    let dir = TempDir::new().unwrap();
    let made = Command::new("sh").arg("-ec").arg(CERTIFICATES).current_dir(&dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| dir.path().join(name).display().to_string();
    let port = servers::free_address().port();
    let server = servers::redis_with(&format!(
        "appendfsync always\ntls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no",
        file("it.pem"),
        file("key.pem"),
        file("ca.pem")
    ));
    let redis =
        |url: &str| Redis::new(&Address::parse(url).unwrap(), Some(server.password()), "0000c").unwrap();
    let trusted = format!("rediss://localhost:{port}?sslrootcert={}", file("ca.pem"));
    RedisEngine::create(redis(&trusted)).unwrap();
    let shared = RemoteOptions { is_exclusive: false, ..RemoteOptions::default() };
    let engine = RedisEngine::open(redis(&trusted), shared).unwrap();
    engine.commit(put("Xk", "1")).unwrap();
    assert!(engine.get_newest(b"Xk").unwrap().is_some());
    let unknown = RedisEngine::create(redis(&format!("rediss://localhost:{port}"))).unwrap_err().to_string();
    assert!(unknown.contains("certificate"), "{unknown}");
    let other_name = trusted.replace("localhost", "127.0.0.1");
    assert!(RedisEngine::create(redis(&other_name)).unwrap_err().to_string().contains("certificate"));
}

/// After the primary server is lost, a Sentinel promotes its replica, and the engine continues with it.
#[test]
fn a_failover_by_a_sentinel_loses_nothing_that_was_replicated() {
    let replication = format!("masterauth {}", shared_server().password());
    let settings = format!("appendfsync always\n{replication}");
    let mut primary = servers::redis_with(&settings);
    let (ip, port) = (primary.address().ip(), primary.address().port());
    let replica = servers::redis_with(&format!("{settings}\nreplicaof {ip} {port}"));
    let sentinel = servers::redis_sentinel(&primary);
    let volume = Volume::on(&primary);
    let unknown = servers::free_address();
    let address =
        Address::parse(&format!("redis-sentinel://{unknown},{}/names", sentinel.address())).unwrap();
    let redis = || Redis::new(&address, Some(primary.password()), volume.id()).unwrap();
    let options = RemoteOptions { is_exclusive: false, ..RemoteOptions::default() };
    let engine = RedisEngine::open(redis(), options).unwrap();
    let head = engine.commit(put("Xbefore", "1")).unwrap().0.to_string();
    let on_replica = Volume::cli_of(replica.address(), volume.id());
    while on_replica(&["HGET", "{}head", "head"]) != head {
        std::thread::yield_now();
    }
    // The Sentinel learns of the replica from the primary server.
    let replicas = || Volume::cli_of(sentinel.address(), volume.id())(&["SENTINEL", "REPLICAS", "names"]);
    while !replicas().contains(&replica.address().port().to_string()) || replicas().contains("disconnected") {
        std::thread::yield_now();
    }
    primary.stop();
    engine.commit(put("Xafter", "1")).unwrap();
    assert!(engine.get_newest(b"Xbefore").unwrap().is_some());
    assert_eq!(on_replica(&["HLEN", "{}records"]), "2");
    let unknown_name = Address::parse(&format!("redis-sentinel://{}/other", sentinel.address())).unwrap();
    let unknown_name =
        RedisEngine::create(Redis::new(&unknown_name, None, "0000d").unwrap()).unwrap_err().to_string();
    assert!(unknown_name.contains("does not know this name"), "{unknown_name}");
}

/// A Sentinel with a password was asked without one, and refused to answer.
#[test]
fn a_sentinel_with_a_password_is_asked_with_it() {
    let primary = servers::redis_with("appendfsync always");
    let sentinel = servers::redis_sentinel_with_password(&primary);
    let address = Address::parse(&format!("redis-sentinel://{}/names", sentinel.address())).unwrap();
    let redis = |password: Option<&str>| {
        let redis = Redis::new(&address, Some(primary.password()), "0000e").unwrap();
        redis.with_sentinel_password(password)
    };
    let refused = |password| RedisEngine::create(redis(password)).unwrap_err().to_string();
    assert!(refused(None).contains("TENON_REDIS_SENTINEL_PASSWORD_FILE"), "{}", refused(None));
    let wrong = refused(Some("not the password"));
    assert!(wrong.contains("password is wrong") && !wrong.contains("not the password"), "{wrong}");
    RedisEngine::create(redis(Some(sentinel.password()))).unwrap();
    let options = RemoteOptions { is_exclusive: false, ..RemoteOptions::default() };
    let engine = RedisEngine::open(redis(Some(sentinel.password())), options.clone()).unwrap();
    engine.commit(put("Xk", "1")).unwrap();
    assert!(engine.get_newest(b"Xk").unwrap().is_some());
    let named = format!("{address}?sentineluser=default");
    let named = Redis::new(&Address::parse(&named).unwrap(), Some(primary.password()), "0000e").unwrap();
    RedisEngine::open(named.with_sentinel_password(Some(sentinel.password())), options).unwrap();
}
