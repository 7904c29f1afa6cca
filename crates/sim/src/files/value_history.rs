//! What something was, as far back as a crash may take it.

use super::machine::CrashKind;

/// What an acknowledged change promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// Nothing yet.
    None,
    /// It survives the end of the process.
    Process,
    /// It survives the loss of power.
    Power,
}

/// Values, oldest first; the last is what is seen. Invariant: `values[acknowledged..]` may be left when the process
/// ends, all of `values` when the power goes.
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

    /// It is another from now on; nothing is promised.
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

    /// What survives the end of the process survives the loss of power, too.
    pub(super) fn sync(&mut self) {
        self.values.drain(..self.acknowledged);
        self.acknowledged = 0;
    }

    /// What a crash may leave.
    pub(super) fn possible_after(&self, crash_kind: CrashKind) -> &[T] {
        match crash_kind {
            CrashKind::Process => &self.values[self.acknowledged..],
            CrashKind::Power => &self.values,
        }
    }

    /// After a crash it is this.
    pub(super) fn adopt(&mut self, value: T, crash_kind: CrashKind) {
        self.push(value);
        self.acknowledge(match crash_kind {
            CrashKind::Process => Durability::Process,
            CrashKind::Power => Durability::Power,
        });
    }
}
