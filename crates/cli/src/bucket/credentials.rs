//! Access to the buckets of a server: the settings that the user gave, completed from the environment and the AWS files.

use crate::process::context::ProcessContext;
use crate::process::{environment, files};
use crate::state;
use crate::volume::{Account, Volume};
use anyhow::{Context, Result, anyhow};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Buckets;
use store::accounts::Accounts;
use store_s3::{
    Addressing, Credentials, CredentialsSource, Found, RequestCounts, S3Buckets, S3Config, Search,
};

/// Minimum timeout of an answer. A short retry timeout also shortens the timeout of single attempts, but not below
/// this.
const ANSWER_WITHIN_MIN: Duration = Duration::from_secs(5);

/// Settings for reaching the buckets of a volume.
#[derive(Debug, Clone)]
pub(crate) struct StoreSettings {
    /// URL of the server.
    pub(crate) endpoint_url: Option<String>,
    pub(crate) region: Option<String>,
    /// Profile in the AWS files.
    pub(crate) profile: Option<String>,
    /// File with the access key, instead of a profile.
    pub(crate) access_key_file: Option<PathBuf>,
    /// The access key itself, from a program that opens volumes.
    pub(crate) access_key: Option<Credentials>,
    /// Whether requests are not signed.
    pub(crate) is_anonymous: bool,
    /// Where a URL names the bucket; `None` for the server's default.
    pub(crate) addressing: Option<Addressing>,
    /// Certificate authorities to trust in addition to the system's.
    pub(crate) ca_bundle: Option<PathBuf>,
    /// Whether a pool of drives is opened although some are missing.
    pub(crate) degraded: bool,
    /// How long a failing request is repeated before its error is returned.
    pub(crate) retry_timeout: Duration,
}

impl StoreSettings {
    /// Returns the endpoint that the user or the environment names, not one in the AWS files; `None` if neither names one. It is part of a
    /// volume's identity.
    pub(crate) fn endpoint(&self) -> Option<String> {
        let named = self.endpoint_url.clone();
        named
            .or_else(|| environment::variable("AWS_ENDPOINT_URL_S3"))
            .or_else(|| environment::variable("AWS_ENDPOINT_URL"))
    }

    /// Returns the named state directory, or the volume's default.
    pub(crate) fn state_dir(&self, volume: &Volume, named: Option<&Path>) -> PathBuf {
        let own = || state::default_dir(volume, self.endpoint().as_deref(), &environment::states_dir());
        named.map_or_else(own, Path::to_owned)
    }

    /// Returns the settings of a client for the buckets of an account.
    pub(crate) fn s3_config(&self, account: Option<&str>) -> Result<S3Config> {
        let found = match account {
            None => self.default_account()?,
            Some(name) => {
                profile_account(name).with_context(|| format!("cannot use the account '{name}'"))?
            }
        };
        let mut config = S3Config {
            endpoint: found.endpoint,
            credentials: found.credentials,
            ca_bundle: self.ca_bundle.clone(),
            addressing: self.addressing,
            ..S3Config::default()
        };
        config.retry.budget = self.retry_timeout;
        let answer = self.retry_timeout.clamp(ANSWER_WITHIN_MIN, config.timeouts.answer);
        (config.timeouts.answer, config.timeouts.stall) = (answer, answer);
        if let Some(region) = found.region {
            config.region = region;
        }
        Ok(config)
    }

    /// Returns the settings of the user, completed from the environment and the AWS files.
    fn default_account(&self) -> Result<Found> {
        let found = self.credentials()?;
        let (endpoint, region) = (self.endpoint_url.clone(), self.region.clone());
        Ok(Found { endpoint: endpoint.or(found.endpoint), region: region.or(found.region), ..found })
    }

    fn credentials(&self) -> Result<Found> {
        if self.is_anonymous {
            let region =
                environment::variable("AWS_REGION").or_else(|| environment::variable("AWS_DEFAULT_REGION"));
            let credentials = CredentialsSource::Anonymous;
            return Ok(Found { credentials, region, endpoint: self.endpoint() });
        }
        let explicit = match (&self.access_key, &self.access_key_file) {
            (Some(key), _) => Some(key.clone()),
            (None, file) => file.as_deref().map(read_key_file).transpose()?,
        };
        let (profile, region) = (self.profile.clone(), self.region.clone());
        Ok(Search { explicit, profile, region, env: &environment::variable }.run()?)
    }
}

/// Signs in to the accounts. Returns all buckets that their credentials can access.
pub(crate) async fn open_accounts(
    accounts: &BTreeSet<Account>,
    settings: &StoreSettings,
    context: &ProcessContext,
) -> Result<Arc<dyn Buckets>> {
    Ok(sign_in(accounts, settings, context).await?.0)
}

/// Signs in to the accounts. Returns their buckets, and the request counts of each account.
pub(super) async fn sign_in(
    accounts: &BTreeSet<Account>,
    settings: &StoreSettings,
    context: &ProcessContext,
) -> Result<(Arc<dyn Buckets>, Vec<Arc<RequestCounts>>)> {
    let (mut reached, mut counts) = (BTreeMap::<Account, Arc<dyn Buckets>>::new(), Vec::new());
    for account in accounts {
        let (clock, entropy) = (Arc::clone(&context.clock), Arc::clone(&context.entropy));
        let buckets = S3Buckets::new(settings.s3_config(account.as_deref())?, clock, entropy)?;
        buckets.sign_in().await?;
        counts.push(buckets.requests());
        reached.insert(account.clone(), Arc::new(buckets));
    }
    Ok((Arc::new(Accounts::new(reached)), counts))
}

/// Returns the settings of a profile. Endpoint and region in the environment are for the default account only.
fn profile_account(name: &str) -> Result<Found> {
    let env = |name: &str| match name {
        "AWS_ENDPOINT_URL" | "AWS_ENDPOINT_URL_S3" | "AWS_REGION" | "AWS_DEFAULT_REGION" => None,
        _ => environment::variable(name),
    };
    Ok(Search { explicit: None, profile: Some(name.to_owned()), region: None, env: &env }.run()?)
}

/// Reads `ACCESS-KEY:SECRET-KEY[:SESSION-TOKEN]` from the first line of a file that only its owner may access.
fn read_key_file(path: &Path) -> Result<Credentials> {
    let shown = path.display();
    let text = files::read_secret(path)?;
    let mut parts = text.lines().next().unwrap_or_default().trim().splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(access), Some(secret), token) => {
            Credentials::new(access, secret, token).with_context(|| shown.to_string())
        }
        _ => Err(anyhow!("{shown} has no ACCESS-KEY:SECRET-KEY in its first line; write it there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn key_file(text: &str, mode: u32) -> (tempfile::NamedTempFile, Result<Credentials>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        let read = read_key_file(file.path());
        (file, read)
    }

    #[test]
    fn a_key_file_is_read_only_when_it_is_private() {
        assert_eq!(key_file("AKIA:hush\n", 0o600).1.unwrap().access_key(), "AKIA");
        let refused = format!("{:#}", key_file("AKIA:hush\n", 0o644).1.unwrap_err());
        assert!(refused.contains("chmod 600") && !refused.contains("hush"), "{refused}");
        let refused = format!("{:#}", key_file("hush\n", 0o600).1.unwrap_err());
        assert!(refused.contains("no ACCESS-KEY:SECRET-KEY") && !refused.contains("hush"), "{refused}");
    }
}
