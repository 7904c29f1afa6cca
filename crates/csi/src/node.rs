//! The node service: mounts a volume once for the node (stage), and shows it in the directories of pods by bind mounts (publish).
//!
//! All calls block, and may wait for the server of a volume. Invariant: a mount has a record before it exists, so that the next driver finds
//! every mount.

use crate::access::Access;
use crate::in_flight::InFlight;
use crate::message::{
    Empty, GetVolumeStats, PublishVolume, StageVolume, Unit, UnpublishVolume, UnstageVolume, VolumeStats,
    VolumeUsage,
};
use crate::mount_arguments::{MountArguments, VolumeDescription};
use crate::mounts::{self, MountFailed, Mounts};
use crate::staged_volume::{Inline, StagedVolume, StagedVolumes, Target, digest};
use crate::usage::{Usage, required};
use crate::volume_place::VolumePlace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;

/// `NodeServiceCapability.RPC.Type`: STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS, SINGLE_NODE_MULTI_WRITER, VOLUME_MOUNT_GROUP.
pub(crate) const CAPABILITIES: [i32; 4] = [1, 2, 5, 6];

/// The node service.
#[derive(Debug)]
pub(crate) struct Node {
    mounts: Mounts,
    staged: StagedVolumes,
    arguments: MountArguments,
    /// Directory with a state directory for each volume.
    volume_states: PathBuf,
    in_flight: Arc<InFlight>,
    /// Whether the driver ends all mounts.
    is_releasing: AtomicBool,
}

/// Objects to remove after the volume of a pod was unmounted.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) place: VolumePlace,
    pub(crate) access: Access,
}

impl Node {
    pub(crate) fn new(
        program: PathBuf,
        records: &Path,
        volume_states: PathBuf,
        arguments: MountArguments,
    ) -> io::Result<Self> {
        let (mounts, staged) = (Mounts::new(program), StagedVolumes::open(records)?);
        Ok(Self {
            mounts,
            staged,
            arguments,
            volume_states,
            in_flight: Arc::default(),
            is_releasing: AtomicBool::new(false),
        })
    }

    /// Mounts a volume on the staging directory.
    pub(crate) fn stage(&self, request: &StageVolume) -> Result<Empty, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let path = PathBuf::from(required("staging_target_path", &request.staging_target_path)?);
        let usage = Usage::of(request.volume_capability.as_ref())?;
        let description = VolumeDescription::of_persistent(id, &request.volume_context)?;
        let access = Access::from_secrets(&request.secrets)?;
        let _operation = self.in_flight.begin(id)?;
        let mut volume = StagedVolume {
            volume_id: id.to_owned(),
            url: description.place.to_string(),
            path,
            arguments: Vec::new(),
            is_exclusive: usage.is_exclusive(),
            targets: Default::default(),
            inline: None,
            is_ending: false,
        };
        volume.arguments = self.mount_arguments(&volume, &description, &usage, &access)?;
        if let Some(found) = self.staged.at(&volume.path).map_err(records_failed)? {
            let is_same = (&found.volume_id, &found.url, &found.arguments)
                == (&volume.volume_id, &volume.url, &volume.arguments);
            if !is_same {
                return Err(Status::already_exists(format!(
                    "{} is staged at this path with other options",
                    found.volume_id
                )));
            }
            volume.targets = found.targets;
        } else {
            // There is no record of a mount at this path, so it may be of any volume.
            self.unmount(&volume.path)?;
        }
        self.staged.put(&volume).map_err(records_failed)?;
        let mounted = self.ensure_mounted(&volume);
        if mounted.is_err() && volume.targets.is_empty() {
            self.forget(&volume)?;
        }
        mounted.map(|()| Empty {})
    }

    /// Unmounts a volume from the staging directory, after everything that is pending has been stored.
    pub(crate) fn unstage(&self, request: &UnstageVolume) -> Result<Empty, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let path = PathBuf::from(required("staging_target_path", &request.staging_target_path)?);
        let _operation = self.in_flight.begin(id)?;
        let Some(volume) = self.staged.at(&path).map_err(records_failed)? else {
            // There is no record; there may still be a mount.
            return self.unmount(&path).map(|()| Empty {});
        };
        let is_bound = |target: &&PathBuf| mounts::device_at(target).is_ok_and(|device| device.is_some());
        if let Some(target) = volume.targets.keys().find(is_bound) {
            return Err(Status::failed_precondition(format!(
                "{id} is still published at {}",
                target.display()
            )));
        }
        self.unmount(&volume.path)?;
        self.forget(&volume)?;
        Ok(Empty {})
    }

    /// Shows a volume in the directory of a pod. A volume that the pod itself describes is mounted there.
    pub(crate) fn publish(&self, request: &PublishVolume) -> Result<Empty, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let target = PathBuf::from(required("target_path", &request.target_path)?);
        let usage = Usage::of(request.volume_capability.as_ref())?;
        let _operation = self.in_flight.begin(id)?;
        if request.volume_context.get("csi.storage.k8s.io/ephemeral").is_some_and(|value| value == "true") {
            return self.publish_inline(request, &usage, target);
        }
        let staging = Path::new(required("staging_target_path", &request.staging_target_path)?);
        let staged = self.staged.at(staging).map_err(records_failed)?.filter(|volume| volume.volume_id == id);
        let mut volume = staged.ok_or_else(|| {
            Status::failed_precondition(format!("{id} is not staged at {}", staging.display()))
        })?;
        if volume.is_exclusive && volume.targets.keys().any(|other| *other != target) {
            return Err(Status::failed_precondition(format!(
                "{id} is in use by another pod (ReadWriteOncePod)"
            )));
        }
        let read_only = request.readonly || usage.is_read_only();
        let shown = Target { read_only };
        if volume.targets.insert(target.clone(), shown).is_some_and(|found| found != shown) {
            return Err(Status::already_exists(format!(
                "{id} is already published at {} with another read-only setting",
                target.display()
            )));
        }
        self.staged.put(&volume).map_err(records_failed)?;
        self.ensure_mounted(&volume)?;
        Ok(Empty {})
    }

    fn publish_inline(
        &self,
        request: &PublishVolume,
        usage: &Usage,
        target: PathBuf,
    ) -> Result<Empty, Status> {
        let id = &request.volume_id;
        let (mut description, is_scratch) = VolumeDescription::of_inline(id, &request.volume_context)?;
        description.is_read_only |= request.readonly;
        let access = Access::from_secrets(&request.secrets)?;
        if access.key.is_none() && !description.is_anonymous {
            return Err(Status::invalid_argument(
                "a volume in a pod needs a secret with its access key (nodePublishSecretRef), or the attribute anonymous: \"true\": the driver's own credentials are for persistent volumes",
            ));
        }
        let (endpoint_url, region) = (access.endpoint_url.clone(), access.region.clone());
        let mut volume = StagedVolume {
            volume_id: id.clone(),
            url: description.place.to_string(),
            path: target,
            arguments: Vec::new(),
            is_exclusive: true,
            targets: Default::default(),
            inline: Some(Inline { is_scratch, endpoint_url, region }),
            is_ending: false,
        };
        volume.arguments = self.mount_arguments(&volume, &description, usage, &access)?;
        if self.staged.at(&volume.path).map_err(records_failed)?.is_some_and(|found| found != volume) {
            return Err(Status::already_exists(format!("{id} is published there with other options")));
        }
        self.staged.put(&volume).map_err(records_failed)?;
        let mounted = fs::create_dir_all(&volume.path)
            .map_err(|error| Status::internal(format!("cannot make {}: {error}", volume.path.display())))
            .and_then(|()| self.ensure_mounted(&volume));
        if mounted.is_err() {
            self.forget(&volume)?;
        }
        mounted.map(|()| Empty {})
    }

    /// Removes a volume from the directory of a pod. Returns the objects to remove with it; the record stays until [`Node::forget_at`] if
    /// there are any.
    pub(crate) fn unpublish(&self, request: &UnpublishVolume) -> Result<Option<Scratch>, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let target = PathBuf::from(required("target_path", &request.target_path)?);
        let _operation = self.in_flight.begin(id)?;
        if let Some(mut volume) = self.staged.at(&target).map_err(records_failed)?
            && let Some(inline) = volume.inline.clone()
        {
            volume.is_ending = true;
            self.staged.put(&volume).map_err(records_failed)?;
            self.unmount(&target)?;
            mounts::remove_directory(&target).map_err(failed)?;
            let place = VolumePlace::parse(&volume.url).filter(|_| inline.is_scratch);
            if let Some(place) = place {
                let key = self.staged.key(&target).map_err(records_failed)?;
                let access = Access { endpoint_url: inline.endpoint_url, region: inline.region, key };
                return Ok(Some(Scratch { place, access }));
            }
            self.forget(&volume)?;
            return Ok(None);
        }
        self.mounts.unbind(&target).map_err(failed)?;
        for mut volume in self.staged.of(id).map_err(records_failed)? {
            if volume.targets.remove(&target).is_some() {
                self.staged.put(&volume).map_err(records_failed)?;
            }
        }
        Ok(None)
    }

    /// Removes the record and the state of a volume that was mounted for one pod.
    pub(crate) fn forget_at(&self, path: &Path) -> Result<(), Status> {
        match self.staged.at(path).map_err(records_failed)? {
            Some(volume) => self.forget(&volume),
            None => Ok(()),
        }
    }

    /// Returns the space of a volume.
    pub(crate) fn stats(&self, request: &GetVolumeStats) -> Result<VolumeStats, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let path = Path::new(required("volume_path", &request.volume_path)?);
        let staged = self.staged.of(id).map_err(records_failed)?;
        let is_here = staged.iter().any(|volume| volume.path == path || volume.targets.contains_key(path));
        if !is_here || self.mounts.living_device_at(path).map_err(failed)?.is_none() {
            return Err(Status::not_found(format!("{id} is not mounted at {}", path.display())));
        }
        let stats = rustix::fs::statvfs(path).map_err(|error| {
            Status::internal(format!("cannot read the space of {}: {error}", path.display()))
        })?;
        let usage = |unit: Unit, scale: u64, total: u64, free: u64, available: u64| {
            let number = |count: u64| i64::try_from(count.saturating_mul(scale)).unwrap_or(i64::MAX);
            VolumeUsage {
                available: number(available),
                total: number(total),
                used: number(total.saturating_sub(free)),
                unit: unit.into(),
            }
        };
        Ok(VolumeStats {
            usage: vec![
                usage(Unit::Bytes, stats.f_frsize, stats.f_blocks, stats.f_bfree, stats.f_bavail),
                usage(Unit::Inodes, 1, stats.f_files, stats.f_ffree, stats.f_favail),
            ],
        })
    }

    /// Mounts all volumes again whose process has ended. Volumes with an operation in flight are left to that operation.
    pub(crate) fn restore(&self) {
        let staged = match self.staged.all() {
            Ok(staged) => staged,
            Err(error) => return tracing::error!("cannot read the records of mounts: {error}"),
        };
        for volume in staged.into_iter().filter(|volume| !self.is_mounted(volume)) {
            let Ok(_operation) = self.in_flight.begin(&volume.volume_id) else { continue };
            // The record may have changed since.
            let Ok(Some(volume)) = self.staged.at(&volume.path) else { continue };
            if self.is_releasing.load(Ordering::Relaxed) || volume.is_ending {
                continue;
            }
            if let Err(error) = self.restore_volume(volume) {
                tracing::error!("cannot restore a mount: {}", error.message());
            }
        }
    }

    /// Returns whether a volume is mounted at all paths in its record.
    fn is_mounted(&self, volume: &StagedVolume) -> bool {
        let Ok(Some(device)) = self.mounts.living_device_at(&volume.path) else { return false };
        let shows =
            |target: &PathBuf| matches!(mounts::device_at(target), Ok(Some(bound)) if bound == device);
        volume.targets.keys().all(shows)
    }

    /// Mounts a volume again, without the directories that the orchestrator has removed.
    fn restore_volume(&self, mut volume: StagedVolume) -> Result<(), Status> {
        // Other errors come from dead mounts, which are there.
        let is_there = |path: &Path| {
            !fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if !is_there(&volume.path) {
            return self.forget(&volume);
        }
        volume.targets.retain(|target, _| is_there(target));
        self.staged.put(&volume).map_err(records_failed)?;
        self.ensure_mounted(&volume)
    }

    /// Ends the processes of all mounts, after everything that is pending has been stored. The records stay: the next driver mounts the
    /// volumes again.
    pub(crate) fn release(&self) {
        self.is_releasing.store(true, Ordering::Relaxed);
        let staged = self.staged.all().unwrap_or_default();
        let living =
            staged.iter().filter(|volume| matches!(self.mounts.living_device_at(&volume.path), Ok(Some(_))));
        let ending: Vec<_> = living
            .filter_map(|volume| {
                let ended = self.mounts.terminate(&volume.path);
                ended
                    .inspect_err(|error| {
                        tracing::error!("cannot end the mount of {}: {error}", volume.volume_id)
                    })
                    .ok()
            })
            .collect();
        ending.into_iter().for_each(mounts::wait_for_end);
    }

    /// Mounts a volume and binds it to the directories of its pods, wherever this is not yet the case. Dead mounts are replaced.
    fn ensure_mounted(&self, volume: &StagedVolume) -> Result<(), Status> {
        let device = match self.mounts.living_device_at(&volume.path).map_err(failed)? {
            Some(device) => device,
            None => {
                mounts::detach_all(&volume.path).map_err(failed)?;
                tracing::info!("mounting {} at {}", volume.url, volume.path.display());
                self.mounts.mount(&volume.url, &volume.path, &volume.arguments).map_err(failed)?;
                mounts::device_at(&volume.path)
                    .map_err(failed)?
                    .ok_or_else(|| Status::internal(format!("{} ended at once", volume.url)))?
            }
        };
        for (target, shown) in &volume.targets {
            let bound = mounts::device_at(target).map_err(failed)?;
            if bound.as_ref() != Some(&device) {
                mounts::detach_all(target).map_err(failed)?;
                mounts::bind(&volume.path, target, shown.read_only).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn unmount(&self, path: &Path) -> Result<(), Status> {
        match mounts::device_at(path).map_err(failed)? {
            Some(_) => self.mounts.unmount(path).map_err(failed),
            None => Ok(()),
        }
    }

    /// Removes the record of a volume; also the state directory, if the volume was mounted for one pod alone.
    fn forget(&self, volume: &StagedVolume) -> Result<(), Status> {
        if volume.inline.is_some() {
            match fs::remove_dir_all(self.state_dir(&volume.volume_id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("cannot remove the state of {}: {error}", volume.volume_id);
                }
                _ => {}
            }
        }
        self.staged.remove(&volume.path).map_err(records_failed)
    }

    fn state_dir(&self, volume_id: &str) -> PathBuf {
        self.volume_states.join(digest(volume_id.as_bytes()))
    }

    /// Returns the arguments of `tenon mount`, and stores the access key in the file that they name.
    fn mount_arguments(
        &self,
        volume: &StagedVolume,
        description: &VolumeDescription,
        usage: &Usage,
        access: &Access,
    ) -> Result<Vec<String>, Status> {
        let flags = self.arguments.flags(description, usage)?;
        let key = access.key.as_ref().map(|key| self.staged.put_key(&volume.path, key));
        let key = key.transpose().map_err(records_failed)?;
        let state_dir = self.state_dir(&volume.volume_id);
        Ok(self.arguments.complete(flags, access, key.as_deref(), &state_dir, description.is_anonymous))
    }
}

fn failed(error: MountFailed) -> Status {
    Status::internal(error.to_string())
}

fn records_failed(error: io::Error) -> Status {
    Status::internal(format!("cannot use the records of mounts: {error}"))
}
