//! A fake handler, as simple as possible: tests set its objects, which it keeps in one map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use store::{ETag, ObjectKey, StoreError, Timestamp};
use views::conformance::{CONTAINER, World};
use views::{Changes, Cursor, ObjectName, PackedObject, Ruleset, Shown, ViewError, ViewId, Views};

#[derive(Debug, Default)]
pub(crate) struct FakeHandler {
    state: Mutex<State>,
    /// Number of requests for changes.
    pub(crate) asked: AtomicUsize,
    /// Maximum number of objects in an answer; 0 is unlimited.
    pub(crate) page: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    is_lost: bool,
    epoch: u64,
    objects: BTreeMap<ObjectName, PackedObject>,
    log: Vec<ObjectName>,
    views: Vec<Ruleset>,
    whole_contents: BTreeMap<(u64, u64), Vec<PackedObject>>,
}

impl FakeHandler {
    pub(crate) fn put(&self, shown: Shown) {
        let mut state = self.state.lock().unwrap();
        state.log.push(shown.name.clone());
        state.objects.insert(shown.name.clone(), PackedObject::from(shown));
    }

    pub(crate) fn remove(&self, object: &ObjectName) {
        let mut state = self.state.lock().unwrap();
        state.log.push(object.clone());
        state.objects.remove(object);
    }

    /// Makes the handler unreachable, or reachable again.
    pub(crate) fn set_lost(&self, is_lost: bool) {
        self.state.lock().unwrap().is_lost = is_lost;
    }

    /// Restarts the handler, which then knows no view and no cursor from before.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock().unwrap();
        state.epoch += 1;
        state.views.clear();
        state.log.clear();
    }
}

impl State {
    fn check_reachable(&self) -> Result<(), ViewError> {
        if self.is_lost { Err(ViewError::Unreachable("it is lost".into())) } else { Ok(()) }
    }

    fn whole_content(&mut self, view: u64, ruleset: &Ruleset, from: Option<usize>, limit: usize) -> Changes {
        let version = self.log.len() as u64;
        if from.is_none() {
            let all = self.objects.values().filter(|shown| matches(ruleset, shown)).cloned().collect();
            self.whole_contents.insert((view, version), all);
        }
        let all = &self.whole_contents[&(view, version)];
        let at = from.unwrap_or(0);
        let end = all.len().min(at + limit);
        let has_more = end < all.len();
        let versions: Vec<u64> = if has_more { vec![version, end as u64] } else { vec![version] };
        Changes {
            cursor: Cursor { epoch: self.epoch, versions: versions.into() },
            is_beginning: from.is_none(),
            has_more,
            shown: all[at..end].to_vec(),
            gone: Vec::new(),
            unlisted: Vec::new(),
        }
    }

    fn changes_since(&self, ruleset: &Ruleset, since: usize, limit: usize) -> Changes {
        let end = self.log.len().min(since + limit);
        let changed: BTreeSet<_> = self.log[since..end].iter().collect();
        let (mut shown, mut gone) = (Vec::new(), Vec::new());
        for name in changed {
            match self.objects.get(name).filter(|shown| matches(ruleset, shown)) {
                Some(object) => shown.push(object.clone()),
                None => gone.push(name.clone()),
            }
        }
        let cursor = Cursor { epoch: self.epoch, versions: [end as u64].into() };
        Changes {
            cursor,
            is_beginning: false,
            has_more: end < self.log.len(),
            shown,
            gone,
            unlisted: Vec::new(),
        }
    }
}

#[async_trait::async_trait]
impl Views for FakeHandler {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let mut state = self.state.lock().unwrap();
        state.check_reachable()?;
        if ruleset.to_yaml().contains("not-there") {
            let source = StoreError::NoSuchBucket("not-there".into());
            return Err(ViewError::Store { container: "not-there".into(), source });
        }
        let known = state.views.iter().position(|known| known.name == ruleset.name);
        let number = known.unwrap_or_else(|| {
            state.views.push(ruleset.clone());
            state.views.len() - 1
        });
        Ok(ViewId(number as u64))
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let limit = match self.page.load(Ordering::Relaxed) {
            0 => limit,
            page => page,
        };
        let mut state = self.state.lock().unwrap();
        state.check_reachable()?;
        let ruleset = state.views.get(view.0 as usize).cloned().ok_or(ViewError::Unknown)?;
        match since.filter(|since| since.epoch == state.epoch).map(|since| &*since.versions) {
            None => Ok(state.whole_content(view.0, &ruleset, None, limit)),
            Some([version, at]) if *version == state.log.len() as u64 => {
                Ok(state.whole_content(view.0, &ruleset, Some(*at as usize), limit))
            }
            Some([_, _]) => Ok(state.whole_content(view.0, &ruleset, None, limit)),
            Some(versions) => Ok(state.changes_since(&ruleset, versions[0] as usize, limit)),
        }
    }
}

/// Returns whether a ruleset without rules on times matches an object.
fn matches(ruleset: &Ruleset, object: &PackedObject) -> bool {
    ruleset.matches(&object.unpack().state(None), Timestamp(0))
}

/// A fake handler, and the views under test, which may be a client of it.
pub(crate) struct FakeWorld {
    pub(crate) handler: Arc<FakeHandler>,
    pub(crate) views: Arc<dyn Views>,
}

fn object(key: &str) -> ObjectName {
    ObjectName { container: CONTAINER.into(), key: ObjectKey::try_from(key).unwrap() }
}

#[async_trait::async_trait]
impl World for FakeWorld {
    fn views(&self) -> &dyn Views {
        &*self.views
    }

    async fn put(&self, key: &str, size_bytes: u64, properties: &[(&str, &str)]) {
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.handler.put(Shown {
            name: object(key),
            size_bytes,
            etag: ETag::new("e"),
            modified: Timestamp(0),
            content_type: None,
            properties: Some(properties.collect()),
            tags: None,
        });
    }

    async fn remove(&self, key: &str) {
        self.handler.remove(&object(key));
    }
}
