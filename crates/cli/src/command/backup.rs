//! `tenon backup`: writes the names of a volume to a file.

use crate::command::output::Progress;
use crate::command::units;
use crate::command::unmounted::UnmountedFlags;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request};
use crate::metadata;
use crate::metadata::backup;
use crate::process;
use crate::state;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Back up the names of a volume to a file, as of one moment; `tenon restore` restores them
///
/// The volume may be mounted and in use. The backup does not contain the contents of files: it refers to objects in
/// the bucket, and is complete once the bucket has all of them.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// A volume, or its mount point
    #[arg(value_name = "VOLUME|DIR")]
    volume: String,
    /// The backup file; it must not exist yet
    file: PathBuf,
    /// How long to wait until the bucket has the contents of all files
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    access: UnmountedFlags,
}

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let file = std::path::absolute(&self.file).context("cannot resolve the file")?;
        if file.exists() {
            bail!("{} already exists; give another name", file.display());
        }
        let records = match Registry::of_user().find(&self.volume) {
            Ok(mount) if !is_ending(&mount) => self.back_up_mounted(&mount, &file)?,
            _ => self.back_up_unmounted(&file)?,
        };
        println!("backed up {records} records of {} to {}", self.volume, file.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the process that has the metadata engine open for a backup.
    fn back_up_mounted(&self, mount: &LiveMount, file: &Path) -> Result<u64> {
        let mut client = Client::connect(mount)?;
        let progress = Progress::start();
        let request = Request::Backup {
            file_hex: store::hex(file.as_os_str().as_bytes()),
            patience_secs: self.timeout.as_secs(),
        };
        match client.ask(&request, |pending| progress.show(&pending.to_string()))? {
            Answer::BackedUp { records } => Ok(records),
            other => client.unexpected(&other),
        }
    }

    /// Backs up a volume that is not mounted. Waits for a process that is ending.
    fn back_up_unmounted(&self, file: &Path) -> Result<u64> {
        let volume = Volume::parse(&self.volume)?;
        let root = self.access.state_root(&volume);
        if !metadata::exists_in(&root) {
            bail!(
                "there are no names of {} in {}; give the --state-dir of its mount",
                volume.url(),
                root.display()
            );
        }
        let _lock = state::lock_for_command(&root, &volume)?;
        process::runtime()?.block_on(async {
            let names = self.access.open(&volume, true).await?.open_metadata().await?;
            backup::write(&*names.on_disk()?, &metadata::describe(&volume, &root)?, file)
        })
    }
}

fn is_ending(mount: &LiveMount) -> bool {
    Client::connect(mount).and_then(|mut client| client.status()).is_ok_and(|status| status.ending)
}
