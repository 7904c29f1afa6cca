//! The parsed URL of a broker, and the settings of a source that are not in it: login, TLS, directory of positions.

use events::SourceError;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

/// Settings of a source besides its URL.
#[derive(Debug, Clone, Default)]
pub struct BrokerAccess {
    /// The login; `None` means the one in the URL, if there is one.
    pub login: Option<Login>,
    /// The configuration of TLS connections; `None` allows none.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// A directory for the positions of sources whose broker does not store them: Kafka.
    pub positions: Option<PathBuf>,
}

/// A user and a password. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name; empty if the broker knows passwords only.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Login {
    /// Parses `USER:PASSWORD`, or a password alone.
    pub fn of(secret: &str) -> Self {
        let (user, password) = secret.split_once(':').unwrap_or(("", secret));
        Self { user: user.to_owned(), password: password.to_owned() }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The parsed URL of a source.
#[derive(Clone)]
pub(super) struct BrokerUrl {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Option<Login>,
    /// The configuration of TLS; `None` means a connection without TLS.
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    /// The path without its leading slash.
    pub(super) path: String,
    parameters: BTreeMap<String, String>,
}

/// The form of the URLs of one kind of broker.
pub(super) struct UrlForm {
    /// The scheme without TLS. `tls_scheme` is the one with TLS, if there is one.
    pub(super) scheme: &'static str,
    pub(super) tls_scheme: Option<&'static str>,
    /// The default port.
    pub(super) port: u16,
    /// The names of the query parameters; others are refused.
    pub(super) parameters: &'static [&'static str],
    /// An example for error messages.
    pub(super) example: &'static str,
}

impl BrokerUrl {
    pub(super) fn parse(url: &Url, access: &BrokerAccess, form: &UrlForm) -> Result<Self, SourceError> {
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| form.refuse("the host is missing"))?;
        let is_tls = Some(url.scheme()) == form.tls_scheme;
        if is_tls && access.tls.is_none() {
            return Err(form.refuse("TLS needs certificates to trust, but none are configured"));
        }
        Ok(Self {
            scheme: url.scheme().to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(form.port),
            login: access.login.clone().or(parse_login(url, form)?),
            tls: access.tls.clone().filter(|_| is_tls),
            path: decode(url.path().trim_start_matches('/'), form)?,
            parameters: parse_parameters(url, form)?,
        })
    }

    /// Returns an optional parameter; `None` if the URL does not have it.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Returns a mandatory parameter; `Refused` if it is missing.
    pub(super) fn required(&self, name: &str, form: &UrlForm) -> Result<&str, SourceError> {
        self.parameter(name).ok_or_else(|| form.refuse(&format!("the parameter '{name}' is missing")))
    }

    pub(super) fn unavailable(&self, reason: impl fmt::Display) -> SourceError {
        SourceError::Unavailable(format!("{self}: {reason}"))
    }

    pub(super) fn refused(&self, reason: impl fmt::Display) -> SourceError {
        SourceError::Refused(format!("{self}: {reason}"))
    }
}

/// Writes the URL without user and password.
impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}/{}", self.scheme, self.host, self.port, self.path)
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {:?}", self.parameters)
    }
}

impl UrlForm {
    /// Returns the error for an invalid URL.
    pub(super) fn refuse(&self, what: &str) -> SourceError {
        let scheme = self.scheme;
        SourceError::Refused(format!(
            "the URL of a {scheme} source is invalid: {what}; write {}",
            self.example
        ))
    }
}

fn parse_login(url: &Url, form: &UrlForm) -> Result<Option<Login>, SourceError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user = decode(url.username(), form)?;
    let password = decode(url.password().unwrap_or_default(), form)?;
    Ok(Some(Login { user, password }))
}

fn parse_parameters(url: &Url, form: &UrlForm) -> Result<BTreeMap<String, String>, SourceError> {
    let mut read = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        if !form.parameters.contains(&name.as_ref()) {
            return Err(form.refuse(&format!("the parameter '{name}' is unknown")));
        }
        if value.is_empty() || read.insert(name.to_string(), value.into_owned()).is_some() {
            return Err(form.refuse(&format!("the parameter '{name}' is empty or given twice")));
        }
    }
    Ok(read)
}

fn decode(text: &str, form: &UrlForm) -> Result<String, SourceError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| form.refuse("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: UrlForm = UrlForm {
        scheme: "redis",
        tls_scheme: Some("rediss"),
        port: 6379,
        parameters: &["list"],
        example: "redis://host/0?list=NAME",
    };

    fn parse(url: &str) -> Result<BrokerUrl, SourceError> {
        BrokerUrl::parse(&Url::parse(url).unwrap(), &BrokerAccess::default(), &FORM)
    }

    #[test]
    fn the_parts_of_a_url_are_read() {
        let url = parse("redis://me:p%40ss@[::1]/a%2Fb?list=x%20y").unwrap();
        assert_eq!(url.to_string(), "redis://::1:6379/a/b");
        assert_eq!(url.parameter("list"), Some("x y"));
        assert_eq!(url.login, Some(Login { user: "me".into(), password: "p@ss".into() }));
    }

    #[test]
    fn errors_state_what_is_wrong_with_a_url() {
        for (url, expected) in [
            ("redis:///0", "host is missing"),
            ("rediss://host/0", "needs certificates"),
            ("redis://host/?lists=x", "'lists' is unknown"),
            ("redis://host/?list=x&list=y", "twice"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(FORM.example), "{url}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = parse("redis://me:secret@host/0").unwrap();
        let login = url.login.clone();
        let shown = format!("{url} {url:?} {login:?} {}", url.refused("no"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
