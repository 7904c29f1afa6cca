//! What something was, as far back as a crash may take it.

use super::machine::Loss;

/// What an acknowledged change promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promise {
    /// Nothing yet.
    Nothing,
    /// It survives the end of the process.
    Process,
    /// It survives the loss of power.
    Power,
}

/// Values, oldest first; the last is what is seen. Invariant: `values[acknowledged..]` may be left when the process
/// ends, all of `values` when the power goes.
#[derive(Debug, Clone)]
pub(super) struct Past<T> {
    values: Vec<T>,
    acknowledged: usize,
}

impl<T: Clone + PartialEq> Past<T> {
    pub(super) fn new(value: T) -> Self {
        Self { values: vec![value], acknowledged: 0 }
    }

    pub(super) fn now(&self) -> &T {
        &self.values[self.values.len() - 1]
    }

    /// It is another from now on; nothing is promised.
    pub(super) fn set(&mut self, value: T) {
        if *self.now() != value {
            self.values.push(value);
        }
    }

    pub(super) fn promise(&mut self, promise: Promise) {
        if promise >= Promise::Process {
            self.acknowledged = self.values.len() - 1;
        }
        if promise == Promise::Power {
            self.sync();
        }
    }

    /// What survives the end of the process survives the loss of power, too.
    pub(super) fn sync(&mut self) {
        self.values.drain(..self.acknowledged);
        self.acknowledged = 0;
    }

    /// What a crash may leave.
    pub(super) fn left(&self, loss: Loss) -> &[T] {
        match loss {
            Loss::Process => &self.values[self.acknowledged..],
            Loss::Power => &self.values,
        }
    }

    /// After a crash it is this.
    pub(super) fn found(&mut self, value: T, loss: Loss) {
        self.set(value);
        self.promise(match loss {
            Loss::Process => Promise::Process,
            Loss::Power => Promise::Power,
        });
    }
}
