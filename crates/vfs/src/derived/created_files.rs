//! Files that were created in derived directories. They are shown until the view knows them.

use meta::{Ino, Moment, Name};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::nodes::DentryKey;

/// Maximum files to remember. Above it all are forgotten, and shown again once their view knows them.
const FILES_MAX: usize = 1 << 16;

/// Maximum time, in addition to the view's recency, until a view knows a stored file.
const REPORTED_WITHIN: Duration = Duration::from_secs(2);

/// Created files by directory and name.
#[derive(Debug, Default)]
pub(super) struct CreatedFiles(Mutex<BTreeMap<DentryKey, CreatedFile>>);

#[derive(Debug, Clone, Copy)]
struct CreatedFile {
    ino: Ino,
    /// From when on the view alone decides whether the file is shown. Set when the file is first found stored.
    until: Option<Moment>,
}

impl CreatedFiles {
    pub(super) fn insert(&self, place: DentryKey, ino: Ino) {
        let mut files = self.files();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert(place, CreatedFile { ino, until: None });
    }

    pub(super) fn get(&self, place: &DentryKey) -> Option<Ino> {
        self.files().get(place).map(|created_file| created_file.ino)
    }

    pub(super) fn remove(&self, place: &DentryKey) {
        self.files().remove(place);
    }

    /// Returns whether a stored file is still shown although its view does not list it: until `recency` and some time
    /// have passed since the first call. Forgets the file if not.
    pub(super) fn is_pending(&self, place: &DentryKey, now: Moment, recency: Duration) -> bool {
        let mut files = self.files();
        let Some(created_file) = files.get_mut(place) else { return false };
        let until = *created_file.until.get_or_insert(now.after(recency + REPORTED_WITHIN));
        if now < until {
            return true;
        }
        files.remove(place);
        false
    }

    /// Returns the names of created files in a directory, after one name and up to another.
    pub(super) fn names(&self, dir: Ino, after: Option<&Name>, to: Option<&Name>) -> Vec<Name> {
        let files = self.files();
        if files.is_empty() {
            return Vec::new();
        }
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded((dir, after.clone())));
        files
            .range((from, Bound::Unbounded))
            .skip_while(|((other, _), _)| *other < dir)
            .take_while(|((other, name), _)| *other == dir && to.is_none_or(|to| name <= to))
            .map(|((_, name), _)| name.clone())
            .collect()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<DentryKey, CreatedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_until_its_view_must_know_it() {
        let created = CreatedFiles::default();
        let name = |text: &str| Name::try_from(text).unwrap();
        let place = (Ino(9), name("m"));
        created.insert(place.clone(), Ino(77));
        created.insert((Ino(8), name("z")), Ino(78));
        assert_eq!(created.names(Ino(9), None, None), [name("m")]);
        assert_eq!(created.names(Ino(9), Some(&name("m")), None), []);
        assert_eq!(created.names(Ino(9), Some(&name("a")), Some(&name("l"))), []);
        let now = Moment { mount: 1, nanos: 100_000_000_000 };
        let recency = Duration::from_secs(5);
        assert!(created.is_pending(&place, now, recency));
        assert!(created.is_pending(&place, now.after(recency), recency));
        assert!(!created.is_pending(&place, now.after(recency + REPORTED_WITHIN), recency));
        assert_eq!(created.get(&place), None);
    }
}
