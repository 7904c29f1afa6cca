//! `tenon umount`: stores what is pending, then takes the mount away.

use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::environment;
use crate::progress::Progress;
use crate::registry::Mount;
use crate::units;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often, and after which pauses, a daemon that gave no answer is looked at.
const DYING_LOOKS: u32 = 40;
const DYING_PAUSE: Duration = Duration::from_millis(50);

/// Unmount, after everything that is pending is stored. Of several directories it takes this one away.
#[derive(Debug, Args)]
pub(crate) struct Umount {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    mount_point: PathBuf,
    /// Detach even if programs use it; their open files work until closed
    #[arg(short, long)]
    lazy: bool,
    /// How long pending uploads may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = units::duration)]
    timeout: Duration,
}

impl Umount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mount_point = resolve(&self.mount_point)?;
        if fuse::mounted_at(&mount_point).context("cannot read the mount table")?.is_none() {
            if wait_for_ending(&mount_point)? {
                return Ok(ExitCode::SUCCESS);
            }
            bail!("no Tenon volume is mounted at {}; `tenon status` lists what is", mount_point.display());
        }
        match environment::registry().at(&mount_point) {
            Some(mount) => match self.ask(&mount, &mount_point) {
                // It died when it was asked, or just before.
                Err(error) if error.root_cause().is::<std::io::Error>() && dies(mount.holder.pid) => {
                    self.without_daemon(&mount_point)?;
                }
                asked => asked?,
            },
            None => self.without_daemon(&mount_point)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn ask(&self, mount: &Mount, mount_point: &Path) -> Result<()> {
        let mut client = Client::connect(mount)?;
        let progress = Progress::start();
        let request = Request::Unmount {
            mount_point_hex: Some(store::hex(mount_point.as_os_str().as_bytes())),
            lazy: self.lazy,
            patience_secs: self.timeout.as_secs(),
        };
        match client.ask(&request, |pending| progress.tell(&pending.to_string()))? {
            Answer::Unmounted { goes_on: true, .. } => Ok(()),
            Answer::Unmounted { backlog_changes, .. } => {
                client.wait_for_end()?;
                if backlog_changes > 0 {
                    eprintln!(
                        "tenon: {backlog_changes} changes are safe in the write-back log; they go up at the next mount"
                    );
                }
                Ok(())
            }
            Answer::Busy => Err(busy(mount_point)),
            other => client.unexpected(&other),
        }
    }

    /// The daemon died, or runs where we cannot see it; either way, what it acknowledged is stored.
    fn without_daemon(&self, mount_point: &Path) -> Result<()> {
        let is_dead = fuse::is_dead(mount_point);
        let unmounted =
            if self.lazy || is_dead { fuse::detach(mount_point) } else { fuse::unmount(mount_point) };
        match unmounted {
            Ok(()) if is_dead => {
                eprintln!("tenon: the mount at {} was dead; it is gone", mount_point.display())
            }
            Ok(()) => {}
            Err(fuse::UnmountError::Busy(_)) => return Err(busy(mount_point)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Whether a daemon is dead, or soon is: a process that is killed needs a moment. The mount point does not tell while the
/// kernel remembers its attributes.
fn dies(pid: u32) -> bool {
    (0..DYING_LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(DYING_PAUSE);
        }
        !is_running(pid)
    })
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may hold anything, comes the state.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn busy(mount_point: &Path) -> anyhow::Error {
    let shown = mount_point.display();
    anyhow!(
        "{shown} is busy: programs use it; end them (`fuser -vm {shown}` lists them), or detach it with --lazy"
    )
}

/// After umount(8), which waits for nobody: waits for the process whose mount was here. Whether there was one.
fn wait_for_ending(mount_point: &Path) -> Result<bool> {
    let Some(mount) = environment::registry().at(mount_point) else { return Ok(false) };
    let Ok(mut client) = Client::connect(&mount) else { return Ok(false) };
    match client.status() {
        Ok(status) if status.ending => client.wait_for_end().map(|()| true),
        _ => Ok(false),
    }
}

/// Like `canonicalize`, but never looks into the mount itself, which may be dead.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if !absolute.is_symlink() => {
            let parent =
                parent.canonicalize().with_context(|| format!("cannot resolve {}", parent.display()))?;
            Ok(parent.join(name))
        }
        _ => absolute.canonicalize().with_context(|| format!("cannot resolve {}", path.display())),
    }
}
