//! `tenon format`: makes a volume.

use crate::bucket::{Bucket, World};
use crate::flags::StoreFlags;
use crate::volume::{self, Volume};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;
use tokio::runtime::Runtime;
use vfs::VolumeRecord;

/// Make a volume.
///
/// In a local directory, or in a bucket whose objects are to be named by inode. Buckets and file:// directories
/// whose objects are the files need no format: mount them as they are.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// A directory that is new or empty, or s3://bucket[/prefix]
    volume: String,
    /// How objects are named: by the file's path, or by its inode number
    #[arg(long, value_name = "NAMING", default_value = "file-path")]
    naming: Naming,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// How objects are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Naming {
    /// By path: any S3 program finds files; a rename copies objects.
    FilePath,
    /// By inode: renames touch no object, and names live in this machine's metadata alone.
    Inode,
}

impl From<Naming> for vfs::Naming {
    fn from(naming: Naming) -> Self {
        match naming {
            Naming::FilePath => Self::FilePath,
            Naming::Inode => Self::Inode,
        }
    }
}

impl Format {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let volume = Volume::parse_unchecked(&self.volume)?;
        let naming = self.naming.into();
        let made = match &volume {
            Volume::Embedded { root } => {
                let record = volume::new_record(naming, random_id()?, jiff::Timestamp::now());
                volume::format(root, &record)?;
                true
            }
            Volume::S3 { .. } | Volume::Directory { .. } => naming == vfs::Naming::Inode,
        };
        let id = if made { Some(self.write_record(&volume, naming)?) } else { None };
        self.say(&volume, id.as_deref());
        Ok(ExitCode::SUCCESS)
    }

    /// Says in the bucket how its objects are named; the identity of the volume.
    fn write_record(&self, volume: &Volume, naming: vfs::Naming) -> Result<String> {
        Runtime::new().context("cannot start")?.block_on(async {
            let world = World::real()?;
            let bucket = Bucket::open(volume, &self.store, false, &world).await?;
            let prefix = volume.prefix().as_bytes();
            if VolumeRecord::read(bucket.store.as_ref(), prefix).await?.is_some() {
                bail!("{} is a Tenon volume already; mount it, or choose another prefix", volume.url());
            }
            let id = u128::from(world.entropy.next_u64()) << 64 | u128::from(world.entropy.next_u64());
            let record = VolumeRecord::new(naming, id, world.clock.now());
            record.write(bucket.store.as_ref(), prefix).await?;
            Ok(record.id)
        })
    }

    fn say(&self, volume: &Volume, made: Option<&str>) {
        let url = volume.url();
        match made {
            _ if self.json => {
                println!("{}", serde_json::json!({ "volume": url, "made": made.is_some(), "id": made }))
            }
            Some(_) => println!("made the volume {url}; mount it with `tenon mount {url} DIR`"),
            None => println!("{url} needs no format; mount it with `tenon mount {url} DIR`"),
        }
    }
}

/// A number that no other volume has.
pub(crate) fn random_id() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot draw a random number from /dev/urandom")?;
    Ok(u64::from_le_bytes(bytes))
}
