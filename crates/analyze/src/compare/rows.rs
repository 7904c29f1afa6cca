//! The rows of a workload, system by system: the same numbers for the terminal, the page and the documents.

use super::median::ByTime;
use super::{Cell, Comparison, Measurement, cells};
use crate::setup::System;
use crate::workload::{Caches, Workload};

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1 << 20) as f64;

/// The unit of work that times and CPU are given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A GiB of bodies.
    Gib,
    /// An object, put or read.
    Object,
    /// An object in a listing.
    Entry,
}

/// A system in a workload.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) system: System,
    pub(super) workload: Workload,
    pub(super) unit: Unit,
    /// The round in the middle.
    pub(super) measured: &'a Measurement,
    /// Seconds for a unit in the fastest and in the slowest round.
    pub(super) range: (f64, f64),
    pub(super) rounds: usize,
    pub(super) caches: Caches,
    /// Bytes that the workload may read, in times of the memory.
    pub(super) times_memory: Option<f64>,
}

impl Unit {
    /// Of objects of this length one would be told in microseconds.
    const SMALL_BYTES: u64 = 1 << 20;

    pub(super) fn of(workload: Workload, comparison: &Comparison) -> Self {
        match workload.mix(&comparison.conditions.scale) {
            None => Self::Entry,
            Some(mix) if mix.size_bytes < Self::SMALL_BYTES => Self::Object,
            Some(_) => Self::Gib,
        }
    }

    /// As in "time per GiB".
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

    /// Seconds as people read them: of a GiB in seconds, of an object in microseconds.
    pub(super) fn show(self, secs: f64) -> String {
        match self {
            Self::Gib => format!("{} s", three_digits(secs)),
            Self::Object | Self::Entry => format!("{} µs", three_digits(secs * 1e6)),
        }
    }
}

impl Row<'_> {
    /// Seconds from the first operation to the last for a unit.
    pub(super) fn secs(&self) -> f64 {
        self.measured.done.wall_secs / self.unit.amount(self.measured)
    }

    /// CPU seconds of the server for a unit.
    pub(super) fn server_secs(&self) -> Option<f64> {
        Some(self.measured.usage.server_secs? / self.unit.amount(self.measured))
    }

    /// CPU seconds of all but client and server for a unit: the kernel's threads, and what else runs on the machine.
    pub(super) fn other_secs(&self) -> Option<f64> {
        let usage = &self.measured.usage;
        let secs = usage.machine_secs - usage.client_secs - usage.server_secs?;
        Some(secs.max(0.0) / self.unit.amount(self.measured))
    }

    /// CPU seconds of the client for a unit.
    pub(super) fn client_secs(&self) -> f64 {
        self.measured.usage.client_secs / self.unit.amount(self.measured)
    }

    /// `1,830 MiB/s`, `8,363 a second`.
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

    /// `cold, 4.0 × memory`; of what reads nothing why.
    pub(super) fn caches(&self) -> String {
        match self.times_memory {
            Some(times) if times >= 1.0 => format!("{}, {times:.1} × memory", self.caches.word()),
            Some(times) => format!("{}, {times:.2} × memory", self.caches.word()),
            None => self.caches.word().to_owned(),
        }
    }

    /// Bytes that the devices read for each byte of bodies that were read; `None` where none were.
    pub(super) fn read_share(&self) -> Option<f64> {
        let read = self.measured.done.get.amount;
        (read > 0).then(|| self.measured.io.read_bytes as f64 / read as f64)
    }

    /// Bytes that the devices wrote for each byte of bodies that were put; `None` where none were.
    pub(super) fn written_share(&self) -> Option<f64> {
        let written = self.measured.done.put.amount;
        (written > 0).then(|| self.measured.io.written_bytes as f64 / written as f64)
    }

    /// How long it ran: `20.4 s`, `10 × 0.04 s`.
    pub(super) fn length(&self) -> String {
        let (secs, passes) = (self.measured.done.wall_secs, self.measured.passes.max(1));
        match passes {
            1 => format!("{} s", three_digits(secs)),
            passes => format!("{passes} × {} s", three_digits(secs / passes as f64)),
        }
    }
}

impl Comparison {
    /// Every workload that was measured or that failed somewhere.
    pub(super) fn workloads(&self) -> impl Iterator<Item = Workload> {
        let was_tried = |workload: &Workload| {
            self.cells.iter().any(|cell| cell.workload == *workload)
                || self.failures.iter().any(|failure| failure.workload == *workload)
        };
        Workload::ALL.into_iter().filter(was_tried)
    }

    /// The rows of a workload, in the order of systems.
    pub(super) fn rows(&self, workload: Workload) -> Vec<Row<'_>> {
        System::ALL.into_iter().filter_map(|system| self.row(system, workload)).collect()
    }

    fn row(&self, system: System, workload: Workload) -> Option<Row<'_>> {
        let of_row: Vec<&Cell> = cells(&self.cells, system, workload).collect();
        let rounds = ByTime::of(of_row.iter().map(|cell| &cell.measured));
        let unit = Unit::of(workload, self);
        let secs = |it: &Measurement| it.done.wall_secs / unit.amount(it);
        let (fastest, slowest) = rounds.range()?;
        let read_bytes = workload.read_bytes(&self.conditions.scale);
        Some(Row {
            system,
            workload,
            unit,
            measured: rounds.middle()?,
            range: (secs(fastest), secs(slowest)),
            rounds: rounds.count(),
            caches: of_row.first()?.caches,
            times_memory: (read_bytes > 0).then(|| read_bytes as f64 / self.conditions.memory_bytes as f64),
        })
    }

    /// `16 MiB` and the like are in the workload's own line; this is what holds for all of them.
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
                    "loop devices over one file of {} GiB, with direct I/O, so that this machine's page cache is not under them; what the disk \
                     itself, or a hypervisor, caches is not known",
                    three_digits(conditions.device_bytes as f64 / GIB)
                ),
            ),
            (
                "length of a run",
                format!(
                    "at least {} s; a workload that ends with its objects is done again, cold, up to 10 times",
                    conditions.scale.seconds
                ),
            ),
            (
                "the client itself",
                format!(
                    "{} s of CPU for a GiB that it puts and {} s for a GiB that it compares, without a server",
                    three_digits(generator.made_secs_per_gib),
                    three_digits(generator.compared_secs_per_gib)
                ),
            ),
            ("load average", format!("{before:.1} before, {after:.1} after")),
        ]
    }
}

/// Three digits that count: `0.0123`, `1.23`, `12.3`, `12,345`.
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

/// A whole number: `12,345`.
pub(super) fn grouped(value: f64) -> String {
    if value.is_finite() { crate::report::count(value.round().max(0.0) as u64) } else { "-".to_owned() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::compare::{Conditions, Failure};
    use crate::model::Capabilities;
    use crate::workload::{GeneratorCost, Scale};
    use std::time::Duration;

    /// A comparison of some systems in four workloads; of a GiB each, or of a thousand objects.
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
            fio: Err("not asked for".to_owned()),
        }
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [0.0, 0.04321, 0.4321, 4.321, 43.21, 432.1, 43_210.0, f64::NAN].map(three_digits);
        assert_eq!(shown, ["0", "0.0432", "0.432", "4.32", "43.2", "432", "43,210", "-"]);
    }
}
