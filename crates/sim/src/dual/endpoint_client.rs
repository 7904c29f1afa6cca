//! A client of the endpoint: it does one thing after the other, and judges what is answered.

use super::conditional_writes::Asked;
use super::key_history::{By, ChangeId, Content, Moment};
use super::quiescent_check::content_of;
use super::shared_state::{Stage, object_key, told_bytes};
use crate::files::machine::Mount;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::stream::{self, StreamExt as _};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{
    Attributes, CompleteOptions, CopyOptions, ETag, GetOptions, ListEntry, ListRequest, ObjectMeta,
    ObjectRef, ObjectStore as _, Pages, Payload, Precondition, PutOptions, StoreError, Tags, Uploads as _,
};
use vfs::Objects;

/// The header that says whose bytes these are.
const HEADER: &str = "v";
/// Parts of an upload have numbers up to this.
const PARTS: u64 = 2;
/// All but the last have as many bytes.
const PART_BYTES_MIN: u64 = 5 << 20;
/// What listings begin with.
const PREFIXES: [&str; 5] = ["", "d", "d/", "d/f/", "e/"];
/// A client's pauses, in milliseconds.
const PAUSE_MS: u64 = 8;

/// An upload under way; it outlasts the mount.
struct Begun {
    key: String,
    id: String,
    parts: BTreeMap<u32, Bytes>,
    /// It may have been completed.
    is_tried: bool,
    /// A part is on its way: which of two it has nobody knows if the machine crashes.
    is_sending: bool,
}

pub(super) struct Client {
    name: String,
    stage: Stage,
    /// Tags as they were last seen, and when.
    tags: BTreeMap<String, (ETag, Moment)>,
    upload: Option<Begun>,
}

/// A change on its way.
struct Try<'t> {
    key: &'t str,
    since: Moment,
    precondition: Precondition,
    changes: Vec<ChangeId>,
}

impl Client {
    pub(super) fn new(number: u64, stage: Stage) -> Self {
        Self { name: format!("c{number}"), stage, tags: BTreeMap::new(), upload: None }
    }

    pub(super) async fn live(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        let objects = Objects::new(mount.fs.clone(), b"");
        // What waited in a log has another tag once it is up.
        self.tags.clear();
        for _ in 0..ops {
            tokio::time::sleep(Duration::from_millis(self.stage.below(PAUSE_MS))).await;
            self.stage.step();
            let outcome = self.op(mount, &objects).await;
            if mount.weather.has_crashed() {
                return std::future::pending().await;
            }
            outcome.map_err(|what| format!("{}: {what}", self.name))?;
        }
        Ok(())
    }

    /// After a crash: of what was not synced nobody knows.
    pub(super) fn recover(&mut self, loses_uploads: bool) {
        self.upload.take_if(|begun| loses_uploads || begun.is_sending);
    }

    /// What is left of an upload when all is over.
    pub(super) async fn leave(&mut self, mount: &Mount) -> Result<(), String> {
        let Some(Begun { key, id, .. }) = self.upload.take() else { return Ok(()) };
        let objects = Objects::new(mount.fs.clone(), b"");
        match objects.abort(&object_key(&key)?, &id).await {
            Err(error) if !matches!(error, StoreError::NotFound(_)) => {
                Err(format!("an upload cannot be aborted: {error}"))
            }
            _ => Ok(()),
        }
    }

    async fn op(&mut self, mount: &Mount, objects: &Objects) -> Result<(), String> {
        let key = self.stage.key();
        match self.stage.below(20) {
            0..=4 => self.put(mount, objects, &key).await,
            5..=8 => self.get(mount, objects, &key).await,
            9..=10 => self.delete(mount, objects, &key).await,
            11..=12 => self.copy(mount, objects, &key).await,
            13 => self.rename(mount, objects, &key).await,
            14..=15 => self.list(mount, objects).await,
            _ => self.upload(mount, objects, &key).await,
        }
    }

    fn tell(&self, what: String) {
        self.stage.tell(format!("{} {what}", self.name));
    }

    async fn put(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let (content, precondition) = (self.stage.bytes(), self.precondition(key));
        self.tell(format!("puts '{key}' {} if {precondition:?}", told_bytes(&content)));
        let since = self.stage.now();
        let change = self.stage.becomes(By::Endpoint, key, Some(content.clone()));
        self.stage.inner.borrow_mut().described.insert(content.clone(), header_of(&content));
        let options = PutOptions {
            precondition: precondition.clone(),
            attributes: described(&content),
            ..PutOptions::default()
        };
        let put = objects.put(&object_key(key)?, Payload::from(content.clone()), options).await;
        let attempt = Try { key, since, precondition, changes: vec![change] };
        self.judge(mount, attempt, put, Some(content))
    }

    /// What became of a change.
    fn judge(
        &mut self,
        mount: &Mount,
        attempt: Try<'_>,
        outcome: store::Result<ObjectRef>,
        content: Content,
    ) -> Result<(), String> {
        if mount.weather.has_crashed() {
            return Ok(());
        }
        let Try { key, since, precondition, changes } = &attempt;
        match outcome {
            Ok(object) => {
                changes.iter().for_each(|id| self.stage.done(*id, !self.stage.write_back));
                self.stage.count("changes of objects");
                if let Some(content) = &content {
                    self.saw(key, *since, &object.etag, content)?;
                }
                self.must_have_held(&attempt)
            }
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_))
                if *precondition != Precondition::None =>
            {
                self.stage.count("conditions that did not hold");
                if self.stage.has_repeats {
                    // The first of two may have got there.
                    changes.iter().for_each(|id| self.stage.doubt(*id));
                    return Ok(());
                }
                changes.iter().for_each(|id| self.stage.in_vain(*id));
                match self.may_not_hold(key, *since, precondition) {
                    true => Ok(()),
                    false => Err(format!("'{key}' was refused though {precondition:?} held")),
                }
            }
            Err(error) => {
                changes.iter().for_each(|id| self.stage.doubt(*id));
                self.failed(mount, key, *since, &error)
            }
        }
    }

    fn saw(&mut self, key: &str, since: Moment, tag: &ETag, content: &Bytes) -> Result<(), String> {
        self.stage.has_tag(key, tag, content)?;
        self.tags.insert(key.into(), (tag.clone(), since));
        Ok(())
    }

    /// A failure has a reason.
    fn failed(&self, mount: &Mount, key: &str, since: Moment, error: &StoreError) -> Result<(), String> {
        self.tell(format!("fails at '{key}': {error}"));
        self.stage.count("failures");
        let is_changed = || {
            let by = [By::Files, By::Endpoint, By::Stranger];
            self.stage.inner.borrow().history.is_touched(key, &by, since)
        };
        // A stranger took what it is made of while it waited.
        let is_taken = || self.stage.may_be(key, By::Endpoint, since).is_none();
        match error.is_retryable() && (mount.weather.struck() > 0 || is_changed()) || is_taken() {
            true => Ok(()),
            false => Err(format!("'{key}' failed for no reason: {error}")),
        }
    }

    fn must_have_held(&self, attempt: &Try<'_>) -> Result<(), String> {
        let Try { key, since, precondition, changes } = attempt;
        let asked = match precondition {
            Precondition::None => return Ok(()),
            Precondition::Absent => Asked::Absent,
            Precondition::Matches(tag) => match self.stage.tagged(key, tag) {
                Some(content) => Asked::Content(content),
                None => return Ok(()),
            },
        };
        let wanted = match &asked {
            Asked::Absent => None,
            Asked::Content(content) => Some(content.clone()),
        };
        self.stage
            .must_be(key, By::Endpoint, *since, &wanted)
            .map_err(|what| format!("a condition held: {what}"))?;
        let now = self.stage.now();
        self.stage.conditions.borrow_mut().won(key, asked, changes[0], (*since, now));
        Ok(())
    }

    fn may_not_hold(&self, key: &str, since: Moment, precondition: &Precondition) -> bool {
        match precondition {
            Precondition::None => false,
            Precondition::Absent => self.stage.may_be_there(key, By::Endpoint, since),
            Precondition::Matches(tag) => {
                let by = [By::Files, By::Endpoint, By::Stranger];
                let learned = self.tags.get(key).filter(|(known, _)| known == tag).map_or(0, |(_, at)| *at);
                self.stage.inner.borrow().history.is_touched(key, &by, learned.min(since))
            }
        }
    }

    fn precondition(&self, key: &str) -> Precondition {
        match (self.stage.below(5), self.tags.get(key)) {
            (0, _) => Precondition::Absent,
            (1, Some((tag, _))) => Precondition::Matches(tag.clone()),
            _ => Precondition::None,
        }
    }

    async fn get(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let since = self.stage.now();
        let if_match = match self.precondition(key) {
            Precondition::Matches(tag) => Some(tag),
            _ => None,
        };
        let range = (self.stage.below(3) == 0).then(|| {
            let start = self.stage.below(1000);
            start..start + 1 + self.stage.below(1000)
        });
        self.tell(format!("gets '{key}' {range:?} if {if_match:?}"));
        let options = GetOptions { range: range.clone(), if_match: if_match.clone(), version: None };
        let got = async {
            let object = objects.get(&object_key(key).map_err(Err)?, options).await.map_err(Ok)?;
            let body = object.body.try_collect::<Vec<_>>().await.map_err(Ok)?.concat();
            Ok::<_, Result<StoreError, String>>((object.meta, Bytes::from(body)))
        };
        let outcome = got.await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        match (outcome, range) {
            (Ok((meta, body)), None) => self.has_got(key, since, &meta, body),
            (Ok((meta, body)), Some(range)) => self.has_got_part(key, since, &meta, &body, range.start),
            (Err(Err(what)), _) => Err(what),
            (Err(Ok(StoreError::NotFound(_))), _) => self.stage.must_be(key, By::Endpoint, since, &None),
            (Err(Ok(StoreError::InvalidRange(_))), Some(range)) => {
                let may = self.stage.may_be(key, By::Endpoint, since);
                let is_short = |content: &Content| {
                    content.as_ref().is_some_and(|content| content.len() as u64 <= range.start)
                };
                match may.is_none_or(|may| may.iter().any(is_short)) {
                    true => Ok(()),
                    false => Err(format!("'{key}' is not so short that {range:?} begins beyond it")),
                }
            }
            (Err(Ok(StoreError::PreconditionFailed(_))), _) if if_match.is_some() => {
                let precondition = if_match.map_or(Precondition::None, Precondition::Matches);
                match self.may_not_hold(key, since, &precondition) {
                    true => Ok(()),
                    false => Err(format!("'{key}' has another tag than {precondition:?} for no reason")),
                }
            }
            (Err(Ok(error)), _) => self.failed(mount, key, since, &error),
        }
    }

    fn has_got(&mut self, key: &str, since: Moment, meta: &ObjectMeta, body: Bytes) -> Result<(), String> {
        self.stage.count("objects read");
        let length = body.len() as u64;
        if meta.size_bytes != length {
            return Err(format!("'{key}' has {} bytes and is read as {length}", meta.size_bytes));
        }
        self.stage.must_be(key, By::Endpoint, since, &Some(body.clone()))?;
        self.must_be_described(key, meta, &body)?;
        self.saw(key, since, &meta.object.etag, &body)
    }

    fn has_got_part(
        &self,
        key: &str,
        since: Moment,
        meta: &ObjectMeta,
        body: &Bytes,
        start: u64,
    ) -> Result<(), String> {
        let Some(may) = self.stage.may_be(key, By::Endpoint, since) else { return Ok(()) };
        let is_part = |content: &Content| {
            let Some(content) = content else { return false };
            let (start, end) = (start as usize, start as usize + body.len());
            content.len() as u64 == meta.size_bytes && content.get(start..end) == Some(&body[..])
        };
        match may.iter().any(is_part) {
            true => Ok(()),
            false => Err(format!("'{key}' from {start} is {}, of nothing that it may be", told_bytes(body))),
        }
    }

    /// Who stored these bytes through the endpoint described them.
    fn must_be_described(&self, key: &str, meta: &ObjectMeta, body: &Bytes) -> Result<(), String> {
        let inner = self.stage.inner.borrow();
        let Some(wanted) = inner.described.get(body).filter(|_| !body.is_empty()) else { return Ok(()) };
        match meta.attributes.user.get(HEADER) {
            Some(seen) if seen == wanted => Ok(()),
            seen => Err(format!("'{key}' has the header {seen:?}, not {wanted}")),
        }
    }

    async fn delete(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let precondition = match self.precondition(key) {
            Precondition::Absent => Precondition::None,
            precondition => precondition,
        };
        self.tell(format!("deletes '{key}' if {precondition:?}"));
        let since = self.stage.now();
        let change = self.stage.becomes(By::Endpoint, key, None);
        let deleted = objects.delete(&object_key(key)?, precondition.clone()).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        if deleted.is_ok() {
            // By inode it is in the metadata alone, which is synced a moment later.
            self.stage.done(change, self.stage.by_path && !self.stage.write_back);
            self.stage.count("changes of objects");
            let attempt = Try { key, since, precondition, changes: vec![change] };
            return self.must_have_held(&attempt);
        }
        let attempt = Try { key, since, precondition, changes: vec![change] };
        let nothing = deleted.map(|()| ObjectRef::new(attempt.key_of(), ETag::new("")));
        self.judge(mount, attempt, nothing, None)
    }

    /// Reads all of what is to be copied or moved.
    async fn source(
        &mut self,
        mount: &Mount,
        objects: &Objects,
        key: &str,
    ) -> Result<Option<(ObjectMeta, Bytes)>, String> {
        let since = self.stage.now();
        let found = content_of(objects, &object_key(key)?).await;
        if mount.weather.has_crashed() {
            return Ok(None);
        }
        match found {
            Ok((meta, content)) => {
                self.has_got(key, since, &meta, content.clone())?;
                Ok(Some((meta, content)))
            }
            Err(StoreError::NotFound(_)) => {
                self.stage.must_be(key, By::Endpoint, since, &None)?;
                Ok(None)
            }
            Err(error) => self.failed(mount, key, since, &error).map(|()| None),
        }
    }

    async fn copy(&mut self, mount: &Mount, objects: &Objects, from: &str) -> Result<(), String> {
        let to = self.stage.key();
        let Some((meta, content)) = self.source(mount, objects, from).await? else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        let precondition = self.precondition(&to);
        self.tell(format!("copies '{from}' to '{to}' if {precondition:?}"));
        let since = self.stage.now();
        let change = self.stage.becomes(By::Endpoint, &to, Some(content.clone()));
        self.stage.inner.borrow_mut().history.is_made_of(change, from);
        let options = CopyOptions { precondition: precondition.clone(), ..CopyOptions::default() };
        let copied = objects.copy(&meta.object, &object_key(&to)?, options).await;
        let attempt = Try { key: &to, since, precondition, changes: vec![change] };
        if self.source_went(from, &copied, since) {
            attempt.changes.iter().for_each(|id| self.stage.doubt(*id));
            return Ok(());
        }
        self.judge(mount, attempt, copied, Some(content))
    }

    /// Whether a copy failed because its source is not any more what it was.
    fn source_went<T>(&self, from: &str, outcome: &store::Result<T>, since: Moment) -> bool {
        let by = [By::Files, By::Endpoint, By::Stranger];
        // It was read a moment before.
        let is_touched = || self.stage.inner.borrow().history.is_touched(from, &by, since - 60_000_000_000);
        match outcome {
            Err(StoreError::NotFound(key) | StoreError::PreconditionFailed(key)) => {
                key.as_bytes() == from.as_bytes() && is_touched()
            }
            // One that is in several objects for now.
            Err(StoreError::Unsupported(_)) => self.stage.by_path,
            _ => false,
        }
    }

    async fn rename(&mut self, mount: &Mount, objects: &Objects, from: &str) -> Result<(), String> {
        let to = self.stage.key();
        let Some((meta, content)) = self.source(mount, objects, from).await? else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        self.tell(format!("renames '{from}' to '{to}'"));
        let since = self.stage.now();
        self.stage.moves_open(from, &to);
        let there = self.stage.becomes(By::Endpoint, &to, Some(content));
        self.stage.inner.borrow_mut().history.is_made_of(there, from);
        let gone = self.stage.becomes(By::Endpoint, from, None);
        let renamed = objects.rename(&meta.object, &object_key(&to)?, Precondition::None).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        self.stage.moves_open(from, &to);
        let is_below = matches!(renamed, Err(StoreError::Unsupported(_)));
        let attempt = Try { key: &to, since, precondition: Precondition::None, changes: vec![there, gone] };
        if is_below || self.source_went(from, &renamed, since) {
            attempt.changes.iter().for_each(|id| self.stage.doubt(*id));
            return Ok(());
        }
        let moved = renamed.map(|()| ObjectRef::new(attempt.key_of(), ETag::new("")));
        self.judge(mount, attempt, moved, None)
    }

    async fn list(&mut self, mount: &Mount, objects: &Objects) -> Result<(), String> {
        let prefix = PREFIXES[self.stage.below(PREFIXES.len() as u64) as usize];
        let limit = 1 + self.stage.below(5) as usize;
        self.tell(format!("lists '{prefix}', {limit} at a time"));
        let since = self.stage.now();
        let request = ListRequest { prefix: prefix.into(), limit, ..ListRequest::default() };
        let listed = Pages::of(objects, request).all().await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        match listed {
            Ok(entries) => self.has_listed(prefix, &entries, since),
            Err(error) => self.failed(mount, prefix, since, &error),
        }
    }

    fn has_listed(&self, prefix: &str, entries: &[ListEntry], since: Moment) -> Result<(), String> {
        self.stage.count("listings");
        let mut listed = BTreeMap::new();
        for entry in entries {
            let ListEntry::Object { object, .. } = entry else { continue };
            listed.insert(String::from_utf8_lossy(object.key.as_bytes()).into_owned(), object.etag.clone());
        }
        let known = self.stage.inner.borrow().history.keys();
        for key in known.iter().filter(|key| key.starts_with(prefix)) {
            match listed.get(key) {
                None => self.stage.must_be(key, By::Endpoint, since, &None),
                Some(tag) => match self.stage.tagged(key, tag) {
                    Some(content) => self.stage.must_be(key, By::Endpoint, since, &Some(content)),
                    None if self.stage.may_be_there(key, By::Endpoint, since) => Ok(()),
                    None => Err(format!("'{key}' is listed and is gone")),
                },
            }
            .map_err(|what| format!("a listing of '{prefix}': {what}"))?;
        }
        Ok(())
    }

    async fn upload(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let Some(begun) = &self.upload else { return self.begin_upload(mount, objects, key).await };
        let (key, is_tried) = (begun.key.clone(), begun.is_tried);
        match self.stage.below(6) {
            0..=2 if !is_tried => self.put_part(mount, objects, &key).await,
            3 if !is_tried => {
                self.tell(format!("aborts '{key}'"));
                let Some(begun) = self.upload.take() else { return Ok(()) };
                let since = self.stage.now();
                match objects.abort(&object_key(&key)?, &begun.id).await {
                    Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
                    Err(_) if mount.weather.has_crashed() => Ok(()),
                    Err(error) => self.failed(mount, &key, since, &error),
                }
            }
            _ => self.complete(mount, objects, &key).await,
        }
    }

    async fn begin_upload(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        self.tell(format!("begins '{key}'"));
        let since = self.stage.now();
        let id = objects.begin(&object_key(key)?, Attributes::default(), Tags::new()).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        match id {
            Ok(id) => {
                self.upload = Some(Begun {
                    key: key.into(),
                    id,
                    parts: BTreeMap::new(),
                    is_tried: false,
                    is_sending: false,
                });
                Ok(())
            }
            Err(error) => self.failed(mount, key, since, &error),
        }
    }

    async fn put_part(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let Some(begun) = &mut self.upload else { return Ok(()) };
        let number = 1 + self.stage.below(PARTS) as u32;
        let content = match self.stage.below(12) {
            0 => self.stage.bytes_of(PART_BYTES_MIN),
            _ => self.stage.bytes(),
        };
        let since = self.stage.now();
        self.stage.tell(format!("{} sends part {number} of '{key}'", self.name));
        let body = stream::iter([Ok(content.clone())]).boxed();
        let id = begun.id.clone();
        begun.parts.insert(number, content);
        begun.is_sending = true;
        let sent = objects.put_part(&object_key(key)?, &id, number, body, Box::new(|| Ok(None))).await;
        if mount.weather.has_crashed() {
            return Ok(());
        }
        match sent {
            Ok(_) => {
                begun.is_sending = false;
                Ok(())
            }
            Err(error) => {
                self.upload = None;
                self.failed(mount, key, since, &error)
            }
        }
    }

    async fn complete(&mut self, mount: &Mount, objects: &Objects, key: &str) -> Result<(), String> {
        let Some(begun) = &mut self.upload else { return Ok(()) };
        if begun.parts.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u32> = begun.parts.keys().copied().collect();
        let content: Bytes = begun.parts.values().flat_map(|part| part.iter().copied()).collect();
        let before_last = begun.parts.values().rev().skip(1);
        let is_valid = before_last.map(Bytes::len).all(|bytes| bytes as u64 >= PART_BYTES_MIN);
        let (id, was_tried) = (begun.id.clone(), std::mem::replace(&mut begun.is_tried, true));
        let precondition = match self.stage.below(4) {
            0 if !was_tried => Precondition::Absent,
            _ => Precondition::None,
        };
        self.tell(format!("completes '{key}' of {numbers:?} if {precondition:?}"));
        let since = self.stage.now();
        let change = self.stage.becomes(By::Endpoint, key, Some(content.clone()));
        let options = CompleteOptions { precondition: precondition.clone(), ..CompleteOptions::default() };
        let completed = objects.complete(&object_key(key)?, &id, &numbers, options).await;
        let attempt = Try { key, since, precondition: precondition.clone(), changes: vec![change] };
        match &completed {
            Ok(_) => self.upload = None,
            Err(StoreError::Invalid(_)) if !is_valid => {
                self.upload = None;
                self.stage.in_vain(change);
                return Ok(());
            }
            Err(StoreError::NotFound(_)) if was_tried => {
                self.upload = None;
                self.stage.doubt(change);
                return Ok(());
            }
            Err(_) => {}
        }
        self.judge(mount, attempt, completed, Some(content))
    }
}

impl Try<'_> {
    fn key_of(&self) -> store::ObjectKey {
        store::ObjectKey::try_from(self.key).unwrap_or_else(|_| unreachable!("it was one before"))
    }
}

fn described(content: &Bytes) -> Attributes {
    let user = BTreeMap::from([(HEADER.to_owned(), header_of(content))]);
    Attributes { user, ..Attributes::default() }
}

/// What the header says of bytes.
fn header_of(content: &Bytes) -> String {
    content.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
