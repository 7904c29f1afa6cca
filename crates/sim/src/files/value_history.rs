//! The states of a value that a crash may restore.

use super::machine::CrashKind;

/// The durability of an acknowledged change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// The change may be lost in any crash.
    None,
    /// The change survives a crash of the process.
    Process,
    /// The change survives a power loss.
    Power,
}

/// The values that a crash may leave, oldest first; the last is the current one. Invariant: after a crash of the process one of
/// `values[acknowledged..]` is left, after a power loss one of `values`.
#[derive(Debug, Clone)]
pub(super) struct ValueHistory<T> {
    values: Vec<T>,
    acknowledged: usize,
}

impl<T: Clone + PartialEq> ValueHistory<T> {
    pub(super) fn new(value: T) -> Self {
        Self { values: vec![value], acknowledged: 0 }
    }

    pub(super) fn current(&self) -> &T {
        &self.values[self.values.len() - 1]
    }

    /// Sets the current value, without any durability.
    pub(super) fn push(&mut self, value: T) {
        if *self.current() != value {
            self.values.push(value);
        }
    }

    pub(super) fn acknowledge(&mut self, durability: Durability) {
        if durability >= Durability::Process {
            self.acknowledged = self.values.len() - 1;
        }
        if durability == Durability::Power {
            self.sync();
        }
    }

    /// Makes the values that survive a crash of the process survive a power loss too.
    pub(super) fn sync(&mut self) {
        self.values.drain(..self.acknowledged);
        self.acknowledged = 0;
    }

    /// Returns the values that a crash may leave.
    pub(super) fn possible_after(&self, crash_kind: CrashKind) -> &[T] {
        match crash_kind {
            CrashKind::Process => &self.values[self.acknowledged..],
            CrashKind::Power => &self.values,
        }
    }

    /// Sets the value that was found after a crash.
    pub(super) fn adopt(&mut self, value: T, crash_kind: CrashKind) {
        self.push(value);
        self.acknowledge(match crash_kind {
            CrashKind::Process => Durability::Process,
            CrashKind::Power => Durability::Power,
        });
    }
}
