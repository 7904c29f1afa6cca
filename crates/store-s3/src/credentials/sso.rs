//! Credentials of IAM Identity Center: the portal exchanges a token, which `aws sso login` stores in its cache, for a
//! role's credentials (AWS SDKs and Tools Reference Guide, "IAM Identity Center credential provider").

use super::provider_request::{ProviderContext, ProviderError, ProviderRequest};
use super::{CredentialsError, ExpiringCredentials, Secret, document};
use crate::config::Endpoint;
use crate::{escape, xml};
use aws_lc_rs::digest;
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use store::Timestamp;

/// Time limits of connecting and of a whole exchange.
const WITHIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));

/// A login by AWS IAM Identity Center.
#[derive(Debug)]
pub(super) struct Sso {
    pub(super) profile: String,
    /// The session's name, or the start URL if the profile has no session. Determines the name of the cache file.
    pub(super) session: String,
    /// The directory with the cached tokens, `~/.aws/sso/cache`.
    pub(super) cache: PathBuf,
    pub(super) account_id: String,
    pub(super) role_name: String,
    pub(super) portal: Endpoint,
}

impl Sso {
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
        let token = self.token(context.clock.now()).await?;
        let url = format!(
            "{}/federation/credentials?account_id={}&role_name={}",
            self.portal,
            escape::query(&self.account_id),
            escape::query(&self.role_name)
        );
        let request = ProviderRequest::get(&url, WITHIN)?.secret("x-amz-sso_bearer_token", &token.0)?;
        let answer = request.send(context).await.map_err(|error| self.refused(error))?;
        let answer = document::parse_json(&answer)?;
        let object =
            answer.get("roleCredentials").ok_or_else(|| "a response without credentials".to_owned())?;
        Ok(document::parse_credentials(object, document::SSO)?)
    }

    /// Returns the token of the login, from the file in which `aws sso login` keeps it.
    async fn token(&self, now: Timestamp) -> Result<Secret, ProviderError> {
        let text = tokio::fs::read(self.cache.join(file_name(&self.session))).await;
        let text =
            text.map_err(|_| ProviderError::permanent(format!("no login found: {}", self.advice())))?;
        let (token, ends) = read(&text)?;
        if ends <= now {
            return Err(ProviderError::permanent(format!("the login has expired: {}", self.advice())));
        }
        Ok(token)
    }

    /// Adds advice to the error if the portal refused the token, which can happen before the expiry time in the cache.
    fn refused(&self, error: ProviderError) -> ProviderError {
        match error.status {
            Some(http::StatusCode::UNAUTHORIZED) => {
                ProviderError { reason: format!("{}: {}", error.reason, self.advice()), ..error }
            }
            _ => error,
        }
    }

    /// Returns the command by which the user logs in.
    fn advice(&self) -> String {
        match self.profile.as_str() {
            "default" => "run `aws sso login`".to_owned(),
            profile => format!("run `aws sso login --profile {profile}`"),
        }
    }
}

/// Returns the name of the cache file: the SHA-1 of the session in hexadecimal.
fn file_name(session: &str) -> String {
    let sum = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, session.as_bytes());
    format!("{}.json", store::hex(sum.as_ref()))
}

/// Reads the token in a cache file, and its expiry time.
pub(super) fn read(text: &[u8]) -> Result<(Secret, Timestamp), String> {
    let object = document::parse_json(text).map_err(|error| format!("the cached login: {error}"))?;
    let field = |name: &str| object.get(name).and_then(Value::as_str);
    let token = field("accessToken").ok_or("the cached login has no accessToken")?;
    // Old versions of the AWS CLI wrote `2020-06-17T10:02:08UTC`.
    let ends = field("expiresAt").map(|text| text.replace("UTC", "Z"));
    let ends = ends.and_then(|text| xml::parse_time(&text)).ok_or("the cached login has no expiresAt")?;
    Ok((Secret(token.to_owned()), ends))
}

impl fmt::Display for Sso {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the SSO of profile '{}'", self.profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of botocore's documentation of the cache: a start URL's SHA-1.
    #[test]
    fn the_cache_is_found_by_its_name() {
        assert_eq!(file_name("admin"), "d033e22ae348aeb5660fc2140aec35850c4da997.json");
    }

    #[test]
    fn a_cached_login_is_read() {
        let text = br#"{"startUrl":"https://x","accessToken":"hush","expiresAt":"2026-11-21T00:00:01UTC"}"#;
        let (token, ends) = read(text).unwrap();
        assert_eq!((token.0.as_str(), ends), ("hush", Timestamp::from_secs(1_795_219_201, 0)));
        for text in
            ["{}", "hush", r#"{"accessToken":"hush"}"#, r#"{"accessToken":"hush","expiresAt":"hush"}"#]
        {
            assert!(!read(text.as_bytes()).unwrap_err().contains("hush"));
        }
    }
}
