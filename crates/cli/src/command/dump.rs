//! `tenon dump`: writes the metadata of a volume to a file that any engine can load.

use crate::command::output::Progress;
use crate::command::units;
use crate::command::unmounted::UnmountedFlags;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request};
use crate::metadata::{self, dump_file};
use crate::process;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Write the metadata of a volume to a file, as of one moment; `tenon load` loads it
///
/// The file consists of JSON lines, compressed by Zstandard. The volume may be mounted and in use. The file does not contain
/// the contents of files: it refers to objects in the bucket, and is complete once the bucket has all of them.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// A volume, or its mount point
    #[arg(value_name = "VOLUME|DIR")]
    volume: String,
    /// The dump file; it must not exist yet
    file: PathBuf,
    /// How long to wait until the bucket has the contents of all files
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    access: UnmountedFlags,
}

impl Dump {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let file = std::path::absolute(&self.file).context("cannot make the path of the file absolute")?;
        if file.exists() {
            bail!("{} already exists; give another name", file.display());
        }
        let records = match Registry::of_user().find(&self.volume) {
            Ok(mount) if !is_ending(&mount) => self.dump_mounted(&mount, &file)?,
            _ => self.dump_unmounted(&file)?,
        };
        println!("dumped {records} records of {} to {}", self.volume, file.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the process that has the metadata engine open for a dump.
    fn dump_mounted(&self, mount: &LiveMount, file: &Path) -> Result<u64> {
        let mut client = Client::connect(mount)?;
        let progress = Progress::start();
        let request = Request::Dump {
            file_hex: store::hex(file.as_os_str().as_bytes()),
            patience_secs: self.timeout.as_secs(),
        };
        match client.ask(&request, |pending| progress.show(&pending.to_string()))? {
            Answer::Dumped { records } => Ok(records),
            other => client.unexpected(&other),
        }
    }

    /// Dumps a volume that is not mounted. Waits for a process that is ending.
    fn dump_unmounted(&self, file: &Path) -> Result<u64> {
        let volume = Volume::parse(&self.volume)?;
        let root = self.access.state_root(&volume);
        let progress = Progress::start();
        process::runtime()?.block_on(async {
            let opened = self.access.open(&volume, true).await?;
            if !opened.has_metadata() {
                bail!(
                    "there are no names of {} in {}; give the --state-dir of its mount",
                    volume.url(),
                    root.display()
                );
            }
            let _lock = opened.lock_state()?;
            let names = opened.open_metadata().await?;
            let about = metadata::describe(&volume, &root)?;
            dump_file::write(&*names.engine(), about, file, |records| {
                progress.show(&format!("{records} records"));
            })
        })
    }
}

fn is_ending(mount: &LiveMount) -> bool {
    Client::connect(mount).and_then(|mut client| client.status()).is_ok_and(|status| status.ending)
}
