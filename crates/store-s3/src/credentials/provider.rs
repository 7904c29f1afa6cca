//! The providers of credentials.

use super::container::Container;
use super::instance::Instance;
use super::process::Process;
use super::provider_request::ProviderContext;
use super::role::Role;
use super::sso::Sso;
use super::web_identity::WebIdentity;
use super::{Credentials, CredentialsError, ExpiringCredentials};

/// A provider of credentials, made by [`Search`](super::Search).
#[derive(Debug)]
pub struct Provider(pub(super) Kind);

/// The kind of a source of credentials.
#[derive(Debug)]
pub(super) enum Kind {
    Fixed(Credentials),
    Role(Role),
    WebIdentity(WebIdentity),
    Process(Process),
    Sso(Sso),
    Container(Container),
    Instance(Instance),
}

impl Provider {
    /// Gets credentials, in one attempt.
    pub(super) async fn get_credentials(
        &self,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, CredentialsError> {
        match &self.0 {
            Kind::Fixed(credentials) => {
                Ok(ExpiringCredentials { credentials: credentials.clone(), ends: None })
            }
            Kind::Role(role) => role.get_credentials(context).await,
            Kind::WebIdentity(identity) => identity.get_credentials(context).await,
            Kind::Process(process) => process.get_credentials(context).await,
            Kind::Sso(sso) => sso.get_credentials(context).await,
            Kind::Container(container) => container.get_credentials(context).await,
            Kind::Instance(instance) => instance.get_credentials(context).await,
        }
    }
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Fixed(_) => f.write_str("the keys that were given"),
            Kind::Role(role) => role.fmt(f),
            Kind::WebIdentity(identity) => identity.fmt(f),
            Kind::Process(process) => process.fmt(f),
            Kind::Sso(sso) => sso.fmt(f),
            Kind::Container(container) => container.fmt(f),
            Kind::Instance(instance) => instance.fmt(f),
        }
    }
}
