//! Addresses of servers: `redis://[user@]host[:port][/number]`, with `rediss:` for TLS, for which `?sslrootcert=FILE` is known. With
//! `redis-sentinel://[user@]host[:port],host[:port].../name[/number]` (or `rediss-sentinel:`) the hosts are Sentinels, which know the primary server `name`. `?sentineluser=USER` is the user at the
//! Sentinels.
//!
//! Invariant: an address contains no password, so it can be stored and shown.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::{Path, PathBuf};
use url::Url;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The address of a database of a server. Passwords are kept apart from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    url: String,
    /// The server, or the Sentinels.
    pub(crate) hosts: Vec<Host>,
    /// The name by which Sentinels know the primary server; `None` without Sentinels.
    pub(crate) primary: Option<String>,
    /// The user; `None` for the default one.
    pub(crate) user: Option<String>,
    /// The number of the database on the server.
    pub(crate) number: i64,
    /// Whether connections use TLS.
    pub(crate) is_encrypted: bool,
    /// The user at the Sentinels; `None` for the default one.
    pub(crate) sentinel_user: Option<String>,
    ca_bundle: Option<PathBuf>,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// The reason why a text is not a usable address. The message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(String);

impl Address {
    /// Parses an address. Fails for a URL with a password, which would be stored with the volume.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let (is_encrypted, has_sentinels) = scheme_meaning(scheme)?;
        // One URL per host: the parser of URLs knows one host only.
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let parse = |host: &str| {
            let url = Url::parse(&format!("redis://{user}@{host}{path}"));
            url.map_err(|error| AddressError(format!("not a URL of Redis: {error}")))
        };
        let urls = hosts.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        let Some(url) = urls.first() else { return refuse("a URL of Redis names the host") };
        if url.password().is_some() {
            return refuse(
                "the URL contains a password, which would be stored with the volume: put it into REDISCLI_AUTH, or into the file that TENON_REDIS_PASSWORD_FILE names, instead",
            );
        }
        if !has_sentinels && urls.len() > 1 {
            return refuse("several hosts are Sentinels: redis-sentinel://host,host/name");
        }
        let port = if has_sentinels { DEFAULT_SENTINEL_PORT } else { DEFAULT_PORT };
        let (primary, number) = primary_and_number(url, has_sentinels)?;
        let user = decoded(url.username())?;
        let parameters = Parameters::of(url, is_encrypted, has_sentinels)?;
        Ok(Self {
            url: text.to_owned(),
            hosts: urls.iter().map(|url| host(url, port)).collect::<Result<_, _>>()?,
            primary,
            user: (!user.is_empty()).then_some(user),
            number,
            is_encrypted,
            sentinel_user: parameters.sentinel_user,
            ca_bundle: parameters.ca_bundle,
        })
    }

    /// Returns the hosts with their ports, separated by commas, for messages.
    pub(crate) fn hosts(&self) -> String {
        self.hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the PEM file of additional trusted certificates; `None` if the URL names none.
    pub(crate) fn ca_bundle(&self) -> Option<&Path> {
        self.ca_bundle.as_deref()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Returns whether connections are encrypted, and whether the hosts are Sentinels.
fn scheme_meaning(scheme: &str) -> Result<(bool, bool), AddressError> {
    match scheme {
        "redis" => Ok((false, false)),
        "rediss" => Ok((true, false)),
        "redis-sentinel" => Ok((false, true)),
        "rediss-sentinel" => Ok((true, true)),
        _ => {
            refuse("a URL of Redis begins with redis://, rediss://, redis-sentinel:// or rediss-sentinel://")
        }
    }
}

/// Returns from the path of a URL the name of the primary server, which only URLs of Sentinels have, and the number of the database.
fn primary_and_number(url: &Url, has_sentinels: bool) -> Result<(Option<String>, i64), AddressError> {
    let path = url.path().trim_start_matches('/');
    if !has_sentinels {
        return Ok((None, number_of(path)?));
    }
    let (primary, number) = path.split_once('/').unwrap_or((path, ""));
    if primary.is_empty() {
        return refuse("a URL of Sentinels names the primary server: redis-sentinel://host,host/name");
    }
    Ok((Some(decoded(primary)?), number_of(number)?))
}

/// Returns host and port of a URL.
fn host(url: &Url, default_port: u16) -> Result<Host, AddressError> {
    let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if name.is_empty() {
        return refuse("a URL of Redis names the host: redis://host:port/number");
    }
    Ok(Host { name, port: url.port().unwrap_or(default_port) })
}

/// Returns the number of a database from the end of a path.
fn number_of(text: &str) -> Result<i64, AddressError> {
    match text.parse() {
        _ if text.is_empty() => Ok(0),
        Ok(number @ 0..) => Ok(number),
        _ => refuse("the path of a URL of Redis is the number of a database"),
    }
}

/// Decodes the percent-encoded characters of a text.
fn decoded(text: &str) -> Result<String, AddressError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| AddressError("the URL of Redis is not UTF-8".into()))
}

/// The parameters in the query of a URL.
#[derive(Debug, Default)]
struct Parameters {
    ca_bundle: Option<PathBuf>,
    sentinel_user: Option<String>,
}

impl Parameters {
    fn of(url: &Url, is_encrypted: bool, has_sentinels: bool) -> Result<Self, AddressError> {
        let mut found = Self::default();
        for (name, value) in url.query_pairs() {
            match &*name {
                "sslrootcert" if is_encrypted => found.ca_bundle = Some(PathBuf::from(value.into_owned())),
                "sslrootcert" => return refuse("sslrootcert needs rediss:// or rediss-sentinel://"),
                "sentineluser" if has_sentinels => found.sentinel_user = Some(value.into_owned()),
                "sentineluser" => {
                    return refuse("sentineluser needs redis-sentinel:// or rediss-sentinel://");
                }
                other => {
                    return refuse(&format!(
                        "unknown parameter '{other}' in the URL of Redis: sslrootcert and sentineluser are known"
                    ));
                }
            }
        }
        Ok(found)
    }
}

fn refuse<T>(reason: &str) -> Result<T, AddressError> {
    Err(AddressError(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(address: &Address) -> Vec<String> {
        address.hosts.iter().map(Host::to_string).collect()
    }

    #[test]
    fn an_address_has_no_password() {
        let address = Address::parse("redis://te%40non@db.example:6380/3").unwrap();
        assert_eq!(
            (address.user.as_deref(), hosts(&address)),
            (Some("te@non"), vec!["db.example:6380".into()])
        );
        assert_eq!((address.number, address.is_encrypted, address.primary), (3, false, None));
        let refused = Address::parse("redis://:secret@db.example").unwrap_err().to_string();
        assert!(refused.contains("REDISCLI_AUTH") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn the_scheme_decides_on_encryption() {
        let address = Address::parse("rediss://[::1]?sslrootcert=/ca.pem").unwrap();
        assert_eq!((hosts(&address), address.user.as_deref()), (vec!["::1:6379".into()], None));
        assert!(address.is_encrypted && address.ca_bundle() == Some(Path::new("/ca.pem")));
        let wrong = [
            "redis://h/x",
            "redis://h/-1",
            "redis:///0",
            "redis://h,i/0",
            "redis://h?sslrootcert=/f",
            "rediss://h?tls=1",
            "redis://h?sentineluser=u",
            "http://h",
            "redis-sentinel://h",
            "redis-sentinel://h,/names",
        ];
        for wrong in wrong {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sentinels_know_the_primary_server() {
        let address = Address::parse("redis-sentinel://me@one,two:7000/names/2").unwrap();
        assert_eq!(hosts(&address), ["one:26379", "two:7000"]);
        assert_eq!((address.primary.as_deref(), address.number), (Some("names"), 2));
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.sentinel_user, None);
        let other = Address::parse("redis-sentinel://one/names?sentineluser=guard").unwrap();
        assert_eq!((other.sentinel_user.as_deref(), other.user), (Some("guard"), None));
        let encrypted = Address::parse("rediss-sentinel://one/names").unwrap();
        assert!(encrypted.is_encrypted && encrypted.primary.as_deref() == Some("names"));
    }
}
