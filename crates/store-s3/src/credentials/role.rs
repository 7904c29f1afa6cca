//! Credentials of a role, which STS's AssumeRole returns for other credentials (AWS Security Token Service API Reference).

use super::provider::Provider;
use super::provider_request::ProviderContext;
use super::sts::Sts;
use super::{CredentialsError, ExpiringCredentials};
use std::fmt;

/// Name of the session of an assumed role if the configuration has none.
pub(super) const SESSION_NAME: &str = "tenon";

/// A role, and the source of the credentials that assume it.
#[derive(Debug)]
pub(super) struct Role {
    /// The profile that configures the role.
    pub(super) profile: String,
    pub(super) arn: String,
    pub(super) source: Box<Provider>,
    pub(super) session_name: String,
    pub(super) external_id: Option<String>,
    pub(super) duration_secs: Option<u32>,
    pub(super) sts: Sts,
}

impl Role {
    pub(super) async fn get_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, CredentialsError> {
        // The source of a role may itself be a role.
        let source = Box::pin(self.source.get_credentials(context)).await?;
        let duration = self.duration_secs.map(|secs| secs.to_string());
        let mut fields = vec![("RoleArn", self.arn.as_str()), ("RoleSessionName", &self.session_name)];
        fields.extend(self.external_id.as_deref().map(|id| ("ExternalId", id)));
        fields.extend(duration.as_deref().map(|secs| ("DurationSeconds", secs)));
        let asked = self.sts.send("AssumeRole", &fields, Some(&source.credentials), context).await;
        asked.map_err(|error| error.for_provider(self))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "role {} of profile '{}'", self.arn, self.profile)
    }
}
