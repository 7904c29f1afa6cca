//! Combines the views of handlers of all parts.

use crate::{Changes, Cursor, Ruleset, ViewError, ViewId, Views};
use futures_util::future::try_join_all;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Handlers of all parts as one. If one of them does not answer, requests fail. If one returns the whole content of a
/// view instead of changes, all are asked for the whole content.
#[derive(Debug)]
pub struct Union {
    parts: Vec<Arc<dyn Views>>,
    views: Mutex<Vec<OpenedView>>,
}

/// A view, with its ids at the handlers of the parts.
#[derive(Debug)]
struct OpenedView {
    ruleset: String,
    parts: Arc<[ViewId]>,
}

impl Union {
    /// Combines one handler of each part.
    pub fn new(parts: Vec<Arc<dyn Views>>) -> Self {
        Self { parts, views: Mutex::default() }
    }

    fn views(&self) -> MutexGuard<'_, Vec<OpenedView>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every part for changes, from `cursors`, one for each part, or from the beginning; at most about `limit`
    /// objects in all.
    async fn ask_all(
        &self,
        ids: &[ViewId],
        cursors: Option<&[Cursor]>,
        limit: usize,
    ) -> Result<Vec<Changes>, ViewError> {
        let limit = (limit / self.parts.len().max(1)).max(1);
        let requests = self.parts.iter().zip(ids).enumerate().map(|(index, (part, id))| {
            part.changes(*id, cursors.and_then(|cursors| cursors.get(index)), limit)
        });
        try_join_all(requests).await
    }
}

#[async_trait::async_trait]
impl Views for Union {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let parts: Arc<[ViewId]> =
            try_join_all(self.parts.iter().map(|part| part.open(ruleset))).await?.into();
        let ruleset = ruleset.to_yaml();
        let mut views = self.views();
        let index = match views.iter().position(|opened| opened.ruleset == ruleset) {
            Some(index) => {
                views[index].parts = parts;
                index
            }
            None => {
                views.push(OpenedView { ruleset, parts });
                views.len() - 1
            }
        };
        Ok(ViewId(index as u64))
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let index = usize::try_from(view.0).map_err(|_| ViewError::Unknown)?;
        let ids = self.views().get(index).map(|opened| opened.parts.clone()).ok_or(ViewError::Unknown)?;
        if let Some(cursors) = since.and_then(|since| split_cursor(since, self.parts.len())) {
            let changes = self.ask_all(&ids, Some(&cursors), limit).await?;
            if changes.iter().all(|changes| !changes.is_beginning) {
                return Ok(merge(changes, false));
            }
        }
        Ok(merge(self.ask_all(&ids, None, limit).await?, true))
    }
}

/// Joins the answers of the parts to one.
fn merge(parts: Vec<Changes>, is_beginning: bool) -> Changes {
    let cursors: Vec<&Cursor> = parts.iter().map(|part| &part.cursor).collect();
    let (cursor, has_more) = (join_cursors(&cursors), parts.iter().any(|part| part.has_more));
    let (mut shown, mut gone, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        shown.extend(part.shown);
        gone.extend(part.gone);
        unlisted.extend(part.unlisted);
    }
    // Every part lists the same containers, so several may report one as unlisted.
    unlisted.sort_unstable();
    unlisted.dedup_by(|next, last| next.container == last.container);
    Changes { cursor, is_beginning, has_more, shown, gone, unlisted }
}

/// Joins the cursors of the parts into one: the epoch, the number of versions and the versions of each. The joined
/// epoch is made of the parts' epochs.
fn join_cursors(cursors: &[&Cursor]) -> Cursor {
    let numbers = cursors.iter().flat_map(|cursor| {
        [cursor.epoch, cursor.versions.len() as u64].into_iter().chain(cursor.versions.iter().copied())
    });
    Cursor { epoch: joined_epoch(cursors.iter().map(|cursor| cursor.epoch)), versions: numbers.collect() }
}

/// Splits a joined cursor; `None` if it does not consist of `count` cursors, or its epoch is not made of theirs.
fn split_cursor(cursor: &Cursor, count: usize) -> Option<Vec<Cursor>> {
    let mut rest = &*cursor.versions;
    let mut cursors = Vec::new();
    while let [epoch, len, after @ ..] = rest {
        let (versions, after) = after.split_at_checked(usize::try_from(*len).ok()?)?;
        cursors.push(Cursor { epoch: *epoch, versions: versions.into() });
        rest = after;
    }
    let is_whole = rest.is_empty() && cursors.len() == count;
    (is_whole && joined_epoch(cursors.iter().map(|part| part.epoch)) == cursor.epoch).then_some(cursors)
}

fn joined_epoch(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, |all, part| all.rotate_left(1) ^ part)
}
