//! Readers while a change is being made.

use super::{LATER, contents, key, options, read};
use staging::writeback::Writeback;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use store::memory::MemoryStore;
use store::{Clock, Entropy, ObjectStore, Precondition, PutOptions, SystemClock, Timestamp};
use tempfile::TempDir;

/// A clock that holds one caller: the first one after the log has grown. That is a change whose record was appended, and which is not
/// visible yet.
#[derive(Debug)]
struct HoldingClock {
    segment: PathBuf,
    hold: Mutex<Option<Hold>>,
}

#[derive(Debug)]
struct Hold {
    log_bytes: u64,
    is_held: Sender<()>,
    go_on: Receiver<()>,
}

impl HoldingClock {
    fn log_bytes(&self) -> u64 {
        std::fs::metadata(&self.segment).map_or(0, |segment| segment.len())
    }

    /// Holds the next change. Returns a receiver that signals that the change is held, and a sender that releases it.
    fn hold_next(&self) -> (Receiver<()>, Sender<()>) {
        let ((is_held, held), (release, go_on)) = (channel(), channel());
        *self.hold.lock().unwrap() = Some(Hold { log_bytes: self.log_bytes(), is_held, go_on });
        (held, release)
    }
}

impl Clock for HoldingClock {
    fn now(&self) -> Timestamp {
        let hold = {
            let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
            hold.take_if(|hold| self.log_bytes() > hold.log_bytes)
        };
        if let Some(hold) = hold {
            hold.is_held.send(()).unwrap();
            hold.go_on.recv().unwrap();
        }
        SystemClock.now()
    }
}

/// Readers waited for the disk: a change was appended to the log while the lock of the pending changes was held, which readers need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_do_not_wait_for_a_change_that_is_being_logged() {
    let dir = TempDir::new().unwrap();
    let segment = dir.path().join(format!("{:016x}.log", 1));
    let clock = Arc::new(HoldingClock { segment, hold: Mutex::default() });
    let bucket = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let writeback =
        Writeback::open(dir.path(), bucket, options(LATER), clock.clone(), Arc::new(Entropy::new(5)))
            .unwrap();
    for name in ["changed", "other"] {
        writeback.put(&key(name), "before".into(), PutOptions::default()).await.unwrap();
    }
    let (held, release) = clock.hold_next();
    let changing = tokio::spawn({
        let writeback = writeback.clone();
        async move { writeback.put(&key("changed"), "after".into(), PutOptions::default()).await }
    });
    held.recv().unwrap();
    assert_eq!(read(&*writeback, "changed").await.unwrap(), "before");
    assert_eq!(read(&*writeback, "other").await.unwrap(), "before");
    assert_eq!(contents(&*writeback).await.len(), 2);
    assert_eq!(writeback.backlog().changes, 2);
    release.send(()).unwrap();
    changing.await.unwrap().unwrap();
    assert_eq!(read(&*writeback, "changed").await.unwrap(), "after");
    writeback.delete(&key("other"), Precondition::None).await.unwrap();
    assert_eq!(contents(&*writeback).await.len(), 1);
}
