//! A client of the S3 endpoint: it runs one op after the other, and checks each result against the history.

use super::conditional_writes::Condition;
use super::key_history::{Actor, ChangeId, Content, Moment};
use super::quiescent_check::content_of;
use super::shared_state::{SharedState, describe_bytes, object_key};
use crate::files::machine::Mount;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::stream::{self, StreamExt as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Attributes, CompleteOptions, CopyOptions, ETag, GetOptions, ListEntry, ListRequest, ListedObject,
    ObjectMeta, ObjectRef, ObjectStore, Pages, Payload, Precondition, PutOptions, StoreError, Tags, Uploads,
};

/// A volume as a bucket.
type Objects = Arc<dyn ObjectStore>;

/// Returns the multipart uploads of a volume.
fn uploads(objects: &Objects) -> Result<&dyn Uploads, String> {
    objects.uploads().ok_or_else(|| "the volume has no multipart uploads".to_owned())
}

/// User metadata header with the stamp of the object's bytes.
const STAMP_HEADER: &str = "v";
/// Highest part number of an upload.
const PARTS: u64 = 2;
/// Minimum length of all parts but the last.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Prefixes of listings.
const PREFIXES: [&str; 5] = ["", "d", "d/", "d/f/", "e/"];
/// Maximum pause between two ops, in milliseconds.
const PAUSE_MS: u64 = 8;

/// An upload in progress. It survives remounts.
struct PendingUpload {
    key: String,
    id: String,
    parts: BTreeMap<u32, Bytes>,
    /// A completion was sent and may have taken effect.
    completion_tried: bool,
    /// A part is being sent. After a crash it is unknown which version of the part is stored.
    is_part_in_flight: bool,
}

pub(super) struct EndpointClient {
    name: String,
    shared: SharedState,
    /// The last seen tag of each key, and when it was seen.
    tags: BTreeMap<String, (ETag, Moment)>,
    upload: Option<PendingUpload>,
}

/// A change in flight.
struct Attempt<'t> {
    key: &'t str,
    since: Moment,
    precondition: Precondition,
    changes: Vec<ChangeId>,
}

impl EndpointClient {
    pub(super) fn new(number: u64, shared: SharedState) -> Self {
        Self { name: format!("c{number}"), shared, tags: BTreeMap::new(), upload: None }
    }

    pub(super) async fn run_ops(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        let objects = vfs::objects(&mount.fs, b"");
        // An object that waited in the write-back log has another tag once it is uploaded.
        self.tags.clear();
        for _ in 0..ops {
            tokio::time::sleep(Duration::from_millis(self.shared.below(PAUSE_MS))).await;
            self.shared.count_step();
            let outcome = self.run_op(mount, &objects).await;
            if mount.injector.has_crashed() {
                return std::future::pending().await;
            }
            outcome.map_err(|what| format!("{}: {what}", self.name))?;
        }
        Ok(())
    }

    /// Forgets the upload after a crash if its state is unknown.
    pub(super) fn recover(&mut self, loses_uploads: bool) {
        self.upload.take_if(|upload| loses_uploads || upload.is_part_in_flight);
    }

    /// Aborts the upload that is left at the end of the world.
    pub(super) async fn abort_upload(&mut self, mount: &Mount) -> Result<(), String> {
        let Some(PendingUpload { key, id, .. }) = self.upload.take() else { return Ok(()) };
        let objects = vfs::objects(&mount.fs, b"");
        match uploads(&objects)?.abort(&object_key(&key)?, &id).await {
            Err(error) if !matches!(error, StoreError::NotFound(_)) => {
                Err(format!("cannot abort an upload: {error}"))
            }
            _ => Ok(()),
        }
    }

    async fn run_op(&mut self, mount: &Mount, objects: &Objects) -> Result<(), String> {
        let key = self.shared.random_key();
        match self.shared.below(20) {
            0..=4 => self.put(mount, objects, &key).await,
            5..=8 => self.get(mount, objects, &key).await,
            9..=10 => self.delete(mount, objects, &key).await,
            11..=12 => self.copy(mount, objects, &key).await,
            13 => self.rename(mount, objects, &key).await,
            14..=15 => self.list(mount, objects).await,
            _ => self.upload(mount, objects, &key).await,
        }
    }

    fn trace_line(&self, what: String) {
        self.shared.trace_line(format!("{} {what}", self.name));
    }

    async fn put(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let (content, precondition) = (self.shared.fresh_bytes(), self.precondition(key));
        self.trace_line(format!("puts '{key}' {} if {precondition:?}", describe_bytes(&content)));
        let since = self.shared.now();
        let change = self.shared.begin_set(Actor::Endpoint, key, Some(content.clone()));
        self.shared.inner.borrow_mut().expected_headers.insert(content.clone(), header_of(&content));
        let options = PutOptions {
            precondition: precondition.clone(),
            attributes: expected_headers(&content),
            ..PutOptions::default()
        };
        let key_object = object_key(key)?;
        let put = objects.put(&key_object, Payload::from(content.clone()), options);
        let Some(put) = self.shared.unless_disconnected(put).await else { return Ok(()) };
        let attempt = Attempt { key, since, precondition, changes: vec![change] };
        self.check_outcome(mount, attempt, put, Some(content))
    }

    /// Records the outcome of a change in the history, and checks its result.
    fn check_outcome(
        &mut self,
        mount: &Mount,
        attempt: Attempt<'_>,
        outcome: store::Result<ObjectRef>,
        content: Content,
    ) -> Result<(), String> {
        if mount.injector.has_crashed() {
            return Ok(());
        }
        let Attempt { key, since, precondition, changes } = &attempt;
        match outcome {
            Ok(object) => {
                changes.iter().for_each(|id| self.shared.complete(*id, !self.shared.write_back));
                self.shared.count("object changes");
                if let Some(content) = &content {
                    self.record_tag(key, *since, &object.etag, content)?;
                }
                self.check_condition_held(&attempt)
            }
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_))
                if *precondition != Precondition::None =>
            {
                self.shared.count("failed preconditions");
                if self.shared.has_repeats {
                    // The first copy of a repeated call may have taken effect.
                    changes.iter().for_each(|id| self.shared.mark_uncertain(*id));
                    return Ok(());
                }
                changes.iter().for_each(|id| self.shared.mark_failed(*id));
                match self.may_not_hold(key, *since, precondition) {
                    true => Ok(()),
                    false => Err(format!("the change of '{key}' was refused although {precondition:?} held")),
                }
            }
            Err(error) => {
                changes.iter().for_each(|id| self.shared.mark_uncertain(*id));
                self.check_failure(mount, key, *since, &error)
            }
        }
    }

    fn record_tag(&mut self, key: &str, since: Moment, tag: &ETag, content: &Bytes) -> Result<(), String> {
        self.shared.check_tag(key, tag, content)?;
        self.tags.insert(key.into(), (tag.clone(), since));
        Ok(())
    }

    /// Checks that a failure has a cause: an injected fault or another writer's change.
    fn check_failure(
        &self,
        mount: &Mount,
        key: &str,
        since: Moment,
        error: &StoreError,
    ) -> Result<(), String> {
        self.trace_line(format!("fails at '{key}': {error}"));
        self.shared.count("failures");
        let is_changed = || {
            let by = [Actor::Files, Actor::Endpoint, Actor::Foreign];
            self.shared.inner.borrow().history.may_have_changed(key, &by, since)
        };
        // A foreign writer changed the source while the copy waited in the log.
        let is_taken = || self.shared.possible_contents(key, Actor::Endpoint, since).is_none();
        match error.is_retryable() && (mount.injector.fault_count() > 0 || is_changed()) || is_taken() {
            true => Ok(()),
            false => Err(format!("'{key}' failed without a cause: {error}")),
        }
    }

    fn check_condition_held(&self, attempt: &Attempt<'_>) -> Result<(), String> {
        let Attempt { key, since, precondition, changes } = attempt;
        let condition = match precondition {
            Precondition::None => return Ok(()),
            Precondition::Absent => Condition::Absent,
            Precondition::Matches(tag) => match self.shared.bytes_of_tag(key, tag) {
                Some(content) => Condition::Content(tag.clone(), content),
                None => return Ok(()),
            },
        };
        self.shared
            .check_content(key, Actor::Endpoint, *since, &condition.content())
            .map_err(|what| format!("a conditional change succeeded: {what}"))?;
        let now = self.shared.now();
        self.shared.conditional_writes.borrow_mut().record(key, condition, changes[0], (*since, now));
        Ok(())
    }

    fn may_not_hold(&self, key: &str, since: Moment, precondition: &Precondition) -> bool {
        match precondition {
            Precondition::None => false,
            Precondition::Absent => self.shared.may_exist(key, Actor::Endpoint, since),
            Precondition::Matches(tag) => {
                let by = [Actor::Files, Actor::Endpoint, Actor::Foreign];
                let learned = self.tags.get(key).filter(|(known, _)| known == tag).map_or(0, |(_, at)| *at);
                let (history, since) = (&self.shared.inner.borrow().history, learned.min(since));
                // By inode, the tag of a file that the mount wrote changes with its ctime (S183), as with the new name that it gets when a
                // directory of its name appears or goes.
                let may_be_renamed =
                    || !self.shared.by_path && history.may_have_changed_below(&format!("{key}/"), since);
                // With write-back, an object in the log is served until its upload finds that the foreign writer has changed the bucket's.
                let may_yield = || self.shared.write_back && history.may_have_changed_unnoticed(key, since);
                history.may_have_changed(key, &by, since) || may_be_renamed() || may_yield()
            }
        }
    }

    fn precondition(&self, key: &str) -> Precondition {
        match (self.shared.below(5), self.tags.get(key)) {
            (0, _) => Precondition::Absent,
            (1, Some((tag, _))) => Precondition::Matches(tag.clone()),
            _ => Precondition::None,
        }
    }

    async fn get(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let since = self.shared.now();
        let if_match = match self.precondition(key) {
            Precondition::Matches(tag) => Some(tag),
            _ => None,
        };
        let range = (self.shared.below(3) == 0).then(|| {
            let start = self.shared.below(1000);
            start..start + 1 + self.shared.below(1000)
        });
        self.trace_line(format!("gets '{key}' {range:?} if {if_match:?}"));
        let options = GetOptions { range: range.clone(), if_match: if_match.clone(), version: None };
        let got = async {
            let object = objects.get(&object_key(key).map_err(Err)?, options).await.map_err(Ok)?;
            let body = object.body.try_collect::<Vec<_>>().await.map_err(Ok)?.concat();
            Ok::<_, Result<StoreError, String>>((object.meta, Bytes::from(body)))
        };
        let Some(outcome) = self.shared.unless_disconnected(got).await else { return Ok(()) };
        if mount.injector.has_crashed() {
            return Ok(());
        }
        match (outcome, range) {
            (Ok((meta, body)), None) => self.check_read(key, since, &meta, body),
            (Ok((meta, body)), Some(range)) => self.check_range_read(key, since, &meta, &body, range.start),
            (Err(Err(what)), _) => Err(what),
            (Err(Ok(StoreError::NotFound(_))), _) => {
                self.shared.check_content(key, Actor::Endpoint, since, &None)
            }
            (Err(Ok(StoreError::InvalidRange(_))), Some(range)) => {
                let may = self.shared.possible_contents(key, Actor::Endpoint, since);
                let is_short = |content: &Content| {
                    content.as_ref().is_some_and(|content| content.len() as u64 <= range.start)
                };
                match may.is_none_or(|may| may.iter().any(is_short)) {
                    true => Ok(()),
                    false => Err(format!("{range:?} was refused although it begins within '{key}'")),
                }
            }
            (Err(Ok(StoreError::PreconditionFailed(_))), _) if if_match.is_some() => {
                let precondition = if_match.map_or(Precondition::None, Precondition::Matches);
                match self.may_not_hold(key, since, &precondition) {
                    true => Ok(()),
                    false => Err(format!("{precondition:?} of '{key}' failed without a cause")),
                }
            }
            (Err(Ok(error)), _) => self.check_failure(mount, key, since, &error),
        }
    }

    fn check_read(&mut self, key: &str, since: Moment, meta: &ObjectMeta, body: Bytes) -> Result<(), String> {
        self.shared.count("objects read");
        let length = body.len() as u64;
        if meta.size_bytes != length {
            return Err(format!("'{key}' has the size {} and a body of {length} bytes", meta.size_bytes));
        }
        self.shared.check_content(key, Actor::Endpoint, since, &Some(body.clone()))?;
        self.check_header(key, meta, &body)?;
        self.record_tag(key, since, &meta.object.etag, &body)
    }

    fn check_range_read(
        &self,
        key: &str,
        since: Moment,
        meta: &ObjectMeta,
        body: &Bytes,
        start: u64,
    ) -> Result<(), String> {
        let Some(may) = self.shared.possible_contents(key, Actor::Endpoint, since) else { return Ok(()) };
        let is_part = |content: &Content| {
            let Some(content) = content else { return false };
            let (start, end) = (start as usize, start as usize + body.len());
            content.len() as u64 == meta.size_bytes && content.get(start..end) == Some(&body[..])
        };
        match may.iter().any(is_part) {
            true => Ok(()),
            false => Err(format!(
                "'{key}' from {start} is {}, which is part of no possible content",
                describe_bytes(body)
            )),
        }
    }

    /// Checks that bytes stored through the endpoint have the header that they were stored with.
    fn check_header(&self, key: &str, meta: &ObjectMeta, body: &Bytes) -> Result<(), String> {
        let inner = self.shared.inner.borrow();
        let Some(wanted) = inner.expected_headers.get(body).filter(|_| !body.is_empty()) else {
            return Ok(());
        };
        match meta.attributes.user.get(STAMP_HEADER) {
            Some(seen) if seen == wanted => Ok(()),
            seen => Err(format!("'{key}' has the header {seen:?} and must have {wanted}")),
        }
    }

    async fn delete(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let precondition = match self.precondition(key) {
            Precondition::Absent => Precondition::None,
            precondition => precondition,
        };
        self.trace_line(format!("deletes '{key}' if {precondition:?}"));
        let since = self.shared.now();
        let change = self.shared.begin_set(Actor::Endpoint, key, None);
        let key_object = object_key(key)?;
        let deleted = objects.delete(&key_object, precondition.clone());
        let Some(deleted) = self.shared.unless_disconnected(deleted).await else { return Ok(()) };
        if mount.injector.has_crashed() {
            return Ok(());
        }
        if deleted.is_ok() {
            // By inode a deletion is in the metadata only, which is synced a moment later.
            self.shared.complete(change, self.shared.by_path && !self.shared.write_back);
            self.shared.count("object changes");
            let attempt = Attempt { key, since, precondition, changes: vec![change] };
            return self.check_condition_held(&attempt);
        }
        let attempt = Attempt { key, since, precondition, changes: vec![change] };
        let nothing = deleted.map(|()| ObjectRef::new(attempt.key_of(), ETag::new("")));
        self.check_outcome(mount, attempt, nothing, None)
    }

    /// Reads the whole source of a copy or rename.
    async fn read_source(
        &mut self,
        mount: &Mount,
        objects: &Objects,
        key: &str,
    ) -> Result<Option<(ObjectMeta, Bytes)>, String> {
        let since = self.shared.now();
        let found = content_of(objects, &object_key(key)?).await;
        if mount.injector.has_crashed() {
            return Ok(None);
        }
        match found {
            Ok((meta, content)) => {
                self.check_read(key, since, &meta, content.clone())?;
                Ok(Some((meta, content)))
            }
            Err(StoreError::NotFound(_)) => {
                self.shared.check_content(key, Actor::Endpoint, since, &None)?;
                Ok(None)
            }
            Err(error) => self.check_failure(mount, key, since, &error).map(|()| None),
        }
    }

    async fn copy(&mut self, mount: &Mount, objects: &Objects, from: &str) -> Result<(), String> {
        let to = self.shared.random_key();
        let Some((meta, content)) = self.read_source(mount, objects, from).await? else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        let precondition = self.precondition(&to);
        self.trace_line(format!("copies '{from}' to '{to}' if {precondition:?}"));
        let since = self.shared.now();
        let change = self.shared.begin_set(Actor::Endpoint, &to, Some(content.clone()));
        self.shared.inner.borrow_mut().history.set_source(change, from);
        let options = CopyOptions { precondition: precondition.clone(), ..CopyOptions::default() };
        let there = object_key(&to)?;
        let copied = objects.copy(&meta.object, &there, options);
        let Some(copied) = self.shared.unless_disconnected(copied).await else { return Ok(()) };
        let attempt = Attempt { key: &to, since, precondition, changes: vec![change] };
        if self.source_changed(from, &copied, since) {
            attempt.changes.iter().for_each(|id| self.shared.mark_uncertain(*id));
            return Ok(());
        }
        self.check_outcome(mount, attempt, copied, Some(content))
    }

    /// Whether a copy or rename failed because its source has changed since it was read.
    fn source_changed<T>(&self, from: &str, outcome: &store::Result<T>, since: Moment) -> bool {
        let by = [Actor::Files, Actor::Endpoint, Actor::Foreign];
        // The source was read up to a minute before the attempt.
        let may_have_changed =
            || self.shared.inner.borrow().history.may_have_changed(from, &by, since - 60_000_000_000);
        match outcome {
            Err(StoreError::NotFound(key) | StoreError::PreconditionFailed(key)) => {
                key.as_bytes() == from.as_bytes() && may_have_changed()
            }
            // The source consists of several objects at the moment.
            Err(StoreError::Unsupported(_)) => self.shared.by_path,
            _ => false,
        }
    }

    async fn rename(&mut self, mount: &Mount, objects: &Objects, from: &str) -> Result<(), String> {
        let to = self.shared.random_key();
        let Some((meta, content)) = self.read_source(mount, objects, from).await? else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        self.trace_line(format!("renames '{from}' to '{to}'"));
        let since = self.shared.now();
        self.shared.forget_moved_open(from, &to, since);
        let there = self.shared.begin_set(Actor::Endpoint, &to, Some(content));
        self.shared.inner.borrow_mut().history.set_source(there, from);
        let gone = self.shared.begin_set(Actor::Endpoint, from, None);
        let new_key = object_key(&to)?;
        let renamed = objects.rename(&meta.object, &new_key, Precondition::None);
        let Some(renamed) = self.shared.unless_disconnected(renamed).await else { return Ok(()) };
        if mount.injector.has_crashed() {
            return Ok(());
        }
        self.shared.forget_moved_open(from, &to, since);
        let is_below = matches!(renamed, Err(StoreError::Unsupported(_)));
        let attempt =
            Attempt { key: &to, since, precondition: Precondition::None, changes: vec![there, gone] };
        if is_below || self.source_changed(from, &renamed, since) {
            attempt.changes.iter().for_each(|id| self.shared.mark_uncertain(*id));
            return Ok(());
        }
        let moved = renamed.map(|()| ObjectRef::new(attempt.key_of(), ETag::new("")));
        self.check_outcome(mount, attempt, moved, None)
    }

    async fn list(&mut self, mount: &Mount, objects: &Objects) -> Result<(), String> {
        let prefix = PREFIXES[self.shared.below(PREFIXES.len() as u64) as usize];
        let limit = 1 + self.shared.below(5) as usize;
        self.trace_line(format!("lists '{prefix}', {limit} at a time"));
        let since = self.shared.now();
        let request = ListRequest { prefix: prefix.into(), limit, ..ListRequest::default() };
        let listed = Pages::new(objects, request).collect();
        let Some(listed) = self.shared.unless_disconnected(listed).await else { return Ok(()) };
        if mount.injector.has_crashed() {
            return Ok(());
        }
        match listed {
            Ok(entries) => self.check_listing(prefix, &entries, since),
            Err(error) => self.check_failure(mount, prefix, since, &error),
        }
    }

    fn check_listing(&self, prefix: &str, entries: &[ListEntry], since: Moment) -> Result<(), String> {
        self.shared.count("listings");
        let mut listed = BTreeMap::new();
        for entry in entries {
            let ListEntry::Object(ListedObject { object, .. }) = entry else { continue };
            listed.insert(String::from_utf8_lossy(object.key.as_bytes()).into_owned(), object.etag.clone());
        }
        let known = self.shared.inner.borrow().history.keys();
        let is_in_deltas =
            |key: &str| self.shared.inner.borrow().in_deltas.get(key).is_some_and(|until| *until >= since);
        for key in known.iter().filter(|key| key.starts_with(prefix)) {
            match listed.get(key) {
                None => self.shared.check_content(key, Actor::Endpoint, since, &None),
                Some(tag) => match self.shared.bytes_of_tag(key, tag) {
                    Some(_) if is_in_deltas(key) => Ok(()),
                    Some(content) => self.shared.check_content(key, Actor::Endpoint, since, &Some(content)),
                    None if self.shared.may_exist(key, Actor::Endpoint, since) => Ok(()),
                    None => Err(format!("'{key}' is listed although it cannot exist")),
                },
            }
            .map_err(|what| format!("listing '{prefix}': {what}"))?;
        }
        Ok(())
    }

    async fn upload(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let Some(upload) = &self.upload else { return self.begin_upload(mount, objects, key).await };
        let (key, completion_tried) = (upload.key.clone(), upload.completion_tried);
        match self.shared.below(6) {
            0..=2 if !completion_tried => self.put_part(mount, objects, &key).await,
            3 if !completion_tried => {
                self.trace_line(format!("aborts '{key}'"));
                let Some(upload) = self.upload.take() else { return Ok(()) };
                let since = self.shared.now();
                match uploads(objects)?.abort(&object_key(&key)?, &upload.id).await {
                    Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
                    Err(_) if mount.injector.has_crashed() => Ok(()),
                    Err(error) => self.check_failure(mount, &key, since, &error),
                }
            }
            _ => self.complete(mount, objects, &key).await,
        }
    }

    async fn begin_upload(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        self.trace_line(format!("begins '{key}'"));
        let since = self.shared.now();
        let id = uploads(objects)?.begin(&object_key(key)?, Attributes::default(), Tags::new()).await;
        if mount.injector.has_crashed() {
            return Ok(());
        }
        match id {
            Ok(id) => {
                self.upload = Some(PendingUpload {
                    key: key.into(),
                    id,
                    parts: BTreeMap::new(),
                    completion_tried: false,
                    is_part_in_flight: false,
                });
                Ok(())
            }
            Err(error) => self.check_failure(mount, key, since, &error),
        }
    }

    async fn put_part(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let number = 1 + self.shared.below(PARTS) as u32;
        let content = match self.shared.below(12) {
            0 => self.shared.fresh_bytes_of_len(PART_BYTES_MIN),
            _ => self.shared.fresh_bytes(),
        };
        let since = self.shared.now();
        self.shared.trace_line(format!("{} sends part {number} of '{key}'", self.name));
        let body = stream::iter([Ok(content.clone())]).boxed();
        let id = upload.id.clone();
        upload.parts.insert(number, content);
        upload.is_part_in_flight = true;
        let key_object = object_key(key)?;
        let sent = uploads(objects)?.put_part(&key_object, &id, number, body, Box::new(|| Ok(None)));
        let Some(sent) = self.shared.unless_disconnected(sent).await else {
            // Either version of the part may be stored.
            self.upload = None;
            return Ok(());
        };
        if mount.injector.has_crashed() {
            return Ok(());
        }
        match sent {
            Ok(_) => {
                upload.is_part_in_flight = false;
                Ok(())
            }
            Err(error) => {
                self.upload = None;
                self.check_failure(mount, key, since, &error)
            }
        }
    }

    async fn complete(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        if upload.parts.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u32> = upload.parts.keys().copied().collect();
        let content: Bytes = upload.parts.values().flat_map(|part| part.iter().copied()).collect();
        let before_last = upload.parts.values().rev().skip(1);
        let is_valid = before_last.map(Bytes::len).all(|bytes| bytes as u64 >= PART_BYTES_MIN);
        let (id, was_completion_tried) =
            (upload.id.clone(), std::mem::replace(&mut upload.completion_tried, true));
        let precondition = match self.shared.below(4) {
            0 if !was_completion_tried => Precondition::Absent,
            _ => Precondition::None,
        };
        self.trace_line(format!("completes '{key}' of {numbers:?} if {precondition:?}"));
        let since = self.shared.now();
        let change = self.shared.begin_set(Actor::Endpoint, key, Some(content.clone()));
        let options = CompleteOptions { precondition: precondition.clone(), ..CompleteOptions::default() };
        let completed = uploads(objects)?.complete(&object_key(key)?, &id, &numbers, options).await;
        let attempt = Attempt { key, since, precondition: precondition.clone(), changes: vec![change] };
        match &completed {
            Ok(_) => self.upload = None,
            Err(StoreError::Invalid(_)) if !is_valid => {
                self.upload = None;
                self.shared.mark_failed(change);
                return Ok(());
            }
            Err(StoreError::NotFound(_)) if was_completion_tried => {
                self.upload = None;
                self.shared.mark_uncertain(change);
                return Ok(());
            }
            Err(_) => {}
        }
        self.check_outcome(mount, attempt, completed, Some(content))
    }
}

impl Attempt<'_> {
    fn key_of(&self) -> store::ObjectKey {
        store::ObjectKey::try_from(self.key).unwrap_or_else(|_| unreachable!("the key was parsed before"))
    }
}

fn expected_headers(content: &Bytes) -> Attributes {
    let user = BTreeMap::from([(STAMP_HEADER.to_owned(), header_of(content))]);
    Attributes { user, ..Attributes::default() }
}

/// Returns the header value for bytes: the stamp in their first four bytes.
fn header_of(content: &Bytes) -> String {
    content.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
