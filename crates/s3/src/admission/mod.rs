//! Admission control: which requests may proceed, and how much memory their bodies may use.
//!
//! Owns the request slots (`--max-requests`), the memory budget for bodies, and the reading of bodies that precede
//! authentication. All of it belongs to one endpoint.
//!
//! Refuses: to give a slot to a request before its sender is known, so that a connection that trickles data costs other
//! clients nothing; to let one client take everything (see [`pool`]).
//!
//! Invariants: no request waits for memory while it holds memory of the same pool that only becomes free after the
//! wait; no body is read before its memory is acquired, except bodies that precede authentication, which have limits
//! of their own.

mod pool;
mod pre_auth;

use s3s::{S3Error, S3Result, s3_error};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pool::Pool;
use pre_auth::PreAuthBodies;

pub(crate) use pool::{Client, Holder, Permit};

/// Bodies up to this length, and the beginnings of longer ones, are charged to the pool of short bodies.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;
/// The memory that a parsed document takes, as a multiple of its length.
const DOCUMENT_FACTOR: u64 = 4;

/// The maximum wait for memory. Other requests release theirs as soon as a part is stored.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The default number of requests in progress at a time.
pub(crate) const REQUESTS: usize = 256;
/// The default memory budget for bodies: 32 parts of 8 MiB, and 64 MiB for short bodies.
pub(crate) const BODY_BYTES: u64 = 320 << 20;
/// The minimum budget for long bodies, in bytes: with less than two parts of 8 MiB no body could be sent while its next
/// part is read.
const LONG_BYTES_MIN: u64 = 16 << 20;
/// The minimum budget for short bodies, in bytes.
const SHORT_BYTES_MIN: u64 = 4 << 20;
/// Short bodies get one part in this many of the budget.
const SHORT_DIVISOR: u64 = 5;

/// The admission control of an endpoint.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Request slots.
    requests: Pool,
    /// Bytes for short bodies and the beginnings of longer ones.
    short: Pool,
    /// Bytes for the parts of longer bodies.
    long: Pool,
    pre_auth_bodies: PreAuthBodies,
}

impl Admission {
    pub(crate) fn new() -> Self {
        let admission = Self {
            requests: Pool::new(0),
            short: Pool::new(0),
            long: Pool::new(0),
            pre_auth_bodies: PreAuthBodies::default(),
        };
        admission.resize(REQUESTS, BODY_BYTES);
        admission
    }

    /// Sets the limits. Must be called before the first request.
    pub(crate) fn resize(&self, requests: usize, body_bytes: u64) {
        self.requests.resize(requests as u64);
        let short = (body_bytes / SHORT_DIVISOR).max(SHORT_BYTES_MIN);
        self.short.resize(short);
        self.long.resize(body_bytes.saturating_sub(short).max(LONG_BYTES_MIN));
    }

    /// Reads a body that precedes authentication, within the limits for such bodies.
    pub(crate) async fn read_pre_auth<T>(
        &self,
        peer: Option<IpAddr>,
        reading: impl Future<Output = S3Result<T>>,
    ) -> S3Result<T> {
        self.pre_auth_bodies.read(peer, reading).await
    }
}

/// A client to whom a request's slot and memory are charged.
#[derive(Debug, Clone)]
pub(crate) struct AdmittedClient {
    pub(crate) admission: Arc<Admission>,
    pub(crate) client: Client,
}

impl AdmittedClient {
    /// Returns a request slot, or the error `SlowDown`.
    pub(crate) fn admit(&self) -> S3Result<Permit> {
        self.admission.requests.try_take(&self.client, 1).ok_or_else(slow_down)
    }

    /// Acquires memory for a short body, or for the beginning of a longer one; `None` if the body is announced as
    /// empty. Waits for at most [`WAIT_MAX`]. Error: `SlowDown`.
    pub(crate) async fn acquire_short(&self, announced: Option<u64>) -> S3Result<Option<Permit>> {
        let bytes = announced.map_or(SMALL_BYTES, |announced| announced.min(SMALL_BYTES));
        acquire(&self.admission.short, &self.client, bytes).await
    }

    /// Acquires memory for a part of a body; `None` if it is empty. Waits for at most [`WAIT_MAX`]. Error: `SlowDown`.
    pub(crate) async fn acquire_part(&self, bytes: u64) -> S3Result<Option<Permit>> {
        acquire(&self.admission.long, &self.client, bytes).await
    }

    /// Acquires memory for a document, which is read whole and then parsed. Error: `SlowDown`.
    pub(crate) async fn acquire_document(
        &self,
        announced: Option<u64>,
        bytes_max: u64,
    ) -> S3Result<Option<Permit>> {
        match announced.unwrap_or(bytes_max).min(bytes_max) {
            bytes if bytes <= SMALL_BYTES => self.acquire_short(Some(bytes)).await,
            bytes => self.acquire_part(bytes * DOCUMENT_FACTOR).await,
        }
    }
}

/// Takes bytes from a pool; `None` for no bytes. Fails with `SlowDown` if there are none in time.
async fn acquire(pool: &Pool, client: &Client, bytes: u64) -> S3Result<Option<Permit>> {
    match bytes {
        0 => Ok(None),
        bytes => pool.take(client, bytes, WAIT_MAX).await.map(Some).ok_or_else(slow_down),
    }
}

fn slow_down() -> S3Error {
    s3_error!(SlowDown, "Please reduce your request rate.")
}
