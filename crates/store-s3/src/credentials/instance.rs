//! Credentials of a machine, from the instance metadata service, by sessions only (EC2 User Guide, "Use the Instance
//! Metadata Service": IMDSv2). Requests without a session, which server-side request forgery could use, are never sent.

use super::provider_request::{ProviderContext, ProviderError, ProviderRequest};
use super::{CredentialsError, ExpiringCredentials, document};
use crate::config::Endpoint;
use http::{Method, StatusCode};
use serde_json::Value;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The URL of the instance metadata service by IPv4.
pub(super) const IPV4: &str = "http://169.254.169.254";
/// The URL of the instance metadata service by IPv6.
pub(super) const IPV6: &str = "http://[fd00:ec2::254]";

/// Time limits of connecting and of a whole exchange; short, because the service is on the machine itself. Behind a
/// router (a container's bridge), the response with the session may be lost because of its hop limit.
const WITHIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

/// Lifetime of a session, which is used for one lookup only.
const SESSION_SECS: &str = "60";

const ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// The metadata service of an EC2 instance.
#[derive(Debug)]
pub(super) struct Instance {
    endpoint: Endpoint,
    /// The places searched before, if this provider is the last resort: then an absent service means "no credentials".
    places_before: Option<String>,
    /// Whether the service has returned credentials before: then its absence counts as a transient error.
    has_succeeded: AtomicBool,
}

impl Instance {
    pub(super) fn new(endpoint: Endpoint, places_before: Option<String>) -> Self {
        Self { endpoint, places_before, has_succeeded: AtomicBool::new(false) }
    }

    pub(super) async fn get_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, CredentialsError> {
        match (self.request_credentials(context).await, &self.places_before) {
            (Ok(found), _) => {
                self.has_succeeded.store(true, Ordering::Relaxed);
                Ok(found)
            }
            (Err(error), Some(places))
                if is_absent(&error) && !self.has_succeeded.load(Ordering::Relaxed) =>
            {
                Err(CredentialsError::Missing(format!("{places}, {self} ({})", error.reason)))
            }
            (Err(error), _) => Err(error.for_provider(self)),
        }
    }

    async fn request_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, ProviderError> {
        let session = self.session(context).await?;
        let roles = self.read(ROLES, &session, context).await?;
        let role = roles.lines().next().unwrap_or_default().trim().to_owned();
        if role.is_empty() {
            return Err(ProviderError {
                status: Some(StatusCode::NOT_FOUND),
                ..ProviderError::permanent("it has no role")
            });
        }
        let answer = self.read(&format!("{ROLES}{role}"), &session, context).await?;
        read(answer.as_bytes())
    }

    /// Begins a session with the metadata service, and returns its token.
    async fn session(&self, context: &ProviderContext) -> Result<String, ProviderError> {
        let mut request = ProviderRequest::get(&format!("{}/latest/api/token", self.endpoint), WITHIN)?;
        request = request.secret("x-aws-ec2-metadata-token-ttl-seconds", SESSION_SECS)?;
        request.method = Method::PUT;
        text(request.send(context).await?)
    }

    async fn read(
        &self,
        path: &str,
        session: &str,
        context: &ProviderContext,
    ) -> Result<String, ProviderError> {
        let request = ProviderRequest::get(&format!("{}{path}", self.endpoint), WITHIN)?;
        text(request.secret("x-aws-ec2-metadata-token", session)?.send(context).await?)
    }
}

/// Returns whether an error may mean that there is no such service, or no role for this machine: there was no usable
/// response, or its status is 403 or 404.
fn is_absent(error: &ProviderError) -> bool {
    matches!(error.status, None | Some(StatusCode::NOT_FOUND | StatusCode::FORBIDDEN))
}

fn text(bytes: bytes::Bytes) -> Result<String, ProviderError> {
    String::from_utf8(bytes.into()).map_err(|_| ProviderError::permanent("the response is not text"))
}

/// Reads the credentials in a response, which may be an error with status 200.
fn read(answer: &[u8]) -> Result<ExpiringCredentials, ProviderError> {
    let answer = document::parse_json(answer)?;
    match answer.get("Code").and_then(Value::as_str) {
        None | Some("Success") => Ok(document::parse_credentials(&answer, document::METADATA)?),
        Some(code) => Err(ProviderError::transient(format!("it answers {}", crate::failure::one_line(code)))),
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the instance metadata at {}", self.endpoint)
    }
}
