//! A client of the drive: it does what it likes in a bucket of its own, and knows what must come of it.

use super::bucket_model::{Kept, Model, told};
use super::observe::{Blind, Known, key_of, look, read};
use super::target::Place;
use crate::Report;
use crate::trace::Tale;
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

/// A reader that goes on while other things happen, and what it must read.
type Reader = (Object, Bytes);

pub(super) struct Client {
    pub(super) bucket: String,
    pub(super) entropy: Entropy,
    tale: Tale,
    /// What the bucket must hold: one of these, of which only the first is without what was in flight.
    pub(super) models: Vec<Model>,
    pub(super) readers: Vec<Reader>,
    /// What was stored last: no two objects have the same bytes.
    serial: u64,
    /// The longest object, in bytes.
    longest: u64,
    /// Whether the device may fail.
    pub(super) is_faulty: bool,
    /// Whether its bucket is one of a pool: a call is carried out to its end there though nobody waits for it, and a rename is no one
    /// change.
    pub(super) is_of_pool: bool,
    pub(super) steps: u64,
    pub(super) report: Report,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// It did what it was to do, or there was nothing to do.
    On,
    /// It was refused, as it must be.
    Refused,
    /// Nobody waited for its end.
    Dropped,
    /// The device failed, or its power.
    Down,
}

pub(super) type Step = Result<Going, String>;

impl Client {
    pub(super) fn new(number: u64, seed: u64, longest: u64, tale: Tale) -> Self {
        Self {
            bucket: format!("bucket-{number}"),
            entropy: Entropy::new(seed),
            tale,
            models: vec![Model::default()],
            readers: Vec::new(),
            serial: number << 32,
            longest,
            is_faulty: false,
            is_of_pool: false,
            steps: 0,
            report: Report::default(),
        }
    }

    pub(super) fn model(&self) -> &Model {
        &self.models[0]
    }

    pub(super) fn tell(&self, line: impl AsRef<str>) {
        self.tale.tell(format!("{}: {}", self.bucket, line.as_ref()));
    }

    pub(super) fn bytes(&mut self) -> Bytes {
        let len = match self.entropy.below(12) {
            0 => 0,
            1..=5 => 1 + self.entropy.below(300),
            6 => 4000 + self.entropy.below(300),
            7 => 65_400 + self.entropy.below(400),
            8 => 130_900 + self.entropy.below(400),
            9 | 10 => 1 + self.entropy.below(self.longest / 8),
            _ => 1 + self.entropy.below(self.longest),
        };
        self.serial += 1;
        let mut bytes = Vec::with_capacity(len as usize + 8);
        let mut word = self.serial.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while (bytes.len() as u64) < len {
            bytes.extend(word.to_le_bytes());
            word = word.wrapping_add(0x1234_5678_9abc_def1);
        }
        bytes.truncate(len as usize);
        bytes.into()
    }

    pub(super) fn key(&self) -> &'static str {
        KEYS[self.entropy.below(KEYS.len() as u64) as usize]
    }

    /// A key of which there is something, most of the time.
    pub(super) fn likely_key(&self) -> String {
        let keys: Vec<&str> = self.model().keys.keys().map(|key| &**key).collect();
        match keys.len() as u64 {
            0 => self.key().into(),
            _ if self.entropy.below(8) == 0 => self.key().into(),
            count => keys[self.entropy.below(count) as usize].into(),
        }
    }

    pub(super) fn small_map(&self) -> BTreeMap<String, String> {
        let count = self.entropy.below(3);
        (0..count).map(|n| (format!("k{n}"), format!("v{}", self.entropy.below(9)))).collect()
    }

    /// A precondition, and whether it holds.
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

    /// Calls, and compares what comes of it with what must: the model after it, or an error of this kind.
    pub(super) async fn call<T>(
        &mut self,
        what: String,
        call: impl Future<Output = store::Result<T>>,
        expected: Result<Model, &'static str>,
        learn: impl FnOnce(&mut Model, T),
    ) -> Step {
        let expected = expected.map(|after| self.models.push(after));
        self.steps += 1;
        self.report.count("ops");
        let polls = if !self.is_of_pool && self.entropy.below(12) == 0 {
            Some(1 + self.entropy.below(6))
        } else {
            None
        };
        let Some(outcome) = unless_dropped(polls, call).await else {
            self.tell(format!("{what}: dropped"));
            self.report.count("futures dropped");
            return Ok(Going::Dropped);
        };
        self.tell(format!(
            "{what}: {}",
            outcome.as_ref().map_or_else(ToString::to_string, |_| "done".into())
        ));
        match (outcome, expected) {
            (Ok(value), Ok(())) => {
                self.models.drain(..self.models.len() - 1);
                learn(&mut self.models[0], value);
            }
            (Ok(_), Err(kind)) => return Err(format!("{what} succeeded, where it is {kind}")),
            (Err(StoreError::Full(_)), _) if self.frees(&what) => {
                return Err(format!("{what} is refused by a full drive"));
            }
            (Err(StoreError::Full(_)), _) => {
                self.report.count("refusals of a full drive");
                self.models.truncate(1);
                return Ok(Going::Refused);
            }
            (Err(error), _) if kind(&error) == "device" => {
                if !self.is_faulty {
                    return Err(format!("{what} failed on a sound device: {error}"));
                }
                return Ok(Going::Down);
            }
            (Err(error), Err(expected)) if kind(&error) == expected => {
                self.report.count("refusals");
                self.models.truncate(1);
                return Ok(Going::Refused);
            }
            (Err(error), _) => return Err(format!("{what}: {error}")),
        }
        Ok(Going::On)
    }

    /// Whether it takes something away, which no drive is too full for. A mark takes some room.
    fn frees(&self, what: &str) -> bool {
        let deletes = what.starts_with("delete ") && self.model().versioning == Versioning::Never;
        deletes || ["remove ", "abort ", "unmake", "unset "].iter().any(|begin| what.starts_with(begin))
    }

    pub(super) async fn live(&mut self, drive: &impl Place, ops: u64) -> Step {
        for _ in 0..ops {
            if self.act(drive).await? == Going::Down || self.settle(drive).await? == Going::Down {
                return Ok(Going::Down);
            }
            if self.entropy.below(4) == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(Going::On)
    }

    /// Looks which of what can be is, if that is not known.
    pub(super) async fn settle(&mut self, drive: &impl Place) -> Step {
        let is_known = self.models.len() == 1 && !self.model().has_unknown();
        if is_known { Ok(Going::On) } else { self.glance(drive).await }
    }

    /// All that can be seen is what must be, but of what was read or stored in this life not all bytes are read again.
    pub(super) async fn glance(&mut self, drive: &impl Place) -> Step {
        let kept = self.models.iter().flat_map(|model| model.keys.values()).flat_map(|kept| &**kept);
        let known = kept.filter_map(|kept| Some((kept.etag.clone()?, kept.bytes.clone()?)));
        let known = known.collect();
        self.compare_beside(drive, &known).await
    }

    /// All that can be seen is what must be.
    pub(super) async fn compare(&mut self, drive: &impl Place) -> Step {
        self.compare_beside(drive, &Known::new()).await
    }

    async fn compare_beside(&mut self, drive: &impl Place, known: &Known) -> Step {
        let seen = match look(drive, &self.bucket, &SETTINGS, &self.entropy, known).await {
            Ok(seen) => seen,
            Err(Blind::Error(error)) if self.is_faulty && kind(&error) == "device" => return Ok(Going::Down),
            Err(Blind::Error(error)) => return Err(format!("{} cannot be seen: {error}", self.bucket)),
            Err(Blind::Wrong(what)) => return Err(format!("{}: {what}", self.bucket)),
        };
        self.report.count("looks");
        match self.models.iter().rposition(|model| model.allows(&seen)) {
            Some(at) => self.models = vec![self.models.swap_remove(at).adopting(seen)],
            None => {
                let models: Vec<String> = self.models.iter().map(told).collect();
                return Err(format!(
                    "{} is\n  {}\nand must be\n  {}",
                    self.bucket,
                    told(&seen),
                    models.join("\nor\n  ")
                ));
            }
        }
        Ok(Going::On)
    }

    /// After rot: whatever can be seen is what must be, where the last change may be lost.
    pub(super) async fn compare_rotten(&self, drive: &impl Place, before: &Self) -> Result<bool, String> {
        match look(drive, &self.bucket, &SETTINGS, &self.entropy, &Known::new()).await {
            Ok(seen) => {
                let models = self.models.iter().chain(&before.models);
                match models.into_iter().any(|model| model.allows(&seen)) {
                    true => Ok(true),
                    false => Err(format!(
                        "after rot {} is\n  {}\nand must be\n  {}",
                        self.bucket,
                        told(&seen),
                        told(self.model())
                    )),
                }
            }
            Err(Blind::Error(_)) => Ok(false),
            Err(Blind::Wrong(what)) => Err(format!("after rot {}: {what}", self.bucket)),
        }
    }

    pub(super) fn remembered(&self) -> Self {
        Self {
            bucket: self.bucket.clone(),
            entropy: Entropy::new(0),
            tale: self.tale.clone(),
            models: self.models.clone(),
            readers: Vec::new(),
            report: Report::default(),
            ..*self
        }
    }

    /// Readers end with the drive that they read from.
    pub(super) fn forget_readers(&mut self) {
        self.readers.clear();
    }

    /// Stores until the drive is full.
    pub(super) async fn fill(&mut self, drive: &impl Place) -> Result<(), String> {
        if !self.model().exists {
            self.make(drive).await?;
            self.settle(drive).await?;
        }
        if !self.model().exists {
            return Ok(());
        }
        let store = Buckets::open(drive, &self.bucket).await.map_err(|error| format!("open: {error}"))?;
        let len = 1 + self.entropy.below([300, 100_000, 400_000, 2_000_000][self.entropy.below(4) as usize]);
        for n in 0..400 {
            self.serial += 1;
            let (key, bytes) = (format!("fill/{n}"), Bytes::from(vec![self.serial as u8; len as usize]));
            match store.put(&key_of(&key), bytes.clone().into(), PutOptions::default()).await {
                Ok(put) => {
                    self.models[0].put(&key, Some(bytes), BTreeMap::new(), Tags::new());
                    self.models[0].learn(&key, put);
                }
                Err(StoreError::Full(_)) => {
                    self.tell(format!("full after {n} of {len} bytes"));
                    self.report.count("full drives");
                    break;
                }
                Err(error) => return Err(format!("filling with {n} of {len} bytes: {error}")),
            }
        }
        self.glance(drive).await.map(drop)
    }

    /// Deletes everything, be the drive as full as it may.
    pub(super) async fn leave(&mut self, drive: &impl Place) -> Result<(), String> {
        if !self.model().exists {
            return Ok(());
        }
        let error = |what: &'static str| move |error: StoreError| format!("leaving, {what}: {error}");
        let store = Buckets::open(drive, &self.bucket).await.map_err(error("open"))?;
        let (versions, uploads) =
            (store.versions().ok_or("no versions")?, store.uploads().ok_or("no uploads")?);
        for (id, begun) in &self.models[0].uploads {
            let id = id.as_deref().unwrap_or_default();
            uploads.abort(&key_of(&begun.key), id).await.map_err(error("abort"))?;
        }
        for (key, kept) in &self.models[0].keys {
            for kept in kept.iter().rev() {
                let id = kept.id.as_deref().unwrap_or_default();
                versions.remove(&key_of(key), id, Removal::default()).await.map_err(error("remove"))?;
                upkeep(drive).await?;
            }
        }
        Buckets::delete(drive, &self.bucket).await.map_err(error("the bucket"))?;
        self.models = vec![Model::default()];
        Ok(())
    }

    async fn act(&mut self, drive: &impl Place) -> Step {
        if !self.model().exists {
            return self.make(drive).await;
        }
        let store = match Buckets::open(drive, &self.bucket).await {
            Err(error) if self.is_faulty && kind(&error) == "device" => return Ok(Going::Down),
            opened => opened.map_err(|error| format!("open: {error}"))?,
        };
        match self.entropy.below(40) {
            0..=11 => self.put(&*store).await,
            12..=15 => self.delete(&*store).await,
            16..=18 => self.copy(&*store).await,
            19..=20 if !self.is_of_pool => self.rename(&*store).await,
            19..=20 => self.copy(&*store).await,
            21..=22 => self.set_tags(&*store).await,
            23..=24 => self.multipart(drive, &*store).await,
            25..=29 => self.upload(&*store).await,
            30 => self.set_versioning(&*store).await,
            31..=32 => self.remove_version(&*store).await,
            33..=34 => self.read(&*store).await,
            35 => self.go_on_reading().await,
            36 => self.set(&*store).await,
            37 => self.race(&*store).await,
            38 => self.unmake(drive, &*store).await,
            _ => self.read_meanwhile(&*store).await,
        }
    }

    async fn make(&mut self, drive: &impl Place) -> Step {
        let after = Model { exists: true, ..Model::default() };
        let bucket = self.bucket.clone();
        self.call("make".into(), async move { drive.create(&bucket).await }, Ok(after), |_, ()| ()).await
    }

    /// Removes the bucket, and stores something in it at the same time: one of both happens.
    async fn unmake(&mut self, drive: &impl Place, store: &dyn ObjectStore) -> Step {
        let bucket = self.bucket.clone();
        if self.entropy.below(2) == 0 || !self.model().is_empty() {
            let expected = if self.model().is_empty() { Ok(Model::default()) } else { Err("state") };
            return self.call("unmake".into(), drive.delete(&bucket), expected, |_, ()| ()).await;
        }
        let (bytes, key) = (self.bytes(), self.key());
        let object = key_of(key);
        let mut stored = self.model().clone();
        stored.put(key, Some(bytes.clone()), BTreeMap::new(), Tags::new());
        self.models.extend([Model::default(), stored]);
        let put = store.put(&object, bytes.into(), PutOptions::default()).map(|put| put.map(drop)).boxed();
        let both = futures_util::future::join(drive.delete(&bucket), put).await;
        self.tell(format!("unmake while {key} is put: {both:?}"));
        if let (Ok(()), Ok(())) = both {
            return Err("a bucket was removed while an object was put into it, and both succeeded".into());
        }
        let failed = [both.0.err(), both.1.err()];
        let is_down = failed.iter().flatten().any(|error| kind(error) == "device");
        if is_down && !self.is_faulty {
            return Err(format!("on a sound device: {failed:?}"));
        }
        Ok(if is_down { Going::Down } else { Going::On })
    }

    pub(super) async fn put(&mut self, store: &dyn ObjectStore) -> Step {
        self.put_to(store, self.key()).await
    }

    pub(super) async fn put_to(&mut self, store: &dyn ObjectStore, key: &str) -> Step {
        let bytes = self.bytes();
        let (precondition, holds) = self.precondition(key);
        let (user, tags) = (self.small_map(), self.small_map());
        let mut after = self.model().clone();
        after.put(key, Some(bytes.clone()), user.clone(), tags.clone());
        let what = format!("put {key} {} bytes {precondition:?}", bytes.len());
        let attributes = Attributes { user, ..Attributes::default() };
        let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
        let expected = if holds { Ok(after) } else { Err("condition") };
        let object = key_of(key);
        let call = match self.entropy.below(3) {
            0 => self.written(store, &object, bytes, options).boxed(),
            _ => store.put(&object, bytes.into(), options).boxed(),
        };
        self.call(what, call, expected, |after, put| after.learn(key, put)).await
    }

    /// Bytes that go to a store as they come; their length is said, or not, or is another.
    fn written<'a>(
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
                .ok_or_else(|| StoreError::Unsupported("bytes as they come".into()))?;
            for at in (0..bytes.len()).step_by(piece_bytes) {
                writer.write(bytes.slice(at..bytes.len().min(at + piece_bytes))).await?;
            }
            writer.finish(options).await
        }
    }

    pub(super) async fn delete(&mut self, store: &dyn ObjectStore) -> Step {
        let key = self.likely_key();
        let (precondition, holds) = self.precondition(&key);
        let mut after = self.model().clone();
        after.delete(&key);
        let expected = if holds { Ok(after) } else { Err("condition") };
        let what = format!("delete {key} {precondition:?}");
        let (object, versions) = (key_of(&key), store.versions());
        let versions = versions.ok_or("no versions")?;
        let learn = |after: &mut Model, deleted: Deleted| {
            if let Some(kept) = after.newest_mut(&key) {
                kept.id = deleted.version;
            }
        };
        self.call(what, versions.mark(&object, precondition), expected, learn).await
    }

    /// An object that is there, and what it must be.
    pub(super) fn object(&self) -> Option<(ObjectRef, Kept)> {
        let key = self.likely_key();
        let kept = self.model().current(&key)?.clone();
        Some((ObjectRef::new(key_of(&key), kept.etag.clone()?), kept))
    }

    async fn copy(&mut self, store: &dyn ObjectStore) -> Step {
        let Some((from, kept)) = self.object() else { return Ok(Going::On) };
        let to = self.key();
        let (precondition, holds) = self.precondition(to);
        let mut after = self.model().clone();
        after.put(to, kept.bytes.clone(), kept.user.clone(), kept.tags.clone());
        let expected = match (from.key == key_of(to), holds) {
            (true, _) => Err("invalid"),
            (_, false) => Err("condition"),
            _ => Ok(after),
        };
        let what = format!("copy {:?} to {to} {precondition:?}", from.key);
        let options = CopyOptions { precondition, ..CopyOptions::default() };
        let object = key_of(to);
        self.call(what, store.copy(&from, &object, options), expected, |after, put| after.learn(to, put))
            .await
    }

    async fn rename(&mut self, store: &dyn ObjectStore) -> Step {
        let Some((from, kept)) = self.object() else { return Ok(Going::On) };
        let to = self.key();
        let (precondition, holds) = self.precondition(to);
        let mut after = self.model().clone();
        after.put(to, kept.bytes.clone(), kept.user.clone(), kept.tags.clone());
        after.delete(&super::observe::text_of(&from.key));
        let expected = match (from.key == key_of(to), holds) {
            (true, _) => Err("invalid"),
            (_, false) => Err("condition"),
            _ => Ok(after),
        };
        let what = format!("rename {:?} to {to} {precondition:?}", from.key);
        let object = key_of(to);
        self.call(what, store.rename(&from, &object, precondition), expected, |_, ()| ()).await
    }

    async fn set_tags(&mut self, store: &dyn ObjectStore) -> Step {
        let (key, tags) = (self.likely_key(), self.small_map());
        let mut after = self.model().clone();
        let expected = match after.newest_mut(&key).filter(|kept| kept.bytes.is_some()) {
            Some(kept) => {
                kept.tags = tags.clone();
                Ok(after)
            }
            None => Err("missing"),
        };
        let object = key_of(&key);
        self.call(format!("tag {key}"), store.set_tags(&object, tags), expected, |_, ()| ()).await
    }

    pub(super) async fn go_on_reading(&mut self) -> Step {
        let Some((object, expected)) = self.readers.pop() else { return Ok(Going::On) };
        let read = read(object).await;
        self.tell(format!("a reader read on: {:?}", read.as_ref().map(Bytes::len)));
        self.report.count("reads");
        self.judge_read(read, &expected)
    }

    fn judge_read(&self, read: store::Result<Bytes>, expected: &Bytes) -> Step {
        match read {
            Ok(bytes) if bytes == expected => Ok(Going::On),
            Ok(bytes) => {
                Err(format!("{} bytes were read, and not the {} that are there", bytes.len(), expected.len()))
            }
            Err(error) if self.is_faulty && kind(&error) == "device" => Ok(Going::Down),
            Err(error) => Err(format!("reading: {error}")),
        }
    }
}

/// What `keep_up` would do now.
async fn upkeep(place: &impl Place) -> Result<(), String> {
    for drive in place.drives() {
        match drive.maintain().await {
            Ok(()) | Err(drive::Error::Full) => {}
            Err(error) => return Err(format!("upkeep: {error}")),
        }
    }
    Ok(())
}

/// Drops the call after so many polls, if it has not ended then.
async fn unless_dropped<T>(polls: Option<u64>, call: impl Future<Output = T>) -> Option<T> {
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

/// What an error is about.
pub(super) fn kind(error: &StoreError) -> &'static str {
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
