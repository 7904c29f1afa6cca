//! What a client of several parts sees: all of them.

use crate::{Changes, Cursor, Ruleset, ViewError, ViewId, Views};
use futures_util::future::try_join_all;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Handlers of all parts, as one. Where one of them does not answer nobody hears anything new; where one begins anew all do.
#[derive(Debug)]
pub struct Union {
    parts: Vec<Arc<dyn Views>>,
    views: Mutex<Vec<Opened>>,
}

/// A view, by what each part calls it.
#[derive(Debug)]
struct Opened {
    ruleset: String,
    parts: Arc<[ViewId]>,
}

impl Union {
    /// One handler of each part.
    pub fn new(parts: Vec<Arc<dyn Views>>) -> Self {
        Self { parts, views: Mutex::default() }
    }

    fn views(&self) -> MutexGuard<'_, Vec<Opened>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every part; `cursors` are theirs, or none.
    async fn ask(
        &self,
        ids: &[ViewId],
        cursors: Option<&[Cursor]>,
        limit: usize,
    ) -> Result<Vec<Changes>, ViewError> {
        let limit = (limit / self.parts.len().max(1)).max(1);
        let asks =
            self.parts.iter().zip(ids).enumerate().map(|(at, (part, id))| {
                part.changes(*id, cursors.and_then(|cursors| cursors.get(at)), limit)
            });
        try_join_all(asks).await
    }
}

#[async_trait::async_trait]
impl Views for Union {
    async fn open(&self, ruleset: &Ruleset) -> Result<ViewId, ViewError> {
        let parts: Arc<[ViewId]> =
            try_join_all(self.parts.iter().map(|part| part.open(ruleset))).await?.into();
        let ruleset = ruleset.to_yaml();
        let mut views = self.views();
        let at = match views.iter().position(|opened| opened.ruleset == ruleset) {
            Some(at) => {
                views[at].parts = parts;
                at
            }
            None => {
                views.push(Opened { ruleset, parts });
                views.len() - 1
            }
        };
        Ok(ViewId(at as u64))
    }

    async fn changes(
        &self,
        view: ViewId,
        since: Option<&Cursor>,
        limit: usize,
    ) -> Result<Changes, ViewError> {
        let at = usize::try_from(view.0).map_err(|_| ViewError::Unknown)?;
        let ids = self.views().get(at).map(|opened| opened.parts.clone()).ok_or(ViewError::Unknown)?;
        if let Some(cursors) = since.and_then(|since| apart(since, self.parts.len())) {
            let changes = self.ask(&ids, Some(&cursors), limit).await?;
            if changes.iter().all(|changes| !changes.is_beginning) {
                return Ok(together(changes, false));
            }
        }
        Ok(together(self.ask(&ids, None, limit).await?, true))
    }
}

fn together(parts: Vec<Changes>, is_beginning: bool) -> Changes {
    let cursors: Vec<&Cursor> = parts.iter().map(|part| &part.cursor).collect();
    let (cursor, has_more) = (side_by_side(&cursors), parts.iter().any(|part| part.has_more));
    let (mut shown, mut gone, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        shown.extend(part.shown);
        gone.extend(part.gone);
        unlisted.extend(part.unlisted);
    }
    // Each part lists every container.
    unlisted.sort_unstable();
    unlisted.dedup_by(|next, last| next.container == last.container);
    Changes { cursor, is_beginning, has_more, shown, gone, unlisted }
}

/// One cursor of several: of each its epoch, how many versions it has, and these. Its own epoch is made of theirs.
fn side_by_side(cursors: &[&Cursor]) -> Cursor {
    let numbers = cursors.iter().flat_map(|cursor| {
        [cursor.epoch, cursor.versions.len() as u64].into_iter().chain(cursor.versions.iter().copied())
    });
    Cursor { epoch: epoch(cursors.iter().map(|cursor| cursor.epoch)), versions: numbers.collect() }
}

/// Such a cursor as the several, if it is one of so many parts.
fn apart(cursor: &Cursor, count: usize) -> Option<Vec<Cursor>> {
    let mut rest = &*cursor.versions;
    let mut cursors = Vec::new();
    while let [epoch, len, after @ ..] = rest {
        let (versions, after) = after.split_at_checked(usize::try_from(*len).ok()?)?;
        cursors.push(Cursor { epoch: *epoch, versions: versions.into() });
        rest = after;
    }
    let is_whole = rest.is_empty() && cursors.len() == count;
    (is_whole && epoch(cursors.iter().map(|part| part.epoch)) == cursor.epoch).then_some(cursors)
}

fn epoch(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, |all, part| all.rotate_left(1) ^ part)
}
