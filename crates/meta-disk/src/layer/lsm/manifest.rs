//! The manifest: the list of table files, and the first log file that is still needed.
//!
//! The manifest is a file that is replaced atomically. `docs/format.md` draws its bytes.

use log::Crc;
use meta::EngineError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread;

const MAGIC: &[u8; 8] = b"TENONLSM";
pub(crate) const FORMAT_VERSION: u32 = 1;
const FILE_NAME: &str = "manifest";

/// The list of table files after a flush, a merge or an ingestion, and the first log file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The first log file whose records are not in the tables.
    pub(super) first_log: u64,
    /// Number and length in bytes of each table file, newest first.
    pub(super) tables: Vec<(u64, u64)>,
}

impl Manifest {
    /// Reads the manifest. Returns `None` if the directory has none.
    pub(super) fn load(dir: &Path) -> Result<Option<Self>, EngineError> {
        match fs::read(dir.join(FILE_NAME)) {
            Ok(bytes) => Self::decode(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EngineError::Unavailable(format!("the manifest cannot be read: {error}"))),
        }
    }

    /// Reads the version of a manifest, also of one that this build cannot read; `None` if the directory has none.
    pub(super) fn stored_version(dir: &Path) -> Result<Option<u32>, EngineError> {
        let bytes = match fs::read(dir.join(FILE_NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(EngineError::Unavailable(format!("the manifest cannot be read: {error}")));
            }
        };
        let version = bytes.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk());
        let damaged = || EngineError::Corrupt("the manifest of the metadata tables is damaged".into());
        version.map(|version| Some(u32::from_le_bytes(*version))).ok_or_else(damaged)
    }

    /// Replaces the manifest durably. Table files that it names must be durable, except for their names in the directory and for the bytes of
    /// those in `unsynced`.
    pub(super) fn store(&self, dir: &Path, unsynced: &[File]) -> io::Result<()> {
        let new = dir.join("manifest.new");
        let mut file = File::create(&new)?;
        file.write_all(&self.encode())?;
        sync_together(&file, unsynced)?;
        let directory = File::open(dir)?;
        // The names of the table files become durable before the manifest that needs them.
        directory.sync_all()?;
        fs::rename(&new, dir.join(FILE_NAME))?;
        directory.sync_all()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT_VERSION.to_le_bytes());
        bytes.extend((self.tables.len() as u32).to_le_bytes());
        bytes.extend(self.first_log.to_le_bytes());
        for (number, len_bytes) in &self.tables {
            bytes.extend(number.to_le_bytes());
            bytes.extend(len_bytes.to_le_bytes());
        }
        bytes.extend(Crc::of(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, EngineError> {
        let damaged = || EngineError::Corrupt("the manifest of the metadata tables is damaged".into());
        let (rest, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if !rest.starts_with(MAGIC) || Crc::of(rest) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let mut rest = &rest[MAGIC.len()..];
        let version = u32::from_le_bytes(take(&mut rest).ok_or_else(damaged)?);
        if version != FORMAT_VERSION {
            let text = format!(
                "the metadata tables have format {version}, and this program knows format {FORMAT_VERSION}"
            );
            return Err(EngineError::Corrupt(text));
        }
        let count = u32::from_le_bytes(take(&mut rest).ok_or_else(damaged)?);
        let mut number = || take(&mut rest).map(u64::from_le_bytes).ok_or_else(damaged);
        let first_log = number()?;
        let tables = (0..count).map(|_| Ok((number()?, number()?))).collect::<Result<_, EngineError>>()?;
        if rest.is_empty() { Ok(Self { first_log, tables }) } else { Err(damaged()) }
    }
}

/// Makes files durable, each on a thread of its own, so that all take about as long as one.
fn sync_together(first: &File, others: &[File]) -> io::Result<()> {
    thread::scope(|scope| {
        let others: Vec<_> = others.iter().map(|file| scope.spawn(|| file.sync_all())).collect();
        let first = first.sync_all();
        let outcomes = others.into_iter().map(|sync| sync.join().unwrap_or_else(|_| Err(panicked())));
        // All threads are joined before the first error is returned.
        outcomes.collect::<Vec<_>>().into_iter().fold(first, io::Result::and)
    })
}

fn panicked() -> io::Error {
    io::Error::other("a sync panicked")
}

/// Takes bytes off the front; `None` if there are too few.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::load(folder.path()), Ok(None));
        let manifest = Manifest { first_log: 7, tables: vec![(9, 1 << 40), (3, 12)] };
        manifest.store(folder.path(), &[]).unwrap();
        assert_eq!(Manifest::load(folder.path()), Ok(Some(manifest.clone())));
        let bytes = manifest.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
}
