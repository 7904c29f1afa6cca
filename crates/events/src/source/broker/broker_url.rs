//! Where a broker is, what is wanted of it, and who wants it.

use crate::source::SourceError;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

/// What a source needs besides its URL.
#[derive(Debug, Clone, Default)]
pub struct BrokerAccess {
    /// Who logs in; `None` means whom the URL names, if anybody.
    pub login: Option<Login>,
    /// Whom to trust in TLS connections; `None` allows none.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// A directory for the positions of sources whose broker does not keep them: Kafka.
    pub positions: Option<PathBuf>,
}

/// A user and a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name; empty where the broker knows passwords only.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Login {
    /// Reads `USER:PASSWORD`, or a password alone.
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

/// A source's URL, read.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Option<Login>,
    /// `None`: in the clear.
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    /// The path without its first slash.
    pub(super) path: String,
    parameters: BTreeMap<String, String>,
}

/// What the URLs of one kind of broker look like.
pub(super) struct Form {
    /// The scheme in the clear, and that with TLS.
    pub(super) scheme: &'static str,
    pub(super) tls_scheme: Option<&'static str>,
    pub(super) port: u16,
    pub(super) parameters: &'static [&'static str],
    /// For errors.
    pub(super) example: &'static str,
}

impl Place {
    pub(super) fn read(url: &Url, access: &BrokerAccess, form: &Form) -> Result<Self, SourceError> {
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| form.refuse("it names no host"))?;
        let is_tls = Some(url.scheme()) == form.tls_scheme;
        if is_tls && access.tls.is_none() {
            return Err(form.refuse("TLS needs certificates to trust, and none are known"));
        }
        Ok(Self {
            scheme: url.scheme().to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(form.port),
            login: access.login.clone().or(login(url, form)?),
            tls: access.tls.clone().filter(|_| is_tls),
            path: decoded(url.path().trim_start_matches('/'), form)?,
            parameters: parameters(url, form)?,
        })
    }

    /// A parameter that may be missing.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// A parameter that must be there.
    pub(super) fn required(&self, name: &str, form: &Form) -> Result<&str, SourceError> {
        self.parameter(name).ok_or_else(|| form.refuse(&format!("it has no '{name}'")))
    }

    pub(super) fn unavailable(&self, reason: impl fmt::Display) -> SourceError {
        SourceError::Unavailable(format!("{self}: {reason}"))
    }

    pub(super) fn refused(&self, reason: impl fmt::Display) -> SourceError {
        SourceError::Refused(format!("{self}: {reason}"))
    }
}

/// For messages: without the user and the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}/{}", self.scheme, self.host, self.port, self.path)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {:?}", self.parameters)
    }
}

impl Form {
    /// An error of who wrote the URL.
    pub(super) fn refuse(&self, what: &str) -> SourceError {
        let scheme = self.scheme;
        SourceError::Refused(format!("the URL of a {scheme} source: {what}; write {}", self.example))
    }
}

fn login(url: &Url, form: &Form) -> Result<Option<Login>, SourceError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user = decoded(url.username(), form)?;
    let password = decoded(url.password().unwrap_or_default(), form)?;
    Ok(Some(Login { user, password }))
}

fn parameters(url: &Url, form: &Form) -> Result<BTreeMap<String, String>, SourceError> {
    let mut read = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        if !form.parameters.contains(&name.as_ref()) {
            return Err(form.refuse(&format!("it has an unknown '{name}'")));
        }
        if value.is_empty() || read.insert(name.to_string(), value.into_owned()).is_some() {
            return Err(form.refuse(&format!("'{name}' is there twice or is empty")));
        }
    }
    Ok(read)
}

fn decoded(text: &str, form: &Form) -> Result<String, SourceError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| form.refuse("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form {
        scheme: "redis",
        tls_scheme: Some("rediss"),
        port: 6379,
        parameters: &["list"],
        example: "redis://host/0?list=NAME",
    };

    fn read(url: &str) -> Result<Place, SourceError> {
        Place::read(&Url::parse(url).unwrap(), &BrokerAccess::default(), &FORM)
    }

    #[test]
    fn the_parts_of_a_url_are_read() {
        let place = read("redis://me:p%40ss@[::1]/a%2Fb?list=x%20y").unwrap();
        assert_eq!(place.to_string(), "redis://::1:6379/a/b");
        assert_eq!(place.parameter("list"), Some("x y"));
        assert_eq!(place.login, Some(Login { user: "me".into(), password: "p@ss".into() }));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        for (url, said) in [
            ("redis:///0", "names no host"),
            ("rediss://host/0", "needs certificates"),
            ("redis://host/?lists=x", "unknown 'lists'"),
            ("redis://host/?list=x&list=y", "twice"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(FORM.example), "{url}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let place = read("redis://me:secret@host/0").unwrap();
        let login = place.login.clone();
        let shown = format!("{place} {place:?} {login:?} {}", place.refused("no"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
