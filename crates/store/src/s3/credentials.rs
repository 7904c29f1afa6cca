//! Who signs the requests, and where that is found.
//!
//! Searched in order: what the caller gives, the environment (handed in as a function: only the cli reads it),
//! the profile files. Nothing here shows a secret: not `Debug`, not an error.

use super::profile::Profiles;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// An access key and its secret, and the token of a temporary session.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
}

/// Why credentials could not be had. Every text is one line and holds no secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CredentialsError {
    /// No place has any; holds the places.
    #[error(
        "no credentials: looked at {0}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ask for anonymous access"
    )]
    Missing(String),
    /// A place has one half only, or something that is no credential.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file or variable.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A profile that was asked for is in no file.
    #[error("no profile '{name}' in {files}")]
    NoSuchProfile {
        /// The profile's name.
        name: String,
        /// The files looked at.
        files: String,
    },
}

/// Where a client's credentials come from. Temporary ones that refresh themselves become further variants.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CredentialsSource {
    /// Requests are not signed.
    Anonymous,
    /// The same for the client's whole life.
    Fixed(Arc<Credentials>),
}

/// Where to look for credentials and settings.
pub struct Search<'a> {
    /// Given by the user outright; wins over everything.
    pub explicit: Option<Credentials>,
    /// A profile named by the user; then the environment's keys are not looked at.
    pub profile: Option<String>,
    /// Reads an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Who signs.
    pub credentials: CredentialsSource,
    /// The region, if the environment or the profile names one.
    pub region: Option<String>,
    /// The endpoint's URL, if the environment or the profile names one.
    pub endpoint: Option<String>,
}

impl Credentials {
    /// Credentials of these parts; they must be printable ASCII, as they travel in headers.
    pub fn new(
        access_key: &str,
        secret_key: &str,
        session_token: Option<&str>,
    ) -> Result<Self, CredentialsError> {
        let parts = [
            ("access key", Some(access_key)),
            ("secret key", Some(secret_key)),
            ("session token", session_token),
        ];
        for (name, text) in parts {
            if text.is_some_and(|text| text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic())) {
                let reason = "empty, or holds white space or other characters no key has".to_owned();
                return Err(CredentialsError::Malformed { place: name.to_owned(), reason });
            }
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            session_token: session_token.map(str::to_owned),
        })
    }

    /// The public half.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    pub(super) fn secret_key(&self) -> &str {
        &self.secret_key
    }

    pub(super) fn session_token(&self) -> Option<&str> {
        self.session_token.as_deref()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl CredentialsSource {
    /// The credentials to sign with now; `None` for anonymous requests.
    pub(super) fn current(&self) -> Option<&Credentials> {
        match self {
            Self::Anonymous => None,
            Self::Fixed(credentials) => Some(credentials),
        }
    }
}

impl From<Credentials> for CredentialsSource {
    fn from(credentials: Credentials) -> Self {
        Self::Fixed(Arc::new(credentials))
    }
}

impl fmt::Debug for Search<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl Search<'_> {
    /// Looks in every place. Files are read at once; they are small and this happens once.
    pub fn run(self) -> Result<Found, CredentialsError> {
        let named = self.profile.clone().or_else(|| self.var("AWS_PROFILE"));
        let profiles = Profiles::read(self.files());
        let profile = profiles.get(named.as_deref())?;
        let setting = |variables: [&str; 2], key: &str| {
            variables.iter().find_map(|name| self.var(name)).or_else(|| profile.get(key).cloned())
        };
        let region = setting(["AWS_REGION", "AWS_DEFAULT_REGION"], "region");
        let endpoint = setting(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "endpoint_url");
        let from_env = if self.profile.is_some() { None } else { self.env_credentials()? };
        let credentials = match self.explicit.clone().or(from_env) {
            Some(credentials) => credentials,
            None => profiles.credentials(named.as_deref())?.ok_or_else(|| {
                let places = format!("the flags, the environment, {}", profiles.describe(named.as_deref()));
                CredentialsError::Missing(places)
            })?,
        };
        Ok(Found { credentials: credentials.into(), region, endpoint })
    }

    fn env_credentials(&self) -> Result<Option<Credentials>, CredentialsError> {
        let (access, secret) = (self.var("AWS_ACCESS_KEY_ID"), self.var("AWS_SECRET_ACCESS_KEY"));
        pair("environment", access, secret, self.var("AWS_SESSION_TOKEN"))
    }

    fn files(&self) -> Vec<PathBuf> {
        let home = self.var("HOME").map(PathBuf::from).unwrap_or_default();
        let file = |variable: &str, name: &str| {
            self.var(variable).map_or_else(|| home.join(".aws").join(name), PathBuf::from)
        };
        vec![file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")]
    }

    /// A variable that is set to something.
    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }
}

/// Credentials of two halves that must come together.
pub(super) fn pair(
    place: &str,
    access_key: Option<String>,
    secret_key: Option<String>,
    session_token: Option<String>,
) -> Result<Option<Credentials>, CredentialsError> {
    let malformed = |reason: String| CredentialsError::Malformed { place: place.to_owned(), reason };
    match (access_key, secret_key) {
        (None, None) => Ok(None),
        (Some(access), Some(secret)) => Credentials::new(&access, &secret, session_token.as_deref())
            .map(Some)
            .map_err(|error| malformed(error.to_string())),
        (Some(_), None) => Err(malformed("an access key without its secret key".to_owned())),
        (None, Some(_)) => Err(malformed("a secret key without its access key".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn search(vars: &[(&str, &str)], profile: Option<&str>) -> Result<Found, CredentialsError> {
        let vars: HashMap<String, String> =
            vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let env = |name: &str| vars.get(name).cloned();
        Search { explicit: None, profile: profile.map(str::to_owned), env: &env }.run()
    }

    /// The files and the variables that name them; the directory goes with the first value.
    fn files(credentials: &str, config: &str) -> (tempfile::TempDir, [(&'static str, String); 2]) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("credentials"), credentials).unwrap();
        std::fs::write(dir.path().join("config"), config).unwrap();
        let path = |file: &str| dir.path().join(file).to_str().unwrap().to_owned();
        let set = [("AWS_SHARED_CREDENTIALS_FILE", path("credentials")), ("AWS_CONFIG_FILE", path("config"))];
        (dir, set)
    }

    fn access_key(found: &Found) -> &str {
        found.credentials.current().unwrap().access_key()
    }

    #[test]
    fn no_secret_is_shown() {
        let credentials = Credentials::new("AKIA", "hush-secret", Some("hush-token")).unwrap();
        assert!(!format!("{:?}", CredentialsSource::from(credentials)).contains("hush"));
        let half = search(&[("AWS_SECRET_ACCESS_KEY", "hush")], None).unwrap_err();
        assert_eq!(half.to_string(), "environment: a secret key without its access key");
    }

    #[test]
    fn nothing_found_says_where_it_looked() {
        let text = search(&[("HOME", "/nonexistent")], None).unwrap_err().to_string();
        assert!(text.contains("environment") && text.contains("/nonexistent/.aws/credentials"), "{text}");
        let text = search(&[("HOME", "/nonexistent")], Some("work")).unwrap_err().to_string();
        assert!(text.contains("no profile 'work'") && text.contains("/nonexistent/.aws/config"), "{text}");
    }

    #[test]
    fn profiles_come_from_both_files() {
        let (_dir, set) = files(
            "# mine\n[default]\naws_access_key_id = D\naws_secret_access_key=ds\n[work]\naws_access_key_id=W\naws_secret_access_key=ws\naws_session_token=wt\n",
            "[default]\nregion = eu-west-1\n[profile work]\nregion=eu-central-1\nendpoint_url = http://localhost:9000\n",
        );
        let vars: Vec<(&str, &str)> = set.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let found = search(&vars, None).unwrap();
        assert_eq!((access_key(&found), found.region.as_deref()), ("D", Some("eu-west-1")));
        let found = search(&vars, Some("work")).unwrap();
        assert_eq!((access_key(&found), found.region.as_deref()), ("W", Some("eu-central-1")));
        assert_eq!(found.endpoint.as_deref(), Some("http://localhost:9000"));
        assert_eq!(found.credentials.current().unwrap().session_token(), Some("wt"));
    }

    #[test]
    fn the_environment_wins_unless_a_profile_is_named() {
        let (_dir, set) = files("[default]\naws_access_key_id=D\naws_secret_access_key=ds\n", "");
        let mut vars: Vec<(&str, &str)> = set.iter().map(|(k, v)| (*k, v.as_str())).collect();
        vars.extend([("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "es"), ("AWS_REGION", "r")]);
        assert_eq!(access_key(&search(&vars, None).unwrap()), "E");
        assert_eq!(access_key(&search(&vars, Some("default")).unwrap()), "D");
    }

    #[test]
    fn keys_with_white_space_are_refused() {
        assert!(Credentials::new("A", "with\nnewline", None).is_err());
        assert!(Credentials::new("", "x", None).is_err());
    }
}
