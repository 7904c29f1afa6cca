//! The configured faults of a device.

use super::{Operation, OperationKind, Verdict};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Entropy;

/// The power supply.
#[derive(Debug, Clone, Copy, Default)]
enum Power {
    #[default]
    On,
    /// On for this many more operations.
    OffAfter(u64),
    Off,
}

/// The configured faults.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) reads: Vec<Range<u64>>,
    pub(super) writes: Vec<Range<u64>>,
    pub(super) broken: bool,
    at_random: Option<(u64, u64)>,
    /// Like `at_random`, for reads only.
    reads_at_random: Option<(u64, u64)>,
    /// The power supply, which several devices may share.
    power: Arc<Mutex<Power>>,
    /// Number of operations so far; it numbers them.
    operation_count: u64,
}

impl Faults {
    pub(super) fn at_random(&mut self, seed: u64, one_in: u64) {
        self.at_random = Some((seed, one_in));
    }

    pub(super) fn reads_at_random(&mut self, seed: u64, one_in: u64) {
        self.reads_at_random = Some((seed, one_in));
    }

    pub(super) fn cut_power_after(&mut self, operations: u64) {
        *self.power() = Power::OffAfter(operations);
    }

    pub(super) fn restore_power(&mut self) {
        *self.power() = Power::On;
    }

    /// Returns faults with the same power supply and no faults configured, and restores the power.
    pub(super) fn without_faults(&self) -> Self {
        let mut faults = self.with_shared_power();
        faults.restore_power();
        faults
    }

    /// Returns faults with the same power supply and no faults configured, for another device.
    pub(super) fn with_shared_power(&self) -> Self {
        Self { power: self.power.clone(), ..Self::default() }
    }

    /// Returns the same faults with a power supply of its own, for a copy of the device.
    pub(super) fn with_own_power(&self) -> Self {
        Self { power: Arc::new(Mutex::new(*self.power())), ..self.clone() }
    }

    fn power(&self) -> MutexGuard<'_, Power> {
        self.power.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn decide(&mut self, operation: &Operation) -> Verdict {
        self.operation_count += 1;
        {
            let mut power = self.power();
            match *power {
                Power::On => {}
                Power::OffAfter(0) => {
                    *power = Power::Off;
                    return Verdict::PowerLost;
                }
                Power::OffAfter(left) => *power = Power::OffAfter(left - 1),
                Power::Off => return Verdict::PowerOff,
            }
        }
        if operation.kind == OperationKind::Read && self.is_hit(self.reads_at_random) {
            return Verdict::FailsOnce;
        }
        if self.broken || self.is_in_failing_range(operation) || self.is_hit(self.at_random) {
            return Verdict::Fails { seed: self.operation_count };
        }
        Verdict::Done
    }

    fn is_in_failing_range(&self, operation: &Operation) -> bool {
        let ranges = match operation.kind {
            OperationKind::Read => &self.reads,
            OperationKind::Write => &self.writes,
            OperationKind::Flush => return false,
        };
        ranges.iter().any(|range| operation.touches(range))
    }

    fn is_hit(&self, at_random: Option<(u64, u64)>) -> bool {
        at_random.is_some_and(|(seed, one_in)| Entropy::new(seed ^ self.operation_count).below(one_in) == 0)
    }
}
