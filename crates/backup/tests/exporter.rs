//! The exporter and restorations, step by step.

use crate::fixture::{Volume, rows};
use backup::{About, Cause, Choice, Error, Exporter, Keys, Lineage, Listing, Parts, Restored, Settings};
use meta::{Engine, Ino, Kind, MemoryEngine, Op};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Fault, Faults, Faulty, Operation, Rule};
use store::{Clock, ObjectStore, SystemClock, Timestamp};

const LINEAGE: Lineage = Lineage(1);

struct World {
    faults: Faults,
    store: Arc<dyn ObjectStore>,
    volume: Volume,
}

impl World {
    fn new() -> Self {
        let faults = Faults::new();
        let store = Arc::new(Faulty::new(MemoryStore::new(Arc::new(SystemClock)), faults.clone()));
        Self { faults, store, volume: Volume::new() }
    }

    async fn open(&self, holder: u64, has_all_names: bool) -> backup::Result<Exporter> {
        self.open_lineage(LINEAGE, holder, has_all_names).await
    }

    async fn open_lineage(
        &self,
        lineage: Lineage,
        holder: u64,
        has_all_names: bool,
    ) -> backup::Result<Exporter> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let parts = Parts { store: self.store.clone(), engine: self.volume.engine.clone(), clock };
        let settings = Settings {
            keys: keys(),
            lineage,
            holder,
            about: About::default(),
            snapshot_interval: Duration::from_secs(3600),
            has_all_names,
        };
        Exporter::open(parts, settings, false).await
    }

    async fn pass(&self, exporter: &mut Exporter, cause: Cause) -> backup::Result<bool> {
        let Some(pass) = exporter.begin(cause).await? else { return Ok(false) };
        exporter.export(pass, |_| {}).await?;
        Ok(true)
    }

    async fn restore(&self) -> backup::Result<(Restored, Arc<MemoryEngine>)> {
        self.restore_choice(Choice::default()).await
    }

    async fn restore_choice(&self, choice: Choice) -> backup::Result<(Restored, Arc<MemoryEngine>)> {
        let made: Mutex<Option<Arc<MemoryEngine>>> = Mutex::default();
        let mut make = || {
            let engine = Arc::new(MemoryEngine::default());
            *made.lock().unwrap() = Some(engine.clone());
            Ok(engine as Arc<dyn Engine>)
        };
        let (restored, _) = backup::restore(self.store.as_ref(), &keys(), choice, &mut make, |_| {}).await?;
        Ok((restored, made.into_inner().unwrap().unwrap()))
    }
}

fn keys() -> Keys {
    Keys::new(b".tenon/metadata/".to_vec())
}

#[tokio::test]
async fn a_snapshot_and_the_log_after_it_are_restored() {
    let world = World::new();
    world.volume.fill();
    let mut exporter = world.open(1, true).await.unwrap();
    assert!(world.pass(&mut exporter, Cause::Interval).await.unwrap());
    assert!(!world.pass(&mut exporter, Cause::Interval).await.unwrap(), "nothing has changed");
    let before = world.restore().await.unwrap().0;
    assert_eq!((before.ops, before.problems), (0, Vec::<String>::new()));
    world.volume.create(Ino::ROOT, b"later", Kind::File);
    assert!(world.pass(&mut exporter, Cause::Interval).await.unwrap());
    let (after, engine) = world.restore().await.unwrap();
    assert!(after.ops > 0 && after.moment > before.moment);
    assert_eq!(rows(engine.as_ref()), rows(world.volume.engine.as_ref()));
    // The end of a mount takes a snapshot, unless the newest one is current.
    assert!(world.pass(&mut exporter, Cause::End).await.unwrap());
    assert!(!world.pass(&mut exporter, Cause::End).await.unwrap());
    assert_eq!(world.restore().await.unwrap().0.ops, 0);
}

/// A regression test: only the lineage with the newest snapshot of all was examined, so that no state before that lineage began could be
/// restored.
#[tokio::test]
async fn a_state_of_an_older_lineage_is_restored_by_its_time() {
    let world = World::new();
    world.volume.fill();
    world.pass(&mut world.open(1, true).await.unwrap(), Cause::Interval).await.unwrap();
    let listing = Listing::read(world.store.as_ref(), &keys(), LINEAGE).await.unwrap();
    let stored_at = *listing.snapshot_times().last().unwrap();
    let old = rows(world.volume.engine.as_ref());
    world.volume.create(Ino::ROOT, b"later", Kind::File);
    let mut newer = world.open_lineage(Lineage(2), 1, true).await.unwrap();
    world.pass(&mut newer, Cause::Interval).await.unwrap();
    assert_eq!(world.restore().await.unwrap().0.lineage, Lineage(2));
    let choice = Choice { before: Some(stored_at), ..Choice::default() };
    let (restored, engine) = world.restore_choice(choice).await.unwrap();
    assert_eq!((restored.lineage, rows(engine.as_ref())), (LINEAGE, old));
}

/// A mount that is opened again continues without a snapshot.
#[tokio::test]
async fn a_new_mount_continues_the_epoch() {
    let world = World::new();
    world.volume.fill();
    let mut exporter = world.open(1, true).await.unwrap();
    world.pass(&mut exporter, Cause::Interval).await.unwrap();
    let mut exporter = world.open(1, true).await.unwrap();
    assert_eq!(exporter.status().generation, 2);
    world.volume.create(Ino::ROOT, b"later", Kind::File);
    world.pass(&mut exporter, Cause::Interval).await.unwrap();
    let listing = Listing::read(world.store.as_ref(), &keys(), LINEAGE).await.unwrap();
    assert_eq!(listing.snapshot_times().len(), 1);
    assert_eq!(rows(world.restore().await.unwrap().1.as_ref()), rows(world.volume.engine.as_ref()));
}

/// Names that were learned from the bucket are no reason for a backup of a volume by path.
#[tokio::test]
async fn observations_cause_no_backup() {
    let world = World::new();
    let mut exporter = world.open(1, false).await.unwrap();
    world.volume.names.commit(&crate::fixture::context(9), &Op::AwaitExport { ino: Ino::ROOT }).unwrap();
    assert!(!world.pass(&mut exporter, Cause::Interval).await.unwrap());
    assert!(matches!(world.restore().await, Err(Error::NoBackup(_))));
    world.volume.create(Ino::ROOT, b"new", Kind::File);
    assert!(world.pass(&mut exporter, Cause::Interval).await.unwrap());
    assert_eq!(rows(world.restore().await.unwrap().1.as_ref()), rows(world.volume.engine.as_ref()));
}

#[tokio::test]
async fn a_holder_that_was_replaced_stores_nothing() {
    let world = World::new();
    world.volume.fill();
    let mut exporter = world.open(1, true).await.unwrap();
    world.pass(&mut exporter, Cause::Interval).await.unwrap();
    backup::take_over(world.store.as_ref(), &keys(), LINEAGE, 2, Timestamp(5)).await.unwrap();
    world.volume.create(Ino::ROOT, b"later", Kind::File);
    let refused = world.pass(&mut exporter, Cause::Interval).await;
    assert!(matches!(refused, Err(Error::Superseded { number: 2, taken_at: Timestamp(5) })), "{refused:?}");
    assert!(matches!(world.open(1, true).await, Err(Error::Superseded { .. })));
    let checked = backup::check_holder(world.store.as_ref(), &keys(), LINEAGE, 1).await;
    assert!(matches!(checked, Err(Error::Superseded { .. })));
    backup::check_holder(world.store.as_ref(), &keys(), LINEAGE, 2).await.unwrap();
}

/// A crash at every call of the store, before and after it takes effect: the backup can be restored all the time, and the next mount
/// completes it.
#[tokio::test]
async fn a_crash_at_any_call_loses_nothing() {
    for fault in [Fault::unavailable(), Fault::lost_reply()] {
        for call in 0.. {
            let world = World::new();
            world.volume.fill();
            let mut exporter = world.open(1, true).await.unwrap();
            world.pass(&mut exporter, Cause::Interval).await.unwrap();
            let stored = rows(world.volume.engine.as_ref());
            drop(exporter);
            world.volume.create(Ino::ROOT, b"later", Kind::File);
            let newest = rows(world.volume.engine.as_ref());
            world.faults.add(Rule::new(fault).after(call));
            let crashed = async {
                let mut exporter = world.open(1, true).await?;
                world.pass(&mut exporter, Cause::End).await
            };
            let is_over = crashed.await.is_ok();
            world.faults.clear();
            let restored = rows(world.restore().await.unwrap().1.as_ref());
            assert!(restored == stored || restored == newest, "call {call}");
            let mut exporter = world.open(1, true).await.unwrap();
            world.pass(&mut exporter, Cause::End).await.unwrap();
            assert_eq!(rows(world.restore().await.unwrap().1.as_ref()), newest, "call {call}");
            let struck: u64 =
                Operation::ALL.into_iter().map(|operation| world.faults.struck(operation)).sum();
            if is_over && struck == 0 {
                assert!(call > 8, "a pass makes more than {call} calls");
                break;
            }
        }
    }
}
