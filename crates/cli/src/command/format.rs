//! `tenon format`: makes a volume.

use crate::bucket::Bucket;
use crate::bucket::embedded_drive;
use crate::command::flags::StoreFlags;
use crate::command::flags::volume::Conflict;
use crate::command::units;
use crate::metadata::database;
use crate::process;
use crate::process::context::{ProcessContext, random_id};
use crate::volume::Volume;
use crate::volume::embedded::{self, ObjectLocation};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::path::Path;
use std::process::ExitCode;
use vfs::VolumeRecord;

/// Make a volume.
///
/// Makes a volume in a local directory, or in a bucket whose objects are named by inode. A bucket or file://
/// directory whose objects are the files needs no format: mount it as it is.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// A new or empty directory, or s3://bucket[/prefix]
    volume: String,
    /// How objects are named: by the file's path (default), or by its inode number
    #[arg(long, value_name = "NAMING")]
    naming: Option<Naming>,
    /// How files are stored in objects: each in one object, or in chunks (needs --naming inode)
    #[arg(long, value_name = "MAPPING", default_value = "whole")]
    mapping: Mapping,
    /// Length of a chunk: 1MiB to 64MiB, a power of two
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = units::size_bytes)]
    chunk_size: u64,
    /// Keep names and attributes in a database instead of on this machine: PostgreSQL, postgres://user@host/database, with the
    /// password of PGPASSWORD or ~/.pgpass; or Redis, redis://host:port/number, with that of REDISCLI_AUTH or of the file
    /// TENON_REDIS_PASSWORD_FILE
    #[arg(long, value_name = "URL")]
    meta: Option<String>,
    /// Which side keeps the name when an object changes in the bucket while its file is written (default:
    /// bucket-wins); `tenon mount --conflict` changes it
    #[arg(long, value_name = "POLICY")]
    conflict: Option<Conflict>,
    /// Store the objects on an object drive, which is one file, instead of as files of a directory
    #[arg(long)]
    drive: bool,
    /// Length of the drive, reserved at once (default: a quarter of the free space, at most 16GiB)
    #[arg(long, value_name = "SIZE", requires = "drive", value_parser = units::size_bytes)]
    size: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// How objects are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Naming {
    /// By path: any S3 client finds the files; a rename copies objects.
    FilePath,
    /// By inode: a rename touches no object, but names are only in the metadata.
    Inode,
}

/// How files are stored in objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mapping {
    /// Each file is one object.
    Whole,
    /// Each chunk is an object: an edit stores only the chunks that it changes.
    Chunked,
}

impl Format {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let volume = Volume::parse_unchecked(&self.volume)?;
        let record = self.record()?;
        let mut drive_bytes = None;
        let made = match &volume {
            Volume::Embedded { root } => {
                drive_bytes = self.make_embedded(root)?;
                true
            }
            _ if self.drive => {
                bail!("--drive needs a volume in a local directory: give a new or empty directory")
            }
            Volume::Buckets { .. } => bail!("s3:// is all buckets of a server: name one, s3://bucket"),
            Volume::Drive { drives } => bail!("to make a drive, use `tenon drive format {drives}`"),
            Volume::Directories { .. } => bail!("dirs:// is several buckets: name one, file:///dir/bucket"),
            Volume::S3 { .. } | Volume::Directory { .. } => {
                record.naming == vfs::Naming::Inode || self.conflict.is_some() || self.meta.is_some()
            }
        };
        if made {
            self.write_record(&volume, &record)?;
        }
        self.print_outcome(&volume, made.then_some(record.id.as_str()), drive_bytes);
        Ok(ExitCode::SUCCESS)
    }

    /// Makes an embedded volume. Removes all of it again if that fails. Returns the length of the drive in bytes; `None` if it has none.
    fn make_embedded(&self, root: &Path) -> Result<Option<u64>> {
        let objects = if self.drive { ObjectLocation::Drive } else { ObjectLocation::Directory };
        let was_there = root.exists();
        embedded::make_directory(root, objects)?;
        let made = self.fill_embedded(root, objects);
        if made.is_err() {
            embedded::remove_directory(root, was_there);
        }
        made
    }

    /// Makes the drive, if the objects are to be on one, and the record of an embedded volume. Returns the length of the drive in bytes;
    /// `None` if there is none.
    fn fill_embedded(&self, root: &Path, objects: ObjectLocation) -> Result<Option<u64>> {
        let drive_bytes = match objects {
            ObjectLocation::Directory => None,
            ObjectLocation::Drive => {
                let runtime = process::runtime()?;
                Some(runtime.block_on(embedded_drive::create_drive(
                    root,
                    self.size,
                    &ProcessContext::system()?,
                ))?)
            }
        };
        embedded::write_record(root, &embedded::new_record(random_id()?, jiff::Timestamp::now(), objects))?;
        Ok(drive_bytes)
    }

    fn record(&self) -> Result<VolumeRecord> {
        let mapping = match self.mapping {
            Mapping::Whole => vfs::Mapping::Whole,
            Mapping::Chunked => vfs::Mapping::chunked(self.chunk_size).map_err(anyhow::Error::msg)?,
        };
        let naming = match (self.naming, self.mapping) {
            (Some(Naming::Inode), _) | (None, Mapping::Chunked) => vfs::Naming::Inode,
            (Some(Naming::FilePath), _) | (None, Mapping::Whole) => vfs::Naming::FilePath,
        };
        let id = u128::from(random_id()?) << 64 | u128::from(random_id()?);
        let record = VolumeRecord::new(mapping, naming, id, ProcessContext::system()?.clock.now())?;
        let record = record.with_conflicts(self.conflict.map(Into::into).unwrap_or_default())?;
        Ok(record.with_database(self.meta.clone()))
    }

    /// Writes the volume record to the bucket, after the volume was added to the database, if its metadata is to be there. Fails if the
    /// bucket has a record already.
    fn write_record(&self, volume: &Volume, record: &VolumeRecord) -> Result<()> {
        process::runtime()?.block_on(async {
            let context = ProcessContext::system()?;
            let bucket = Bucket::open(volume, &self.store.settings(), false, &context).await?;
            let prefix = volume.prefix().as_bytes();
            if VolumeRecord::read(bucket.store.as_ref(), prefix).await?.is_some() {
                bail!("{} is a Tenon volume already; mount it, or choose another prefix", volume.url());
            }
            if let Some(url) = &record.database {
                database::create(record, url)?;
            }
            let written = record.write(bucket.store.as_ref(), prefix).await;
            if let (Err(_), Some(url)) = (&written, &record.database) {
                // Without the record, nothing refers to what the database has of the volume.
                database::remove(record, url)?;
            }
            Ok(written?)
        })
    }

    fn print_outcome(&self, volume: &Volume, made: Option<&str>, drive_bytes: Option<u64>) {
        let url = volume.url();
        match made {
            _ if self.json => {
                let report = serde_json::json!({
                    "volume": url, "made": made.is_some(), "id": made, "drive_bytes": drive_bytes,
                });
                println!("{report}");
            }
            Some(_) if let Some(len_bytes) = drive_bytes => println!(
                "made the volume {url}, with {} MiB for its objects; mount it with `tenon mount {url} DIR`",
                len_bytes >> 20
            ),
            Some(_) => println!("made the volume {url}; mount it with `tenon mount {url} DIR`"),
            None => println!("{url} needs no format; mount it with `tenon mount {url} DIR`"),
        }
    }
}
