//! Passwords of databases.
//!
//! The password of PostgreSQL comes from `PGPASSWORD`, or from the password file of PostgreSQL's own clients. The password of Redis comes
//! from `REDISCLI_AUTH`, as for the client of Redis, or from the file that `TENON_REDIS_PASSWORD_FILE` names.

use crate::process::{environment, files};
use anyhow::Result;
use meta_postgres::Address;
use std::path::PathBuf;

/// Returns the password of Redis; `None` if neither variable is set. Fails if the file cannot be read, or others than its owner may access
/// it.
pub(crate) fn of_redis() -> Result<Option<String>> {
    if let Some(password) = environment::variable("REDISCLI_AUTH") {
        return Ok(Some(password));
    }
    let file = environment::variable("TENON_REDIS_PASSWORD_FILE").map(PathBuf::from);
    file.map(|file| files::read_secret_line(&file)).transpose()
}

/// Returns the password of the Sentinels of a Redis, from the file that `TENON_REDIS_SENTINEL_PASSWORD_FILE` names; `None` if the variable is not
/// set. Fails if the file cannot be read, or others than its owner may access it.
pub(crate) fn of_sentinels() -> Result<Option<String>> {
    let file = environment::variable("TENON_REDIS_SENTINEL_PASSWORD_FILE").map(PathBuf::from);
    file.map(|file| files::read_secret_line(&file)).transpose()
}

/// Returns the password for a database of PostgreSQL; `None` if no variable is set and no line of the password file matches. Fails if
/// others than its owner may access the file.
pub(crate) fn of_postgres(address: &Address) -> Result<Option<String>> {
    if let Some(password) = environment::variable("PGPASSWORD") {
        return Ok(Some(password));
    }
    let in_home = || environment::variable("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let Some(file) = environment::variable("PGPASSFILE").map(PathBuf::from).or_else(in_home) else {
        return Ok(None);
    };
    if !file.exists() {
        return Ok(None);
    }
    let port = address.port().to_string();
    Ok(find_password(
        &files::read_secret(&file)?,
        [address.host(), &port, address.database(), address.user()],
    ))
}

/// Returns the password of the first line `host:port:database:user:password` that matches `wanted`, which is host, port, database and
/// user; `None` if none does. A field is `*`, or the text with a backslash before each `:` and each backslash.
fn find_password(file: &str, wanted: [&str; 4]) -> Option<String> {
    file.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split_fields(line);
        let (last, first) = fields.split_last().filter(|(_, first)| first.len() == wanted.len())?;
        let matches = first.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        matches.then(|| last.clone())
    })
}

/// Splits a line at each `:` that has no backslash before it, and removes the backslashes.
fn split_fields(line: &str) -> Vec<String> {
    let (mut fields, mut chars) = (vec![String::new()], line.chars());
    while let Some(next) = chars.next() {
        let literal = match next {
            ':' => {
                fields.push(String::new());
                continue;
            }
            '\\' => chars.next(),
            other => Some(other),
        };
        if let Some(field) = fields.last_mut() {
            field.extend(literal);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_password_file_that_matches_counts() {
        let file = "# host:5432:names:tenon:no\nhost:5433:names:tenon:other port\nho\\:st:*:names:te\\\\non:a\\:b\n*:*:*:tenon:any\nshort:line\n";
        let find = |host, port, user| find_password(file, [host, port, "names", user]);
        assert_eq!(find("host", "5433", "tenon").as_deref(), Some("other port"));
        assert_eq!(find("host", "5432", "tenon").as_deref(), Some("any"));
        assert_eq!(find("ho:st", "1", "te\\non").as_deref(), Some("a:b"));
        assert_eq!(find("host", "5432", "postgres"), None);
    }
}
