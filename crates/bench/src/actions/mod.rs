//! The actions of the paper's program: install, up, down, those on a target's bucket, and the removal of all that they leave.
//!
//! Owns the directory in which they keep what outlives a command: the data of servers that the testbed starts, the state of targets,
//! descriptions of mounts, installed programs, and the journal of buckets.
//!
//! Invariant: no bucket is emptied or removed that the journal does not have, unless the user says so.

mod action_error;
mod buckets;
mod install;
mod stations;

pub use action_error::ActionError;
pub use install::program_directories;
pub use stations::{Mounting, Station};

use crate::journal::{Journal, JournaledBucket};
use crate::outcome::Failure;
use crate::package::{Action, Target, Variables};
use crate::platform::{Environment, Platform};
use crate::runner::{
    Endpoint, EndpointOptions, Limits, Programs, RunError, Surroundings, make_directories, surroundings,
    variables,
};
use harness::Shape;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// Size of the drive of a platform that is started for actions.
const CAPACITY_BYTES: u64 = 8 << 30;

/// Carries out the actions. The fields are what all of them need.
pub struct Workbench<'a> {
    /// Programs.
    pub programs: &'a Programs,
    /// Directory of what outlives a command.
    pub state: PathBuf,
    /// Reads environment variables, for credentials.
    pub environment: Environment<'a>,
    /// Time limits.
    pub limits: Limits,
    /// The network that the proxy imitates.
    pub shape: Shape,
}

/// A platform that runs for an action, exclusively if the testbed started it.
struct Opened {
    endpoint: Endpoint,
    runtime: Runtime,
    // Dropped last.
    _lock: File,
}

impl Workbench<'_> {
    fn journal(&self) -> Result<Journal, ActionError> {
        Ok(Journal::open(&self.state)?)
    }

    /// Returns the directory of a target on a platform.
    fn target_dir(&self, target: &Target, platform: &Platform) -> PathBuf {
        self.state.join("targets").join(format!("{target}@{}", platform.name))
    }

    /// Starts or reaches a platform.
    fn open(&self, platform: &Platform) -> Result<Opened, ActionError> {
        let dir = self.state.join("servers").join(&platform.name);
        fs::create_dir_all(&dir).map_err(ActionError::file(&dir))?;
        let path = self.state.join("servers").join(format!("{}.lock", platform.name));
        let lock = File::options().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(ActionError::file(&path))?;
        if !platform.is_foreign() && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(ActionError::InUse(platform.name.clone()));
        }
        let runtime = Runtime::new().map_err(RunError::Runtime)?;
        let options = EndpointOptions { shape: self.shape, capacity_bytes: CAPACITY_BYTES, keeps_data: true };
        let endpoint = Endpoint::start(platform, options, self.programs, &dir, &runtime)?;
        Ok(Opened { endpoint, runtime, _lock: lock })
    }

    /// Returns the bucket that the testbed created for a target, if there is one.
    fn own_bucket(&self, journal: &Journal, target: &Target, platform: &Platform) -> Option<String> {
        let prefix = bucket_prefix(target);
        let is_own = |known: &&JournaledBucket| {
            !known.is_temporary && known.platform == platform.spec && known.bucket.starts_with(&prefix)
        };
        Some(journal.buckets().iter().find(is_own)?.bucket.clone())
    }

    /// Fills in the variables of a target and writes its files.
    fn prepare(
        &self,
        target: &Target,
        endpoint: &Endpoint,
        (dir, mount): (&Path, &Path),
        bucket: &str,
    ) -> Result<(Variables, Surroundings), ActionError> {
        make_directories(dir)?;
        let places = (dir, mount);
        let values = variables(target, endpoint, self.programs, places, (bucket, CAPACITY_BYTES));
        let values = values.map_err(Failure::testbed)?;
        let surroundings = surroundings(&target.package, endpoint, self.programs, &values, dir)?;
        Ok((values, surroundings))
    }

    /// Returns the names of the buckets that the testbed has created.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn bucket_names(&self) -> Result<Vec<String>, ActionError> {
        Ok(self.journal()?.buckets().iter().map(|known| known.bucket.clone()).collect())
    }

    /// Removes what the actions have left, except installed programs: mounts, buckets, servers with their data, and states.
    ///
    /// # Errors
    /// If a mount cannot be ended, or a bucket cannot be removed.
    pub fn clean_all(&self) -> Result<(), ActionError> {
        for station in self.stations()? {
            self.down(&station.target)?;
        }
        let mut journal = self.journal()?;
        let runtime = Runtime::new().map_err(RunError::Runtime)?;
        crate::runner::remove_journaled(&mut journal, self.environment, &runtime, |_| true)?;
        for name in ["servers", "targets"] {
            let dir = self.state.join(name);
            match fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ActionError::file(&dir)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether a bucket has a name that the testbed gives to buckets of a target.
pub fn is_bucket_of(bucket: &str, target: &Target) -> bool {
    bucket.starts_with(&bucket_prefix(target))
}

/// Returns the beginning of the names of a target's buckets.
fn bucket_prefix(target: &Target) -> String {
    format!("tenon-bench-{}-", target.to_string().replace('.', "-"))
}

/// Returns the words of an action's command, if the package has it.
fn words_of(target: &Target, action: Action, values: &Variables) -> Result<Option<Vec<String>>, ActionError> {
    let command = target.package.commands.get(&action);
    Ok(command.map(|command| command.fill(values)).transpose().map_err(Failure::testbed)?)
}

impl std::fmt::Debug for Workbench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workbench").field("state", &self.state).finish_non_exhaustive()
    }
}
