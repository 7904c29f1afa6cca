//! `tenon conflicts`: lists and resolves conflicts between files and objects that changed at the same time.

use crate::command::unmounted::{MEMORY_BYTES, UnmountedFlags};
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Conflict, Keep, Request, Side};
use crate::process;
use crate::state;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// How long storing a resolution may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Show and resolve conflicts: objects that changed in the bucket while their file was written here.
///
/// `tenon format --conflict` and `tenon mount --conflict` choose which side keeps the name until then. No policy
/// loses bytes: those of the other side are kept under `lost+found`, or as another file in the same directory.
#[derive(Debug, Args)]
pub(crate) struct Conflicts {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the unresolved conflicts, the oldest first
    List {
        /// A volume, or its mount point
        #[arg(value_name = "VOLUME|DIR")]
        of: String,
        /// Print one JSON object per conflict
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: UnmountedFlags,
    },
    /// Show where the bytes of both sides of a conflict are
    Show {
        /// Id of the conflict, as `list` shows it
        id: String,
        /// A volume, or its mount point (default: all mounts)
        #[arg(long, value_name = "VOLUME|DIR")]
        of: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        access: UnmountedFlags,
    },
    /// Choose the side to keep; the bytes of the other side are deleted, or kept as another file
    Resolve {
        /// Id of the conflict, as `list` shows it
        id: String,
        /// Side to keep: the bucket's object, the file that was written here, or both as two files
        #[arg(long, value_name = "SIDE")]
        keep: Keep,
        /// A volume, or its mount point (default: all mounts)
        #[arg(long, value_name = "VOLUME|DIR")]
        of: Option<String>,
        #[command(flatten)]
        access: UnmountedFlags,
    },
}

impl Conflicts {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::List { of, json, access } => {
                let conflicts = find(&of, &access)?.list()?;
                if conflicts.is_empty() && !json {
                    println!("{of} has no conflicts");
                }
                for conflict in &conflicts {
                    match json {
                        true => println!("{}", serde_json::to_string(conflict)?),
                        false => println!("{}", summary(conflict)),
                    }
                }
            }
            Action::Show { id, of, json, access } => {
                let (_, conflict) = find_conflict(&id, of.as_deref(), &access)?;
                match json {
                    true => println!("{}", serde_json::to_string(&conflict)?),
                    false => print!("{}", detail(&conflict)),
                }
            }
            Action::Resolve { id, keep, of, access } => {
                let (volume, conflict) = find_conflict(&id, of.as_deref(), &access)?;
                volume.resolve(&id, keep)?;
                println!("resolved the conflict of {}", conflict.path);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A volume whose conflicts are shown or resolved.
enum Target<'p> {
    Mounted(LiveMount),
    Unmounted(Volume, &'p UnmountedFlags),
}

/// Returns the mount of a mount point or volume; without a mount, the volume itself.
fn find<'p>(of: &str, access: &'p UnmountedFlags) -> Result<Target<'p>> {
    match Registry::of_user().find(of) {
        Ok(mount) => Ok(Target::Mounted(mount)),
        Err(_) => Ok(Target::Unmounted(Volume::parse(of)?, access)),
    }
}

fn find_conflict<'p>(
    id: &str,
    of: Option<&str>,
    access: &'p UnmountedFlags,
) -> Result<(Target<'p>, Conflict)> {
    let known = match of {
        Some(of) => vec![find(of, access)?],
        None => {
            let mounts = Registry::of_user().mounts().into_iter();
            mounts.filter(|mount| !mount.holder.serves_buckets()).map(Target::Mounted).collect()
        }
    };
    for volume in known {
        let listed = match volume.list() {
            // A mount that just died must not hide the conflicts of the other mounts.
            Err(error) if of.is_none() => {
                eprintln!("tenon: {error:#}");
                continue;
            }
            listed => listed?,
        };
        if let Some(conflict) = listed.into_iter().find(|conflict| conflict.id == id) {
            return Ok((volume, conflict));
        }
    }
    match of {
        Some(of) => bail!("{of} has no conflict '{id}'; `tenon conflicts list {of}` lists them"),
        None => bail!("no mount has a conflict '{id}'; for a volume that is not mounted, give --of VOLUME"),
    }
}

impl Target<'_> {
    fn list(&self) -> Result<Vec<Conflict>> {
        match self {
            Self::Mounted(mount) => {
                let mut client = Client::connect(mount)?;
                match client.ask(&Request::Conflicts, |_| {})? {
                    Answer::Conflicts { conflicts } => Ok(conflicts),
                    other => client.unexpected(&other),
                }
            }
            Self::Unmounted(volume, access) => with_filesystem(volume, access, async |fs| {
                Ok(fs.conflicts().list().iter().map(Conflict::from).collect())
            }),
        }
    }

    fn resolve(&self, id: &str, keep: Keep) -> Result<()> {
        match self {
            Self::Mounted(mount) => {
                let mut client = Client::connect(mount)?;
                match client.ask(&Request::ResolveConflict { id: id.to_owned(), keep }, |_| {})? {
                    Answer::Resolved => Ok(()),
                    other => client.unexpected(&other),
                }
            }
            Self::Unmounted(volume, access) => with_filesystem(volume, access, async |fs| {
                fs.conflict_resolver().resolve(id, keep.into()).await?;
                Ok(fs.shutdown(SHUTDOWN_TIMEOUT).await?)
            }),
        }
    }
}

/// Opens the file system of a volume that is not mounted, and runs `work` on it. Returns the default if the volume has no
/// metadata, neither on this machine nor in a database.
fn with_filesystem<T: Default>(
    volume: &Volume,
    access: &UnmountedFlags,
    work: impl AsyncFnOnce(&vfs::Filesystem) -> Result<T>,
) -> Result<T> {
    let root = access.state_root(volume);
    let runtime = process::runtime()?;
    runtime.block_on(async {
        let opened = access.open(volume, false).await?;
        if !opened.has_metadata() {
            return Ok(T::default());
        }
        let _lock = opened.lock_state()?;
        let metadata = opened.open_metadata().await?;
        let config =
            vfs::Config { memory_limit_bytes: MEMORY_BYTES, ..opened.config(state::cache_dir(&root)) };
        work(&*opened.open_filesystem(&metadata, config)?).await
    })
}

/// Describes a conflict in one line.
fn summary(conflict: &Conflict) -> String {
    let has_name = if conflict.is_file_named() { "the file" } else { "the bucket" };
    format!("{}  {}  {}  {} has the name", conflict.id, conflict.at, conflict.path, has_name)
}

fn detail(conflict: &Conflict) -> String {
    let location = |side: &Option<Side>| match side {
        Some(side) => format!("{} (etag {})", side.key, side.etag),
        None => "none: the object was deleted".to_owned(),
    };
    let file = match (conflict.all_bytes_kept, &conflict.file) {
        (true, _) => location(&conflict.file),
        (false, None) => "none: the file was replaced before it moved to its new name".to_owned(),
        (false, Some(_)) => {
            format!("{}; ranges that were not written here are zeros", location(&conflict.file))
        }
    };
    let writes = if conflict.blocks { "refused until this is resolved" } else { "accepted" };
    let lines = [
        ("conflict", conflict.id.clone()),
        ("path", conflict.path.clone()),
        ("found", conflict.at.clone()),
        ("policy", conflict.policy.clone()),
        ("bucket's bytes", location(&conflict.bucket)),
        ("file's bytes", file),
        ("writes", writes.to_owned()),
    ];
    lines.map(|(title, text)| format!("{title:<16}{text}\n")).concat()
}
