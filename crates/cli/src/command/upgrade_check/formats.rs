//! The formats that have a version, with the versions that this build reads.

use crate::command::upgrade_check::finding::Format;
use crate::volume::embedded;
use meta_disk::StoredFormat as EngineFormat;
use std::ops::RangeInclusive;

pub(super) fn embedded_volume() -> Format {
    unchanging("embedded volume", embedded::RECORD_VERSIONS, &[(2, "embedded drives")])
}

pub(super) fn volume_record() -> Format {
    unchanging("volume record", vfs::VolumeRecord::VERSIONS, &[(2, "metadata in databases")])
}

pub(super) fn backup() -> Format {
    unchanging("metadata backup", backup::VERSIONS, &[])
}

/// Returns the format of the tables or keys in a database, whose newest version is `newest`.
pub(super) fn database(newest: u32) -> Format {
    Format { name: "database", reads: 1..=newest, is_upgraded: true, abilities: &[] }
}

pub(super) fn engine_records() -> Format {
    let reads = u32::from(*meta::codec::HEAD_VERSIONS.start())..=u32::from(*meta::codec::HEAD_VERSIONS.end());
    unchanging("metadata engine", reads, &[(2, "sorted runs in the log")])
}

pub(super) fn engine_tables() -> Format {
    unchanging("metadata tables", EngineFormat::TABLE_VERSIONS, &[])
}

pub(super) fn writeback_log() -> Format {
    // A mount begins a new segment, of the newest version.
    Format { is_upgraded: true, ..unchanging("write-back log", staging::writeback::VERSIONS, &[]) }
}

pub(super) fn batch() -> Format {
    unchanging("batch", batch::VERSIONS, &[])
}

pub(super) fn event_handler() -> Format {
    unchanging("event handler", views::VERSIONS, &[])
}

pub(super) fn drive() -> Format {
    unchanging("drive", widened(&drive::StoredFormat::DRIVE_VERSIONS), &[])
}

pub(super) fn array_label() -> Format {
    unchanging("array label", widened(&drive::StoredFormat::ARRAY_VERSIONS), &[])
}

/// Returns a format whose data keeps its version.
fn unchanging(
    name: &'static str,
    reads: RangeInclusive<u32>,
    abilities: &'static [(u32, &'static str)],
) -> Format {
    Format { name, reads, is_upgraded: false, abilities }
}

fn widened(versions: &RangeInclusive<u8>) -> RangeInclusive<u32> {
    u32::from(*versions.start())..=u32::from(*versions.end())
}
