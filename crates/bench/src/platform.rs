//! Platforms: the object stores over which packages are measured.
//!
//! A platform on the command line is a name, or a name with settings: `lab=https://s3.example.com,region=eu-1,profile=lab`. Credentials are
//! given by reference only: the name of a profile, or of environment variables. So the text of a platform is not a secret, and may be in a
//! journal.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use store_s3::{Credentials, CredentialsError, CredentialsSource, DEFAULT_REGION, S3Config, Search};

/// An object store with a name.
#[derive(Debug, Clone)]
pub struct Platform {
    /// Name in results.
    pub name: String,
    /// Where the store is.
    pub kind: PlatformKind,
    /// The text that [`Platform::parse`] reads.
    pub spec: String,
}

/// Where a store is.
#[derive(Debug, Clone)]
pub enum PlatformKind {
    /// A MinIO that the testbed starts.
    Minio,
    /// Tenon's endpoint over a directory, which the testbed starts.
    TenonDirectory,
    /// Tenon's endpoint over a drive, which the testbed starts.
    TenonDrive,
    /// A local directory whose subdirectories are the buckets; there are no requests to count.
    Directory,
    /// An S3 endpoint that exists.
    S3(Box<S3Endpoint>),
}

/// An S3 endpoint with credentials.
#[derive(Clone)]
pub struct S3Endpoint {
    /// URL, such as `https://s3.eu-central-1.amazonaws.com`.
    pub url: String,
    /// Region that requests are signed for.
    pub region: String,
    /// Credentials of the testbed's client.
    pub credentials: CredentialsSource,
    /// Access key and secret key, if they are fixed. Packages get them on plain HTTP. Otherwise packages get keys that only the testbed's
    /// proxy accepts.
    pub keys: Option<(String, String)>,
    /// A PEM file of additional trusted certificates.
    pub ca_bundle: Option<PathBuf>,
    /// Whether requests or bytes count as costing money: on https by default.
    pub is_paid: bool,
}

/// Problems of a platform's text. No message contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// It has no URL, and the testbed does not know its name.
    #[error(
        "platform '{0}': give its URL, as {0}=https://HOST, or choose from minio, tenon-dir, tenon-drive, directory, aws"
    )]
    NoUrl(String),
    /// A name cannot be used in results and file names.
    #[error("platform '{0}': use lower-case letters, digits and -")]
    Name(String),
    /// A setting is not known.
    #[error(
        "platform '{0}': unknown setting '{1}'; there are region, profile, access-key, secret-key, session-token, ca, paid, free"
    )]
    Setting(String, String),
    /// An environment variable that should have a key is not set.
    #[error("platform '{0}': the variable {1} is not set")]
    NoVariable(String, String),
    /// The credentials cannot be used.
    #[error("platform '{0}': {1}")]
    Credentials(String, CredentialsError),
}

/// Reads an environment variable.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

impl Platform {
    /// Returns the MinIO that the testbed starts.
    pub fn minio() -> Self {
        Self { name: "minio".to_owned(), kind: PlatformKind::Minio, spec: "minio".to_owned() }
    }

    /// Returns the platform that is a local directory.
    pub fn directory() -> Self {
        Self { name: "directory".to_owned(), kind: PlatformKind::Directory, spec: "directory".to_owned() }
    }

    /// Parses the text of a platform: `NAME[=URL][,SETTING=VALUE]...`.
    ///
    /// # Errors
    /// The first problem.
    pub fn parse(spec: &str, environment: Environment<'_>) -> Result<Self, PlatformError> {
        let mut parts = spec.split(',');
        let head = parts.next().unwrap_or_default();
        let (name, url) = head.split_once('=').map_or((head, None), |(name, url)| (name, Some(url)));
        let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_valid) {
            return Err(PlatformError::Name(name.to_owned()));
        }
        let kind = match (name, url) {
            ("minio", None) => PlatformKind::Minio,
            ("tenon-dir", None) => PlatformKind::TenonDirectory,
            ("tenon-drive", None) => PlatformKind::TenonDrive,
            ("directory", None) => PlatformKind::Directory,
            _ => {
                let settings = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
                PlatformKind::S3(Box::new(S3Endpoint::parse(name, url, &settings, environment)?))
            }
        };
        Ok(Self { name: name.to_owned(), kind, spec: spec.to_owned() })
    }

    /// Returns whether the store exists without the testbed, so that its buckets outlive a run that is killed.
    pub fn is_foreign(&self) -> bool {
        matches!(self.kind, PlatformKind::S3(_))
    }

    /// Returns whether requests or bytes cost money.
    pub fn is_paid(&self) -> bool {
        matches!(&self.kind, PlatformKind::S3(endpoint) if endpoint.is_paid)
    }
}

impl S3Endpoint {
    fn parse(
        name: &str,
        url: Option<&str>,
        settings: &BTreeMap<&str, &str>,
        environment: Environment<'_>,
    ) -> Result<Self, PlatformError> {
        const KNOWN: [&str; 8] =
            ["region", "profile", "access-key", "secret-key", "session-token", "ca", "paid", "free"];
        if let Some(unknown) = settings.keys().find(|key| !KNOWN.contains(key)) {
            return Err(PlatformError::Setting(name.to_owned(), (*unknown).to_owned()));
        }
        let value = |setting: &str| match settings.get(setting) {
            Some(variable) => match environment(variable) {
                Some(value) => Ok(Some(value)),
                None => Err(PlatformError::NoVariable(name.to_owned(), (*variable).to_owned())),
            },
            None => Ok(None),
        };
        let keys = value("access-key")?.zip(value("secret-key")?);
        let token = value("session-token")?;
        let wrong = |error| PlatformError::Credentials(name.to_owned(), error);
        let explicit =
            keys.as_ref().map(|(access, secret)| Credentials::new(access, secret, token.as_deref()));
        let setting = |key: &str| settings.get(key).map(|&value| value.to_owned());
        let search = Search {
            explicit: explicit.transpose().map_err(wrong)?,
            profile: setting("profile"),
            region: setting("region"),
            env: environment,
        };
        let found = search.run().map_err(wrong)?;
        let region = setting("region").or(found.region).unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let url = match (url, name) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, "aws") => aws_url(&region),
            (None, _) => return Err(PlatformError::NoUrl(name.to_owned())),
        };
        let is_tls = url.starts_with("https://");
        Ok(Self {
            is_paid: settings.contains_key("paid") || (is_tls && !settings.contains_key("free")),
            url,
            region,
            credentials: found.credentials,
            keys: keys.filter(|_| token.is_none()),
            ca_bundle: setting("ca").map(PathBuf::from),
        })
    }

    /// Returns the configuration of a client.
    pub(crate) fn config(&self) -> S3Config {
        S3Config {
            endpoint: Some(self.url.clone()),
            region: self.region.clone(),
            credentials: self.credentials.clone(),
            ca_bundle: self.ca_bundle.clone(),
            ..S3Config::default()
        }
    }

    /// Returns the keys for packages, if they may have the endpoint's own: on plain HTTP, where their signatures hold.
    pub(crate) fn keys_for_packages(&self) -> Option<(String, String)> {
        self.keys.clone().filter(|_| self.url.starts_with("http://"))
    }
}

fn aws_url(region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://s3.{region}.{domain}")
}

impl fmt::Debug for S3Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Endpoint")
            .field("url", &self.url)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "LAB_ACCESS" => Some("access".to_owned()),
            "LAB_SECRET" => Some("hidden".to_owned()),
            _ => None,
        }
    }

    fn endpoint(spec: &str) -> S3Endpoint {
        match Platform::parse(spec, &environment).unwrap().kind {
            PlatformKind::S3(endpoint) => *endpoint,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn credentials_are_given_by_reference_and_not_shown() {
        let spec = "lab=http://10.0.0.7:9000/,region=eu-1,access-key=LAB_ACCESS,secret-key=LAB_SECRET";
        let platform = Platform::parse(spec, &environment).unwrap();
        assert_eq!((platform.name.as_str(), platform.is_foreign(), platform.is_paid()), ("lab", true, false));
        let lab = endpoint(spec);
        assert_eq!((lab.url.as_str(), lab.region.as_str()), ("http://10.0.0.7:9000", "eu-1"));
        assert_eq!(lab.keys_for_packages(), Some(("access".to_owned(), "hidden".to_owned())));
        assert!(!format!("{platform:?} {lab:?}").contains("hidden"));
    }

    #[test]
    fn endpoints_with_tls_cost_money_unless_they_do_not() {
        let keys = "access-key=LAB_ACCESS,secret-key=LAB_SECRET";
        let aws = endpoint(&format!("aws,region=cn-north-1,{keys}"));
        assert_eq!(aws.url, "https://s3.cn-north-1.amazonaws.com.cn");
        assert!(aws.is_paid && aws.keys_for_packages().is_none());
        assert!(!endpoint(&format!("lab=https://lab,free,{keys}")).is_paid);
        assert!(endpoint(&format!("lab=http://lab,paid,{keys}")).is_paid);
    }

    #[test]
    fn problems_of_a_platform_are_found() {
        for (spec, problem) in [
            ("cloud,access-key=LAB_ACCESS,secret-key=LAB_SECRET", "give its URL"),
            ("Cloud=https://c", "lower-case"),
            ("c=https://c,password=x", "unknown setting 'password'"),
            ("c=https://c,access-key=NOWHERE", "NOWHERE is not set"),
        ] {
            let error = Platform::parse(spec, &environment).unwrap_err().to_string();
            assert!(error.contains(problem), "{spec}: {error}");
        }
        assert!(matches!(
            Platform::parse("tenon-drive", &environment).unwrap().kind,
            PlatformKind::TenonDrive
        ));
    }
}
