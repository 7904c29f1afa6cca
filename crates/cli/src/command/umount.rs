//! `tenon umount`: stores pending changes, then unmounts.

use crate::command::output::Progress;
use crate::command::units;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request};
use crate::state::lock::wait_until_free;
use crate::state::registry::{Registry, resolve_mount_point};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Number of checks of whether a daemon that gave no answer has died, and the pause between two checks.
const DEATH_CHECKS: u32 = 40;
const DEATH_CHECK_PAUSE: Duration = Duration::from_millis(50);

/// Unmount a directory. At the last mount point of a volume, everything that is pending is stored first
#[derive(Debug, Args)]
pub(crate) struct Umount {
    /// Mount point
    #[arg(value_name = "DIR")]
    mount_point: PathBuf,
    /// Detach even if programs use the mount; open files keep working until they are closed
    #[arg(short, long)]
    lazy: bool,
    /// How long to wait for pending uploads
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = units::duration)]
    timeout: Duration,
}

impl Umount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mount_point = resolve_mount_point(&self.mount_point)?;
        if fuse::mounted_at(&mount_point).context("cannot read the mount table")?.is_none() {
            if wait_for_ending(&mount_point)? {
                return Ok(ExitCode::SUCCESS);
            }
            bail!("no Tenon volume is mounted at {}; `tenon status` lists the mounts", mount_point.display());
        }
        match Registry::of_user().at(&mount_point) {
            Some(mount) => match self.request_unmount(&mount, &mount_point) {
                // The daemon died when it was asked, or just before.
                Err(error) if error.root_cause().is::<std::io::Error>() && is_dying(mount.holder.pid) => {
                    self.unmount_without_daemon(&mount_point)?;
                }
                asked => asked?,
            },
            None => self.unmount_without_daemon(&mount_point)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the daemon to store pending changes and unmount. Waits for its end if it was the last mount point.
    fn request_unmount(&self, mount: &LiveMount, mount_point: &Path) -> Result<()> {
        let mut client = Client::connect(mount)?;
        let progress = Progress::start();
        let request = Request::Unmount {
            mount_point_hex: Some(store::hex(mount_point.as_os_str().as_bytes())),
            lazy: self.lazy,
            patience_secs: self.timeout.as_secs(),
        };
        match client.ask(&request, |pending| progress.show(&pending.to_string()))? {
            Answer::Unmounted { goes_on: true, .. } => Ok(()),
            Answer::Unmounted { backlog_changes, .. } => {
                client.wait_for_close(|what| progress.show(what));
                wait_until_free(&mount.state)?;
                if backlog_changes > 0 {
                    eprintln!(
                        "tenon: {backlog_changes} changes are safe in the write-back log; the next mount uploads them"
                    );
                }
                Ok(())
            }
            Answer::Busy => Err(busy(mount_point)),
            other => client.unexpected(&other),
        }
    }

    /// Unmounts a directory whose daemon died, or is not registered where this process looks. In both cases nothing is lost that close or
    /// fsync acknowledged.
    fn unmount_without_daemon(&self, mount_point: &Path) -> Result<()> {
        let is_dead = fuse::is_dead(mount_point);
        let unmounted =
            if self.lazy || is_dead { fuse::detach(mount_point) } else { fuse::unmount(mount_point) };
        match unmounted {
            Ok(()) if is_dead => {
                eprintln!("tenon: the mount at {} was dead; unmounted it", mount_point.display())
            }
            // The daemon unmounted before it died.
            Ok(()) | Err(fuse::UnmountError::NotMounted(_)) => {}
            Err(fuse::UnmountError::Busy(_)) => return Err(busy(mount_point)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Returns whether a daemon is dead, or soon will be: a killed process needs a moment to end. The mount point does
/// not tell, as long as the kernel caches its attributes.
fn is_dying(pid: u32) -> bool {
    (0..DEATH_CHECKS).any(|check| {
        if check > 0 {
            std::thread::sleep(DEATH_CHECK_PAUSE);
        }
        !is_running(pid)
    })
}

/// Returns whether a process exists and is not a zombie.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state comes after the name, which may contain any character.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn busy(mount_point: &Path) -> anyhow::Error {
    let shown = mount_point.display();
    anyhow!(
        "{shown} is busy: programs use it; end them (`fuser -vm {shown}` lists them), or detach it with --lazy"
    )
}

/// Waits until the process whose mount was here has ended, as umount(8) does not wait for it. Returns whether there
/// was one.
fn wait_for_ending(mount_point: &Path) -> Result<bool> {
    let Some(mount) = Registry::of_user().at(mount_point) else { return Ok(false) };
    let Ok(mut client) = Client::connect(&mount) else { return Ok(false) };
    match client.status() {
        Ok(status) if status.ending => {
            let progress = Progress::start();
            client.wait_for_close(|what| progress.show(what));
            wait_until_free(&mount.state).map(|()| true)
        }
        _ => Ok(false),
    }
}
