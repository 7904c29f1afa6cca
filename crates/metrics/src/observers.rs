//! Observers: functions that are called with each event of one type.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A function that is called with each event.
type Function<E> = Arc<dyn Fn(&E) + Send + Sync>;

/// The list of functions that observe events of type `E`. Clones share the list.
pub struct Observers<E>(Arc<Inner<E>>);

struct Inner<E> {
    /// Number of observers, so that publishers need no lock to learn that there is none.
    count: AtomicUsize,
    /// The functions, each with the id of its registration.
    observers: RwLock<Vec<(usize, Function<E>)>>,
    next_id: AtomicUsize,
}

impl<E> Default for Observers<E> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            count: AtomicUsize::new(0),
            observers: RwLock::default(),
            next_id: AtomicUsize::new(0),
        }))
    }
}

impl<E> Clone for Observers<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for Observers<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.count).finish()
    }
}

impl<E> Observers<E> {
    /// Returns whether there is an observer: one load.
    pub fn is_any(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) > 0
    }

    /// Calls `observer` with each event until the returned value is dropped. It runs on the threads that publish, so it must be
    /// short, and must not add or remove observers.
    pub fn observe(&self, observer: impl Fn(&E) + Send + Sync + 'static) -> Observation<E> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let mut observers = self.0.observers.write().unwrap_or_else(PoisonError::into_inner);
        observers.push((id, Arc::new(observer)));
        self.0.count.store(observers.len(), Ordering::Relaxed);
        Observation { inner: Arc::clone(&self.0), id }
    }

    /// Passes an event to all observers.
    pub fn publish(&self, event: &E) {
        if self.is_any() {
            let observers = self.0.observers.read().unwrap_or_else(PoisonError::into_inner);
            observers.iter().for_each(|(_, observer)| observer(event));
        }
    }
}

/// An observer's registration. It ends when it is dropped.
#[must_use]
pub struct Observation<E> {
    inner: Arc<Inner<E>>,
    id: usize,
}

impl<E> fmt::Debug for Observation<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").field("id", &self.id).finish()
    }
}

impl<E> Drop for Observation<E> {
    fn drop(&mut self) {
        let mut observers = self.inner.observers.write().unwrap_or_else(PoisonError::into_inner);
        observers.retain(|(id, _)| *id != self.id);
        self.inner.count.store(observers.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn observers_get_events_while_they_observe() {
        let (observers, seen) = (Observers::<u32>::default(), Arc::new(Mutex::new(Vec::new())));
        observers.publish(&1);
        let observe = |factor: u32| {
            let seen = Arc::clone(&seen);
            observers.observe(move |event| seen.lock().unwrap().push(event * factor))
        };
        let first = observe(1);
        let second = observe(10);
        observers.publish(&2);
        drop(first);
        observers.publish(&3);
        drop(second);
        observers.publish(&4);
        assert!(!observers.is_any());
        assert_eq!(*seen.lock().unwrap(), [2, 20, 30]);
    }
}
