//! A test endpoint over in-memory buckets, and Tenon's own client for it.

use events::Webhook;
use s3::{Endpoint, EndpointOptions, Limits, Role, Server, User, Users};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::memory::MemoryBuckets;
use store::{Buckets, Clock, Entropy, ObjectStore, Result, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

pub(crate) const KEY: &str = "tests-admin";
pub(crate) const SECRET: &str = "not-a-secret-but-long-enough";

pub(crate) struct TestServer {
    pub(crate) inner: Server,
    /// The endpoint's users, which tests may replace.
    pub(crate) users: Users,
    /// The buckets that the endpoint serves.
    pub(crate) buckets: Arc<dyn Buckets>,
    next: AtomicU64,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::with_buckets(Arc::new(MemoryBuckets::new(Arc::new(SystemClock)))).await
    }

    pub(crate) async fn with_buckets(buckets: Arc<dyn Buckets>) -> Self {
        Self::with_limits(buckets, Limits::default()).await
    }

    pub(crate) async fn with_limits(buckets: Arc<dyn Buckets>, limits: Limits) -> Self {
        Self::start_with(buckets, limits, Arc::new(SystemClock), BTreeMap::new()).await
    }

    /// Starts an endpoint with webhooks, by name.
    pub(crate) async fn with_webhooks(webhooks: BTreeMap<String, Webhook>) -> Self {
        let clock = Arc::new(SystemClock);
        Self::start_with(Arc::new(MemoryBuckets::new(clock.clone())), Limits::default(), clock, webhooks)
            .await
    }

    /// Starts an endpoint with a clock of the test's.
    pub(crate) async fn with_clock(buckets: Arc<dyn Buckets>, clock: Arc<dyn Clock>) -> Self {
        Self::start_with(buckets, Limits::default(), clock, BTreeMap::new()).await
    }

    async fn start_with(
        buckets: Arc<dyn Buckets>,
        limits: Limits,
        clock: Arc<dyn Clock>,
        webhooks: BTreeMap<String, Webhook>,
    ) -> Self {
        Self::with_options(buckets, limits, clock, |options| options.webhooks = webhooks).await
    }

    /// Starts an endpoint over in-memory buckets with changed options.
    pub(crate) async fn with_changed_options(change: impl FnOnce(&mut EndpointOptions)) -> Self {
        let clock = Arc::new(SystemClock);
        let buckets = Arc::new(MemoryBuckets::new(clock.clone()));
        Self::with_options(buckets, Limits::default(), clock, change).await
    }

    async fn with_options(
        buckets: Arc<dyn Buckets>,
        limits: Limits,
        clock: Arc<dyn Clock>,
        change: impl FnOnce(&mut EndpointOptions),
    ) -> Self {
        let users = Users::new(initial_users()).unwrap();
        let mut options = EndpointOptions {
            users: users.clone(),
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            webhooks: BTreeMap::new(),
            md5: false,
            encrypted: false,
        };
        change(&mut options);
        let endpoint = Endpoint::new(buckets.clone(), options, clock, Arc::new(Entropy::new(1))).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(endpoint, address, limits, None).await.unwrap();
        Self { inner: server, users, buckets, next: AtomicU64::new(0) }
    }

    /// Wraps a server that a test started itself.
    pub(crate) fn wrapping(server: Server) -> Self {
        let buckets = Arc::new(MemoryBuckets::new(Arc::new(SystemClock)));
        Self { inner: server, users: Users::default(), buckets, next: AtomicU64::new(0) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.inner.address())
    }

    pub(crate) fn client(&self, access_key: &str) -> S3Buckets {
        let credentials = Credentials::new(access_key, SECRET, None).unwrap();
        let config = S3Config {
            endpoint: Some(self.url()),
            region: "us-east-1".to_owned(),
            credentials: credentials.into(),
            ..S3Config::default()
        };
        S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7))).unwrap()
    }

    pub(crate) async fn fresh_bucket(&self) -> Result<Arc<dyn ObjectStore>> {
        let name = format!("bucket-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let buckets = self.client(KEY);
        buckets.create(&name).await?;
        buckets.open(&name).await
    }
}

/// Returns a user whose secret is [`SECRET`].
pub(crate) fn user(access_key: &str, role: Role, buckets: &[&str]) -> User {
    User {
        access_key: access_key.to_owned(),
        secret_key: SECRET.to_owned(),
        role,
        buckets: buckets.iter().map(|&bucket| bucket.to_owned()).collect(),
    }
}

/// Returns the users that every test endpoint starts with.
pub(crate) fn initial_users() -> Vec<User> {
    let roles = [(KEY, Role::Admin), ("reader", Role::ReadOnly), ("writer", Role::ReadWrite)];
    roles.map(|(access_key, role)| user(access_key, role, &[])).into()
}

/// A set of buckets with one existing bucket, called `bucket`.
#[derive(Debug)]
pub(crate) struct OneBucket(pub(crate) Arc<dyn ObjectStore>);

#[async_trait::async_trait]
impl Buckets for OneBucket {
    async fn open(&self, _name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        Ok(self.0.clone())
    }

    async fn create(&self, _name: &str) -> store::Result<()> {
        Ok(())
    }

    async fn delete(&self, _name: &str) -> store::Result<()> {
        Ok(())
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        Ok(vec!["bucket".to_owned()])
    }
}
