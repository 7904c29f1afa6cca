//! Sampling: the choice of the events that are observed, where observing all would cost too much.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Chooses a share of numbered events at random, and none while it is paused.
#[derive(Debug)]
pub struct Sampler {
    /// An event is chosen if the hash of its number is below this number; `None` chooses all.
    threshold: Option<u64>,
    /// Key of the hash.
    key: u64,
    is_paused: AtomicBool,
    /// Chosen events that were not observed because of a pause.
    missed: AtomicU64,
}

impl Sampler {
    /// Makes a sampler that chooses this share of events, from 0 to 1. Samplers with different keys choose different events.
    pub fn new(share: f64, key: u64) -> Self {
        let threshold = (share < 1.0).then(|| (share.max(0.0) * u64::MAX as f64) as u64);
        Self { threshold, key, is_paused: AtomicBool::new(false), missed: AtomicU64::new(0) }
    }

    /// Returns whether the event with this number is chosen: always the same for a number.
    pub fn is_chosen(&self, number: u64) -> bool {
        self.threshold.is_none_or(|threshold| scramble(number ^ self.key) < threshold)
    }

    /// Returns whether to observe the event with this number: it is chosen, and the sampler is not paused. Counts a chosen event that a pause
    /// excludes.
    pub fn admit(&self, number: u64) -> bool {
        if !self.is_chosen(number) {
            return false;
        }
        let is_paused = self.is_paused.load(Ordering::Relaxed);
        if is_paused {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        !is_paused
    }

    /// Pauses the sampler, or ends its pause.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Returns how many chosen events were not observed because of pauses.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// A function that is called with the events that a sampler admits.
pub struct SampledObserver<E> {
    sampler: Arc<Sampler>,
    observer: Box<dyn Fn(&E) + Send + Sync>,
}

impl<E> SampledObserver<E> {
    /// Makes an observer. The function runs on the threads that report events, so it must be short.
    pub fn new(sampler: Arc<Sampler>, observer: impl Fn(&E) + Send + Sync + 'static) -> Self {
        Self { sampler, observer: Box::new(observer) }
    }

    /// Returns whether the event with this number is to be reported.
    pub fn admit(&self, number: u64) -> bool {
        self.sampler.admit(number)
    }

    /// Reports an event that was admitted.
    pub fn report(&self, event: &E) {
        (self.observer)(event);
    }
}

impl<E> fmt::Debug for SampledObserver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledObserver").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}

/// Maps a number to another one without pattern, and different numbers to different ones: the finalizer of SplitMix64.
pub fn scramble(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_events_is_chosen_by_number() {
        let chosen = |share, key| {
            let sampler = Sampler::new(share, key);
            (0..10_000).filter(|number| sampler.is_chosen(*number)).collect::<Vec<u64>>()
        };
        assert_eq!((chosen(0.0, 7).len(), chosen(1.0, 7).len()), (0, 10_000));
        let tenth = chosen(0.1, 7);
        assert!((900..1100).contains(&tenth.len()), "{}", tenth.len());
        assert_eq!(tenth, chosen(0.1, 7));
        assert_ne!(tenth, chosen(0.1, 8));
    }

    #[test]
    fn a_paused_sampler_counts_what_it_misses() {
        let sampler = Sampler::new(1.0, 0);
        assert!(sampler.admit(1));
        sampler.set_paused(true);
        assert!(!sampler.admit(2) && sampler.is_chosen(2));
        sampler.set_paused(false);
        assert!(sampler.admit(3));
        assert_eq!(sampler.missed(), 1);
    }
}
