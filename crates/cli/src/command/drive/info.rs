//! `tenon drive info` and `tenon drive map`: show the layout and usage of drives.

use super::{on_each, parse_drives};
use crate::bucket::devices::{self, OpenDrive};
use crate::bucket::drives::{DrivesOptions, OpenDrives};
use crate::process;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Devices;
use anyhow::Result;
use clap::Args;
use drive::device::{ArrayInfo, MemberState};
use drive::pool::Membership;
use drive::{Drive, OpenOptions, ZoneUse};
use std::path::PathBuf;
use std::process::ExitCode;

/// Zones in one line of a map.
const ZONES_PER_LINE: usize = 64;

/// Show the layout and usage of a drive, or of the drives of a pool
#[derive(Debug, Args)]
pub(super) struct Info {
    /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Show what each zone is used for
#[derive(Debug, Args)]
pub(super) struct Map {
    /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
}

impl Info {
    pub(super) fn run(self) -> Result<ExitCode> {
        let runtime = process::runtime()?;
        runtime.block_on(self.show(&ProcessContext::system()?)).map(|()| ExitCode::SUCCESS)
    }

    /// Prints each of the drives, and the free space of all.
    async fn show(&self, context: &ProcessContext) -> Result<()> {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let opening = DrivesOptions { options, degraded: false };
        let opened = OpenDrives::open(&parse_drives(&self.drives)?, opening, context).await?;
        let mut described = Vec::new();
        for (devices, open) in &opened.drives {
            described.push((devices, open, open.drive.membership().await?));
        }
        if let [(_, open, membership)] = described.as_slice() {
            if self.json {
                println!("{}", info_json(open, membership.as_ref()));
            } else {
                print_info(open, membership.as_ref());
            }
            return Ok(());
        }
        let infos: Vec<drive::Info> = opened.all().iter().map(Drive::info).collect();
        let len_bytes: u64 = infos.iter().map(|info| info.len_bytes).sum();
        let available_bytes: u64 = infos.iter().map(|info| info.available_bytes).sum();
        if self.json {
            let each: Vec<_> = described.iter().map(|(_, open, of)| info_json(open, of.as_ref())).collect();
            let whole = serde_json::json!({
                "len_bytes": len_bytes, "available_bytes": available_bytes, "drives": each,
            });
            println!("{whole}");
            return Ok(());
        }
        for (devices, open, membership) in &described {
            println!("{devices}");
            print_info(open, membership.as_ref());
            println!();
        }
        println!(
            "{} drives     {} MiB, {} available",
            described.len(),
            len_bytes >> 20,
            available_bytes >> 20
        );
        Ok(())
    }
}

impl Map {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (context, drives) = (ProcessContext::system()?, parse_drives(&self.drives)?);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let show = async |devices: Devices| {
            print_map(&devices::open(&devices, options, &context).await?.drive);
            Ok(ExitCode::SUCCESS)
        };
        process::runtime()?.block_on(on_each(&drives, show))
    }
}

/// Returns a drive's position in its pool, from 1 (0 if the pool does not have it), and the number of the pool's drives.
fn position(drive: &Drive, membership: &Membership) -> (usize, usize) {
    (membership.number_of(drive.id()).map_or(0, |number| number + 1), membership.drives.len())
}

fn info_json(OpenDrive { drive, array }: &OpenDrive, membership: Option<&Membership>) -> serde_json::Value {
    let info = drive.info();
    let pool = |membership: &Membership| {
        let (number, drives) = position(drive, membership);
        serde_json::json!({ "id": format!("{:016x}", membership.pool), "drive": number, "drives": drives })
    };
    serde_json::json!({
        "id": format!("{:016x}", info.id),
        "len_bytes": info.len_bytes,
        "zone_bytes": info.zone_bytes,
        "available_bytes": info.available_bytes,
        "free_run_bytes_max": info.free_run_bytes_max,
        "pack_zones": info.pack_zones,
        "pack_live_bytes": info.pack_live_bytes,
        "tables": info.tables.len(),
        "table_bytes": info.table_bytes(),
        "table_entries": info.table_entries(),
        "log_bytes": info.log_bytes,
        "array": array.as_ref().map(array_json),
        "pool": membership.map(pool),
    })
}

fn print_info(OpenDrive { drive, array }: &OpenDrive, membership: Option<&Membership>) {
    let info = drive.info();
    let mib = |bytes: u64| bytes >> 20;
    println!("drive          {:016x}", info.id);
    println!("size           {} MiB in zones of {} MiB", mib(info.len_bytes), mib(info.zone_bytes));
    println!(
        "available      {} MiB, at most {} in one run",
        mib(info.available_bytes),
        mib(info.free_run_bytes_max)
    );
    println!("pack zones     {}, {} MiB of them alive", info.pack_zones, mib(info.pack_live_bytes));
    let (tables, entries) = (info.tables.len(), info.table_entries());
    println!("index          {tables} tables, {entries} entries, {} MiB", mib(info.table_bytes()));
    println!("log            {} MiB to read at the next opening", mib(info.log_bytes));
    if let Some(membership) = membership {
        let (number, drives) = position(drive, membership);
        println!("pool           {:016x}, drive {number} of {drives}", membership.pool);
    }
    array.iter().for_each(print_array);
}

fn print_array(array: &ArrayInfo) {
    println!("devices        {} of data, {} of parity", array.shape.data, array.shape.parity);
    for (number, member) in array.members.iter().enumerate() {
        let (state, name) = member_state(member);
        println!("{number:>14} {state}{}{name}", if name.is_empty() { "" } else { ": " });
    }
}

fn array_json(array: &ArrayInfo) -> serde_json::Value {
    let member = |member| {
        let (state, device) = member_state(member);
        serde_json::json!({ "state": state, "device": device })
    };
    let members: Vec<_> = array.members.iter().map(member).collect();
    serde_json::json!({ "data": array.shape.data, "parity": array.shape.parity, "members": members })
}

fn member_state(member: &MemberState) -> (&str, &str) {
    match member {
        MemberState::InSync(name) => ("in sync", name),
        MemberState::Stale(name) => ("stale", name),
        MemberState::Missing => ("missing", ""),
    }
}

fn print_map(drive: &Drive) {
    let zone_bytes = drive.info().zone_bytes;
    let digit = |bytes: u64| char::from_digit((bytes * 9 / zone_bytes) as u32, 10).unwrap_or('9');
    let zones: Vec<char> = drive
        .map()
        .into_iter()
        .map(|zone| match zone {
            ZoneUse::Free => '.',
            ZoneUse::Pack { live_bytes } => char::from(b'a' + (live_bytes * 9 / zone_bytes).min(9) as u8),
            ZoneUse::Runs { used_bytes } => digit(used_bytes),
        })
        .collect();
    println!(
        "each character is a zone of {} MiB: . free, 0-9 runs by fill, a-j pack zone by live data",
        zone_bytes >> 20
    );
    for (line, zones) in zones.chunks(ZONES_PER_LINE).enumerate() {
        println!("{:>8} {}", line * ZONES_PER_LINE, zones.iter().collect::<String>());
    }
}
