//! Backup files: the names of a volume at one commit, in one file with checksums.
//!
//! `docs/format.md` describes the file. The file appears under its name complete or not at all, and nothing of it is
//! used before all of it has been read and its checksums are verified.

use anyhow::{Context, Result, anyhow, bail};
use meta_disk::{DiskEngine, DumpedRecords};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"TNBACKUP";
const VERSION: u32 = 1;
const ABOUT: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;

/// Length at which a block of records is closed, in bytes.
const BLOCK_BYTES: usize = 1 << 20;
/// Maximum length of a block. A record is far shorter than the difference to [`BLOCK_BYTES`].
const BLOCK_BYTES_MAX: usize = 256 << 20;

/// The origin of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Version of the file format.
    pub(crate) version: u32,
    /// The volume, as it was mounted.
    pub(crate) volume: String,
    /// Id by which a state directory knows its volume (`meta.volume`).
    pub(crate) owner: String,
    /// Settings under which names were learned (`meta.settings`).
    #[serde(default)]
    pub(crate) settings: Option<String>,
    /// Time of the backup (RFC 3339).
    pub(crate) made_at: String,
    /// Version of Tenon that made the backup.
    pub(crate) tenon: String,
}

impl Origin {
    pub(crate) fn new(volume: String, owner: String, settings: Option<String>) -> Self {
        Self {
            version: VERSION,
            volume,
            owner,
            settings,
            made_at: jiff::Timestamp::now().to_string(),
            tenon: crate::process::VERSION.to_owned(),
        }
    }
}

/// Writes all names of an engine, as they are now, to a file that must not exist yet. Returns the number of records.
pub(crate) fn write(engine: &DiskEngine, origin: &Origin, path: &Path) -> Result<u64> {
    if path.exists() {
        bail!("{} already exists; give another name", path.display());
    }
    let staged = staging_path(path)?;
    let written = write_to(&staged, engine, origin).and_then(|records| {
        // A hard link never replaces a file that was created meanwhile.
        fs::hard_link(&staged, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())?;
        Ok(records)
    });
    let _ = fs::remove_file(&staged);
    written.with_context(|| format!("cannot write the backup {}", path.display()))
}

/// Returns the path under which a file is written until it is complete.
fn staging_path(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("the path {} has no file name", path.display()))?;
    let mut staged = std::ffi::OsString::from(".");
    staged.push(name);
    staged.push(format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(staged))
}

fn write_to(path: &Path, engine: &DiskEngine, origin: &Origin) -> Result<u64> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut blocks = BlockWriter { file: BufWriter::new(file), number: 0 };
    blocks.file.write_all(MAGIC)?;
    blocks.put(ABOUT, &serde_json::to_vec(origin)?)?;
    let (mut block, mut records) = (Vec::new(), 0_u64);
    engine.dump(|key, row| {
        block.extend((key.len() as u32).to_le_bytes());
        block.extend((row.len() as u32).to_le_bytes());
        block.extend(key);
        block.extend(row);
        records += 1;
        if block.len() >= BLOCK_BYTES {
            blocks.put(RECORDS, &block)?;
            block.clear();
        }
        anyhow::Ok(())
    })?;
    if !block.is_empty() {
        blocks.put(RECORDS, &block)?;
    }
    blocks.put(END, &records.to_le_bytes())?;
    blocks.file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(records)
}

struct BlockWriter {
    file: BufWriter<File>,
    number: u64,
}

impl BlockWriter {
    fn put(&mut self, kind: u8, body: &[u8]) -> Result<()> {
        if body.len() > BLOCK_BYTES_MAX {
            bail!("a record of {} bytes is too long for a backup", body.len());
        }
        let head = head(kind, self.number, body.len());
        self.file.write_all(&head)?;
        self.file.write_all(body)?;
        self.file.write_all(&crc(&head, body).to_le_bytes())?;
        self.number += 1;
        Ok(())
    }
}

const HEAD_BYTES: usize = 13;

fn head(kind: u8, number: u64, len: usize) -> [u8; HEAD_BYTES] {
    let mut head = [kind; HEAD_BYTES];
    head[1..9].copy_from_slice(&number.to_le_bytes());
    head[9..].copy_from_slice(&(len as u32).to_le_bytes());
    head
}

fn crc(head: &[u8], body: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(body);
    digest.finalize() as u32
}

/// A backup file that is being read.
pub(crate) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    number: u64,
    records: u64,
    is_over: bool,
    /// The origin of the backup.
    pub(crate) origin: Origin,
}

impl Reader {
    /// Opens a backup, and reads what it is a backup of.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut file = BufReader::new(file);
        let mut magic = [0; MAGIC.len()];
        if file.read_exact(&mut magic).is_err() || magic != *MAGIC {
            bail!(
                "{} is not a backup of a Tenon volume; give a file that `tenon backup` wrote",
                path.display()
            );
        }
        let origin = Origin::new(String::new(), String::new(), None);
        let mut reader = Self { path: path.to_owned(), file, number: 0, records: 0, is_over: false, origin };
        let (kind, body) = reader.block()?;
        let version = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let version = version.and_then(|origin| origin["version"].as_u64());
        match version {
            Some(version) if kind == ABOUT && version == u64::from(VERSION) => {}
            Some(version) if kind == ABOUT => {
                bail!(
                    "{} has version {version}; this Tenon knows version {VERSION}; use a newer Tenon",
                    path.display()
                )
            }
            _ => return Err(reader.damaged("has an invalid header")),
        }
        reader.origin = serde_json::from_slice(&body).map_err(|_| reader.damaged("has an invalid header"))?;
        Ok(reader)
    }

    /// Reads and verifies everything. Returns the number of records.
    pub(crate) fn verify(mut self) -> Result<u64> {
        while self.next()?.is_some() {}
        Ok(self.records)
    }

    /// Returns the next records, or `None` at the end of a complete file.
    pub(crate) fn next(&mut self) -> Result<Option<DumpedRecords>> {
        if self.is_over {
            return Ok(None);
        }
        let (kind, body) = self.block()?;
        match kind {
            RECORDS => {
                let records = records(&body).ok_or_else(|| self.damaged("has an incomplete record"))?;
                self.records += records.len() as u64;
                Ok(Some(records))
            }
            END if *body == self.records.to_le_bytes() && self.file.read(&mut [0])? == 0 => {
                self.is_over = true;
                Ok(None)
            }
            END => Err(self.damaged("does not end where it should")),
            _ => Err(self.damaged("has a block of unknown kind")),
        }
    }

    fn block(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut found = [0; HEAD_BYTES];
        self.fill(&mut found)?;
        let len = u32::from_le_bytes([found[9], found[10], found[11], found[12]]) as usize;
        if len > BLOCK_BYTES_MAX || found != head(found[0], self.number, len) {
            return Err(self.damaged("is damaged"));
        }
        // Let the buffer grow with the bytes that are there, not to a length that may be damaged.
        let mut body = Vec::new();
        Read::by_ref(&mut self.file).take(len as u64).read_to_end(&mut body)?;
        let mut sum = [0; 4];
        self.fill(&mut sum)?;
        if body.len() != len || u32::from_le_bytes(sum) != crc(&found, &body) {
            return Err(self.damaged("is damaged"));
        }
        self.number += 1;
        Ok((found[0], body))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.file.read_exact(bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.damaged("is cut off")),
            read => Ok(read?),
        }
    }

    fn damaged(&self, what: &str) -> anyhow::Error {
        anyhow!("the backup {} {what} (block {}); use another backup", self.path.display(), self.number)
    }
}

fn records(mut body: &[u8]) -> Option<DumpedRecords> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let (key_len, rest) = body.split_first_chunk()?;
        let (row_len, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*row_len) as usize)?;
        records.push((key.to_vec(), row.to_vec()));
        body = rest;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::Engine;
    use meta_disk::EngineOptions;

    fn make_backup(dir: &Path) -> PathBuf {
        let engine = DiskEngine::open(&dir.join("engine"), EngineOptions::default()).unwrap();
        engine.register("consumer", engine.head()).unwrap();
        let path = dir.join("backup");
        assert!(write(&engine, &Origin::new("v".into(), "id".into(), None), &path).unwrap() > 0);
        path
    }

    #[test]
    fn a_backup_restores_the_engine() {
        let dir = tempfile::tempdir().unwrap();
        let path = make_backup(dir.path());
        let refused = write(
            &DiskEngine::open(&dir.path().join("engine"), EngineOptions::default()).unwrap(),
            &Origin::new("v".into(), "id".into(), None),
            &path,
        );
        assert!(format!("{:#}", refused.unwrap_err()).contains("already"));
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.origin.owner, "id");
        let restored = dir.path().join("restored");
        DiskEngine::restore(&restored, EngineOptions::default(), || reader.next()).unwrap();
        let engine = DiskEngine::open(&restored, EngineOptions::default()).unwrap();
        assert_eq!(engine.cursor("consumer").unwrap(), engine.head());
    }

    #[test]
    fn s513_no_flipped_or_missing_byte_goes_unseen() {
        let dir = tempfile::tempdir().unwrap();
        let path = make_backup(dir.path());
        let whole = fs::read(&path).unwrap();
        let read = |bytes: &[u8]| {
            let path = dir.path().join("changed");
            fs::write(&path, bytes).unwrap();
            Reader::open(&path).and_then(Reader::verify)
        };
        assert!(read(&whole).unwrap() > 0);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed).is_err(), "byte {at}");
            assert!(read(&whole[..at]).is_err(), "cut at {at}");
        }
        assert!(read(&[whole.as_slice(), b"x"].concat()).is_err());
    }
}
