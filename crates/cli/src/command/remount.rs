//! `mount -o remount`: changes the settings of a mount that the kernel enforces, like `ro`.

use crate::command::arguments::split_options;
use crate::control::client::Client;
use crate::state::registry::{Registry, resolve_mount_point};
use anyhow::{Context, Result, bail};
use clap::Args;
use fuse::Change;
use std::path::PathBuf;
use std::process::ExitCode;

/// Change a mount, as `mount -o remount` asks: ro and rw, suid, dev and exec. Everything else stays as it was mounted.
#[derive(Debug, Args)]
pub(crate) struct Remount {
    /// Mount point
    #[arg(value_name = "DIR")]
    mount_point: PathBuf,
    /// Options as mount(8) takes them; of two that contradict each other the last one counts
    #[arg(long)]
    options: String,
}

impl Remount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mount_point = resolve_mount_point(&self.mount_point)?;
        let shown = mount_point.display();
        if fuse::mounted_at(&mount_point).context("cannot read the mount table")?.is_none() {
            bail!("no Tenon volume is mounted at {shown}; `tenon status` lists the mounts");
        }
        let change = change(&self.options);
        if change.read_only == Some(false)
            && let Some(mount) = Registry::of_user().at(&mount_point)
            && Client::connect(&mount)?.status()?.read_only
        {
            bail!(
                "{shown} was mounted read-only, which its process cannot change: `tenon umount {shown}`, then mount it without ro"
            );
        }
        fuse::remount(&mount_point, change)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads the options that a remount can change, and ignores all others: mount(8) adds those of fstab and of the mount
/// table.
fn change(options: &str) -> Change {
    let mut change = Change::default();
    for option in split_options(options) {
        match option.as_str() {
            "ro" => change.read_only = Some(true),
            "rw" => change.read_only = Some(false),
            "suid" | "allow_suid" => change.suid = Some(true),
            "nosuid" => change.suid = Some(false),
            "dev" | "allow_dev" => change.dev = Some(true),
            "nodev" => change.dev = Some(false),
            "exec" => change.exec = Some(true),
            "noexec" => change.exec = Some(false),
            _ => {}
        }
    }
    change
}
