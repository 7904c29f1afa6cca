//! The buckets of a server.

use super::call::Call;
use super::client::Client;
use super::config::{ConfigError, DEFAULT_REGION, S3Config};
use super::credentials::CredentialsError;
use super::failure::Failure;
use super::request_counts::{RequestCounts, RequestKind};
use super::retry::RetryPolicy;
use super::{S3Store, xml};
use http::{HeaderMap, Method};
use std::sync::Arc;
use store::{Buckets, Clock, Entropy, ObjectStore, Payload, Result, StoreError};

/// Attempts of the first request to a server: few, so that a mistyped endpoint is reported soon.
const FIRST_ATTEMPTS_MAX: u32 = 3;

/// A server with buckets.
#[derive(Debug, Clone)]
pub struct S3Buckets {
    client: Arc<Client>,
}

impl S3Buckets {
    /// Makes a client of a server, without sending a request.
    pub fn new(config: S3Config, clock: Arc<dyn Clock>, entropy: Arc<Entropy>) -> Result<Self, ConfigError> {
        Ok(Self { client: Arc::new(Client::new(config, clock, entropy)?) })
    }

    /// Returns the counts of the requests sent through this client and the stores that it opened.
    pub fn requests(&self) -> Arc<RequestCounts> {
        self.client.counts.clone()
    }

    /// Gets credentials now instead of with the first request, to report missing credentials early.
    pub async fn sign_in(&self) -> Result<(), CredentialsError> {
        self.client.sign_in().await
    }

    /// Returns a store for a bucket without checking whether it exists; sends no request.
    pub fn store(&self, name: &str) -> Result<S3Store> {
        Ok(S3Store { client: self.client.clone(), bucket: check_name(name)? })
    }

    /// Opens a bucket like [`Buckets::open`], but returns the concrete type.
    pub async fn open_store(&self, name: &str) -> Result<S3Store> {
        let store = self.store(name)?;
        let call = Call::bucket_call(RequestKind::HeadBucket, Method::HEAD, store.bucket.clone());
        let policy = self.client.config.retry;
        let policy = RetryPolicy { attempts_max: policy.attempts_max.min(FIRST_ATTEMPTS_MAX), ..policy };
        let mut retry = self.client.retry_with(policy);
        match self.client.fetch_as(&call, &mut retry, Ok).await {
            Ok(answer) if is_s3_response(&answer.headers) => Ok(store),
            Ok(_) => self.diagnose(&store, None).await.map(|()| store),
            Err(failure) if is_no_response(&failure) => Err(self.with_endpoint_hint(failure)),
            Err(failure) => {
                self.diagnose(&store, Some(failure)).await?;
                Ok(store)
            }
        }
    }

    /// Finds out why a bucket cannot be opened. Responses to HEAD have no body, so this requests the first page of a
    /// listing: its error document contains the reason, and only S3 servers send such a document. Returns `Ok` if the
    /// listing succeeds. `head` is the failure of the HEAD request, if it failed.
    async fn diagnose(&self, store: &S3Store, head: Option<Failure>) -> Result<()> {
        let call = Call::bucket_call(RequestKind::List, Method::GET, store.bucket.clone())
            .query("list-type", "2")
            .query("max-keys", "1");
        let mut retry = self.client.retry();
        let answered = self.client.fetch_as(&call, &mut retry, |answer| {
            xml::parse_listing(&answer.body).map_err(|_| self.not_s3())
        });
        let failure = match (answered.await, head) {
            (Ok(_), _) => return Ok(()),
            // The response to HEAD contains the region.
            (Err(_), Some(head)) if is_about_region(&head) => head,
            (Err(failure), _) if failure.code.is_empty() && is_answer(&failure) => self.not_s3(),
            (Err(failure), _) => failure,
        };
        Err(failure.error)
    }

    /// Returns the error for a response that is not that of an S3 server.
    fn not_s3(&self) -> Failure {
        let endpoint = &self.client.endpoint;
        StoreError::Invalid(format!("{endpoint} answers, but not as an S3 server: check the endpoint")).into()
    }

    fn with_endpoint_hint(&self, failure: Failure) -> StoreError {
        match failure.error {
            StoreError::Unavailable(text) => StoreError::Unavailable(format!("{text}; check the endpoint")),
            error => error,
        }
    }
}

/// Returns whether a failure shows no S3 server: there was no response, or an error response without an S3 code. Status
/// 503 is excepted: a server that is starting sends it, and gets the full retry time.
fn is_no_response(failure: &Failure) -> bool {
    failure.code.is_empty() && matches!(failure.error, StoreError::Unavailable(_))
}

/// Returns whether a failure is the refusal of a server that responded.
fn is_answer(failure: &Failure) -> bool {
    !matches!(failure.error, StoreError::Unavailable(_) | StoreError::Throttled(_) | StoreError::Corrupt(_))
}

/// Returns whether a failure says that the bucket is in another region.
fn is_about_region(failure: &Failure) -> bool {
    matches!(&failure.error, StoreError::Invalid(text) if text.contains("is in region"))
}

/// Returns whether a response has headers that only S3 servers send.
fn is_s3_response(headers: &HeaderMap) -> bool {
    headers.contains_key("x-amz-request-id") || headers.contains_key("x-amz-bucket-region")
}

/// Checks that a bucket name can be part of a path or host. The server checks the other rules: AWS has old buckets whose
/// names today's rules forbid.
fn check_name(name: &str) -> Result<Arc<str>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !name.is_empty() && name.bytes().all(plain) && name != "." && name != ".." {
        return Ok(name.into());
    }
    Err(StoreError::BucketState {
        bucket: name.escape_default().to_string(),
        reason: "not a bucket's name".to_owned(),
    })
}

#[async_trait::async_trait]
impl Buckets for S3Buckets {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(self.open_store(name).await?))
    }

    async fn create(&self, name: &str) -> Result<()> {
        store::bucket_name::check(name)?;
        let mut call = Call::bucket_call(RequestKind::CreateBucket, Method::PUT, name.into());
        let region = &self.client.config.region;
        if region != DEFAULT_REGION {
            call = call.body(Payload::from(xml::write_location(region)));
        }
        self.client.fetch(&call).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let call = Call::bucket_call(RequestKind::DeleteBucket, Method::DELETE, check_name(name)?);
        self.client.fetch(&call).await?;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut token = None;
        loop {
            let mut call = Call::service(RequestKind::ListBuckets, Method::GET);
            if let Some(token) = token {
                call = call.query("continuation-token", token);
            }
            let mut retry = self.client.retry();
            let page =
                self.client.fetch_as(&call, &mut retry, |answer| xml::parse_buckets(&answer.body)).await?;
            names.extend(page.names);
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
