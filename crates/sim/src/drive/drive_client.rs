//! A client of a drive: it runs random ops in a bucket of its own, and compares each result with the model.

use super::bucket_model::{BucketModel, VersionModel, describe};
use super::observe::{KnownBytes, ObserveError, object_key, observe_bucket, read_body};
use super::target::StorageTarget;
use crate::Report;
use crate::trace::Trace;
use bytes::Bytes;
use futures_util::FutureExt as _;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;
use store::{
    Attributes, Buckets, CopyOptions, Deleted, ETag, Entropy, Object, ObjectKey, ObjectRef, ObjectStore,
    Precondition, PutOptions, Removal, StoreError, Tags, Versioning,
};

const KEYS: [&str; 7] = ["a", "a/b", "a/c", "b", "d/e/f", "d/g", "z\u{1}"];
pub(super) const SETTINGS: [&str; 2] = ["cors", "policy"];

/// An open reader, and the bytes that it must return.
type Reader = (Object, Bytes);

pub(super) struct DriveClient {
    pub(super) bucket: String,
    pub(super) entropy: Entropy,
    trace: Trace,
    /// The possible states of the bucket. Only the first is without the effect of changes in flight.
    pub(super) models: Vec<BucketModel>,
    pub(super) readers: Vec<Reader>,
    /// The last serial number; it makes the bytes of each object unique.
    last_serial: u64,
    /// Maximum length of an object, in bytes.
    object_bytes_max: u64,
    /// Whether device failures are currently injected.
    pub(super) is_faulty: bool,
    /// Whether the bucket is in a pool. A pool completes a call even if its future is dropped, and a rename there is not atomic.
    pub(super) is_pooled: bool,
    pub(super) steps: u64,
    pub(super) report: Report,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// The call succeeded, or there was nothing to do.
    Done,
    /// The call failed with the expected error.
    Refused,
    /// The future of the call was dropped.
    Dropped,
    /// The device or its power failed.
    DeviceDown,
}

pub(super) type CallResult = Result<CallOutcome, String>;

impl DriveClient {
    pub(super) fn new(number: u64, seed: u64, object_bytes_max: u64, trace: Trace) -> Self {
        Self {
            bucket: format!("bucket-{number}"),
            entropy: Entropy::new(seed),
            trace,
            models: vec![BucketModel::default()],
            readers: Vec::new(),
            last_serial: number << 32,
            object_bytes_max,
            is_faulty: false,
            is_pooled: false,
            steps: 0,
            report: Report::default(),
        }
    }

    pub(super) fn model(&self) -> &BucketModel {
        &self.models[0]
    }

    pub(super) fn trace_line(&self, line: impl AsRef<str>) {
        self.trace.push(format!("{}: {}", self.bucket, line.as_ref()));
    }

    pub(super) fn fresh_bytes(&mut self) -> Bytes {
        let len = match self.entropy.below(12) {
            0 => 0,
            1..=5 => 1 + self.entropy.below(300),
            6 => 4000 + self.entropy.below(300),
            7 => 65_400 + self.entropy.below(400),
            8 => 130_900 + self.entropy.below(400),
            9 | 10 => 1 + self.entropy.below(self.object_bytes_max / 8),
            _ => 1 + self.entropy.below(self.object_bytes_max),
        };
        self.last_serial += 1;
        let mut bytes = Vec::with_capacity(len as usize + 8);
        let mut word = self.last_serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while (bytes.len() as u64) < len {
            bytes.extend(word.to_le_bytes());
            word = word.wrapping_add(0x1234_5678_9abc_def1);
        }
        bytes.truncate(len as usize);
        bytes.into()
    }

    pub(super) fn random_key(&self) -> &'static str {
        KEYS[self.entropy.below(KEYS.len() as u64) as usize]
    }

    /// Returns a key that exists in most cases.
    pub(super) fn likely_key(&self) -> String {
        let keys: Vec<&str> = self.model().keys.keys().map(|key| &**key).collect();
        match keys.len() as u64 {
            0 => self.random_key().into(),
            _ if self.entropy.below(8) == 0 => self.random_key().into(),
            count => keys[self.entropy.below(count) as usize].into(),
        }
    }

    pub(super) fn small_map(&self) -> BTreeMap<String, String> {
        let count = self.entropy.below(3);
        (0..count).map(|n| (format!("k{n}"), format!("v{}", self.entropy.below(9)))).collect()
    }

    /// Draws a precondition, and returns whether it holds.
    pub(super) fn precondition(&self, key: &str) -> (Precondition, bool) {
        let current = self.model().current(key);
        let precondition = match self.entropy.below(8) {
            0 => Precondition::Absent,
            1 => Precondition::Matches(ETag::new("another")),
            2 | 3 => match current.and_then(|current| current.etag.clone()) {
                Some(etag) => Precondition::Matches(etag),
                None => Precondition::Absent,
            },
            _ => Precondition::None,
        };
        let holds = precondition.holds(current.and_then(|current| current.etag.as_ref()));
        (precondition, holds)
    }

    /// Makes a call and compares its outcome with the expected one: the model after it, or an error of this kind.
    pub(super) async fn call<T>(
        &mut self,
        what: String,
        call: impl Future<Output = store::Result<T>>,
        expected: Result<BucketModel, &'static str>,
        learn: impl FnOnce(&mut BucketModel, T),
    ) -> CallResult {
        let expected = expected.map(|after| self.models.push(after));
        self.steps += 1;
        self.report.count("ops");
        let polls = if !self.is_pooled && self.entropy.below(12) == 0 {
            Some(1 + self.entropy.below(6))
        } else {
            None
        };
        let Some(outcome) = poll_at_most(polls, call).await else {
            self.trace_line(format!("{what}: dropped"));
            self.report.count("dropped futures");
            return Ok(CallOutcome::Dropped);
        };
        self.trace_line(format!(
            "{what}: {}",
            outcome.as_ref().map_or_else(ToString::to_string, |_| "done".into())
        ));
        match (outcome, expected) {
            (Ok(value), Ok(())) => {
                self.models.drain(..self.models.len() - 1);
                learn(&mut self.models[0], value);
            }
            (Ok(_), Err(error_kind)) => {
                return Err(format!("{what} succeeded and must fail with the error '{error_kind}'"));
            }
            (Err(StoreError::Full(_)), _) if self.frees_space(&what) => {
                return Err(format!("a full drive refused {what}"));
            }
            (Err(StoreError::Full(_)), _) => {
                self.report.count("writes refused by a full drive");
                self.models.truncate(1);
                return Ok(CallOutcome::Refused);
            }
            (Err(error), _) if error_kind(&error) == "device" => {
                if !self.is_faulty {
                    return Err(format!("{what} failed without an injected fault: {error}"));
                }
                return Ok(CallOutcome::DeviceDown);
            }
            (Err(error), Err(expected)) if error_kind(&error) == expected => {
                self.report.count("expected errors");
                self.models.truncate(1);
                return Ok(CallOutcome::Refused);
            }
            (Err(error), _) => return Err(format!("{what}: {error}")),
        }
        Ok(CallOutcome::Done)
    }

    /// Whether a call frees space, so that even a full drive must accept it. A delete marker takes space.
    fn frees_space(&self, what: &str) -> bool {
        let deletes = what.starts_with("delete ") && self.model().versioning == Versioning::Never;
        deletes || ["remove ", "abort ", "unset "].iter().any(|begin| what.starts_with(begin))
    }

    pub(super) async fn run_ops(&mut self, drive: &impl StorageTarget, ops: u64) -> CallResult {
        for _ in 0..ops {
            if self.run_op(drive).await? == CallOutcome::DeviceDown
                || self.resolve_uncertain(drive).await? == CallOutcome::DeviceDown
            {
                return Ok(CallOutcome::DeviceDown);
            }
            if self.entropy.below(4) == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(CallOutcome::Done)
    }

    /// Finds out by an observation which of the possible states is true, if that is not known.
    pub(super) async fn resolve_uncertain(&mut self, drive: &impl StorageTarget) -> CallResult {
        let is_known = self.models.len() == 1 && !self.model().has_unknown();
        if is_known { Ok(CallOutcome::Done) } else { self.compare_known(drive).await }
    }

    /// Compares the bucket with the model. Most bytes that were read or stored in this session are not read again.
    pub(super) async fn compare_known(&mut self, drive: &impl StorageTarget) -> CallResult {
        let version = self.models.iter().flat_map(|model| model.keys.values()).flat_map(|version| &**version);
        let known = version.filter_map(|version| Some((version.etag.clone()?, version.bytes.clone()?)));
        let known = known.collect();
        self.compare_with(drive, &known).await
    }

    /// Compares the bucket with the model, and reads all bytes.
    pub(super) async fn compare(&mut self, drive: &impl StorageTarget) -> CallResult {
        self.compare_with(drive, &KnownBytes::new()).await
    }

    async fn compare_with(&mut self, drive: &impl StorageTarget, known: &KnownBytes) -> CallResult {
        let seen = match observe_bucket(drive, &self.bucket, &SETTINGS, &self.entropy, known).await {
            Ok(seen) => seen,
            Err(ObserveError::Store(error)) if self.is_faulty && error_kind(&error) == "device" => {
                return Ok(CallOutcome::DeviceDown);
            }
            Err(ObserveError::Store(error)) => {
                return Err(format!("cannot observe {}: {error}", self.bucket));
            }
            Err(ObserveError::Inconsistent(what)) => return Err(format!("{}: {what}", self.bucket)),
        };
        self.report.count("bucket comparisons");
        match self.models.iter().rposition(|model| model.allows(&seen)) {
            Some(at) => self.models = vec![self.models.swap_remove(at).adopt(seen)],
            None => {
                let models: Vec<String> = self.models.iter().map(describe).collect();
                return Err(format!(
                    "{} is\n  {}\nand must be\n  {}",
                    self.bucket,
                    describe(&seen),
                    models.join("\nor\n  ")
                ));
            }
        }
        Ok(CallOutcome::Done)
    }

    /// Compares a bucket after corruption. Readable data must be correct; the last change may be lost.
    pub(super) async fn compare_corrupted(
        &self,
        drive: &impl StorageTarget,
        before: &Self,
    ) -> Result<bool, String> {
        match observe_bucket(drive, &self.bucket, &SETTINGS, &self.entropy, &KnownBytes::new()).await {
            Ok(seen) => {
                let models = self.models.iter().chain(&before.models);
                match models.into_iter().any(|model| model.allows(&seen)) {
                    true => Ok(true),
                    false => Err(format!(
                        "after corruption {} is\n  {}\nand must be\n  {}",
                        self.bucket,
                        describe(&seen),
                        describe(self.model())
                    )),
                }
            }
            Err(ObserveError::Store(_)) => Ok(false),
            Err(ObserveError::Inconsistent(what)) => Err(format!("after corruption {}: {what}", self.bucket)),
        }
    }

    pub(super) fn snapshot(&self) -> Self {
        Self {
            bucket: self.bucket.clone(),
            entropy: Entropy::new(0),
            trace: self.trace.clone(),
            models: self.models.clone(),
            readers: Vec::new(),
            report: Report::default(),
            ..*self
        }
    }

    /// Drops the readers of a drive that is closed.
    pub(super) fn drop_readers(&mut self) {
        self.readers.clear();
    }

    /// Stores objects until the drive is full.
    pub(super) async fn fill(&mut self, drive: &impl StorageTarget) -> Result<(), String> {
        if !self.model().exists {
            self.create_bucket(drive).await?;
            self.resolve_uncertain(drive).await?;
        }
        if !self.model().exists {
            return Ok(());
        }
        let store = Buckets::open(drive, &self.bucket).await.map_err(|error| format!("open: {error}"))?;
        let len = 1 + self.entropy.below([300, 100_000, 400_000, 2_000_000][self.entropy.below(4) as usize]);
        for n in 0..400 {
            self.last_serial += 1;
            let (key, bytes) = (format!("fill/{n}"), Bytes::from(vec![self.last_serial as u8; len as usize]));
            match store.put(&object_key(&key), bytes.clone().into(), PutOptions::default()).await {
                Ok(put) => {
                    self.models[0].put(&key, Some(bytes), BTreeMap::new(), Tags::new());
                    self.models[0].learn(&key, put);
                }
                Err(StoreError::Full(_)) => {
                    self.trace_line(format!("full after {n} of {len} bytes"));
                    self.report.count("full drives");
                    break;
                }
                Err(error) => {
                    return Err(format!("filling the drive failed at object {n} of {len} bytes: {error}"));
                }
            }
        }
        self.compare_known(drive).await.map(drop)
    }

    /// Deletes all objects and the bucket, even on a full drive.
    pub(super) async fn delete_all(&mut self, drive: &impl StorageTarget) -> Result<(), String> {
        if !self.model().exists {
            return Ok(());
        }
        let error =
            |what: &'static str| move |error: StoreError| format!("deleting everything, {what}: {error}");
        let store = Buckets::open(drive, &self.bucket).await.map_err(error("open"))?;
        let (versions, uploads) =
            (store.versions().ok_or("no versions")?, store.uploads().ok_or("no uploads")?);
        for (id, upload) in &self.models[0].uploads {
            let id = id.as_deref().unwrap_or_default();
            uploads.abort(&object_key(&upload.key), id).await.map_err(error("abort"))?;
        }
        for (key, version) in &self.models[0].keys {
            for version in version.iter().rev() {
                let id = version.id.as_deref().unwrap_or_default();
                versions.remove(&object_key(key), id, Removal::default()).await.map_err(error("remove"))?;
                maintain_all(drive).await?;
            }
        }
        Buckets::delete(drive, &self.bucket).await.map_err(error("the bucket"))?;
        self.models = vec![BucketModel::default()];
        Ok(())
    }

    async fn run_op(&mut self, drive: &impl StorageTarget) -> CallResult {
        if !self.model().exists {
            return self.create_bucket(drive).await;
        }
        let store = match Buckets::open(drive, &self.bucket).await {
            Err(error) if self.is_faulty && error_kind(&error) == "device" => {
                return Ok(CallOutcome::DeviceDown);
            }
            opened => opened.map_err(|error| format!("open: {error}"))?,
        };
        match self.entropy.below(40) {
            0..=11 => self.put(&*store).await,
            12..=15 => self.delete(&*store).await,
            16..=18 => self.copy(&*store).await,
            19..=20 if !self.is_pooled => self.rename(&*store).await,
            19..=20 => self.copy(&*store).await,
            21..=22 => self.set_tags(&*store).await,
            23..=24 => self.multipart(drive, &*store).await,
            25..=29 => self.upload(&*store).await,
            30 => self.set_versioning(&*store).await,
            31..=32 => self.remove_version(&*store).await,
            33..=34 => self.read(&*store).await,
            35 => self.continue_reading().await,
            36 => self.change_setting(&*store).await,
            37 => self.race(&*store).await,
            38 => self.remove_bucket(drive, &*store).await,
            _ => self.read_during_change(&*store).await,
        }
    }

    async fn create_bucket(&mut self, drive: &impl StorageTarget) -> CallResult {
        let after = BucketModel { exists: true, ..BucketModel::default() };
        let bucket = self.bucket.clone();
        self.call("create bucket".into(), async move { drive.create(&bucket).await }, Ok(after), |_, ()| ())
            .await
    }

    /// Removes the bucket, if it is empty with a concurrent put in half of the cases: at most one of both may succeed.
    async fn remove_bucket(&mut self, drive: &impl StorageTarget, store: &dyn ObjectStore) -> CallResult {
        let bucket = self.bucket.clone();
        if self.entropy.below(2) == 0 || !self.model().is_empty() {
            let expected = if self.model().is_empty() { Ok(BucketModel::default()) } else { Err("state") };
            return self.call("remove bucket".into(), drive.delete(&bucket), expected, |_, ()| ()).await;
        }
        let (bytes, key) = (self.fresh_bytes(), self.random_key());
        let object = object_key(key);
        let mut stored = self.model().clone();
        stored.put(key, Some(bytes.clone()), BTreeMap::new(), Tags::new());
        self.models.extend([BucketModel::default(), stored]);
        let put = store.put(&object, bytes.into(), PutOptions::default()).map(|put| put.map(drop)).boxed();
        let both = futures_util::future::join(drive.delete(&bucket), put).await;
        self.trace_line(format!("remove bucket while {key} is put: {both:?}"));
        if let (Ok(()), Ok(())) = both {
            return Err("a bucket was removed while an object was put into it, and both succeeded".into());
        }
        let failed = [both.0.err(), both.1.err()];
        let is_down = failed.iter().flatten().any(|error| error_kind(error) == "device");
        if is_down && !self.is_faulty {
            return Err(format!("failed without an injected fault: {failed:?}"));
        }
        Ok(if is_down { CallOutcome::DeviceDown } else { CallOutcome::Done })
    }

    pub(super) async fn put(&mut self, store: &dyn ObjectStore) -> CallResult {
        self.put_to(store, self.random_key()).await
    }

    pub(super) async fn put_to(&mut self, store: &dyn ObjectStore, key: &str) -> CallResult {
        let bytes = self.fresh_bytes();
        let (precondition, holds) = self.precondition(key);
        let (user, tags) = (self.small_map(), self.small_map());
        let mut after = self.model().clone();
        after.put(key, Some(bytes.clone()), user.clone(), tags.clone());
        let what = format!("put {key} {} bytes {precondition:?}", bytes.len());
        let attributes = Attributes { user, ..Attributes::default() };
        let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
        let expected = if holds { Ok(after) } else { Err("condition") };
        let object = object_key(key);
        let call = match self.entropy.below(3) {
            0 => self.write_stream(store, &object, bytes, options).boxed(),
            _ => store.put(&object, bytes.into(), options).boxed(),
        };
        self.call(what, call, expected, |after, put| after.learn(key, put)).await
    }

    /// Puts bytes by a streaming writer. The announced length is right, wrong, or missing.
    fn write_stream<'a>(
        &mut self,
        store: &'a dyn ObjectStore,
        key: &'a ObjectKey,
        bytes: Bytes,
        options: PutOptions,
    ) -> impl Future<Output = store::Result<ObjectRef>> + 'a {
        let piece_bytes = 1 + self.entropy.below(100_000) as usize;
        let len = bytes.len() as u64;
        let said = [Some(len), Some(len), None, Some(len / 3), Some(len + 100_000)];
        let said = said[self.entropy.below(said.len() as u64) as usize];
        async move {
            let mut writer = store
                .writer(key, said)
                .await?
                .ok_or_else(|| StoreError::Unsupported("streaming writes".into()))?;
            for at in (0..bytes.len()).step_by(piece_bytes) {
                writer.write(bytes.slice(at..bytes.len().min(at + piece_bytes))).await?;
            }
            writer.finish(options).await
        }
    }

    pub(super) async fn delete(&mut self, store: &dyn ObjectStore) -> CallResult {
        let key = self.likely_key();
        let (precondition, holds) = self.precondition(&key);
        let mut after = self.model().clone();
        after.delete(&key);
        let expected = if holds { Ok(after) } else { Err("condition") };
        let what = format!("delete {key} {precondition:?}");
        let (object, versions) = (object_key(&key), store.versions());
        let versions = versions.ok_or("no versions")?;
        let learn = |after: &mut BucketModel, deleted: Deleted| {
            if let Some(version) = after.newest_mut(&key) {
                version.id = deleted.version;
            }
        };
        self.call(what, versions.mark(&object, precondition), expected, learn).await
    }

    /// Returns an existing object and its model.
    pub(super) fn object(&self) -> Option<(ObjectRef, VersionModel)> {
        let key = self.likely_key();
        let version = self.model().current(&key)?.clone();
        Some((ObjectRef::new(object_key(&key), version.etag.clone()?), version))
    }

    async fn copy(&mut self, store: &dyn ObjectStore) -> CallResult {
        let Some((from, version)) = self.object() else { return Ok(CallOutcome::Done) };
        let to = self.random_key();
        let (precondition, holds) = self.precondition(to);
        let mut after = self.model().clone();
        after.put(to, version.bytes.clone(), version.user.clone(), version.tags.clone());
        let expected = match (from.key == object_key(to), holds) {
            (true, _) => Err("invalid"),
            (_, false) => Err("condition"),
            _ => Ok(after),
        };
        let what = format!("copy {:?} to {to} {precondition:?}", from.key);
        let options = CopyOptions { precondition, ..CopyOptions::default() };
        let object = object_key(to);
        self.call(what, store.copy(&from, &object, options), expected, |after, put| after.learn(to, put))
            .await
    }

    async fn rename(&mut self, store: &dyn ObjectStore) -> CallResult {
        let Some((from, version)) = self.object() else { return Ok(CallOutcome::Done) };
        let to = self.random_key();
        let (precondition, holds) = self.precondition(to);
        let mut after = self.model().clone();
        after.put(to, version.bytes.clone(), version.user.clone(), version.tags.clone());
        after.delete(&super::observe::key_text(&from.key));
        let expected = match (from.key == object_key(to), holds) {
            (true, _) => Err("invalid"),
            (_, false) => Err("condition"),
            _ => Ok(after),
        };
        let what = format!("rename {:?} to {to} {precondition:?}", from.key);
        let object = object_key(to);
        self.call(what, store.rename(&from, &object, precondition), expected, |_, ()| ()).await
    }

    async fn set_tags(&mut self, store: &dyn ObjectStore) -> CallResult {
        let (key, tags) = (self.likely_key(), self.small_map());
        let mut after = self.model().clone();
        let expected = match after.newest_mut(&key).filter(|version| version.bytes.is_some()) {
            Some(version) => {
                version.tags = tags.clone();
                Ok(after)
            }
            None => Err("missing"),
        };
        let object = object_key(&key);
        self.call(format!("tag {key}"), store.set_tags(&object, tags), expected, |_, ()| ()).await
    }

    pub(super) async fn continue_reading(&mut self) -> CallResult {
        let Some((object, expected)) = self.readers.pop() else { return Ok(CallOutcome::Done) };
        let read = read_body(object).await;
        self.trace_line(format!("a reader finished: {:?}", read.as_ref().map(Bytes::len)));
        self.report.count("reads");
        self.check_read(read, &expected)
    }

    fn check_read(&self, read: store::Result<Bytes>, expected: &Bytes) -> CallResult {
        match read {
            Ok(bytes) if bytes == expected => Ok(CallOutcome::Done),
            Ok(bytes) => Err(format!(
                "a read returned {} bytes that are not the expected {}",
                bytes.len(),
                expected.len()
            )),
            Err(error) if self.is_faulty && error_kind(&error) == "device" => Ok(CallOutcome::DeviceDown),
            Err(error) => Err(format!("a read failed: {error}")),
        }
    }
}

/// Runs the maintenance that is due, as `run_maintenance` does in the background.
async fn maintain_all(place: &impl StorageTarget) -> Result<(), String> {
    for drive in place.drives() {
        match drive.maintain().await {
            Ok(()) | Err(drive::Error::Full) => {}
            Err(error) => return Err(format!("maintenance: {error}")),
        }
    }
    Ok(())
}

/// Polls a future at most this many times, and then drops it. Returns `None` if it was dropped.
async fn poll_at_most<T>(polls: Option<u64>, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let mut left = polls;
    std::future::poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => match &mut left {
            Some(0) => Poll::Ready(None),
            Some(left) => {
                *left -= 1;
                Poll::Pending
            }
            None => Poll::Pending,
        },
    })
    .await
}

/// Returns the kind of an error.
pub(super) fn error_kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::NotFound(_) => "missing",
        StoreError::PreconditionFailed(_) => "condition",
        StoreError::Invalid(_) => "invalid",
        StoreError::NoSuchBucket(_) => "no bucket",
        StoreError::BucketState { .. } => "state",
        StoreError::Full(_) => "full",
        StoreError::Unavailable(_) | StoreError::Corrupt(_) => "device",
        _ => "other",
    }
}
