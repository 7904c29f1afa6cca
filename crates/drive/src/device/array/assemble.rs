//! Assembly: formats devices as an array, and finds the array on devices again by their labels.

use super::label::{Label, NO_DEVICE, ROWS_AT};
use super::shape::{MEMBERS_MAX, Members, Shape, UNIT_BYTES};
use super::unreadable::MemberHealth;
use super::{Array, Member, MemberFailures, Wait};
use crate::device::{BlockDevice, Buffer, Io, block_on};
use crate::error::{Error, Result};
use futures_util::future::join_all;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, RwLock};
use store::Entropy;

/// The state of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberState {
    /// The named device is present and has all that was written.
    InSync(String),
    /// The named device is present, but missed writes and is not read.
    Stale(String),
    /// No device is present.
    Missing,
}

impl MemberState {
    /// Returns the device if it is stale.
    fn stale_device(self) -> Option<String> {
        if let Self::Stale(device) = self { Some(device) } else { None }
    }
}

/// An array as its labels describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayInfo {
    /// The numbers of data and parity members.
    pub shape: Shape,
    /// The members, by index.
    pub members: Vec<MemberState>,
}

/// Devices, with the labels read from them.
#[derive(Debug)]
pub struct Found {
    devices: Vec<(String, Io, Option<Label>)>,
    /// The label of the greatest epoch among those that may be in force; `None` if there is none.
    newest: Option<Label>,
}

impl Found {
    /// Reads the labels of devices. The names stand for the devices in messages and in [`MemberState`]. A device that
    /// cannot be read counts as one without label. Blocks.
    pub fn look(devices: impl IntoIterator<Item = (String, Io)>) -> Self {
        let mut found = Vec::new();
        for (name, io) in devices {
            let label = read_label(&*io.device()).unwrap_or_else(|error| {
                tracing::warn!(device = name, %error, "the label of the device cannot be read; the device counts as one without a label");
                None
            });
            found.push((name, io, label));
        }
        let in_force = labels_of(&found).filter(|label| label.may_be_in_force(labels_of(&found)));
        let newest = in_force.max_by_key(|label| label.epoch).cloned();
        Self { newest, devices: found }
    }

    /// Returns the array that the devices belong to; `None` if no device has a label that may be in force.
    pub fn info(&self) -> Option<ArrayInfo> {
        let newest = self.newest.as_ref()?;
        Some(ArrayInfo { shape: newest.shape, members: self.members(newest) })
    }

    /// Returns the state of each member.
    fn members(&self, newest: &Label) -> Vec<MemberState> {
        let state_of = |(index, &id): (usize, &u64)| {
            let mut here = self.devices.iter().filter_map(|(name, _, label)| {
                label
                    .as_ref()
                    .filter(|label| label.index == index)
                    .map(|label| (name.clone(), label.own == id))
            });
            let in_sync = here.clone().find(|(_, in_sync)| *in_sync);
            match in_sync.or_else(|| here.next()) {
                Some((name, true)) => MemberState::InSync(name),
                Some((name, false)) => MemberState::Stale(name),
                None => MemberState::Missing,
            }
        };
        newest.members.iter().enumerate().map(state_of).collect()
    }

    fn labels(&self) -> impl Iterator<Item = &Label> + Clone {
        labels_of(&self.devices)
    }

    /// Checks that the devices belong to one array, are long enough, and were not used separately.
    fn check_labels(&self, newest: &Label) -> Result<()> {
        for (name, io, label) in &self.devices {
            let Some(label) = label else { continue };
            check_label(name, label, newest, io.device().len_bytes())?;
            let is_apart = label.epoch == newest.epoch && label.members != newest.members;
            if is_apart && label.may_be_in_force(self.labels()) {
                return Err(unsuitable(format!(
                    "{name} and other devices were used separately, so each lacks writes of the others: name only the devices whose contents you want to keep, then rebuild the others with 'tenon drive rebuild'"
                )));
            }
        }
        Ok(())
    }

    /// Opens the array without the members that are missing or missed writes. Fails if fewer members are left than hold
    /// data, or if the labels contradict each other. Unless opened read-only, new labels exclude these members until
    /// they are rebuilt. Blocks.
    pub fn open(self, read_only: bool) -> Result<Array> {
        let newest = self
            .newest
            .clone()
            .ok_or_else(|| Error::Foreign("no device has a valid label of an array".into()))?;
        self.check_labels(&newest)?;
        let states = self.members(&newest);
        warn_of_members_left_out(&newest, &states);
        // The next epoch must be greater than that of any label, even of one that never came into force.
        let epoch = self.labels().map(|label| label.epoch).max().unwrap_or(newest.epoch);
        let mut members: Vec<Option<Member>> = vec![None; newest.shape.members()];
        for (name, io, label) in self.devices {
            let Some(label) = label else {
                tracing::warn!(device = name, "the device has no valid label of an array and is not used");
                continue;
            };
            if newest.members[label.index] != label.own {
                continue;
            }
            let known = members[label.index].replace(Member::new(name.clone(), label.own, &io));
            if let Some(known) = known {
                return Err(unsuitable(format!(
                    "{} and {name} are the same member: remove the copy",
                    known.name
                )));
            }
        }
        let in_sync = Members::of((0..members.len()).filter(|&number| members[number].is_some()));
        if in_sync.len() < newest.shape.data {
            return Err(too_few(&newest, &states));
        }
        let newest_members = newest.shape.members();
        let array = Array {
            shape: newest.shape,
            rows: newest.rows,
            members: RwLock::new(members),
            stale: RwLock::new(states.into_iter().map(MemberState::stale_device).collect()),
            in_sync: RwLock::new(in_sync),
            joining: RwLock::default(),
            writing: Arc::default(),
            label: tokio::sync::Mutex::new(Label { epoch, ..newest }),
            labels_outdated: AtomicBool::new(false),
            read_only,
            repaired: AtomicU64::new(0),
            health: MemberHealth::new(newest_members),
        };
        if !read_only {
            array.begin_epoch()?;
        }
        Ok(array)
    }
}

impl Array {
    /// Formats new devices as an array. Their previous contents are lost. Blocks.
    pub fn format(devices: Vec<(String, Io)>, shape: Shape, entropy: &Entropy) -> Result<()> {
        if !shape.is_possible() || devices.len() != shape.members() {
            return Err(unsuitable(format!(
                "an array of {} data and {} parity devices needs that many devices, 2 to {MEMBERS_MAX} in all; {} are given",
                shape.data,
                shape.parity,
                devices.len()
            )));
        }
        let least = devices.iter().map(|(_, io)| io.device().len_bytes()).min().unwrap_or(0);
        let rows = least.saturating_sub(ROWS_AT) / UNIT_BYTES as u64;
        if rows == 0 {
            return Err(unsuitable(format!("a device of {least} bytes is too small for an array")));
        }
        let members: Vec<u64> = devices.iter().map(|_| new_id(entropy)).collect();
        let label = Label {
            array: entropy.next_u64(),
            shape,
            rows,
            epoch: 1,
            own: NO_DEVICE,
            index: 0,
            members: members.clone(),
        };
        let writes = devices.into_iter().zip(members).enumerate().map(|(index, ((name, io), id))| {
            let (label, member) = (label.clone(), Member::new(name.clone(), id, &io));
            async move {
                let written = member.write_label(Wait::Blocking, label, index).await;
                written.map_err(|error| of_device(&name, &error))
            }
        });
        block_on(join_all(writes)).into_iter().collect()
    }

    /// Writes labels of a new epoch to all members that are in sync. So members that are missing now stay excluded,
    /// whichever are missing next time.
    fn begin_epoch(&self) -> Result<()> {
        block_on(async {
            let mut label = self.label.lock().await;
            self.write_new_labels(Wait::Blocking, &mut label, MemberFailures::default()).await
        })
        .map_err(Error::device(0))
    }
}

/// Returns a new device id.
pub(super) fn new_id(entropy: &Entropy) -> u64 {
    entropy.next_u64().max(NO_DEVICE + 1)
}

/// Reads the label of a device; `None` if the device has no valid one. One of the two copies may be unreadable.
pub(super) fn read_label(device: &dyn BlockDevice) -> std::io::Result<Option<Label>> {
    if device.len_bytes() < ROWS_AT {
        return Ok(None);
    }
    let mut copies = Vec::new();
    let mut failed = None;
    for at in [0, UNIT_BYTES as u64] {
        let mut copy = Buffer::zeroed(UNIT_BYTES);
        match device.read_at(at, &mut copy) {
            Ok(()) => copies.push(copy),
            Err(error) => failed = Some(error),
        }
    }
    let label = copies.iter().filter_map(|copy| Label::decode(copy)).max_by_key(|label| label.epoch);
    if let (None, Some(error)) = (&label, failed) {
        return Err(error);
    }
    if label.is_none() && copies.iter().any(|copy| Label::has_magic(copy)) {
        tracing::warn!(
            "neither copy of a device's label is valid, so the device counts as one without a label: the copies are damaged, or were written by another version of Tenon"
        );
    }
    Ok(label)
}

fn labels_of(devices: &[(String, Io, Option<Label>)]) -> impl Iterator<Item = &Label> + Clone {
    devices.iter().filter_map(|(_, _, label)| label.as_ref())
}

/// Fails unless a device belongs to the array and is long enough.
fn check_label(name: &str, label: &Label, newest: &Label, len_bytes: u64) -> Result<()> {
    if label.array != newest.array || label.shape != newest.shape || label.rows != newest.rows {
        return Err(unsuitable(format!("{name} belongs to another array: name devices of one array")));
    }
    let needed = ROWS_AT + label.rows * UNIT_BYTES as u64;
    if len_bytes < needed {
        return Err(unsuitable(format!(
            "{name} was cut short: it has {len_bytes} bytes, but a member of the array needs {needed}"
        )));
    }
    Ok(())
}

/// Warns of each member without which the array is opened.
fn warn_of_members_left_out(newest: &Label, states: &[MemberState]) {
    let in_sync = states.iter().filter(|state| matches!(state, MemberState::InSync(_))).count();
    if in_sync < newest.shape.data {
        return;
    }
    // A missing member that the newest label names may have been used without the present ones, if as many are missing as open an array.
    let is_unknown =
        |number: usize| states[number] == MemberState::Missing && newest.members[number] != NO_DEVICE;
    let may_be_newer = (0..states.len()).filter(|&number| is_unknown(number)).count() >= newest.shape.data;
    for (number, state) in states.iter().enumerate() {
        match state {
            MemberState::InSync(_) => {}
            MemberState::Stale(device) => tracing::warn!(
                device,
                member = number,
                "the device missed writes of the array and is not used: make it a member again with 'tenon drive rebuild'"
            ),
            MemberState::Missing if may_be_newer && is_unknown(number) => tracing::warn!(
                member = number,
                "the array is opened without a missing member, whose contents may be newer: if it was used without the present devices, stop this process and name its device too; if not, replace it with 'tenon drive rebuild'"
            ),
            MemberState::Missing => tracing::warn!(
                member = number,
                "the array is opened without a missing member: replace it with 'tenon drive rebuild'"
            ),
        }
    }
}

/// Returns the error that lists the missing and the excluded members.
fn too_few(newest: &Label, states: &[MemberState]) -> Error {
    let missing = states.iter().enumerate().filter(|(_, state)| **state == MemberState::Missing);
    let missing: Vec<String> = missing.map(|(number, _)| number.to_string()).collect();
    let stale: Vec<&str> = states
        .iter()
        .filter_map(|state| if let MemberState::Stale(name) = state { Some(&**name) } else { None })
        .collect();
    let here = states.iter().filter(|state| matches!(state, MemberState::InSync(_))).count();
    let mut text = format!(
        "too few devices of the array: {} of {} are needed, but {here} are present and in sync",
        newest.shape.data,
        newest.shape.members()
    );
    if !missing.is_empty() {
        text += &format!("; missing: member {}", missing.join(", "));
    }
    if !stale.is_empty() {
        text += &format!("; excluded because they missed writes: {}", stale.join(", "));
    }
    unsuitable(text)
}

fn unsuitable(text: String) -> Error {
    Error::Unsuitable(text)
}

pub(super) fn of_device(name: &str, error: &std::io::Error) -> Error {
    unsuitable(format!("{name}: {error}"))
}
