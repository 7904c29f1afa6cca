//! Drives as the console shows them.

use crate::serving::drive_requests::{self, Rate};
use console::{Member, ScrubOutcome, Zone};
use drive::device::MemberState;
use drive::{Drive, ZoneUse};
use std::sync::atomic::AtomicU64;

/// Returns the facts of a drive.
pub(crate) fn of_drive(drive: &Drive) -> console::Drive {
    let info = drive.info();
    let zone = |zone| match zone {
        ZoneUse::Free => Zone::Free,
        ZoneUse::Pack { live_bytes } => Zone::Pack(live_bytes),
        ZoneUse::Runs { used_bytes } => Zone::Runs(used_bytes),
    };
    console::Drive {
        id: format!("{:016x}", info.id),
        len_bytes: info.len_bytes,
        available_bytes: info.available_bytes,
        zone_bytes: info.zone_bytes,
        log_bytes: info.log_bytes,
        zones: drive.map().into_iter().map(zone).collect(),
        members: drive
            .array()
            .map(|array| array.member_states())
            .unwrap_or_default()
            .into_iter()
            .map(member)
            .collect(),
    }
}

fn member(state: MemberState) -> Member {
    let is_in_sync = matches!(state, MemberState::InSync(_));
    let (state, device) = match state {
        MemberState::InSync(device) => ("in sync", device),
        MemberState::Stale(device) => ("stale", device),
        MemberState::Missing => ("missing", String::new()),
    };
    Member { device, state: state.to_owned(), is_in_sync }
}

/// Scrubs drives without a limit on the rate, and counts the objects that were read so far.
pub(crate) async fn scrub(drives: Vec<Drive>, objects: &AtomicU64) -> Result<Vec<ScrubOutcome>, String> {
    let scrubbed = drive_requests::scrub(&drives, &Rate::new(None), objects).await;
    let scrubbed = scrubbed.map_err(|error| format!("{error:#}"))?;
    let outcomes = scrubbed.into_iter().map(|scrubbed| ScrubOutcome {
        objects: scrubbed.objects,
        bytes: scrubbed.bytes,
        repaired: scrubbed.mended,
        damaged: scrubbed.damaged,
    });
    Ok(outcomes.collect())
}
