//! Mounts that outlive a command. A process of the testbed holds each: it owns the proxy and the server, and unmounts when it is asked to
//! end, or when it is killed.

use super::{ActionError, Opened, Workbench, words_of};
use crate::outcome::{Failure, Phase};
use crate::package::{Action, Target};
use crate::platform::Platform;
use crate::runner::{MountCommands, Mounted};
use harness::Stopwatch;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A mount that is wanted.
#[derive(Debug, Clone)]
pub struct Mounting<'t> {
    /// Target.
    pub target: &'t Target,
    /// Platform.
    pub platform: &'t Platform,
    /// An existing bucket; by default the target's own, which is created if necessary.
    pub bucket: Option<String>,
    /// Mount point; by default a directory of the testbed.
    pub point: Option<PathBuf>,
}

/// A target that is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// Name of the target.
    pub target: String,
    /// Text of the platform.
    pub platform: String,
    /// Bucket.
    pub bucket: String,
    /// Mount point.
    pub point: PathBuf,
    /// Process that holds the mount.
    pub pid: u32,
    /// When that process started, by which it differs from a later one with the same number; `None` in a record of an earlier version.
    #[serde(default)]
    pub started: Option<String>,
}

impl Workbench<'_> {
    /// Mounts a target, calls `ready`, and unmounts when `is_stopped` is set.
    ///
    /// # Errors
    /// If it is mounted already, or a command fails, or its process ends.
    pub fn hold(
        &self,
        mounting: &Mounting<'_>,
        ready: &dyn Fn(&Station),
        is_stopped: &AtomicBool,
    ) -> Result<(), ActionError> {
        let (target, platform) = (mounting.target, mounting.platform);
        self.check_is_down(target)?;
        let opened = self.open(platform)?;
        let bucket = self.bucket_to_mount(mounting, &opened)?;
        let dir = self.target_dir(target, platform);
        let point = mounting.point.clone().unwrap_or_else(|| dir.join("mount"));
        let (values, surroundings) = self.prepare(target, &opened.endpoint, (&dir, &point), &bucket)?;
        fs::create_dir_all(&point).map_err(ActionError::file(&point))?;
        let marker = dir.join(format!("formatted-{bucket}"));
        if let Some(words) = words_of(target, Action::Format, &values)?
            && !marker.exists()
        {
            surroundings.run_alone(&words, Phase::Format, self.limits.mount)?;
            fs::write(&marker, "").map_err(ActionError::file(&marker))?;
        }
        let commands = MountCommands::of(
            words_of(target, Action::Mount, &values)?,
            words_of(target, Action::Unmount, &values)?,
        );
        let commands = commands.ok_or_else(|| Failure::testbed("the package has no mount command"))?;
        let mut mounted = Mounted::mount(&point, &commands.mount, &surroundings, self.limits.mount)?;
        let station = Station {
            target: target.to_string(),
            platform: platform.spec.clone(),
            bucket,
            point,
            pid: std::process::id(),
            started: process_start(std::process::id()),
        };
        let path = self.station_path(&station.target);
        self.write_station(&path, &station)?;
        ready(&station);
        while !is_stopped.load(Ordering::Relaxed) && mounted.is_mounted() {
            thread::sleep(POLL_INTERVAL);
        }
        let ended = match mounted.is_mounted() {
            true => mounted.unmount(&commands.unmount, &self.limits).map(drop).map_err(ActionError::from),
            false => {
                mounted.kill();
                Err(ActionError::Died(station.target.clone()))
            }
        };
        // The description is removed last: a process that waits for its removal finds nothing mounted.
        let removed = fs::remove_file(&path).map_err(ActionError::file(&path));
        ended.and(removed)
    }

    /// Returns the bucket to mount: the given one, the target's own, or a new one.
    fn bucket_to_mount(&self, mounting: &Mounting<'_>, opened: &Opened) -> Result<String, ActionError> {
        if let Some(bucket) = &mounting.bucket {
            return Ok(bucket.clone());
        }
        let mut journal = self.journal()?;
        match self.own_bucket(&journal, mounting.target, mounting.platform) {
            Some(own) => Ok(own),
            None => self.make_bucket(&mut journal, mounting.target, mounting.platform, None, opened),
        }
    }

    /// Unmounts a target, and returns what was mounted.
    ///
    /// # Errors
    /// If it is not mounted, or does not unmount in time.
    pub fn down(&self, target: &str) -> Result<Station, ActionError> {
        let found = self.stations()?.into_iter().find(|station| station.target == target);
        let station = found.ok_or_else(|| ActionError::IsDown(target.to_owned()))?;
        let path = self.station_path(target);
        if let Some(pid) = station.process() {
            // An error means that it has ended meanwhile.
            let _ = kill_process(pid, Signal::TERM);
        }
        let limit = self.limits.unmount + Duration::from_secs(5);
        let waiting = Stopwatch::start();
        while path.exists() && station.process().is_some() {
            if waiting.elapsed() >= limit {
                return Err(ActionError::DownHung(target.to_owned(), limit.as_secs()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        // A process that was killed leaves the description; its cleanup process has unmounted.
        let _ = fs::remove_file(&path);
        Ok(station)
    }

    /// Returns the targets that are described as mounted, also those whose process was killed.
    ///
    /// # Errors
    /// If the directory of descriptions cannot be read.
    pub fn stations(&self) -> Result<Vec<Station>, ActionError> {
        let dir = self.state.join("mounted");
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(ActionError::file(&dir))?,
        };
        let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
        let mut stations: Vec<Station> = entries.flatten().filter_map(|entry| read(entry.path())).collect();
        stations.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(stations)
    }

    /// Fails if a target is mounted.
    pub(super) fn check_is_down(&self, target: &Target) -> Result<(), ActionError> {
        let name = target.to_string();
        let up = self.stations()?.into_iter().find(|station| station.target == name);
        match up.filter(|station| station.process().is_some()) {
            Some(station) => {
                Err(ActionError::IsUp { target: name, point: station.point.display().to_string() })
            }
            None => Ok(()),
        }
    }

    fn station_path(&self, target: &str) -> PathBuf {
        self.state.join("mounted").join(format!("{target}.json"))
    }

    fn write_station(&self, path: &Path, station: &Station) -> Result<(), ActionError> {
        let dir = self.state.join("mounted");
        fs::create_dir_all(&dir).map_err(ActionError::file(&dir))?;
        let text = serde_json::to_string(station).map_err(Failure::testbed)?;
        // Renamed into place, so that nobody reads a part of it.
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, path)).map_err(ActionError::file(path))
    }
}

impl Station {
    /// Returns the process that holds the mount, if it runs.
    fn process(&self) -> Option<Pid> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let line = fs::read(format!("/proc/{}/stat", self.pid)).ok()?;
        if self.started.is_some() && self.started != process_start(self.pid) {
            return None;
        }
        // A zombie has ended; its parent has not reaped it yet.
        let is_zombie = String::from_utf8_lossy(&line).contains(") Z ");
        (test_kill_process(pid).is_ok() && !is_zombie).then_some(pid)
    }
}

/// Returns the boot and the clock ticks at which a process started; `None` if there is no such process.
fn process_start(pid: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    // The name of the program, the second field, may contain blanks and parentheses; the time is the 20th field after it.
    let ticks = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.to_owned();
    Some(format!("{} {ticks}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_number() {
        let (pid, started) = (std::process::id(), process_start(std::process::id()));
        let station = |started: Option<String>| Station {
            target: String::new(),
            platform: String::new(),
            bucket: String::new(),
            point: PathBuf::new(),
            pid,
            started,
        };
        assert!(started.is_some() && station(started).process().is_some());
        assert!(station(Some("another boot 7".to_owned())).process().is_none());
    }
}
