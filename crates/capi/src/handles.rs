//! Handles: numbers that programs have instead of pointers. No number is used twice, so a closed handle stays invalid for ever.

use crate::failure::{Failure, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of parts of a table. Each has its own lock, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// Number of kinds of handles, plus one. A handle divided by it leaves its kind as the remainder.
const KINDS: i64 = 4;

type Shard<T> = RwLock<BTreeMap<i64, Arc<T>>>;

/// The open handles of one kind.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    next: AtomicI64,
    shards: [Shard<T>; SHARDS],
}

impl<T> Handles<T> {
    /// Makes a table. `kind` must differ from that of other tables, and be positive and less than [`KINDS`].
    pub(crate) const fn new(kind: i64) -> Self {
        assert!(kind > 0 && kind < KINDS);
        Self { next: AtomicI64::new(KINDS + kind), shards: [const { RwLock::new(BTreeMap::new()) }; SHARDS] }
    }

    /// Adds an open object. Returns its handle, which is positive.
    pub(crate) fn add(&self, object: Arc<T>) -> i64 {
        let handle = self.next.fetch_add(KINDS, Ordering::Relaxed);
        write(self.shard(handle)).insert(handle, object);
        handle
    }

    /// Returns the object of a handle; EBADF if it is not open.
    pub(crate) fn get(&self, handle: i64) -> Result<Arc<T>> {
        read(self.shard(handle)).get(&handle).cloned().ok_or_else(Failure::bad_handle)
    }

    /// Closes a handle. Returns its object; EBADF if another thread has closed the handle.
    pub(crate) fn remove(&self, handle: i64) -> Result<Arc<T>> {
        write(self.shard(handle)).remove(&handle).ok_or_else(Failure::bad_handle)
    }

    /// Closes the handles of all chosen objects, and returns these objects.
    pub(crate) fn remove_if(&self, is_chosen: impl Fn(&Arc<T>) -> bool) -> Vec<Arc<T>> {
        let mut removed = Vec::new();
        for shard in &self.shards {
            let mut open = write(shard);
            let chosen: Vec<i64> =
                open.iter().filter(|(_, found)| is_chosen(found)).map(|(id, _)| *id).collect();
            removed.extend(chosen.iter().filter_map(|id| open.remove(id)));
        }
        removed
    }

    /// Returns whether an open object is chosen.
    pub(crate) fn any(&self, is_chosen: impl Fn(&Arc<T>) -> bool) -> bool {
        self.shards.iter().any(|shard| read(shard).values().any(&is_chosen))
    }

    /// Returns whether no handle is open.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any(|_| true)
    }

    fn shard(&self, handle: i64) -> &Shard<T> {
        &self.shards[(handle / KINDS) as usize % SHARDS]
    }
}

fn read<T>(shard: &Shard<T>) -> RwLockReadGuard<'_, BTreeMap<i64, Arc<T>>> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(shard: &Shard<T>) -> RwLockWriteGuard<'_, BTreeMap<i64, Arc<T>>> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    static NUMBERS: Handles<u32> = Handles::new(1);
    static TEXTS: Handles<String> = Handles::new(2);

    #[test]
    fn a_closed_or_foreign_handle_is_refused() {
        let (number, text) = (NUMBERS.add(Arc::new(7)), TEXTS.add(Arc::new("7".to_owned())));
        assert_eq!(NUMBERS.get(number).as_deref(), Ok(&7));
        for bad in [text, 0, -1, -9, i64::MIN, i64::MAX] {
            assert_eq!(NUMBERS.get(bad), Err(Failure::bad_handle()), "{bad}");
        }
        assert_eq!(NUMBERS.remove(number).as_deref(), Ok(&7));
        assert_eq!(NUMBERS.remove(number), Err(Failure::bad_handle()));
        assert!(NUMBERS.add(Arc::new(8)) > number);
        assert_eq!(NUMBERS.remove_if(|found| **found == 8).len(), 1);
        assert!(NUMBERS.is_empty() && !TEXTS.is_empty());
    }
}
