//! Credentials of a web identity, as in pods of Kubernetes: STS's AssumeRoleWithWebIdentity exchanges a token, in a file
//! that another program keeps up to date, for a role's credentials.

use super::provider_request::{Trouble, World};
use super::role::Sts;
use super::{CredentialsError, Lease};
use std::fmt;
use std::path::PathBuf;

/// Maximum length of a token, in bytes (STS takes 20,000 characters).
const TOKEN_BYTES_MAX: usize = 20_000;

#[derive(Debug)]
pub(super) struct WebIdentity {
    pub(super) token_file: PathBuf,
    pub(super) arn: String,
    pub(super) session_name: String,
    pub(super) sts: Sts,
}

impl WebIdentity {
    pub(super) async fn lease(&self, world: &World) -> Result<Lease, CredentialsError> {
        self.assume(world).await.map_err(|trouble| trouble.of(self))
    }

    async fn assume(&self, world: &World) -> Result<Lease, Trouble> {
        let token = read_token(&self.token_file).await?;
        let fields = [
            ("RoleArn", self.arn.as_str()),
            ("RoleSessionName", &self.session_name),
            ("WebIdentityToken", &token),
        ];
        self.sts.ask("AssumeRoleWithWebIdentity", &fields, None, world).await
    }
}

/// Reads a token from a file.
pub(super) async fn read_token(file: &std::path::Path) -> Result<String, Trouble> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| Trouble::passing(format!("cannot read {}: {error}", file.display())))?;
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(Trouble::passing(format!("{} holds no token", file.display())));
    }
    Ok(token.to_owned())
}

impl fmt::Display for WebIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the web identity in {} for role {}", self.token_file.display(), self.arn)
    }
}
