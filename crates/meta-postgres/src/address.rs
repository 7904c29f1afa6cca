//! Addresses of databases: `postgres://user@host[:port]/database[?sslmode=MODE&sslrootcert=FILE]`.
//!
//! Invariant: an address contains no password, so it can be stored and shown.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::{Path, PathBuf};
use url::Url;

const DEFAULT_PORT: u16 = 5432;

/// The address of a database. Passwords are kept apart from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) tls: TlsMode,
}

/// Whether connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disabled,
    /// The server's certificate must be valid for the host.
    Verified {
        /// PEM file of certificates that are trusted in addition to those of the machine.
        ca_bundle: Option<PathBuf>,
    },
}

/// The reason why a text is not a usable address. The message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl Address {
    /// Parses an address. Without `sslmode`, connections are encrypted unless the host is this machine and there is no `sslrootcert`.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let url = Url::parse(text).map_err(|error| AddressError(format!("not a database URL: {error}")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return refuse("a database URL begins with postgres://");
        }
        if url.password().is_some() {
            return refuse(
                "the URL contains a password, which would be stored with the volume: put it into ~/.pgpass or PGPASSWORD instead",
            );
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let user = decoded(url.username())?;
        let database = decoded(url.path().trim_start_matches('/'))?;
        if host.is_empty() || user.is_empty() || database.is_empty() {
            return refuse("a database URL names user, host and database: postgres://user@host/database");
        }
        let tls = tls_mode(&url, &host)?;
        Ok(Self { url: text.to_owned(), port: url.port().unwrap_or(DEFAULT_PORT), host, user, database, tls })
    }

    /// Returns the name or the IP address of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the name of the user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the PEM file of additional trusted certificates; `None` without one, or without encryption.
    pub(crate) fn ca_bundle(&self) -> Option<&Path> {
        match &self.tls {
            TlsMode::Verified { ca_bundle } => ca_bundle.as_deref(),
            TlsMode::Disabled => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn tls_mode(url: &Url, host: &str) -> Result<TlsMode, AddressError> {
    let (mut mode, mut ca_bundle) = (None, None);
    for (name, value) in url.query_pairs() {
        match &*name {
            "sslmode" => mode = Some(value.into_owned()),
            "sslrootcert" => ca_bundle = Some(PathBuf::from(value.into_owned())),
            other => {
                return refuse(&format!(
                    "unknown parameter '{other}' in the database URL: sslmode and sslrootcert are known"
                ));
            }
        }
    }
    match mode.as_deref() {
        Some("disable") => Ok(TlsMode::Disabled),
        None if is_this_machine(host) && ca_bundle.is_none() => Ok(TlsMode::Disabled),
        None | Some("verify-full") => Ok(TlsMode::Verified { ca_bundle }),
        Some(other) => refuse(&format!(
            "sslmode={other} is not supported: use verify-full (the default, except for this machine) or disable"
        )),
    }
}

/// Returns whether a host is `localhost` or a loopback address.
fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn decoded(text: &str) -> Result<String, AddressError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| AddressError("the database URL is not UTF-8".into()))
}

fn refuse<T>(reason: &str) -> Result<T, AddressError> {
    Err(AddressError(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_password() {
        let address = Address::parse("postgres://te%40non@db.example:5433/names").unwrap();
        assert_eq!((address.user(), address.host(), address.port()), ("te@non", "db.example", 5433));
        assert_eq!(address.tls, TlsMode::Verified { ca_bundle: None });
        let refused = Address::parse("postgres://tenon:secret@db.example/names").unwrap_err().to_string();
        assert!(refused.contains("PGPASSWORD") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn connections_to_other_machines_are_encrypted_unless_the_url_says_otherwise() {
        let tls = |url: &str| Address::parse(url).map(|address| address.tls);
        assert_eq!(tls("postgres://u@127.0.0.1/d"), Ok(TlsMode::Disabled));
        assert_eq!(tls("postgres://u@[::1]/d"), Ok(TlsMode::Disabled));
        assert_eq!(tls("postgres://u@db/d?sslmode=disable"), Ok(TlsMode::Disabled));
        let ca_bundle = Some(PathBuf::from("/ca.pem"));
        assert_eq!(tls("postgres://u@localhost/d?sslrootcert=/ca.pem"), Ok(TlsMode::Verified { ca_bundle }));
        assert!(tls("postgres://u@db/d?sslmode=prefer").is_err());
        assert!(tls("postgres://u@db/d?sslmdoe=disable").is_err());
        assert!(
            tls("mysql://u@db/d").is_err()
                && tls("postgres://db/d").is_err()
                && tls("postgres://u@db").is_err()
        );
    }
}
