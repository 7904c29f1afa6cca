//! Mixed workloads: PUTs and GETs in a given ratio.

use super::choice::Choice;
use super::load::{Done, Load, LoadError, Operation};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Entropy;
use tokio::time::Instant;

/// A mixed workload (Table 1).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mix {
    /// Percentage of PUTs; the other operations are GETs.
    pub put_percent: u64,
    /// Distribution by which objects are chosen.
    pub choice: Choice,
    /// Size of every object.
    pub size_bytes: u64,
    /// Number of keys.
    pub objects: u64,
    /// Number of objects that exist before the workload begins.
    pub filled: u64,
    /// Minimum number of operations.
    pub operations: u64,
    /// Minimum duration, in seconds. The run continues until both minimums are reached; 0 stands for no minimum duration.
    pub seconds: f64,
    /// Number of concurrent operations.
    pub tasks: usize,
}

impl Mix {
    /// Returns the operation with this number. It depends on seed and number only, not on the task or the time.
    fn operation(&self, load: &Load, number: u64) -> Operation {
        let entropy = Entropy::new(load.seed() ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_put = entropy.below(100) < self.put_percent;
        let (object, size_bytes) = (self.choice.object(number, self.objects, &entropy), self.size_bytes);
        if is_put {
            // `Load::fill` wrote version 0.
            return Operation::Put { object, version: number + 1, size_bytes };
        }
        Operation::Get { object, size_bytes, is_compared: load.compares(number) }
    }
}

impl Load {
    /// Runs a mixed workload. The objects must exist ([`Load::fill`]).
    ///
    /// # Errors
    /// [`LoadError::WrongBytes`] at the first wrong body; [`LoadError::Failing`] when too many operations fail.
    pub async fn mix(&self, mix: &Mix) -> Result<Done, LoadError> {
        let (load, mix, next) = (self.clone(), mix.clone(), AtomicU64::new(0));
        let start = Instant::now();
        self.run(mix.tasks, move |_| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let continues = number < mix.operations || start.elapsed().as_secs_f64() < mix.seconds;
            continues.then(|| mix.operation(&load, number))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use store::memory::MemoryStore;
    use store::{ObjectStore, SystemClock};

    fn load(verify_every: u64) -> (Load, Arc<dyn ObjectStore>) {
        let store: Arc<dyn ObjectStore> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        (Load::new(vec![store.clone(), store.clone()], "a/", 1, verify_every), store)
    }

    fn mix(put_percent: u64) -> Mix {
        let choice = Choice::Zipfian;
        Mix {
            put_percent,
            choice,
            size_bytes: 100_000,
            objects: 10,
            filled: 10,
            operations: 400,
            seconds: 0.0,
            tasks: 7,
        }
    }

    #[test]
    fn the_ratio_of_puts_is_as_given() {
        let load = load(1).0;
        for percent in [95, 50, 5] {
            let operations = (0..20_000).map(|number| mix(percent).operation(&load, number));
            let puts = operations.filter(|operation| matches!(operation, Operation::Put { .. })).count();
            let expected = 200.0 * percent as f64;
            assert!((puts as f64 - expected).abs() < 4.0 * expected.sqrt(), "{puts} of {percent} %");
        }
    }

    #[test]
    fn s335_an_operation_depends_on_seed_and_number_only() {
        let load = |seed| Load::new(load(1).0.clients().to_vec(), "a/", seed, 1);
        let all = |load: &Load| (0..100).map(|n| mix(50).operation(load, n)).collect::<Vec<_>>();
        assert_eq!(all(&load(1)), all(&load(1)));
        assert_ne!(all(&load(1)), all(&load(2)));
    }

    #[tokio::test]
    async fn s336_a_mix_runs_and_is_verified() {
        let (load, store) = load(4);
        assert_eq!(load.fill(10, 100_000, 3).await.unwrap().put.amount, 1_000_000);
        let done = load.mix(&mix(50)).await.unwrap();
        assert_eq!((done.operations(), done.errors, done.bytes()), (400, 0, 40_000_000));
        assert!(done.compared > 20 && done.compared < 80, "{}", done.compared);
        // Foreign content under one of the keys ends the run.
        let key = load.key(3).unwrap();
        store.put(&key, vec![7; 100_000].into(), store::PutOptions::default()).await.unwrap();
        let error = load.mix(&Mix { put_percent: 0, choice: Choice::InTurn, ..mix(0) }).await.unwrap_err();
        assert!(matches!(error, LoadError::WrongBytes { .. }), "{error}");
        load.clean().await.unwrap();
        assert!(load.list_page(None).await.unwrap().entries.is_empty());
        let error = load.mix(&mix(0)).await.unwrap_err();
        assert!(matches!(error, LoadError::Failing { .. }), "{error}");
    }

    /// A bug: runs ended after a number of operations. The fastest system completed them in 0.2 s, which is too short: CPU time is counted in
    /// ticks of 10 ms, and the rate was that of the first connections.
    #[tokio::test]
    async fn s570_a_run_lasts_at_least_its_minimum_duration() {
        let (load, _) = load(1);
        load.fill(10, 100_000, 3).await.unwrap();
        let timed = load.mix(&Mix { seconds: 0.2, operations: 5, ..mix(0) }).await.unwrap();
        assert!(timed.wall_secs >= 0.2 && timed.operations() > 5, "{timed:?}");
        let counted = load.mix(&Mix { operations: 5, ..mix(0) }).await.unwrap();
        assert_eq!(counted.operations(), 5);
    }

    /// A bug: each task had its own limit, so 32 tasks could fail 640 operations in a run that counted as measured.
    #[tokio::test]
    async fn all_tasks_share_one_error_limit() {
        let (load, _) = load(1);
        let missing = |operations| Mix { operations, tasks: 32, ..mix(0) };
        let few = load.mix(&missing(20)).await.unwrap();
        assert_eq!((few.errors, few.operations()), (20, 0));
        assert!(few.first_error.is_some());
        let many = load.mix(&missing(21)).await.unwrap_err();
        assert!(matches!(many, LoadError::Failing { errors: 21, .. }), "{many}");
    }
}
