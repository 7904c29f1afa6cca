//! The rows of a workload, one for each system, as the terminal, the page and the documents show them.

use super::median::SortedRounds;
use super::{Cell, Comparison, Measurement, untraced_cells};
use crate::setup::System;
use crate::workload::{Caches, Workload};

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1 << 20) as f64;

/// The unit of work for which time and CPU are stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A GiB of object content.
    Gib,
    /// An object written or read.
    Object,
    /// An object in a listing.
    Entry,
}

/// The results of a system in a workload.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) system: System,
    pub(super) workload: Workload,
    pub(super) unit: Unit,
    /// The median round.
    pub(super) measured: &'a Measurement,
    /// Seconds per unit in the fastest and in the slowest round.
    pub(super) range: (f64, f64),
    /// Number of rounds.
    pub(super) rounds: usize,
    pub(super) caches: Caches,
    /// Total size of the objects that the workload reads from, as a multiple of the server's memory; `None` if it reads none.
    pub(super) times_memory: Option<f64>,
}

impl Unit {
    /// Objects shorter than this are counted by number, longer ones by GiB.
    const SMALL_BYTES: u64 = 1 << 20;

    /// Returns the unit of a workload.
    pub(super) fn of(workload: Workload, comparison: &Comparison) -> Self {
        match workload.mix(&comparison.conditions.scale) {
            None => Self::Entry,
            Some(mix) if mix.size_bytes < Self::SMALL_BYTES => Self::Object,
            Some(_) => Self::Gib,
        }
    }

    /// Returns the name, as in "time per GiB".
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gib => "GiB",
            Self::Object => "object",
            Self::Entry => "object listed",
        }
    }

    fn amount(self, measured: &Measurement) -> f64 {
        match self {
            Self::Gib => measured.done.bytes() as f64 / GIB,
            Self::Object => measured.done.operations() as f64,
            Self::Entry => measured.done.list.amount as f64,
        }
    }

    /// Formats the time of one unit: seconds for a GiB, microseconds for an object.
    pub(super) fn format(self, secs: f64) -> String {
        match self {
            Self::Gib => format!("{} s", three_digits(secs)),
            Self::Object | Self::Entry => format!("{} µs", three_digits(secs * 1e6)),
        }
    }
}

impl Row<'_> {
    /// Returns the wall-clock seconds per unit.
    pub(super) fn secs(&self) -> f64 {
        self.measured.done.wall_secs / self.unit.amount(self.measured)
    }

    /// Returns the server's CPU seconds per unit.
    pub(super) fn server_secs(&self) -> Option<f64> {
        Some(self.measured.usage.server_secs? / self.unit.amount(self.measured))
    }

    /// Returns the CPU seconds per unit of everything but client and server: kernel threads, and other processes of the machine.
    pub(super) fn other_secs(&self) -> Option<f64> {
        let usage = &self.measured.usage;
        let secs = usage.machine_secs - usage.client_secs - usage.server_secs?;
        Some(secs.max(0.0) / self.unit.amount(self.measured))
    }

    /// Returns the client's CPU seconds per unit.
    pub(super) fn client_secs(&self) -> f64 {
        self.measured.usage.client_secs / self.unit.amount(self.measured)
    }

    /// Formats the rate: `1,830 MiB/s`, `8,363 a second`.
    pub(super) fn rate(&self) -> String {
        let measured = self.measured;
        match self.unit {
            Unit::Gib => format!("{} MiB/s", grouped(measured.throughput() / MIB)),
            Unit::Object => format!("{} a second", grouped(measured.rate())),
            Unit::Entry => {
                format!("{} a second", grouped(measured.done.list.amount as f64 / measured.done.wall_secs))
            }
        }
    }

    /// Formats the state of the caches: `cold, 4.0 × memory`, or `nothing read`.
    pub(super) fn caches_text(&self) -> String {
        match self.times_memory {
            Some(times) if times >= 1.0 => format!("{}, {times:.1} × memory", self.caches.word()),
            Some(times) => format!("{}, {times:.2} × memory", self.caches.word()),
            None => self.caches.word().to_owned(),
        }
    }

    /// Returns the bytes read from the devices per byte of content read by clients, or `None` if clients read none.
    pub(super) fn read_amplification(&self) -> Option<f64> {
        let read = self.measured.done.get.amount;
        (read > 0).then(|| self.measured.io.read_bytes as f64 / read as f64)
    }

    /// Returns the bytes written to the devices per byte of content put by clients, or `None` if clients put none.
    pub(super) fn write_amplification(&self) -> Option<f64> {
        let written = self.measured.done.put.amount;
        (written > 0).then(|| self.measured.io.written_bytes as f64 / written as f64)
    }

    /// Formats the duration of the run: `20.4 s`, `10 × 0.04 s`.
    pub(super) fn duration(&self) -> String {
        let (secs, passes) = (self.measured.done.wall_secs, self.measured.passes.max(1));
        match passes {
            1 => format!("{} s", three_digits(secs)),
            passes => format!("{passes} × {} s", three_digits(secs / passes as f64)),
        }
    }
}

impl Comparison {
    /// Returns every workload that was measured or failed on some system.
    pub(super) fn workloads(&self) -> impl Iterator<Item = Workload> {
        let was_tried = |workload: &Workload| {
            self.cells.iter().any(|cell| cell.workload == *workload)
                || self.failures.iter().any(|failure| failure.workload == *workload)
        };
        Workload::ALL.into_iter().filter(was_tried)
    }

    /// Returns the rows of a workload, in the order of systems.
    pub(super) fn rows(&self, workload: Workload) -> Vec<Row<'_>> {
        System::ALL.into_iter().filter_map(|system| self.row(system, workload)).collect()
    }

    fn row(&self, system: System, workload: Workload) -> Option<Row<'_>> {
        let row_cells: Vec<&Cell> = untraced_cells(&self.cells, system, workload).collect();
        let rounds = SortedRounds::new(row_cells.iter().map(|cell| &cell.measured));
        let unit = Unit::of(workload, self);
        let secs = |measured: &Measurement| measured.done.wall_secs / unit.amount(measured);
        let (fastest, slowest) = rounds.range()?;
        let read_bytes = workload.read_bytes(&self.conditions.scale);
        Some(Row {
            system,
            workload,
            unit,
            measured: rounds.median()?,
            range: (secs(fastest), secs(slowest)),
            rounds: rounds.count(),
            caches: row_cells.first()?.caches,
            times_memory: (read_bytes > 0).then(|| read_bytes as f64 / self.conditions.memory_bytes as f64),
        })
    }

    /// Describes the conditions that hold for all workloads: (name, value). Each workload states its own scale.
    pub(super) fn about(&self) -> Vec<(&'static str, String)> {
        let conditions = &self.conditions;
        let [before, after] = self.load_average;
        let generator = self.generator;
        vec![
            ("machine", format!("{}; client and server share it", conditions.machine)),
            ("memory of a server", self.memory.clone()),
            (
                "devices",
                format!(
                    "loop devices over one file of {} GiB, with direct I/O past this machine's page cache; caches of the disk or of a \
                     hypervisor below are not known",
                    three_digits(conditions.device_bytes as f64 / GIB)
                ),
            ),
            (
                "length of a run",
                format!(
                    "at least {} s; a workload that ends after all objects is repeated, cold, up to 10 times",
                    conditions.scale.seconds
                ),
            ),
            (
                "cost of the client",
                format!(
                    "{} s of CPU per GiB that it generates and {} s per GiB that it compares, measured without a server",
                    three_digits(generator.made_secs_per_gib),
                    three_digits(generator.compared_secs_per_gib)
                ),
            ),
            ("load average", format!("{before:.1} before, {after:.1} after")),
        ]
    }
}

/// Formats a number with three significant digits, but at most four decimals: `0.0123`, `1.23`, `12.3`, `12,345`.
pub(super) fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        v if !v.is_finite() || v >= 100.0 => return grouped(value),
        0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Formats a number without decimals: `12,345`. Returns `-` for infinity and NaN.
pub(super) fn grouped(value: f64) -> String {
    if value.is_finite() { harness::format::count(value.round().max(0.0) as u64) } else { "-".to_owned() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::compare::{Conditions, Failure};
    use crate::model::Capabilities;
    use crate::workload::{GeneratorCost, Scale};
    use std::time::Duration;

    /// Makes a comparison of four systems in three workloads, one of them with a failure. Each cell has 1 GiB of content.
    pub(in crate::compare) fn comparison() -> Comparison {
        use System::{Drive, DriveMd5, MinioExt4, MinioXfs};
        use Workload::{Get4K, ReadOnly, WriteOnly};
        let figures = [
            (WriteOnly, MinioXfs, 4.0),
            (WriteOnly, Drive, 1.0),
            (WriteOnly, DriveMd5, 2.0),
            (ReadOnly, MinioXfs, 1.0),
            (ReadOnly, Drive, 2.0),
            (Get4K, MinioXfs, 1.0),
            (Get4K, Drive, 0.5),
        ];
        let cell = |(workload, system, secs): (Workload, System, f64)| {
            let mut measured = Measurement { passes: 1, ..Measurement::default() };
            measured.done.wall_secs = secs;
            measured.usage.server_secs = Some(secs);
            let kind = if workload == WriteOnly { &mut measured.done.put } else { &mut measured.done.get };
            kind.amount = 1 << 30;
            kind.latency.record(Duration::from_millis(3));
            Cell { system, workload, round: 0, is_traced: false, caches: workload.caches(), measured }
        };
        let reason = "full".to_owned();
        Comparison {
            conditions: Conditions {
                scale: Scale { objects: 256, ..Scale::small() },
                device_bytes: 24 << 30,
                memory_bytes: 1 << 30,
                build: "a build".to_owned(),
                machine: "a machine".to_owned(),
            },
            memory: "1024 MiB".to_owned(),
            load_average: [0.1, 2.0],
            generator: GeneratorCost { made_secs_per_gib: 0.01, compared_secs_per_gib: 0.1 },
            capabilities: Capabilities::default(),
            cells: figures.into_iter().map(cell).collect(),
            failures: vec![Failure {
                system: MinioExt4,
                workload: ReadOnly,
                round: 0,
                is_traced: false,
                reason,
            }],
            fio: Err("not requested".to_owned()),
        }
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [0.0, 0.04321, 0.4321, 4.321, 43.21, 432.1, 43_210.0, f64::NAN].map(three_digits);
        assert_eq!(shown, ["0", "0.0432", "0.432", "4.32", "43.2", "432", "43,210", "-"]);
    }
}
