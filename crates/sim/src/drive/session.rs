//! The common parts of the worlds of drives: how clients and options are drawn, how a session ends, and how its outcome is checked.

use super::drive_client::DriveClient;
use super::target::StorageTarget;
use crate::Report;
use crate::device::{Fired, SimDevice};
use crate::trace::Trace;
use drive::device::BlockDevice;
use drive::{Drive, FormatOptions, OpenOptions};
use std::sync::Arc;
use store::Entropy;

pub(super) const MIB: u64 = 1 << 20;

/// Salt of the draws of sector faults.
pub(super) const FAULT_SALT: u64 = 0x5ec7_0125_0000_0000;

/// Draws clients, at most `clients_max`, and the options of the drives.
pub(super) fn draw_clients(
    entropy: &Entropy,
    clients_max: u64,
    trace: &Trace,
) -> (Vec<DriveClient>, OpenOptions) {
    let object_bytes_max = [20_000, 300_000, 1_500_000][entropy.below(3) as usize];
    let clients = (0..1 + entropy.below(clients_max))
        .map(|number| DriveClient::new(number, entropy.next_u64(), object_bytes_max, trace.clone()))
        .collect();
    let index_bytes = [4 << 10, 64 << 10, 1 << 20][entropy.below(3) as usize];
    (clients, OpenOptions { index_bytes, ..OpenOptions::default() })
}

/// Returns the length of zones in a world of arrays or pools: 2 MiB in a quarter of the worlds, otherwise 1 MiB.
pub(super) fn draw_shared_zone_bytes(seed: u64) -> u64 {
    if seed % 4 == 3 { 2 * MIB } else { MIB }
}

/// Formats a device as a drive with zones of a given length.
pub(super) fn format_drive(
    device: &Arc<dyn BlockDevice>,
    zone_bytes: u64,
    entropy: &Entropy,
) -> Result<(), String> {
    require_ok("format", Drive::format(device, FormatOptions { zone_bytes: Some(zone_bytes) }, entropy))
}

/// The end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    Orderly,
    Kill,
    PowerCut,
    Failure,
}

impl SessionEnd {
    /// Draws the end of a session.
    pub(super) fn draw(entropy: &Entropy) -> Self {
        let ends = [Self::Orderly, Self::Kill, Self::PowerCut, Self::PowerCut, Self::Failure];
        ends[entropy.below(5) as usize]
    }

    /// Returns whether the devices fail in the middle of an operation.
    pub(super) fn is_cut(self) -> bool {
        matches!(self, Self::PowerCut | Self::Failure)
    }

    /// Ends a session: drops the readers and counts the end. Returns whether the devices lose power.
    pub(super) fn end(
        self,
        clients: &mut [DriveClient],
        entropy: &Entropy,
        trace: &Trace,
        report: &mut Report,
    ) -> bool {
        clients.iter_mut().for_each(DriveClient::drop_readers);
        trace.push(format!("{self:?}"));
        report.count(match self {
            Self::Orderly => "clean shutdowns",
            Self::Kill => "kills",
            Self::PowerCut => "power cuts",
            Self::Failure => "device failures",
        });
        match self {
            Self::PowerCut => true,
            Self::Orderly | Self::Failure => entropy.below(2) == 0,
            Self::Kill => false,
        }
    }

    /// Completes when a session that ends by a kill is killed; never for another end.
    pub(super) async fn kill_after(self, polls: u64) {
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        if self != Self::Kill {
            std::future::pending::<()>().await;
        }
    }
}

/// Describes a round for the trace.
pub(super) fn round_line(round: u64, has_read_errors: bool) -> String {
    format!("round {round}{}", if has_read_errors { ", in which reads fail" } else { "" })
}

/// Compares all buckets with their models, while no faults are injected.
pub(super) async fn compare_all(
    clients: &mut [DriveClient],
    target: &impl StorageTarget,
) -> Result<(), String> {
    for client in clients {
        client.is_faulty = false;
        client.compare(target).await?;
    }
    Ok(())
}

/// Returns the number of calls of all clients.
pub(super) fn total_steps(clients: &[DriveClient]) -> u64 {
    clients.iter().map(|client| client.steps).sum()
}

/// Returns the report of a finished world. `fired` holds the fault counts of discarded devices.
pub(super) fn final_report(
    mut report: Report,
    clients: &[DriveClient],
    mut fired: Fired,
    devices: &[SimDevice],
) -> Report {
    clients.iter().for_each(|client| report.add(&client.report));
    devices.iter().for_each(|device| fired.add(device.fired()));
    count_fired(&mut report, fired);
    report
}

/// Counts the world once for each kind of fault that a caller met.
fn count_fired(report: &mut Report, fired: Fired) {
    let kinds = [
        (fired.unreadable, "worlds with reads of unreadable sectors"),
        (fired.passing, "worlds with transient read errors"),
        (fired.rotten, "worlds with reads of flipped bits"),
        (fired.spoiled, "worlds with sectors unreadable after a power cut"),
    ];
    kinds.into_iter().filter(|(times, _)| *times > 0).for_each(|(_, what)| report.count(what));
}

/// Runs maintenance at random moments, without end.
pub(super) async fn maintain_at_random(drive: &Drive, seed: u64, is_faulty: bool) -> Result<(), String> {
    let entropy = Entropy::new(seed);
    loop {
        for _ in 0..entropy.below(60) {
            tokio::task::yield_now().await;
        }
        let outcome = match entropy.below(3) {
            0 => drive.close().await,
            _ => drive.maintain().await,
        };
        match outcome {
            Err(drive::Error::Full) | Ok(()) => {}
            Err(_) if is_faulty => std::future::pending().await,
            Err(error) => return Err(format!("maintenance: {error}")),
        }
    }
}

pub(super) async fn check(drive: &Drive) -> Result<drive::Checked, String> {
    let checked = require_ok("check", drive.check().await)?;
    match checked.problems.as_slice() {
        [] => Ok(checked),
        problems => Err(format!("check: {}", problems.join("; "))),
    }
}

pub(super) fn require_ok<T, E: std::fmt::Display>(what: &str, outcome: Result<T, E>) -> Result<T, String> {
    outcome.map_err(|error| format!("{what}: {error}"))
}
