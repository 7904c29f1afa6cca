//! `tenon backup`: the names of a volume in one file.

use crate::backup;
use crate::bucket::{self, Bucket, World};
use crate::command::status;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::flags::StoreFlags;
use crate::progress::Progress;
use crate::registry::Mount;
use crate::volume::Volume;
use crate::{environment, metadata, state, units};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;
use vfs::VolumeRecord;

const MEMORY_BYTES: u64 = 256 << 20;

/// Write the names of a volume to a file, as they are at one moment; `tenon restore` reads it.
///
/// The volume may be mounted and in use. The contents of files are in the bucket: the backup names them, and is finished when the
/// bucket has all of them.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The volume, or where it is mounted
    #[arg(value_name = "VOLUME|DIR")]
    volume: String,
    /// A file that is not there yet
    file: PathBuf,
    /// How long what is not in the bucket yet may take to get there
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = units::duration)]
    timeout: Duration,
    /// The state directory given to `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let file = std::path::absolute(&self.file).context("cannot resolve the file")?;
        if file.exists() {
            bail!("{} is there already; give another name", file.display());
        }
        let mounts = environment::registry().mounts();
        let records = match status::find(&self.volume, mounts) {
            Ok(mount) if !is_ending(&mount) => self.ask(&mount, &file)?,
            _ => self.unmounted(&file)?,
        };
        println!("{records} records of {} are in {}", self.volume, file.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the process that has the names open.
    fn ask(&self, mount: &Mount, file: &Path) -> Result<u64> {
        let mut client = Client::connect(mount)?;
        let progress = Progress::start();
        let request = Request::Backup {
            file_hex: store::hex(file.as_os_str().as_bytes()),
            patience_secs: self.timeout.as_secs(),
        };
        match client.ask(&request, |pending| progress.tell(&pending.to_string()))? {
            Answer::BackedUp { records } => Ok(records),
            other => client.unexpected(&other),
        }
    }

    /// Opens the names of a volume that is not mounted. A process that ends is waited for.
    fn unmounted(&self, file: &Path) -> Result<u64> {
        let volume = Volume::parse(&self.volume)?;
        let root = bucket::state_dir(&volume, self.state_dir.as_deref(), &self.store);
        if !metadata::is_in(&root) {
            bail!("there are no names of {} in {}", volume.url(), root.display());
        }
        let _held = state::hold(&root)?;
        Runtime::new().context("cannot start")?.block_on(async {
            let bucket = Bucket::open(&volume, &self.store, true, &World::real()?).await?;
            let store = bucket.store.as_ref();
            let record = VolumeRecord::read(store, volume.prefix().as_bytes()).await?;
            let names = metadata::open(&volume, record.as_ref(), store, &root, None, MEMORY_BYTES).await?;
            backup::write(&names.engine, &metadata::about(&volume, &root)?, file)
        })
    }
}

fn is_ending(mount: &Mount) -> bool {
    Client::connect(mount).and_then(|mut client| client.status()).is_ok_and(|status| status.ending)
}
