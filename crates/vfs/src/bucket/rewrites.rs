//! Objects that this mount copies onto themselves, to store attributes.
//!
//! Servers may replace an object in steps. A listing or HEAD that runs meanwhile may miss the object although nobody removed it, so it must
//! not remove the file. It may still show what another client stored.

use meta::{Ino, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::moments::Moments;

/// Maximum number of ended copies to remember. A look that is in flight while more copies end may be taken for valid.
const ENDED_MAX: usize = 4096;

/// The copies that are under way, and those that ended last.
#[derive(Debug, Default)]
pub(crate) struct Rewrites(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of copies under way, by file.
    under_way: HashMap<Ino, usize>,
    /// Files and the ends of their copies, in order.
    ended: VecDeque<(Ino, Moment)>,
}

/// A copy that is under way until this guard is dropped.
#[derive(Debug)]
pub(crate) struct RewriteGuard<'r> {
    rewrites: &'r Rewrites,
    moments: &'r Moments,
    ino: Ino,
}

impl Rewrites {
    pub(crate) fn begin<'r>(&'r self, ino: Ino, moments: &'r Moments) -> RewriteGuard<'r> {
        *self.lock().under_way.entry(ino).or_default() += 1;
        RewriteGuard { rewrites: self, moments, ino }
    }

    /// Returns whether a look at the bucket made at a moment may have missed the object of a file because of a copy.
    pub(crate) fn may_hide(&self, ino: Ino, looked_at: Moment) -> bool {
        let state = self.lock();
        let mut later = state.ended.iter().rev().take_while(|(_, ended_at)| *ended_at >= looked_at);
        state.under_way.contains_key(&ino) || later.any(|(ended, _)| *ended == ino)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RewriteGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.rewrites.lock();
        if let Some(count) = state.under_way.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.ino);
            }
        }
        if state.ended.len() == ENDED_MAX {
            state.ended.pop_front();
        }
        state.ended.push_back((self.ino, self.moments.now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use store::SystemClock;

    #[test]
    fn looks_from_before_the_end_of_a_copy_may_have_missed_the_object() {
        let moments = Moments::new(Arc::new(SystemClock), 1);
        let rewrites = Rewrites::default();
        let before = moments.now();
        assert!(!rewrites.may_hide(Ino(7), before));
        let (first, second) = (rewrites.begin(Ino(7), &moments), rewrites.begin(Ino(7), &moments));
        drop(first);
        assert!(rewrites.may_hide(Ino(7), moments.now()), "the second copy is under way");
        let during = moments.now();
        drop(second);
        assert!(rewrites.may_hide(Ino(7), before) && rewrites.may_hide(Ino(7), during));
        assert!(!rewrites.may_hide(Ino(7), moments.now()) && !rewrites.may_hide(Ino(8), before));
        for _ in 0..ENDED_MAX {
            drop(rewrites.begin(Ino(8), &moments));
        }
        assert!(!rewrites.may_hide(Ino(7), before), "the number of copies to remember is bounded");
    }
}
