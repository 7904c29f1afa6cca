//! Admission control: which requests may go on, and how much memory their bodies may hold.
//!
//! Owns the places of requests (`--max-requests`), the bytes of bodies that are held, and the bodies that precede
//! authentication. All of it belongs to one endpoint.
//!
//! Refuses: to give a place to a request before it is known who sends it, so that a connection that only trickles costs
//! others nothing; to let one client hold everything (see [`pool`]).
//!
//! Invariants: nobody waits for bytes while holding bytes of the same pool that only the end of that wait would give
//! back; a body is not read before its bytes are taken.

mod pool;
mod pre_auth;

use s3s::{S3Error, S3Result, s3_error};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::access_log::Learned;
use pool::Pool;
use pre_auth::Unproven;

pub(crate) use pool::{Client, Holder, Share};

/// Bodies up to this length, and the beginnings of longer ones, come from the pool of short bodies.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;
/// A document that is understood takes a multiple of its length.
const DOCUMENT_FACTOR: u64 = 4;

/// How long a request waits for bytes. Others give theirs back as soon as a part is stored.
const WITHIN: Duration = Duration::from_secs(60);

/// Bytes of bodies that are held at a time, unless the endpoint is told: 32 parts of 8 MiB, and 64 MiB of short bodies.
pub(crate) const BODY_BYTES: u64 = 320 << 20;
/// With less than two parts of 8 MiB no body longer than a part could be sent while the next part is read.
const LONG_BYTES_MIN: u64 = 16 << 20;
const SHORT_BYTES_MIN: u64 = 4 << 20;
/// The part of the bytes that short bodies have.
const SHORT_SHARE: u64 = 5;

/// The admission control of an endpoint.
#[derive(Debug)]
pub(crate) struct Admission {
    requests: Pool,
    short: Pool,
    long: Pool,
    unproven: Unproven,
}

impl Admission {
    pub(crate) fn new() -> Self {
        let admission = Self {
            requests: Pool::new(0),
            short: Pool::new(0),
            long: Pool::new(0),
            unproven: Unproven::default(),
        };
        admission.resize(crate::Limits::default().requests, BODY_BYTES);
        admission
    }

    /// Sets the limits, before the first request.
    pub(crate) fn resize(&self, requests: usize, body_bytes: u64) {
        self.requests.resize(requests as u64);
        let short = (body_bytes / SHORT_SHARE).max(SHORT_BYTES_MIN);
        self.short.resize(short);
        self.long.resize(body_bytes.saturating_sub(short).max(LONG_BYTES_MIN));
    }

    /// A place for a request of a client. `SlowDown`.
    pub(crate) fn admit(&self, client: &Client) -> S3Result<Share> {
        self.requests.try_take(client, 1).ok_or_else(slow_down)
    }

    /// Reads a body that precedes authentication, within the limits of such bodies.
    pub(crate) async fn read_unproven<T>(
        &self,
        peer: Option<IpAddr>,
        reading: impl Future<Output = S3Result<T>>,
    ) -> S3Result<T> {
        self.unproven.read(peer, reading).await
    }
}

/// A client that was admitted, and what its body takes memory from. Travels among a request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub(crate) admission: Arc<Admission>,
    pub(crate) client: Client,
}

impl Admitted {
    /// Notes for the access log whose request it is.
    pub(crate) fn note(&self, extensions: &http::Extensions) {
        if let (Holder::User(user), Some(learned)) = (&self.client.holder, extensions.get::<Learned>()) {
            learned.user(user);
        }
    }

    /// Bytes for a short body, or for the beginning of a longer one. `SlowDown`.
    pub(crate) async fn short(&self, announced: Option<u64>) -> S3Result<Option<Share>> {
        let bytes = announced.map_or(SMALL_BYTES, |announced| announced.min(SMALL_BYTES));
        take(&self.admission.short, &self.client, bytes).await
    }

    /// Bytes for a part of a body. `SlowDown`.
    pub(crate) async fn part(&self, bytes: u64) -> S3Result<Option<Share>> {
        take(&self.admission.long, &self.client, bytes).await
    }

    /// Bytes for a document, which is read as a whole and then understood. `SlowDown`.
    pub(crate) async fn document(&self, announced: Option<u64>, bytes_max: u64) -> S3Result<Option<Share>> {
        match announced.unwrap_or(bytes_max).min(bytes_max) {
            bytes if bytes <= SMALL_BYTES => self.short(Some(bytes)).await,
            bytes => self.part(bytes * DOCUMENT_FACTOR).await,
        }
    }
}

async fn take(pool: &Pool, client: &Client, bytes: u64) -> S3Result<Option<Share>> {
    match bytes {
        0 => Ok(None),
        bytes => pool.take(client, bytes, WITHIN).await.map(Some).ok_or_else(slow_down),
    }
}

fn slow_down() -> S3Error {
    s3_error!(SlowDown, "Please reduce your request rate.")
}
