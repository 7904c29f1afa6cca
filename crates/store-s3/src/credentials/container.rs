//! Credentials of a container, from the agent of ECS, EKS Pod Identity or Greengrass.

use super::provider_request::{self, ProviderContext, ProviderError, ProviderRequest};
use super::{CredentialsError, ExpiringCredentials, Secret, document, web_identity};
use http::Uri;
use http::uri::Scheme;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The agent of ECS, the base of relative URIs.
const ECS: &str = "http://169.254.170.2";

/// The agents of ECS and EKS, for which plain HTTP is allowed.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// Time limits of connecting and of a whole exchange.
const WITHIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));

/// A service that gives credentials to containers.
pub(super) struct Container {
    url: Uri,
    token: Option<Token>,
}

/// The token that authorizes requests to the agent.
#[derive(Debug)]
pub(super) enum Token {
    /// A file that another program keeps up to date.
    File(PathBuf),
    Text(Secret),
}

impl Container {
    /// Makes a provider at a path of ECS's agent.
    pub(super) fn relative(path: &str, token: Option<Token>) -> Result<Self, CredentialsError> {
        Self::at("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", &format!("{ECS}{path}"), token)
    }

    /// Makes a provider at a URL. Refuses plain HTTP to machines other than this one and the agents, so that the
    /// variable cannot make this client send the token unencrypted.
    pub(super) fn full(url: &str, token: Option<Token>) -> Result<Self, CredentialsError> {
        Self::at("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, token)
    }

    /// Makes a provider at a URL. `place` is the variable that errors name.
    fn at(place: &str, url: &str, token: Option<Token>) -> Result<Self, CredentialsError> {
        let malformed = |reason: &str| CredentialsError::malformed(place, reason);
        let url: Uri = url.parse().map_err(|_| malformed("not a URL"))?;
        match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => {}
            Some(scheme) if *scheme == Scheme::HTTP && is_local(url.host().unwrap_or_default()) => {}
            _ => return Err(malformed("neither https nor an address of this machine, of ECS or of EKS")),
        }
        Ok(Self { url, token })
    }

    pub(super) async fn get_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, CredentialsError> {
        self.request_credentials(context).await.map_err(|error| error.for_provider(self))
    }

    async fn request_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, ProviderError> {
        let mut request = ProviderRequest::get(&self.url.to_string(), WITHIN)?;
        if let Some(token) = &self.token {
            request = request.secret("authorization", &token.read().await?)?;
        }
        let answer = document::parse_json(&request.send(context).await?)?;
        Ok(document::parse_credentials(&answer, document::METADATA)?)
    }
}

impl Token {
    async fn read(&self) -> Result<String, ProviderError> {
        match self {
            Self::File(file) => web_identity::read_token(file).await,
            Self::Text(text) => Ok(text.0.clone()),
        }
    }
}

/// Returns whether a host is this machine or an agent.
fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || AGENTS.contains(&host)
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Omits the path, which may be all that is needed to get the credentials.
impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("server", &provider_request::server_of(&self.url))
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the container's agent at {}", provider_request::server_of(&self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_unencrypted_only_to_local_hosts() {
        for (url, is_asked) in [
            ("http://127.0.0.1:8080/creds?x=y", true),
            ("http://[::1]/creds", true),
            ("http://localhost/creds", true),
            ("http://169.254.170.2/v2/x", true),
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("https://example.com/creds", true),
            ("http://example.com/creds", false),
            ("http://127.0.0.1.example.com/creds", false),
            ("http://169.254.169.254/creds", false),
            ("http://10.0.0.1/creds", false),
            ("ftp://localhost/", false),
            ("/creds", false),
            ("", false),
        ] {
            assert_eq!(Container::full(url, None).is_ok(), is_asked, "{url}");
        }
        assert!(Container::relative("@evil.example/x", None).is_err());
        assert!(Container::relative("/v2/credentials/1", None).is_ok());
    }
}
