//! A switch for measurements that cost time, which are off unless they are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of users of a measurement. It is on while there is at least one.
#[derive(Debug, Clone, Default)]
pub struct Switch(Arc<AtomicUsize>);

impl Switch {
    /// Returns whether the measurement is on: one load.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Turns the measurement on until the returned value is dropped.
    pub fn turn_on(&self) -> SwitchedOn {
        self.0.fetch_add(1, Ordering::Relaxed);
        SwitchedOn(Arc::clone(&self.0))
    }
}

/// One user of a measurement.
#[derive(Debug)]
pub struct SwitchedOn(Arc<AtomicUsize>);

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_on_while_it_has_users() {
        let switch = Switch::default();
        assert!(!switch.is_on());
        let (first, second) = (switch.turn_on(), switch.clone().turn_on());
        drop(first);
        assert!(switch.is_on());
        drop(second);
        assert!(!switch.is_on());
    }
}
