//! Scale of the workloads: sizes, counts and concurrency.

use crate::command::units;
use analyze::workload::Scale;
use clap::{Args, ValueEnum};

/// A preset, and settings that differ from it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scale")]
pub(super) struct ScaleFlags {
    /// Preset for all sizes and counts that are not given
    #[arg(long, value_name = "NAME", default_value = "small")]
    scale: Preset,
    /// Length of large objects
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    size: Option<u64>,
    /// Number of large objects that exist before a mixed workload begins
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    objects: Option<u64>,
    /// Minimum number of operations of a mixed workload on large objects
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Minimum duration of a measurement, in seconds; 0: only the number of operations counts
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Number of clients, each with its own connections
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// Concurrent operations on large objects, of all clients together
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Minimum number of operations on small objects, 32 at a time, and number of small objects to read
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    small_operations: Option<u64>,
    /// Number of 64 KiB objects that get-64k-cold reads, each once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cold_objects: Option<u64>,
    /// Number of objects to enumerate
    #[arg(long, value_name = "N")]
    enumerated: Option<u64>,
    /// Length of the objects to enumerate
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    enumerated_size: Option<u64>,
    /// Compare one in this many bodies byte by byte; of the others, only length and stamp
    #[arg(long, value_name = "N")]
    verify_every: Option<u64>,
    /// Seed of operations and contents
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Presets of the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    /// Smoke test: 1 GiB, seconds
    Tiny,
    /// 16 MiB objects by 32 threads, runs of 20 s: 20 GiB
    Small,
    /// 128 MiB objects by 128 threads, a million to enumerate: 100 GiB, hours
    Paper,
}

impl ScaleFlags {
    pub(super) fn preset(&self) -> Preset {
        self.scale
    }

    /// Returns whether the number of large objects was given.
    pub(super) fn has_objects(&self) -> bool {
        self.objects.is_some()
    }

    pub(super) fn scale(&self) -> Scale {
        let preset = match self.scale {
            Preset::Tiny => Scale::tiny(),
            Preset::Small => Scale::small(),
            Preset::Paper => Scale::paper(),
        };
        Scale {
            size_bytes: self.size.unwrap_or(preset.size_bytes),
            objects: self.objects.unwrap_or(preset.objects),
            operations: self.operations.unwrap_or(preset.operations),
            seconds: self.seconds.unwrap_or(preset.seconds),
            clients: self.clients.unwrap_or(preset.clients).max(1),
            threads: self.threads.unwrap_or(preset.threads).max(1),
            small_operations: self.small_operations.unwrap_or(preset.small_operations),
            cold_objects: self.cold_objects.unwrap_or(preset.cold_objects),
            enumerated: self.enumerated.unwrap_or(preset.enumerated),
            enumerated_bytes: self.enumerated_size.unwrap_or(preset.enumerated_bytes),
            verify_every: self.verify_every.unwrap_or(preset.verify_every).max(1),
            seed: self.seed.unwrap_or(preset.seed),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    number.ok_or_else(|| "give a number of seconds from 0 to 86400".to_owned())
}
