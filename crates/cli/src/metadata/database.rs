//! Metadata in a PostgreSQL database: making, opening, and the password.
//!
//! The database's URL is in the volume's record, so every machine that reaches the bucket finds it. The password is not: it comes from
//! `PGPASSWORD`, or from the password file of PostgreSQL's own clients.

use crate::process::context::random_id;
use crate::process::{environment, files};
use anyhow::{Context, Result};
use meta_postgres::{Address, PostgresEngine, PostgresOptions};
use std::fs;
use std::path::{Path, PathBuf};
use vfs::VolumeRecord;

/// File with the random name by which a database knows a state directory.
const HOLDER_FILE: &str = "meta.holder";

/// Makes the tables of a new volume.
pub(crate) fn create(record: &VolumeRecord, url: &str) -> Result<()> {
    let address = Address::parse(url)?;
    Ok(PostgresEngine::create(&address, password(&address)?.as_deref(), &record.id)?)
}

/// Removes the tables of a volume.
pub(crate) fn remove(record: &VolumeRecord, url: &str) -> Result<()> {
    let address = Address::parse(url)?;
    Ok(PostgresEngine::remove(&address, password(&address)?.as_deref(), &record.id)?)
}

/// Opens the metadata of a volume, with exclusive access.
pub(crate) fn open(record: &VolumeRecord, url: &str, state_root: &Path) -> Result<PostgresEngine> {
    let address = Address::parse(url)?;
    let options = PostgresOptions { holder: holder(state_root)?, ..PostgresOptions::default() };
    let opened = PostgresEngine::open(&address, password(&address)?.as_deref(), &record.id, options);
    opened.with_context(|| format!("cannot open the metadata at {address}"))
}

/// Returns the name of this machine and its state directory. The directory is locked, so an earlier process with this name has ended.
fn holder(state_root: &Path) -> Result<String> {
    let file = state_root.join(HOLDER_FILE);
    if let Ok(known) = fs::read_to_string(&file) {
        return Ok(known.trim().to_owned());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let holder = format!("{host} ({:016x})", random_id()?);
    files::write_durably(&file, &holder).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(holder)
}

/// Returns the password for a database, if there is one.
fn password(address: &Address) -> Result<Option<String>> {
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

/// Returns the password of the first line that matches: `host:port:database:user:password`. A field is `*`, or the text with `:` and `\\` after
/// a backslash.
fn find_password(file: &str, wanted: [&str; 4]) -> Option<String> {
    file.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split_fields(line);
        let (last, first) = fields.split_last().filter(|(_, first)| first.len() == wanted.len())?;
        let matches = first.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        matches.then(|| last.clone())
    })
}

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
