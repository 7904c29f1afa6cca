//! The backup world: ops, passes, crashes, replaced machines and damage.

use crate::namespace::ops::{OpSource, moment};
use crate::{Failure, Report, SimClock};
use backup::{About, Cause, Choice, Error, Exporter, Keys, Lineage, Parts, Restored, Settings};
use bytes::Bytes;
use meta::{Engine, LogCap, MemoryEngine, Namespace, OpContext, Origin, Reader, Seqno};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::memory::MemoryStore;
use store::wrap::{Fault, Faults, Faulty};
use store::{Clock, Entropy, ListRequest, ObjectKey, ObjectStore, Pages, PutOptions};

const STEPS: u64 = 60;
const LINEAGE: Lineage = Lineage(7);
const KEYS_BELOW: &[u8] = b"v/.tenon/metadata/";
/// Calls of a thousand that fail during a pass.
const FAULTS_PER_THOUSAND: u64 = 60;
/// A log so short that an exporter falls behind.
const SHORT_LOG: LogCap = LogCap { bytes_max: 1500, tail_ops: 0, run_bytes_max: 0 };

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A machine: its engine, its namespace and its exporter, which a crash drops.
struct Machine {
    number: u64,
    engine: Arc<MemoryEngine>,
    namespace: Namespace,
    exporter: Option<Exporter>,
}

/// The state of the world.
pub(super) struct BackupWorld {
    clock: Arc<SimClock>,
    entropy: Entropy,
    source: OpSource,
    store: Arc<dyn ObjectStore>,
    faults: Faults,
    cap: LogCap,
    has_all_names: bool,
    machine: Machine,
    /// An earlier machine that still runs.
    superseded: Option<Machine>,
    /// The state after every commit of every machine.
    history: BTreeMap<(u64, Seqno), Rows>,
    /// The newest state that was reported as stored.
    stored: Option<(u64, Seqno)>,
    report: Report,
}

impl BackupWorld {
    pub(super) fn run_seed(seed: u64) -> Result<Report, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let failure = |step, what| Failure { world: "backup", seed, step, what };
        let runtime = runtime.map_err(|error| failure(0, error.to_string()))?;
        runtime.block_on(async {
            let mut world = Self::new(seed).map_err(|what| failure(0, what))?;
            for step in 1..=STEPS {
                world.step().await.map_err(|what| failure(step, what))?;
            }
            world.end().await.map_err(|what| failure(STEPS + 1, what))?;
            Ok(world.report)
        })
    }

    fn new(seed: u64) -> Result<Self, String> {
        let (clock, entropy, faults) = (Arc::new(SimClock::default()), Entropy::new(seed), Faults::new());
        let store = Arc::new(Faulty::new(MemoryStore::new(clock.clone()), faults.clone()));
        let cap = if entropy.below(4) == 0 { SHORT_LOG } else { LogCap::default() };
        let machine = open_machine(0, Arc::new(MemoryEngine::new(cap)), &clock)?;
        let mut world = Self {
            source: OpSource::new(entropy.next_u64()),
            has_all_names: entropy.below(2) == 0,
            clock,
            entropy,
            store,
            faults,
            cap,
            machine,
            superseded: None,
            history: BTreeMap::new(),
            stored: None,
            report: Report::default(),
        };
        world.remember()?;
        Ok(world)
    }

    async fn step(&mut self) -> Result<(), String> {
        self.clock.advance(Duration::from_secs(self.entropy.below(1800)));
        match self.entropy.below(12) {
            0..=5 => self.commit_ops(),
            6..=8 => self.pass(Cause::Interval).await,
            9 => self.pass(Cause::End).await,
            10 => self.check_restoration().await.map(drop),
            _ => self.replace_machine().await,
        }
    }

    fn commit_ops(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.entropy.below(12) {
            let now = self.clock.advance(Duration::from_nanos(1));
            let op = self.source.op(&self.machine.engine, &self.machine.namespace, now);
            let context = OpContext { now, at: moment(now), uid: 1, gid: 2, origin: Origin::FrontEnd };
            if self.machine.namespace.commit(&context, &op).is_ok() {
                self.report.count("ops");
            }
            self.remember()?;
        }
        Ok(())
    }

    /// Copies the state of the engine to the history.
    fn remember(&mut self) -> Result<(), String> {
        let head = self.machine.engine.head();
        let rows = rows(self.machine.engine.as_ref())?;
        self.history.insert((self.machine.number, head), rows);
        Ok(())
    }

    /// Runs a pass with faults. A machine that crashes opens everything again at its next pass.
    async fn pass(&mut self, cause: Cause) -> Result<(), String> {
        let faults = vec![Fault::unavailable(), Fault::lost_reply()];
        let entropy = Arc::new(Entropy::new(self.entropy.next_u64()));
        self.faults.at_random(entropy, FAULTS_PER_THOUSAND, faults);
        let outcome = self.try_pass(cause).await;
        self.faults.clear();
        match outcome {
            Ok(()) => self.report.count("passes"),
            Err(Error::Store(_)) => {
                self.report.count("failed passes");
                if self.entropy.below(2) == 0 {
                    self.crash()?;
                }
            }
            Err(error) => return Err(format!("a pass failed: {error}")),
        }
        Ok(())
    }

    async fn try_pass(&mut self, cause: Cause) -> backup::Result<()> {
        if self.machine.exporter.is_none() {
            self.machine.exporter = Some(self.open_exporter(&self.machine).await?);
        }
        let Some(exporter) = &mut self.machine.exporter else { return Ok(()) };
        let Some(point) = exporter.begin(cause).await? else { return Ok(()) };
        let (stored, number) = (&mut self.stored, self.machine.number);
        exporter.export(point, |seqno| *stored = (*stored).max(Some((number, seqno)))).await
    }

    async fn open_exporter(&self, machine: &Machine) -> backup::Result<Exporter> {
        let parts =
            Parts { store: self.store.clone(), engine: machine.engine.clone(), clock: self.clock.clone() };
        let settings = Settings {
            keys: keys(),
            lineage: LINEAGE,
            holder: machine.number,
            about: About::default(),
            snapshot_interval: Duration::from_secs(3600),
            has_all_names: self.has_all_names,
        };
        Exporter::open(parts, settings, true).await
    }

    fn crash(&mut self) -> Result<(), String> {
        self.report.count("crashes");
        let engine = self.machine.engine.clone();
        self.machine = open_machine(self.machine.number, engine, &self.clock)?;
        self.remember()
    }

    /// Restores the newest backup, and compares it with the history.
    async fn check_restoration(&mut self) -> Result<Option<Arc<MemoryEngine>>, String> {
        let (restored, engine) = match self.restore().await {
            Err(Error::NoBackup(_)) if self.stored.is_none() => return Ok(None),
            restored => restored.map_err(|error| format!("the restoration failed: {error}"))?,
        };
        if !restored.problems.is_empty() {
            return Err(format!("the backup is damaged: {:?}", restored.problems));
        }
        let state = self.state_of(restored.seqno, &rows(engine.as_ref())?)?;
        if self.stored.is_some_and(|stored| state < stored) {
            return Err(format!(
                "the restored state {state:?} is older than the stored one, {:?}",
                self.stored
            ));
        }
        self.report.count("restorations");
        Ok(Some(engine))
    }

    async fn restore(&self) -> backup::Result<(Restored, Arc<MemoryEngine>)> {
        let made: Mutex<Option<Arc<MemoryEngine>>> = Mutex::default();
        let mut make = || {
            let engine = Arc::new(MemoryEngine::new(self.cap));
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine.clone());
            Ok(engine as Arc<dyn Engine>)
        };
        let (restored, _) =
            backup::restore(self.store.as_ref(), &keys(), Choice::default(), &mut make, |_| {}).await?;
        let engine = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        engine.map(|engine| (restored, engine)).ok_or_else(|| Error::NoBackup("no engine".into()))
    }

    /// Returns the newest machine that had these rows after this commit.
    fn state_of(&self, seqno: Seqno, rows: &Rows) -> Result<(u64, Seqno), String> {
        let machines = (0..=self.machine.number).rev();
        let mut had = machines.filter(|machine| self.history.get(&(*machine, seqno)) == Some(rows));
        had.next().map(|machine| (machine, seqno)).ok_or(format!("no machine had this state at {seqno:?}"))
    }

    /// Restores the backup on another machine, which takes over.
    async fn replace_machine(&mut self) -> Result<(), String> {
        let Some(engine) = self.check_restoration().await? else { return Ok(()) };
        self.check_superseded().await?;
        let number = self.machine.number + 1;
        let taken = backup::take_over(self.store.as_ref(), &keys(), LINEAGE, number, self.clock.now()).await;
        taken.map_err(|error| format!("the lineage cannot be taken over: {error}"))?;
        let next = open_machine(number, engine, &self.clock)?;
        self.superseded = Some(std::mem::replace(&mut self.machine, next));
        self.report.count("replaced machines");
        self.remember()?;
        self.check_superseded().await
    }

    /// Checks that a machine that was replaced stores nothing any longer.
    async fn check_superseded(&mut self) -> Result<(), String> {
        let Some(mut machine) = self.superseded.take() else { return Ok(()) };
        let outcome = match &mut machine.exporter {
            Some(exporter) => exporter.begin(Cause::Interval).await.map(drop),
            None => self.open_exporter(&machine).await.map(drop),
        };
        match outcome {
            Err(Error::Superseded { .. }) => Ok(()),
            other => Err(format!("the machine that was replaced goes on: {other:?}")),
        }
    }

    /// Damages one object: the verification finds it, and a restoration gives a state that existed.
    async fn end(&mut self) -> Result<(), String> {
        self.check_restoration().await?;
        let verified = self.verify().await?;
        if self.stored.is_some() && !verified.is_empty() {
            return Err(format!("a sound backup has problems: {verified:?}"));
        }
        let objects = self.objects().await?;
        if objects.is_empty() {
            return Ok(());
        }
        let key = &objects[self.entropy.below(objects.len() as u64) as usize];
        self.damage(key).await?;
        self.report.count("damaged objects");
        if self.stored.is_some() && self.verify().await?.is_empty() {
            return Err(format!("the damage of '{key}' goes unseen"));
        }
        match self.restore().await {
            Ok((restored, engine)) => {
                let state = self.state_of(restored.seqno, &rows(engine.as_ref())?)?;
                if self.stored.is_some_and(|stored| state < stored) && restored.problems.is_empty() {
                    return Err("an older state was restored without a word".into());
                }
                self.report.count(if restored.problems.is_empty() { "avoided damage" } else { "fallbacks" });
                Ok(())
            }
            Err(Error::NoBackup(_)) => Ok(()),
            Err(error) => Err(format!("the restoration of a damaged backup failed: {error}")),
        }
    }

    async fn verify(&self) -> Result<Vec<String>, String> {
        let verified = backup::verify(self.store.as_ref(), &keys(), LINEAGE).await;
        Ok(verified.map_err(|error| error.to_string())?.problems)
    }

    /// Returns the keys of the parts that carry data. Parts of incomplete snapshots do not count.
    async fn objects(&self) -> Result<Vec<ObjectKey>, String> {
        let request =
            ListRequest { prefix: Bytes::from_static(KEYS_BELOW), limit: 1000, ..ListRequest::default() };
        let entries =
            Pages::new(self.store.as_ref(), request).collect().await.map_err(|error| error.to_string())?;
        let keys: Vec<_> = entries.into_iter().filter_map(|entry| Some(entry.into_object()?.0.key)).collect();
        let text = |key: &ObjectKey| String::from_utf8_lossy(key.as_bytes()).into_owned();
        let manifests: Vec<_> = keys.iter().map(text).filter(|key| key.ends_with("manifest")).collect();
        let counts = |key: &ObjectKey| match text(key).rsplit_once('/') {
            Some((dir, name)) => {
                name.starts_with("log-")
                    || manifests.iter().any(|one| one.starts_with(dir) && dir.contains("snapshot-"))
            }
            None => false,
        };
        Ok(keys.into_iter().filter(counts).collect())
    }

    async fn damage(&self, key: &ObjectKey) -> Result<(), String> {
        let object = self.store.get(key, Default::default()).await.map_err(|error| error.to_string())?;
        let body: Vec<Bytes> = futures_util::TryStreamExt::try_collect(object.body)
            .await
            .map_err(|error: store::StoreError| error.to_string())?;
        let mut body = body.concat();
        let at = self.entropy.below(body.len() as u64) as usize;
        body[at] ^= 1 << self.entropy.below(8);
        let put = self.store.put(key, [Bytes::from(body)].into_iter().collect(), PutOptions::default()).await;
        put.map(drop).map_err(|error| error.to_string())
    }
}

fn keys() -> Keys {
    Keys::new(KEYS_BELOW.to_vec())
}

fn open_machine(number: u64, engine: Arc<MemoryEngine>, clock: &SimClock) -> Result<Machine, String> {
    let now = clock.now();
    let context = OpContext { now, at: moment(now), uid: 1, gid: 2, origin: Origin::Bookkeeping };
    let namespace = Namespace::new(engine.clone() as Arc<dyn Engine>, &context);
    Ok(Machine { number, engine, namespace: namespace.map_err(|error| error.to_string())?, exporter: None })
}

fn rows(engine: &MemoryEngine) -> Result<Rows, String> {
    let rows =
        engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).map_err(|error| error.to_string())?;
    Ok(rows.into_iter().map(|(key, found)| (key, found.value.to_vec())).collect())
}
