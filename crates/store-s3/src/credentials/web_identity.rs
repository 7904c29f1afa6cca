//! Credentials of a web identity, as in pods of Kubernetes: STS's AssumeRoleWithWebIdentity exchanges a token, in a file
//! that another program keeps up to date, for a role's credentials.

use super::provider_request::{ProviderContext, ProviderError};
use super::sts::Sts;
use super::{CredentialsError, ExpiringCredentials};
use std::fmt;
use std::path::PathBuf;

/// Maximum length of a token, in bytes (STS takes 20,000 characters).
const TOKEN_BYTES_MAX: usize = 20_000;

/// A role that is assumed with the token of another identity provider.
#[derive(Debug)]
pub(super) struct WebIdentity {
    pub(super) token_file: PathBuf,
    pub(super) arn: String,
    pub(super) session_name: String,
    pub(super) sts: Sts,
}

impl WebIdentity {
    pub(super) async fn get_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, CredentialsError> {
        self.assume(context).await.map_err(|error| error.for_provider(self))
    }

    /// Assumes the role with the present token.
    async fn assume(&self, context: &ProviderContext) -> Result<ExpiringCredentials, ProviderError> {
        let token = read_token(&self.token_file).await?;
        let fields = [
            ("RoleArn", self.arn.as_str()),
            ("RoleSessionName", &self.session_name),
            ("WebIdentityToken", &token),
        ];
        self.sts.send("AssumeRoleWithWebIdentity", &fields, None, context).await
    }
}

/// Reads a token from a file, without the white space around it. The error is transient, because another program may be
/// writing the file.
pub(super) async fn read_token(file: &std::path::Path) -> Result<String, ProviderError> {
    let text = tokio::fs::read_to_string(file).await;
    let text =
        text.map_err(|error| ProviderError::transient(format!("cannot read {}: {error}", file.display())))?;
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(ProviderError::transient(format!(
            "{} contains no token, or one that is too long",
            file.display()
        )));
    }
    Ok(token.to_owned())
}

impl fmt::Display for WebIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the web identity in {} for role {}", self.token_file.display(), self.arn)
    }
}
