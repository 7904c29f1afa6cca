//! Tests of leases in a bucket: machines that share only the bucket exclude each other, even if one of them crashes.

use staging::leases::{LAPSE, Leases, left_over};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Fault, Faults, Faulty, Latency, Operation, Rule, Slow};
use store::{Entropy, ListRequest, ObjectStore, StoreError, SystemClock};
use tokio::time::{Instant, sleep, timeout};

const BEGINNING: &[u8] = b"p/.tenon/leases/";

/// A bucket, and the machines that share it.
struct World {
    memory: MemoryStore,
    faults: Faults,
    machines: AtomicUsize,
}

impl World {
    fn new() -> Self {
        let memory = MemoryStore::new(Arc::new(SystemClock));
        Self { memory, faults: Faults::new(), machines: AtomicUsize::new(0) }
    }

    fn machine(&self) -> Arc<Leases> {
        let seed = self.machines.fetch_add(1, Ordering::Relaxed) as u64;
        let slow = Slow::new(self.memory.clone(), Latency::new(Duration::from_millis(10)));
        let store = Arc::new(Faulty::new(slow, self.faults.clone()));
        Arc::new(Leases::new(store, BEGINNING.to_vec(), Arc::new(Entropy::new(seed))))
    }

    /// Returns the number of leases in the bucket.
    async fn count(&self) -> usize {
        let request = ListRequest { prefix: BEGINNING.into(), limit: 100, ..ListRequest::default() };
        self.memory.list(request).await.unwrap().entries.len()
    }
}

#[tokio::test(start_paused = true)]
async fn one_machine_at_a_time_has_a_lease_and_none_is_left() {
    let world = World::new();
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let machines = [world.machine(), world.machine(), world.machine()];
    let tasks = (0..30).map(|number| {
        let (leases, inside, done) = (machines[number % 3].clone(), inside.clone(), done.clone());
        tokio::spawn(async move {
            let work = async {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                sleep(Duration::from_millis(50)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            };
            // No deadlock, although the tasks name the leases in different orders.
            let texts: [&[u8]; 2] = if number % 2 == 0 { [b"one", b"other"] } else { [b"other", b"one"] };
            leases.holding(&texts, work).await.unwrap().unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!((done.load(Ordering::SeqCst), world.count().await), (30, 0));
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_crashed_machine_is_taken_over_when_it_has_lapsed() {
    let world = World::new();
    let (dead, other) = (world.machine(), world.machine());
    let died = timeout(Duration::from_secs(1), dead.holding(&[b"text"], std::future::pending::<()>()));
    assert!(died.await.is_err());
    assert_eq!(world.count().await, 1);
    let began = Instant::now();
    other.holding(&[b"other text"], async {}).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "other texts are free");
    other.holding(&[b"text"], async {}).await.unwrap().unwrap();
    assert!((LAPSE..LAPSE + Duration::from_secs(2)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(world.count().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_holder_keeps_the_lease_and_a_waiter_gives_up() {
    let world = World::new();
    let (busy, other) = (world.machine(), world.machine());
    let working = tokio::spawn(async move {
        busy.holding(&[b"text"], sleep(Duration::from_secs(90))).await.unwrap().unwrap();
    });
    sleep(Duration::from_millis(100)).await;
    assert!(other.holding(&[b"text"], async {}).await.unwrap().is_none());
    working.await.unwrap();
    assert_eq!(world.count().await, 0);
    other.holding(&[b"text"], async {}).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_harmless_before_the_lease_lapses() {
    let world = World::new();
    let (busy, other) = (world.machine(), world.machine());
    // The second renewal fails.
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).after(2).times(1));
    let working = tokio::spawn(async move {
        busy.holding(&[b"text"], sleep(Duration::from_secs(30))).await.unwrap().unwrap();
    });
    sleep(Duration::from_secs(7)).await;
    assert_eq!(world.faults.struck(Operation::Put), 1);
    let began = Instant::now();
    other.holding(&[b"text"], async {}).await.unwrap().unwrap();
    assert!(began.elapsed() > Duration::from_secs(22), "{:?}", began.elapsed());
    working.await.unwrap();
}

/// After a lost response, the next renewal finds another etag. The lease may belong to another machine, so its holder must
/// not delete it.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_renewal_response_was_lost_is_left_to_lapse() {
    let world = World::new();
    world.faults.add(Rule::new(Fault::lost_reply()).on(Operation::Put).after(1).times(1));
    world.machine().holding(&[b"text"], sleep(Duration::from_secs(10))).await.unwrap().unwrap();
    assert_eq!(world.count().await, 1);
    world.machine().holding(&[b"text"], async {}).await.unwrap().unwrap();
    assert_eq!(world.count().await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_releases_acquired_leases() {
    let world = World::new();
    world.faults.add(Rule::new(Fault::unavailable()).on(Operation::Put).after(1).times(1));
    let outcome = world.machine().holding(&[b"one", b"other"], async { panic!("not without both") }).await;
    let outcome: Result<Option<()>, _> = outcome;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))));
    assert_eq!(world.count().await, 0);
}

#[tokio::test(start_paused = true)]
async fn lapsed_leases_are_found_and_held_leases_are_not() {
    let world = World::new();
    let (dead, busy) = (world.machine(), world.machine());
    assert!(left_over(&world.memory, BEGINNING, false).await.unwrap().is_empty());
    let died = timeout(Duration::from_secs(1), dead.holding(&[b"left"], std::future::pending::<()>()));
    assert!(died.await.is_err());
    let working = tokio::spawn(async move {
        busy.holding(&[b"held"], sleep(Duration::from_secs(60))).await.unwrap().unwrap();
    });
    sleep(Duration::from_millis(100)).await;
    let found = left_over(&world.memory, BEGINNING, true).await.unwrap();
    assert_eq!((found.len(), world.count().await), (1, 2));
    assert_eq!(left_over(&world.memory, BEGINNING, false).await.unwrap(), found);
    assert_eq!(world.count().await, 1);
    working.await.unwrap();
    assert_eq!(world.count().await, 0);
}
