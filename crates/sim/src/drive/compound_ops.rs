//! Ops of a client in several steps or with several concurrent calls: uploads, versions, readers, races.

use super::bucket_model::{BucketModel, PartModel, UploadModel};
use super::drive_client::{CallOutcome, CallResult, DriveClient, SETTINGS, error_kind};
use super::observe::{key_text, object_key, read_body};
use super::target::StorageTarget;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use std::collections::BTreeMap;
use store::{
    Attributes, CompleteOptions, Deleted, GetOptions, ObjectRef, ObjectStore, Precondition, PutOptions,
    Removal, StoreError, Tags, Versioning,
};

/// Maximum number of uploads in progress in a bucket.
const UPLOADS_MAX: usize = 2;

impl DriveClient {
    /// Stores an object by a multipart writer with one part of new bytes or of another object. Several parts would need 5 MiB each, and
    /// are tested by uploads.
    pub(super) async fn multipart(
        &mut self,
        drive: &impl StorageTarget,
        store: &dyn ObjectStore,
    ) -> CallResult {
        let (key, user, tags) = (self.random_key(), self.small_map(), self.small_map());
        let attributes = Attributes { user: user.clone(), ..Attributes::default() };
        let upload = store.multipart(&object_key(key), attributes, tags.clone()).await;
        let upload = match upload {
            Ok(upload) => upload,
            Err(error) if self.is_faulty && error_kind(&error) == "device" => {
                return Ok(CallOutcome::DeviceDown);
            }
            Err(error) => return Err(format!("multipart: {error}")),
        };
        let part = self.range_of_object();
        let unchanged = self.model().clone();
        let (bytes, outcome) = match part {
            Some((from, range, bytes)) => {
                let what = format!("copy a part of {} bytes to {key}", bytes.len());
                let copy = upload.copy_part(1, &from, range);
                (bytes, self.call(what, copy, Ok(unchanged), |_, ()| ()).await?)
            }
            None => {
                let bytes = self.fresh_bytes();
                let what = format!("put a part of {} bytes to {key}", bytes.len());
                let put = upload.put_part(1, bytes.clone().into());
                (bytes, self.call(what, put, Ok(unchanged), |_, ()| ()).await?)
            }
        };
        self.models.truncate(1);
        if outcome != CallOutcome::Done || self.entropy.below(4) == 0 {
            let aborts = self.entropy.below(2) == 0;
            let aborted = if aborts { upload.abort().await } else { Ok(()) };
            return aborted.map(|()| outcome).map_err(|error| format!("abort: {error}"));
        }
        // Repeat a completion whose result was not received. In the meantime other ops may replace the object.
        for _ in 0..3 {
            let mut after = self.model().clone();
            after.put(key, Some(bytes.clone()), user.clone(), tags.clone());
            let complete = upload.complete(Precondition::None);
            let outcome = self
                .call(format!("complete {key}"), complete, Ok(after), |after, put| after.learn(key, put))
                .await?;
            if outcome != CallOutcome::Dropped
                || self.resolve_uncertain(drive).await? == CallOutcome::DeviceDown
            {
                return Ok(outcome);
            }
            for _ in 0..self.entropy.below(4) {
                let done = if self.entropy.below(2) == 0 {
                    self.put(store).await?
                } else {
                    self.delete(store).await?
                };
                if done == CallOutcome::DeviceDown
                    || self.resolve_uncertain(drive).await? == CallOutcome::DeviceDown
                {
                    return Ok(CallOutcome::DeviceDown);
                }
            }
        }
        Ok(CallOutcome::Done)
    }

    /// Returns a range of an existing object, and its bytes.
    fn range_of_object(&self) -> Option<(ObjectRef, std::ops::Range<u64>, Bytes)> {
        let (from, version) = self.object()?;
        let all = version.bytes.filter(|bytes| !bytes.is_empty() && self.entropy.below(2) == 0)?;
        let start = self.entropy.below(all.len() as u64);
        let end = start + 1 + self.entropy.below(all.len() as u64 - start);
        Some((from, start..end, all.slice(start as usize..end as usize)))
    }

    pub(super) async fn upload(&mut self, store: &dyn ObjectStore) -> CallResult {
        let known: Vec<String> = self.model().uploads.keys().flatten().cloned().collect();
        if known.is_empty() || (known.len() < UPLOADS_MAX && self.entropy.below(4) == 0) {
            return self.begin(store).await;
        }
        let id = &known[self.entropy.below(known.len() as u64) as usize];
        match self.entropy.below(10) {
            0 => self.abort(store, id).await,
            1 | 2 => self.complete(store, id).await,
            _ => self.put_part(store, id).await,
        }
    }

    async fn begin(&mut self, store: &dyn ObjectStore) -> CallResult {
        let (key, user, tags) = (self.random_key(), self.small_map(), self.small_map());
        let mut after = self.model().clone();
        let upload =
            UploadModel { key: key.into(), user: user.clone(), tags: tags.clone(), parts: BTreeMap::new() };
        after.uploads.insert(None, upload);
        let uploads = store.uploads().ok_or("no uploads")?;
        let attributes = Attributes { user, ..Attributes::default() };
        let learn = |after: &mut BucketModel, id: String| {
            let upload = after.uploads.remove(&None);
            upload.map(|upload| after.uploads.insert(Some(id), upload));
        };
        self.call(format!("begin {key}"), uploads.begin(&object_key(key), attributes, tags), Ok(after), learn)
            .await
    }

    fn upload_model(&self, id: &str) -> Result<UploadModel, String> {
        self.model()
            .uploads
            .get(&Some(id.to_owned()))
            .cloned()
            .ok_or_else(|| format!("the model has no upload {id}"))
    }

    async fn put_part(&mut self, store: &dyn ObjectStore, id: &str) -> CallResult {
        let (UploadModel { key, parts, .. }, number) =
            (self.upload_model(id)?, 1 + self.entropy.below(4) as u32);
        let mut bytes = self.fresh_bytes();
        if parts.get(&number).is_some_and(|old| old.len() == bytes.len()) {
            // An observation distinguishes parts by length only, and a part whose future was dropped may be stored or not.
            bytes = [&bytes[..], b"+"].concat().into();
        }
        let is_broken = self.entropy.below(8) == 0;
        let mut after = self.model().clone();
        let part = PartModel::Stored(bytes.clone());
        after.uploads.get_mut(&Some(id.to_owned())).map(|upload| upload.parts.insert(number, part));
        let uploads = store.uploads().ok_or("no uploads")?;
        let mut pieces: Vec<store::Result<Bytes>> =
            bytes.chunks(100_000).map(|piece| Ok(bytes.slice_ref(piece))).collect();
        if is_broken {
            pieces.push(Err(StoreError::Invalid("the sender went away".into())));
        }
        let (what, key) = (format!("part {number} of {id}, {} bytes", bytes.len()), object_key(&key));
        let put = uploads.put_part(&key, id, number, stream::iter(pieces).boxed(), Box::new(|| Ok(None)));
        self.call(what, put, if is_broken { Err("invalid") } else { Ok(after) }, |_, _| ()).await
    }

    async fn complete(&mut self, store: &dyn ObjectStore, id: &str) -> CallResult {
        let UploadModel { key, user, tags, parts } = self.upload_model(id)?;
        let numbers: Vec<u32> = parts.keys().copied().filter(|_| self.entropy.below(4) > 0).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| parts[number].bytes()).copied().collect();
        let (precondition, holds) = self.precondition(&key);
        let mut after = self.model().clone();
        after.put(&key, Some(bytes.into()), user, tags);
        after.uploads.remove(&Some(id.to_owned()));
        let uploads = store.uploads().ok_or("no uploads")?;
        let what = format!("complete {id} of {key} by {numbers:?} {precondition:?}");
        let options = CompleteOptions { precondition, ..CompleteOptions::default() };
        let object = object_key(&key);
        let expected = if holds { Ok(after) } else { Err("condition") };
        let call = uploads.complete(&object, id, &numbers, options);
        self.call(what, call, expected, |after, put| after.learn(&key, put)).await
    }

    async fn abort(&mut self, store: &dyn ObjectStore, id: &str) -> CallResult {
        let key = object_key(&self.upload_model(id)?.key);
        let mut after = self.model().clone();
        after.uploads.remove(&Some(id.to_owned()));
        let uploads = store.uploads().ok_or("no uploads")?;
        self.call(format!("abort {id}"), uploads.abort(&key, id), Ok(after), |_, ()| ()).await
    }

    pub(super) async fn set_versioning(&mut self, store: &dyn ObjectStore) -> CallResult {
        let state = match self.entropy.below(3) {
            0 => Versioning::Suspended,
            _ => Versioning::Enabled,
        };
        let after = BucketModel { versioning: state, ..self.model().clone() };
        let versions = store.versions().ok_or("no versions")?;
        self.call(format!("versions {state:?}"), versions.set_state(state), Ok(after), |_, ()| ()).await
    }

    pub(super) async fn remove_version(&mut self, store: &dyn ObjectStore) -> CallResult {
        let key = self.likely_key();
        self.remove_version_of(store, &key).await
    }

    async fn remove_version_of(&mut self, store: &dyn ObjectStore, key: &str) -> CallResult {
        let count = self.model().keys.get(key).map_or(0, |version| version.len()) as u64;
        if count == 0 {
            return Ok(CallOutcome::Done);
        }
        let at = self.entropy.below(count) as usize;
        let Some(id) = self.model().keys[key][at].id.clone() else { return Ok(CallOutcome::Done) };
        let mut after = self.model().clone();
        after.remove(key, at);
        let versions = store.versions().ok_or("no versions")?;
        let (what, object) = (format!("remove {key} {id}"), object_key(key));
        let learn = |_: &mut BucketModel, _: Deleted| ();
        self.call(what, versions.remove(&object, &id, Removal::default()), Ok(after), learn).await
    }

    /// Begins to read an object or a range, and reads its body at once or later.
    pub(super) async fn read(&mut self, store: &dyn ObjectStore) -> CallResult {
        let Some((from, version)) = self.object() else { return Ok(CallOutcome::Done) };
        let all = version.bytes.unwrap_or_default();
        let len = all.len() as u64;
        let range = (len > 0 && self.entropy.below(2) == 0).then(|| {
            let start = self.entropy.below(len);
            start..start + 1 + self.entropy.below(len - start)
        });
        let expected = match &range {
            Some(range) => all.slice(range.start as usize..range.end as usize),
            None => all,
        };
        let options = GetOptions { range, if_match: Some(from.etag.clone()), version: None };
        match store.get(&from.key, options).await {
            Ok(object) => self.readers.push((object, expected)),
            Err(error) if self.is_faulty && error_kind(&error) == "device" => {
                return Ok(CallOutcome::DeviceDown);
            }
            Err(error) => return Err(format!("get {}: {error}", key_text(&from.key))),
        }
        if self.entropy.below(2) == 0 { Ok(CallOutcome::Done) } else { self.continue_reading().await }
    }

    /// Reads a version while its key is changed: the read must return that version, unless it was removed.
    pub(super) async fn read_during_change(&mut self, store: &dyn ObjectStore) -> CallResult {
        let mut named_versions: Vec<_> = self
            .model()
            .named_versions()
            .map(|(key, id, bytes)| (key.to_owned(), id.clone(), bytes.clone()))
            .collect();
        if named_versions.is_empty() {
            return self.continue_reading().await;
        }
        let (key, id, expected) =
            named_versions.swap_remove(self.entropy.below(named_versions.len() as u64) as usize);
        let (object, turns, change) = (object_key(&key), self.entropy.below(12), self.entropy.below(3));
        let reading = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            let options = GetOptions { version: Some(id.clone()), ..GetOptions::default() };
            read_body(store.get(&object, options).await?).await
        };
        let changing = async {
            match change {
                0 => self.remove_version_of(store, &key).await,
                _ => self.put_to(store, &key).await,
            }
        };
        let (seen, changed) = futures_util::future::join(reading, changing).await;
        let outcome = changed?;
        self.trace_line(format!("{key} {id} was read during a change: {:?}", seen.as_ref().map(Bytes::len)));
        self.report.count("version reads during changes");
        // The drives of a pool assign version ids independently.
        let has_it =
            |model: &BucketModel| model.named_versions().any(|(of, other, _)| *of == key && *other == id);
        let may_be_gone = self.models.iter().any(|model| !has_it(model));
        match seen {
            Ok(bytes) if bytes == expected => Ok(outcome),
            Err(error) if error_kind(&error) == "missing" && may_be_gone => Ok(outcome),
            Err(error) if error_kind(&error) == "device" && self.is_faulty => Ok(CallOutcome::DeviceDown),
            Ok(bytes) => Err(format!("a read of {key} {id} returned {} wrong bytes", bytes.len())),
            Err(error) => Err(format!("reading {key} {id}: {error}")),
        }
    }

    pub(super) async fn change_setting(&mut self, store: &dyn ObjectStore) -> CallResult {
        let name = SETTINGS[self.entropy.below(SETTINGS.len() as u64) as usize];
        let value = (self.entropy.below(3) > 0).then(|| Bytes::from(format!("{}", self.entropy.below(99))));
        let mut after = self.model().clone();
        after.settings.remove(name);
        value.iter().for_each(|value| drop(after.settings.insert(name.into(), value.clone())));
        let settings = store.settings().ok_or("no settings")?;
        let what = if value.is_some() { "set" } else { "unset" };
        self.call(format!("{what} {name}"), settings.set(name, value), Ok(after), |_, ()| ()).await
    }

    /// Puts two objects with `If-None-Match` to one key concurrently: exactly one must succeed.
    pub(super) async fn race(&mut self, store: &dyn ObjectStore) -> CallResult {
        let key = self.random_key();
        if self.model().current(key).is_some() {
            return Ok(CallOutcome::Done);
        }
        let options = || PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
        let both = [self.fresh_bytes(), self.fresh_bytes()];
        for bytes in &both {
            let mut after = self.models[0].clone();
            after.put(key, Some(bytes.clone()), BTreeMap::new(), Tags::new());
            self.models.push(after);
        }
        let (object, [one, other]) = (object_key(key), both);
        let puts = futures_util::future::join(
            store.put(&object, one.into(), options()),
            store.put(&object, other.into(), options()),
        );
        let outcomes: [store::Result<ObjectRef>; 2] = puts.await.into();
        self.trace_line(format!("two conditional puts of {key}: {outcomes:?}"));
        let mut stored = Vec::new();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(put) => stored.push((at + 1, put)),
                Err(error) if error_kind(&error) == "device" && self.is_faulty => {
                    return Ok(CallOutcome::DeviceDown);
                }
                Err(error) if ["condition", "full"].contains(&error_kind(&error)) => {}
                Err(error) => return Err(format!("put: {error}")),
            }
        }
        self.report.count("conditional put races");
        match stored.pop() {
            Some((at, put)) if stored.is_empty() => {
                let mut model = self.models.swap_remove(at);
                model.learn(key, put);
                self.models = vec![model];
            }
            Some(_) => return Err("two puts succeeded on the condition that the key is absent".into()),
            None => self.models.truncate(1),
        }
        Ok(CallOutcome::Done)
    }
}
