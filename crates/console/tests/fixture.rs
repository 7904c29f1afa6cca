//! A console over an endpoint with buckets in memory, and a browser that has signed in.

use crate::fake_process::{FakeProcess, HOSTILE};
use bytes::Bytes;
use console::{Console, ConsoleOptions};
use futures_util::TryStreamExt as _;
use s3::{Endpoint, EndpointOptions, Limits, Role, Server, User, Users};
use servers::Browser;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::memory::MemoryBuckets;
use store::{
    Buckets, Entropy, GetOptions, ListEntry, ListRequest, ObjectKey, ObjectStore, Pages, Payload, PutOptions,
    SystemClock,
};

pub(crate) const SECRET: &str = "not-a-secret-but-long-enough";
pub(crate) const ADMIN: &str = "the-admin";
pub(crate) const READER: &str = "the-reader";
pub(crate) const WRITER: &str = "the-writer";
pub(crate) const OUTSIDER: &str = "the-outsider";
pub(crate) const BUCKET: &str = "bucket";

pub(crate) struct TestConsole {
    console: Console,
    pub(crate) server: Server,
    pub(crate) process: Arc<FakeProcess>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) buckets: Arc<dyn Buckets>,
    pub(crate) users: Users,
    _log: tempfile::TempDir,
}

impl TestConsole {
    pub(crate) async fn start() -> Self {
        let buckets = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
        buckets.create(BUCKET).await.unwrap();
        Self::start_with(buckets).await
    }

    /// Starts a console over buckets, of which one is that of the tests.
    pub(crate) async fn start_with(buckets: Arc<dyn Buckets>) -> Self {
        let clock = Arc::new(SystemClock);
        let store = buckets.open(BUCKET).await.unwrap();
        let users = Users::new(users()).unwrap();
        let options = EndpointOptions {
            users: users.clone(),
            region: "us-east-1".into(),
            domains: Vec::new(),
            webhooks: BTreeMap::new(),
            md5: false,
            encrypted: false,
        };
        let entropy = Arc::new(Entropy::keyed(&[7; 32]));
        let endpoint = Endpoint::new(buckets.clone(), options, clock.clone(), entropy.clone()).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(endpoint.clone(), address, Limits::default(), None).await.unwrap();
        let log = tempfile::tempdir().unwrap();
        let log_file = log.path().join("log");
        std::fs::write(&log_file, format!("first line\n{}\nlast line\n", HOSTILE.replace('\n', " ")))
            .unwrap();
        let process = Arc::new(FakeProcess::with_log(log_file));
        let options = ConsoleOptions {
            endpoint_url: Some(server.url()),
            sample_interval: Duration::from_millis(100),
            part_bytes: 6 << 20,
        };
        let console = Console::start(address, None, endpoint, process.clone(), options, (clock, entropy));
        let console = console.await.unwrap();
        Self { console, server, process, store, buckets, users, _log: log }
    }

    pub(crate) fn url(&self) -> String {
        self.console.url()
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.console.address()
    }

    /// Stores an object in the bucket of the tests.
    pub(crate) async fn put(&self, key: &str, bytes: &str) {
        let key = ObjectKey::new(key.to_owned()).unwrap();
        self.store
            .put(&key, Payload::from(Bytes::from(bytes.to_owned())), PutOptions::default())
            .await
            .unwrap();
    }

    /// Returns the keys of the bucket of the tests.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let entries = Pages::new(self.store.as_ref(), ListRequest { limit: 1000, ..ListRequest::default() })
            .collect()
            .await
            .unwrap();
        let key = |entry: &ListEntry| match entry {
            ListEntry::Object(object) => String::from_utf8_lossy(object.object.key.as_bytes()).into_owned(),
            ListEntry::Prefix(_) => unreachable!("the listing has no delimiter"),
        };
        entries.iter().map(key).collect()
    }

    /// Returns the bytes of an object of the bucket of the tests.
    pub(crate) async fn bytes(&self, key: &str) -> Vec<u8> {
        let key = ObjectKey::new(key.to_owned()).unwrap();
        let object = self.store.get(&key, GetOptions::default()).await.unwrap();
        object.body.try_collect::<Vec<Bytes>>().await.unwrap().concat()
    }

    /// Returns a browser in which a user has signed in.
    pub(crate) fn browser(&self, user: &str) -> Browser {
        let browser = Browser::start();
        self.sign_in(&browser, user);
        browser
    }

    pub(crate) fn sign_in(&self, browser: &Browser, user: &str) {
        browser.open(&self.url());
        assert_eq!(browser.run("return document.title", &[]), "Sign in – Tenon");
        browser.type_into("#access_key", user);
        browser.type_into("#secret_key", SECRET);
        browser.follow("button[type=submit]");
        browser.wait_until("return document.title === 'Buckets – Tenon'", &[]);
    }
}

fn users() -> Vec<User> {
    [(ADMIN, Role::Admin), (READER, Role::ReadOnly), (WRITER, Role::ReadWrite), (OUTSIDER, Role::PolicyOnly)]
        .map(|(access_key, role)| User {
            access_key: access_key.to_owned(),
            secret_key: SECRET.to_owned(),
            role,
            buckets: Vec::new(),
        })
        .into()
}
