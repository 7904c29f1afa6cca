//! `tenon conflicts`: files and objects that changed at the same time, until somebody says which stays.

use crate::bucket::{self, Bucket, World};
use crate::command::status;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Conflict, Keep, Request};
use crate::flags::StoreFlags;
use crate::registry::Mount;
use crate::volume::Volume;
use crate::{environment, metadata, state};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What the metadata engine may use where the volume is not mounted.
const MEMORY_BYTES: u64 = 256 << 20;
/// How long what was resolved may take to be written down.
const NOTED_WITHIN: Duration = Duration::from_secs(30);

/// Show and resolve conflicts: objects that changed in the bucket while their file was written here.
///
/// `tenon format --conflict` and `tenon mount --conflict` say which side has the name until then. Nobody's bytes are lost by
/// any policy: what has not the name is under `lost+found`, or beside the file.
#[derive(Debug, Args)]
pub(crate) struct Conflicts {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the conflicts that nobody has resolved, the oldest first
    List {
        /// A volume, or where it is mounted
        #[arg(value_name = "VOLUME|DIR")]
        of: String,
        /// Print one JSON object for each
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Show where both sides of a conflict are
    Show {
        /// As `list` shows it
        id: String,
        /// A volume, or where it is mounted (every mount is asked if not given)
        #[arg(long, value_name = "VOLUME|DIR")]
        of: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Say what stays; the other side's bytes go, or become a file beside
    Resolve {
        /// As `list` shows it
        id: String,
        /// The bucket's object, the file that was written here, or both as two files
        #[arg(long, value_name = "SIDE")]
        keep: Keep,
        /// A volume, or where it is mounted (every mount is asked if not given)
        #[arg(long, value_name = "VOLUME|DIR")]
        of: Option<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// How a volume is reached that is not mounted.
#[derive(Debug, Args)]
struct Place {
    /// The state directory given to `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

impl Conflicts {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::List { of, json, place } => {
                let conflicts = find(&of, &place)?.list()?;
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
            Action::Show { id, of, json, place } => {
                let (_, conflict) = find_conflict(&id, of.as_deref(), &place)?;
                match json {
                    true => println!("{}", serde_json::to_string(&conflict)?),
                    false => print!("{}", detail(&conflict)),
                }
            }
            Action::Resolve { id, keep, of, place } => {
                let (volume, conflict) = find_conflict(&id, of.as_deref(), &place)?;
                volume.resolve(&id, keep)?;
                println!("resolved the conflict of {}", conflict.path);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where conflicts are known.
enum Known<'p> {
    Mounted(Mount),
    Unmounted(Volume, &'p Place),
}

fn find<'p>(of: &str, place: &'p Place) -> Result<Known<'p>> {
    match status::find(of, environment::registry().mounts()) {
        Ok(mount) => Ok(Known::Mounted(mount)),
        Err(_) => Ok(Known::Unmounted(Volume::parse(of)?, place)),
    }
}

fn find_conflict<'p>(id: &str, of: Option<&str>, place: &'p Place) -> Result<(Known<'p>, Conflict)> {
    let known = match of {
        Some(of) => vec![find(of, place)?],
        None => {
            let mounts = environment::registry().mounts().into_iter();
            mounts.filter(|mount| !mount.holder.serves_buckets()).map(Known::Mounted).collect()
        }
    };
    for volume in known {
        let listed = match volume.list() {
            // A mount that just died, or that only serves buckets, must not hide the conflicts of all others.
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
        Some(of) => bail!("{of} has no conflict '{id}'; `tenon conflicts list {of}` shows which it has"),
        None => bail!("no mount has a conflict '{id}'; of a volume that is not mounted say --of VOLUME"),
    }
}

impl Known<'_> {
    fn list(&self) -> Result<Vec<Conflict>> {
        match self {
            Self::Mounted(mount) => {
                let mut client = Client::connect(mount)?;
                match client.ask(&Request::Conflicts, |_| {})? {
                    Answer::Conflicts { conflicts } => Ok(conflicts),
                    other => client.unexpected(&other),
                }
            }
            Self::Unmounted(volume, place) => {
                place.with(volume, async |fs| Ok(fs.conflicts().iter().map(Conflict::from).collect()))
            }
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
            Self::Unmounted(volume, place) => place.with(volume, async |fs| {
                fs.resolve_conflict(id, keep.into()).await?;
                Ok(fs.shutdown(NOTED_WITHIN).await?)
            }),
        }
    }
}

impl Place {
    /// Does something with a volume that nobody has mounted.
    fn with<T: Default>(
        &self,
        volume: &Volume,
        work: impl AsyncFnOnce(&vfs::Filesystem) -> Result<T>,
    ) -> Result<T> {
        let root = bucket::state_dir(volume, self.state_dir.as_deref(), &self.store);
        if !metadata::is_in(&root) {
            return Ok(T::default());
        }
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        runtime.block_on(async {
            let world = World::real()?;
            let bucket = Bucket::open(volume, &self.store, false, &world).await?;
            let _held = state::hold(&root)?;
            state::nothing_waits(&root)?;
            let prefix = volume.prefix().as_bytes();
            let record = vfs::VolumeRecord::read(bucket.store.as_ref(), prefix).await?;
            let store = bucket.store.as_ref();
            let metadata = metadata::open(volume, record.as_ref(), store, &root, None, MEMORY_BYTES).await?;
            let config = vfs::Config {
                prefix: prefix.to_vec(),
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
                memory_limit_bytes: MEMORY_BYTES,
                ..vfs::Config::new(state::cache_dir(&root))
            };
            let parts = vfs::Parts {
                store: bucket.store.clone(),
                clock: world.clock.clone(),
                entropy: world.entropy.clone(),
                engine: metadata.engine.clone(),
                record,
            };
            let fs = vfs::Filesystem::mount(parts, config)
                .map_err(|error| anyhow!("cannot use {}: {error}", volume.url()))?;
            work(&fs).await
        })
    }
}

fn summary(conflict: &Conflict) -> String {
    let has_name = if conflict.is_file_named() { "the file" } else { "the bucket" };
    format!("{}  {}  {}  {} has the name", conflict.id, conflict.at, conflict.path, has_name)
}

fn detail(conflict: &Conflict) -> String {
    let place = |side: &Option<crate::control::protocol::Side>| match side {
        Some(side) => format!("{} (etag {})", side.key, side.etag),
        None => "nothing: it was deleted".to_owned(),
    };
    let file = match (conflict.complete, &conflict.file) {
        (true, _) => place(&conflict.file),
        (false, None) => "nothing is left: it was replaced before it moved to its new name".to_owned(),
        (false, Some(_)) => format!("{}; zeros stand for what was not written here", place(&conflict.file)),
    };
    let writes = if conflict.blocks { "refused until this is resolved" } else { "taken" };
    let lines = [
        ("conflict", conflict.id.clone()),
        ("path", conflict.path.clone()),
        ("found", conflict.at.clone()),
        ("policy", conflict.policy.clone()),
        ("bucket's bytes", place(&conflict.bucket)),
        ("file's bytes", file),
        ("writes", writes.to_owned()),
    ];
    lines.map(|(title, text)| format!("{title:<16}{text}\n")).concat()
}
