//! Metadata in a database, PostgreSQL or Redis: making, opening and removing it.
//!
//! The database's URL is in the volume's record, so every machine that reaches the bucket finds it. The password is not
//! ([`super::passwords`]).

use crate::metadata::new_metadata::RESTORING_CACHE_BYTES;
use crate::metadata::passwords;
use crate::process::context::random_id;
use crate::process::files;
use anyhow::{Context, Result};
use meta::{Engine, LogCap};
use meta_postgres::Postgres;
use meta_redis::Redis;
use meta_remote::{Database, OpenError, RemoteEngine, RemoteOptions};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use vfs::VolumeRecord;

/// File with the random name by which a database knows a state directory.
const HOLDER_FILE: &str = "meta.holder";

/// Ops that the log keeps for mounts on other machines that are behind. A mount that is further behind drops all its caches.
const TAIL_OPS: usize = 16_384;

/// A volume in a database, by the kind of the database.
enum VolumeDatabase {
    Postgres(Postgres),
    Redis(Redis),
}

impl VolumeDatabase {
    /// Describes the volume's place in the database at a URL, whose scheme says which kind of database it is. Does not connect.
    fn at(record: &VolumeRecord, url: &str) -> Result<Self> {
        if url.starts_with("redis") {
            let address = meta_redis::Address::parse(url)?;
            let redis = Redis::new(&address, passwords::of_redis()?.as_deref(), &record.id)?;
            return Ok(Self::Redis(redis.with_sentinel_password(passwords::of_sentinels()?.as_deref())));
        }
        let address = meta_postgres::Address::parse(url)?;
        let password = passwords::of_postgres(&address)?;
        Ok(Self::Postgres(Postgres::new(&address, password.as_deref(), &record.id)?))
    }
}

/// Adds a new volume to its database: makes its tables (PostgreSQL) or keys (Redis).
pub(crate) fn create(record: &VolumeRecord, url: &str) -> Result<()> {
    match VolumeDatabase::at(record, url)? {
        VolumeDatabase::Postgres(database) => RemoteEngine::create(database)?,
        VolumeDatabase::Redis(database) => RemoteEngine::create(database)?,
    }
    Ok(())
}

/// Returns the newest version of tables or keys that this build reads, for the kind of database at a URL.
pub(crate) fn newest_version(url: &str) -> u32 {
    let newest = if url.starts_with("redis") { Redis::VERSION } else { Postgres::VERSION };
    newest.unsigned_abs()
}

/// Returns the version of a volume's tables or keys in its database; `None` if there are none. Changes nothing. Blocks.
pub(crate) fn stored_version(record: &VolumeRecord, url: &str) -> Result<Option<u32>> {
    let found = match VolumeDatabase::at(record, url)? {
        VolumeDatabase::Postgres(database) => RemoteEngine::stored_version(database)?,
        VolumeDatabase::Redis(database) => RemoteEngine::stored_version(database)?,
    };
    Ok(found.map(i32::unsigned_abs))
}

/// Removes a volume from its database, with all its names.
pub(crate) fn remove(record: &VolumeRecord, url: &str) -> Result<()> {
    match VolumeDatabase::at(record, url)? {
        VolumeDatabase::Postgres(database) => RemoteEngine::remove(database)?,
        VolumeDatabase::Redis(database) => RemoteEngine::remove(database)?,
    }
    Ok(())
}

/// Opens the metadata of a volume. With exclusive access, no other process has the volume open meanwhile.
/// With strict access, changes of others wait until this process has acknowledged them.
pub(crate) fn open(
    record: &VolumeRecord,
    url: &str,
    state_root: &Path,
    (is_exclusive, is_strict): (bool, bool),
    cache_bytes: usize,
) -> Result<Arc<dyn Engine>> {
    let options = RemoteOptions {
        holder: holder(state_root)?,
        is_exclusive,
        is_strict,
        cache_bytes,
        log_cap: LogCap { tail_ops: TAIL_OPS, ..LogCap::default() },
        ..RemoteOptions::default()
    };
    let opened = match VolumeDatabase::at(record, url)? {
        VolumeDatabase::Postgres(database) => open_with(database, options),
        VolumeDatabase::Redis(database) => open_with(database, options),
    };
    opened.with_context(|| format!("cannot open the metadata at {url}"))
}

/// Opens the metadata of a volume exclusively, for a command that fills it or reads all of it.
pub(super) fn open_alone(record: &VolumeRecord, url: &str, state_root: &Path) -> Result<Arc<dyn Engine>> {
    open(record, url, state_root, (true, false), RESTORING_CACHE_BYTES)
}

/// Like [`open_alone`]. `None` if the database has no metadata of the volume.
pub(super) fn open_if_there(
    record: &VolumeRecord,
    url: &str,
    state_root: &Path,
) -> Result<Option<Arc<dyn Engine>>> {
    let found = stored_version(record, url).with_context(|| format!("cannot open the metadata at {url}"))?;
    found.map(|_| open_alone(record, url, state_root)).transpose()
}

/// Returns the name of the part of a database that belongs to a volume. Does not connect.
pub(crate) fn part_of(record: &VolumeRecord, url: &str) -> Result<String> {
    Ok(match VolumeDatabase::at(record, url)? {
        VolumeDatabase::Postgres(database) => database.place(),
        VolumeDatabase::Redis(database) => database.place(),
    })
}

fn open_with(database: impl Database, options: RemoteOptions) -> Result<Arc<dyn Engine>, OpenError> {
    Ok(Arc::new(RemoteEngine::open(database, options)?))
}

/// Returns the name by which a database knows this machine and state directory. The directory is locked, so an earlier process with this name
/// has ended.
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
