//! The search for credentials, region and endpoint in the environment and the files of the AWS tools.

use super::container::{self, Container};
use super::instance::{self, Instance};
use super::process::Process;
use super::profile::{Profiles, Settings};
use super::provider::{Kind, Provider};
use super::role::{Role, SESSION_NAME};
use super::sso::Sso;
use super::sts::Sts;
use super::web_identity::WebIdentity;
use super::{Credentials, CredentialsError, CredentialsSource, Secret};
use crate::config::{DEFAULT_REGION, Endpoint};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The input of a search.
pub struct Search<'a> {
    /// Credentials given by the user; they override all other sources.
    pub explicit: Option<Credentials>,
    /// A profile named by the user. If set, keys and web identity in the environment are ignored.
    pub profile: Option<String>,
    /// The region named by the user, used for STS. It is not returned in [`Found::region`].
    pub region: Option<String>,
    /// Returns the value of an environment variable; `None` if it is not set.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// The result of a search.
#[derive(Debug, Clone)]
pub struct Found {
    /// The source of credentials.
    pub credentials: CredentialsSource,
    /// The region, if the environment or the profile names one.
    pub region: Option<String>,
    /// The endpoint's URL, if the environment or the profile names one.
    pub endpoint: Option<String>,
}

impl fmt::Debug for Search<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl Search<'_> {
    /// Searches all places. Reads files synchronously, because they are small and this happens once. Calls no provider.
    pub fn run(self) -> Result<Found, CredentialsError> {
        let named = self.profile.clone().or_else(|| self.var("AWS_PROFILE"));
        let profiles = Profiles::read(self.files());
        let profile = profiles.get(named.as_deref())?;
        let setting = |variables: &[&str], key: &str| {
            variables.iter().find_map(|name| self.var(name)).or_else(|| profile.get(key).cloned())
        };
        let region = setting(&["AWS_REGION", "AWS_DEFAULT_REGION"], "region");
        let endpoint = setting(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "endpoint_url");
        let credentials = match self.explicit.clone() {
            Some(credentials) => credentials.into(),
            None => {
                let sts = setting(&["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"], "endpoint_url");
                let region = self.region.as_deref().or(region.as_deref()).unwrap_or(DEFAULT_REGION);
                let chain =
                    Chain { search: &self, profiles: &profiles, sts: Sts::new(sts.as_deref(), region)? };
                chain.source(named.as_deref())?
            }
        };
        Ok(Found { credentials, region, endpoint })
    }

    /// Returns the keys in the environment, if there are any.
    fn env_keys(&self) -> Result<Option<Credentials>, CredentialsError> {
        let (access, secret) = (self.var("AWS_ACCESS_KEY_ID"), self.var("AWS_SECRET_ACCESS_KEY"));
        Credentials::pair("environment", access, secret, self.var("AWS_SESSION_TOKEN"))
    }

    /// Returns the paths of the files with profiles.
    fn files(&self) -> Vec<PathBuf> {
        let file = |variable: &str, name: &str| {
            self.var(variable).map_or_else(|| self.aws_dir().join(name), PathBuf::from)
        };
        vec![file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")]
    }

    fn aws_dir(&self) -> PathBuf {
        self.var("HOME").map(PathBuf::from).unwrap_or_default().join(".aws")
    }

    /// Returns a variable that is set and not empty.
    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }
}

/// A search for credentials in this order: environment, web identity, profile, container, instance.
struct Chain<'a> {
    search: &'a Search<'a>,
    profiles: &'a Profiles,
    sts: Sts,
}

impl Chain<'_> {
    fn source(&self, named: Option<&str>) -> Result<CredentialsSource, CredentialsError> {
        let is_asked_for = self.search.profile.is_some();
        let env = if is_asked_for { None } else { self.search.env_keys()? };
        if let Some(credentials) = env {
            return Ok(credentials.into());
        }
        let env = if is_asked_for { None } else { self.web_identity_of_env()? };
        let found = match env {
            Some(identity) => Some(Kind::WebIdentity(identity)),
            None => self.of_profile(named.unwrap_or("default"), &mut Vec::new())?,
        };
        let found = match found {
            Some(Kind::Fixed(credentials)) => return Ok(credentials.into()),
            Some(found) => found,
            None => self.of_machine(named)?,
        };
        Ok(CredentialsSource::Provider(Arc::new(Provider(found))))
    }

    fn web_identity_of_env(&self) -> Result<Option<WebIdentity>, CredentialsError> {
        let var = |name: &str| self.search.var(name);
        let Some(token_file) = var("AWS_WEB_IDENTITY_TOKEN_FILE") else { return Ok(None) };
        let arn = var("AWS_ROLE_ARN").ok_or_else(|| {
            CredentialsError::malformed("AWS_WEB_IDENTITY_TOKEN_FILE", "is set, but AWS_ROLE_ARN is not")
        })?;
        let session_name = var("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| SESSION_NAME.to_owned());
        let (token_file, sts) = (PathBuf::from(token_file), self.sts.clone());
        Ok(Some(WebIdentity { token_file, arn, session_name, sts }))
    }

    /// Returns the container's agent, or the instance metadata service; `Missing` if that is disabled. `named` is the
    /// profile that was searched before.
    fn of_machine(&self, named: Option<&str>) -> Result<Kind, CredentialsError> {
        if let Some(container) = self.container()? {
            return Ok(Kind::Container(container));
        }
        let places = if self.search.profile.is_some() { "" } else { "the environment, " };
        let places =
            format!("the flags, {places}{}, the container's variables", self.profiles.describe(named));
        match self.search.var("AWS_EC2_METADATA_DISABLED") {
            Some(text) if text.eq_ignore_ascii_case("true") => Err(CredentialsError::Missing(format!(
                "{places} (the instance metadata is disabled by AWS_EC2_METADATA_DISABLED)"
            ))),
            _ => Ok(Kind::Instance(self.instance(Some(places))?)),
        }
    }

    fn container(&self) -> Result<Option<Container>, CredentialsError> {
        let var = |name: &str| self.search.var(name);
        let in_file = var("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let token = in_file.map(|file| container::Token::File(file.into())).or_else(|| {
            let text = var("AWS_CONTAINER_AUTHORIZATION_TOKEN")?;
            Some(container::Token::Text(Secret(text)))
        });
        match (var("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), var("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
            (Some(path), _) => Container::relative(&path, token).map(Some),
            (None, Some(url)) => Container::full(&url, token).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn instance(&self, places_before: Option<String>) -> Result<Instance, CredentialsError> {
        let mode = self.search.var("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").unwrap_or_default();
        let usual = if mode.eq_ignore_ascii_case("ipv6") { instance::IPV6 } else { instance::IPV4 };
        let place = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
        let url = self.search.var(place).unwrap_or_else(|| usual.to_owned());
        let endpoint =
            Endpoint::parse(&url).map_err(|error| CredentialsError::malformed(place, &error.to_string()))?;
        Ok(Instance::new(endpoint, places_before))
    }

    /// Returns the provider of a profile; `None` if the profile has no credentials. `above` are the profiles whose roles use
    /// this profile as their source.
    fn of_profile(&self, name: &str, above: &mut Vec<String>) -> Result<Option<Kind>, CredentialsError> {
        let settings = self.settings(name, above)?;
        let keys = || {
            Credentials::pair(
                &self.place(name),
                settings.get("aws_access_key_id").cloned(),
                settings.get("aws_secret_access_key").cloned(),
                settings.get("aws_session_token").cloned(),
            )
        };
        // A source profile (which may be the role's own profile) provides its keys, not its role.
        if !above.is_empty()
            && let Some(credentials) = keys()?
        {
            return Ok(Some(Kind::Fixed(credentials)));
        }
        if settings.contains_key("role_arn") {
            return self.role_of(name, &settings, above).map(Some);
        }
        if let Some(sso) = self.sso(name, &settings)? {
            return Ok(Some(Kind::Sso(sso)));
        }
        if let Some(credentials) = keys()? {
            return Ok(Some(Kind::Fixed(credentials)));
        }
        let command = settings.get("credential_process").filter(|command| !command.is_empty());
        Ok(command
            .map(|command| Kind::Process(Process { profile: name.to_owned(), command: command.clone() })))
    }

    /// Returns a profile's settings. Only the default profile may be missing, and only if it is not a role's source.
    fn settings(&self, name: &str, above: &[String]) -> Result<Settings, CredentialsError> {
        let may_lack = above.is_empty() && name == "default";
        self.profiles.get(Some(name)).or_else(|error| if may_lack { Ok(Settings::new()) } else { Err(error) })
    }

    /// Returns the provider of a profile with a `role_arn`.
    fn role_of(
        &self,
        name: &str,
        settings: &Settings,
        above: &mut Vec<String>,
    ) -> Result<Kind, CredentialsError> {
        let text = |key: &str| settings.get(key).filter(|text| !text.is_empty()).cloned();
        let wrong = |reason: &str| CredentialsError::malformed(&self.place(name), reason);
        let arn = text("role_arn").ok_or_else(|| wrong("role_arn is empty"))?;
        let session_name = text("role_session_name").unwrap_or_else(|| SESSION_NAME.to_owned());
        if let Some(token_file) = text("web_identity_token_file") {
            let (token_file, sts) = (token_file.into(), self.sts.clone());
            return Ok(Kind::WebIdentity(WebIdentity { token_file, arn, session_name, sts }));
        }
        if settings.contains_key("mfa_serial") {
            return Err(wrong(
                "mfa_serial requires a code, which cannot be entered while the volume is in use: get a session by `aws sts get-session-token` and use its keys, or use a credential_process",
            ));
        }
        let duration_secs = match text("duration_seconds").map(|text| text.parse()) {
            None => None,
            Some(Ok(secs)) => Some(secs),
            Some(Err(_)) => return Err(wrong("duration_seconds is not a number")),
        };
        let source = match (text("source_profile"), text("credential_source")) {
            (Some(source), None) => self.source_profile(name, &source, above)?,
            (None, Some(source)) => self.credential_source(&source).map_err(|reason| wrong(&reason))?,
            (Some(_), Some(_)) => return Err(wrong("it has both source_profile and credential_source")),
            (None, None) => {
                return Err(wrong(
                    "role_arn needs source_profile, credential_source or web_identity_token_file",
                ));
            }
        };
        Ok(Kind::Role(Role {
            profile: name.to_owned(),
            arn,
            source: Box::new(Provider(source)),
            session_name,
            external_id: text("external_id"),
            duration_secs,
            sts: self.sts.clone(),
        }))
    }

    /// Returns the credentials source of the profile that another one names as its `source_profile`.
    fn source_profile(
        &self,
        name: &str,
        source: &str,
        above: &mut Vec<String>,
    ) -> Result<Kind, CredentialsError> {
        let wrong = |reason: &str| CredentialsError::malformed(&self.place(name), reason);
        if above.iter().any(|seen| seen == source) {
            return Err(wrong("its source_profile leads back to itself"));
        }
        above.push(name.to_owned());
        let found = self.of_profile(source, above)?;
        above.pop();
        found.ok_or_else(|| wrong(&format!("its source_profile '{source}' has no credentials")))
    }

    /// Returns the credentials source that a profile's `credential_source` names.
    fn credential_source(&self, source: &str) -> Result<Kind, String> {
        match source {
            "Environment" => match self.search.env_keys().map_err(|error| error.to_string())? {
                Some(credentials) => Ok(Kind::Fixed(credentials)),
                None => Err("credential_source is Environment, but AWS_ACCESS_KEY_ID is not set".to_owned()),
            },
            "EcsContainer" => match self.container().map_err(|error| error.to_string())? {
                Some(container) => Ok(Kind::Container(container)),
                None => Err("credential_source is EcsContainer, but AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and AWS_CONTAINER_CREDENTIALS_FULL_URI are not set".to_owned()),
            },
            "Ec2InstanceMetadata" => {
                self.instance(None).map(Kind::Instance).map_err(|error| error.to_string())
            }
            other => Err(format!("credential_source '{other}' is not one of Environment, EcsContainer, Ec2InstanceMetadata")),
        }
    }

    /// Returns the SSO provider of a profile; `None` if the profile has no SSO account or no SSO role.
    fn sso(&self, name: &str, settings: &Settings) -> Result<Option<Sso>, CredentialsError> {
        let text =
            |settings: &Settings, key: &str| settings.get(key).filter(|text| !text.is_empty()).cloned();
        let (Some(account_id), Some(role_name)) =
            (text(settings, "sso_account_id"), text(settings, "sso_role_name"))
        else {
            return Ok(None);
        };
        let wrong = |reason: &str| CredentialsError::malformed(&self.place(name), reason);
        let (session, region) = match text(settings, "sso_session") {
            Some(session) => {
                let section = self.profiles.sso_session(&session);
                let section = section.ok_or_else(|| wrong(&format!("no section [sso-session {session}]")))?;
                let region = text(section, "sso_region");
                (session, region)
            }
            None => {
                let url = text(settings, "sso_start_url")
                    .ok_or_else(|| wrong("neither sso_session nor sso_start_url"))?;
                (url, text(settings, "sso_region"))
            }
        };
        let region = region.ok_or_else(|| wrong("no sso_region"))?;
        let given = self.search.var("AWS_ENDPOINT_URL_SSO").or_else(|| self.search.var("AWS_ENDPOINT_URL"));
        let portal = Endpoint::given_or_aws(given.as_deref(), "portal.sso", &region)
            .map_err(|error| wrong(&error.to_string()))?;
        let cache = self.search.aws_dir().join("sso/cache");
        Ok(Some(Sso { profile: name.to_owned(), session, cache, account_id, role_name, portal }))
    }

    /// Returns the name of a profile and its files, for messages.
    fn place(&self, name: &str) -> String {
        self.profiles.describe(Some(name))
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
        Search { explicit: None, profile: profile.map(str::to_owned), region: None, env: &env }.run()
    }

    /// Runs a search in these files, for the default profile or a named profile.
    fn in_files(
        credentials: &str,
        config: &str,
        more: &[(&str, &str)],
        profile: Option<&str>,
    ) -> Result<Found, CredentialsError> {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).to_str().unwrap().to_owned()
        };
        let (credentials, config) = (file("credentials", credentials), file("config", config));
        let files = [("AWS_SHARED_CREDENTIALS_FILE", credentials.as_str()), ("AWS_CONFIG_FILE", &config)];
        search(&[&files, more].concat(), profile)
    }

    fn keys(found: &Found) -> &Credentials {
        let CredentialsSource::Fixed(credentials) = &found.credentials else { panic!("{found:?}") };
        credentials
    }

    fn provider(found: &Found) -> String {
        let CredentialsSource::Provider(provider) = &found.credentials else { panic!("{found:?}") };
        provider.to_string()
    }

    const KEYS: &str = "aws_access_key_id=K\naws_secret_access_key=hush\n";

    #[test]
    fn missing_credentials_are_reported_with_the_places_searched() {
        let disabled = ("AWS_EC2_METADATA_DISABLED", "true");
        let text = search(&[("HOME", "/nonexistent"), disabled], None).unwrap_err().to_string();
        assert!(text.contains("environment") && text.contains("/nonexistent/.aws/credentials"), "{text}");
        assert!(text.contains("container") && text.contains("AWS_EC2_METADATA_DISABLED"), "{text}");
        let text = search(&[("HOME", "/nonexistent")], Some("work")).unwrap_err().to_string();
        assert!(text.contains("no profile 'work'") && text.contains("/nonexistent/.aws/config"), "{text}");
        let half = search(&[("AWS_SECRET_ACCESS_KEY", "hush")], None).unwrap_err();
        assert_eq!(half.to_string(), "environment: a secret key without its access key");
    }

    #[test]
    fn profiles_come_from_both_files() {
        let credentials = "# mine\n[default]\naws_access_key_id = D\naws_secret_access_key=ds\n[work]\naws_access_key_id=W\naws_secret_access_key=ws\naws_session_token=wt\n";
        let config = "[default]\nregion = eu-west-1\n[profile work]\nregion=eu-central-1\nendpoint_url = http://localhost:9000\n";
        let found = in_files(credentials, config, &[], None).unwrap();
        assert_eq!((keys(&found).access_key(), found.region.as_deref()), ("D", Some("eu-west-1")));
        let found = in_files(credentials, config, &[], Some("work")).unwrap();
        assert_eq!((keys(&found).access_key(), found.region.as_deref()), ("W", Some("eu-central-1")));
        assert_eq!(found.endpoint.as_deref(), Some("http://localhost:9000"));
        assert_eq!(keys(&found).session_token(), Some("wt"));
    }

    #[test]
    fn the_environment_wins_unless_a_profile_is_named() {
        let credentials = "[default]\naws_access_key_id=D\naws_secret_access_key=ds\n";
        let env = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "es"), ("AWS_REGION", "r")];
        assert_eq!(keys(&in_files(credentials, "", &env, None).unwrap()).access_key(), "E");
        assert_eq!(keys(&in_files(credentials, "", &env, Some("default")).unwrap()).access_key(), "D");
    }

    #[test]
    fn places_are_searched_in_order() {
        let identity = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:w")];
        let container = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x");
        let process = "[default]\ncredential_process = printer\n";
        let all = [identity[0], identity[1], container];
        let of = |config: &str, vars: &[(&str, &str)], profile| {
            provider(&in_files("", config, vars, profile).unwrap())
        };
        assert_eq!(of(process, &all, None), "the web identity in /token for role arn:w");
        assert_eq!(of(process, &all, Some("default")), "the credential_process of profile 'default'");
        assert_eq!(of("", &[container], None), "the container's agent at http://169.254.170.2");
        assert_eq!(of("", &[], None), "the instance metadata at http://169.254.169.254");
        let v6 = ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6");
        assert_eq!(of("", &[v6], None), "the instance metadata at http://[fd00:ec2::254]");
        let alone = in_files("", "", &identity[..1], None).unwrap_err().to_string();
        assert!(alone.contains("AWS_ROLE_ARN"), "{alone}");
    }

    #[test]
    fn a_profile_gives_a_role_before_sso_before_keys_before_a_process() {
        let process = "credential_process=p\n";
        let sso = "sso_account_id=1\nsso_role_name=r\nsso_start_url=https://x\nsso_region=eu-west-1\n";
        let role = "role_arn=arn:r\nsource_profile=base\n";
        let base = format!("[profile base]\n{KEYS}");
        let of =
            |settings: &str| in_files("", &format!("[profile x]\n{settings}{base}"), &[], Some("x")).unwrap();
        assert_eq!(provider(&of(process)), "the credential_process of profile 'x'");
        assert_eq!(keys(&of(&format!("{process}{KEYS}"))).access_key(), "K");
        assert_eq!(provider(&of(&format!("{process}{KEYS}{sso}"))), "the SSO of profile 'x'");
        assert_eq!(provider(&of(&format!("{process}{KEYS}{sso}{role}"))), "role arn:r of profile 'x'");
        let identity = format!("{role}web_identity_token_file=/t\n");
        assert_eq!(provider(&of(&identity)), "the web identity in /t for role arn:r");
    }

    #[test]
    fn roles_have_sources() {
        let chain = format!(
            "[profile a]\nrole_arn=arn:a\nsource_profile=b\n[profile b]\nrole_arn=arn:b\nsource_profile=c\n[profile c]\n{KEYS}[profile own]\nrole_arn=arn:o\nsource_profile=own\n{KEYS}"
        );
        for (name, told) in [("a", "role arn:a of profile 'a'"), ("own", "role arn:o of profile 'own'")] {
            assert_eq!(provider(&in_files("", &chain, &[], Some(name)).unwrap()), told);
        }
        let env = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "es")];
        let uri = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost/")];
        for (source, vars) in
            [("Environment", env.as_slice()), ("EcsContainer", &uri), ("Ec2InstanceMetadata", &[])]
        {
            let config =
                format!("[profile x]\nrole_arn=arn:x\ncredential_source={source}\nduration_seconds=900\n");
            assert_eq!(
                provider(&in_files("", &config, vars, Some("x")).unwrap()),
                "role arn:x of profile 'x'"
            );
        }
    }

    #[test]
    fn invalid_settings_are_reported_in_one_line_without_secrets() {
        for (settings, told) in [
            ("role_arn=arn:x\n", "source_profile"),
            ("role_arn=arn:x\nsource_profile=x\n", "leads back"),
            (
                "role_arn=arn:x\nsource_profile=y\n[profile y]\nrole_arn=arn:y\nsource_profile=x\n",
                "leads back",
            ),
            ("role_arn=arn:x\nsource_profile=none\n", "no profile 'none'"),
            ("role_arn=arn:x\nsource_profile=y\n[profile y]\nregion=r\n", "'y' has no credentials"),
            ("role_arn=arn:x\nsource_profile=y\ncredential_source=Environment\n", "both"),
            ("role_arn=arn:x\ncredential_source=Environment\n", "AWS_ACCESS_KEY_ID is not set"),
            ("role_arn=arn:x\ncredential_source=Elsewhere\n", "'Elsewhere'"),
            (
                "role_arn=arn:x\nsource_profile=x\nmfa_serial=arn:m\naws_access_key_id=K\naws_secret_access_key=hush\n",
                "mfa_serial",
            ),
            (
                "role_arn=arn:x\nsource_profile=x\nduration_seconds=long\naws_access_key_id=K\naws_secret_access_key=hush\n",
                "duration_seconds",
            ),
            ("sso_account_id=1\nsso_role_name=r\n", "sso_start_url"),
            ("sso_account_id=1\nsso_role_name=r\nsso_session=corp\n", "[sso-session corp]"),
            ("aws_access_key_id=K\naws_secret_access_key=hush hush\n", "no key has"),
        ] {
            let refused = in_files("", &format!("[profile x]\n{settings}"), &[], Some("x")).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains(told) && !text.contains("hush") && text.lines().count() == 1, "{text}");
        }
    }
}
