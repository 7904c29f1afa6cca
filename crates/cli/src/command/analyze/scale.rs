//! How much is done.

use crate::units;
use analyze::workload::Scale;
use clap::{Args, ValueEnum};

/// A preset, and what differs from it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scale")]
pub(super) struct ScaleFlags {
    /// How much of everything, where nothing else is said
    #[arg(long, value_name = "NAME", default_value = "small")]
    scale: Preset,
    /// Length of large objects
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    size: Option<u64>,
    /// Large objects that are there before a mixed workload begins
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    objects: Option<u64>,
    /// Least number of operations of a mixed workload on large objects
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Least duration of a measurement, in seconds; 0: the number of operations alone counts
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Clients, each with connections of its own
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// Operations on large objects at a time, of all clients together
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Least number of operations on small objects, of which 32 at a time, and how many of them are read
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    small_operations: Option<u64>,
    /// Objects of 64 KiB that get-64k-cold reads, each once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cold_objects: Option<u64>,
    /// Objects to enumerate
    #[arg(long, value_name = "N")]
    enumerated: Option<u64>,
    /// Length of objects to enumerate
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    enumerated_size: Option<u64>,
    /// Compare every so many bodies byte by byte; of the others length and stamp
    #[arg(long, value_name = "N")]
    verify_every: Option<u64>,
    /// What operations and bytes follow from
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Presets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    /// Whether it works: 1 GiB, seconds
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

    /// Whether the number of large objects was given.
    pub(super) fn says_objects(&self) -> bool {
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
    number.ok_or_else(|| "not a number of seconds from 0 to 86400".to_owned())
}
