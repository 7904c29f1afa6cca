//! Statistics of a handler.

use events::{ChangeKind, Hint, ObjectDescription, Order, Sink as _};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::memory::MemoryBuckets;
use store::{Buckets as _, Clock, Entropy, Timestamp};
use views::{Handler, HandlerConfig, HandlerParts, HintCounts, Views as _};

/// A clock that advances by a microsecond whenever it is read.
#[derive(Debug, Default)]
struct TickingClock(AtomicI64);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1000, Ordering::Relaxed))
    }
}

fn hint<'a>(bucket: &'a str, key: &'a str, order: u128, time: Timestamp) -> Hint<'a> {
    Hint {
        bucket: Cow::Borrowed(bucket),
        key: Cow::Borrowed(key.as_bytes()),
        kind: ChangeKind::Stored,
        order: Some(Order(order)),
        time: Some(time),
        object: ObjectDescription {
            size_bytes: Some(7),
            etag: Some(Cow::Borrowed("e")),
            ..ObjectDescription::default()
        },
    }
}

#[tokio::test]
async fn stats_count_outcomes_of_hints_matching_time_and_objects_of_views() {
    let clock = Arc::new(TickingClock::default());
    let buckets = MemoryBuckets::new(clock.clone());
    buckets.create("alpha").await.unwrap();
    let parts = HandlerParts {
        buckets: Arc::new(buckets),
        clock: clock.clone(),
        entropy: Entropy::new(1),
        dir: None,
        config: HandlerConfig::default(),
    };
    let handler = Handler::start(parts).await.unwrap();
    for ruleset in
        views::read("all:\n  container: alpha\nfew:\n  container: alpha\n  object: \"a/*\"\n").unwrap()
    {
        handler.open(&ruleset).await.unwrap();
    }
    let time = Timestamp(clock.now().0 + 1_000_000);
    let batch = [
        hint("alpha", "a/1", 9, time),
        hint("alpha", "b/1", 9, time),
        hint("alpha", "b/1", 9, time),
        hint("alpha", "b/1", 8, time),
        hint("beta", "a/1", 9, time),
    ];
    handler.take(&batch).await.unwrap();
    let stats = handler.stats();
    let hints = HintCounts { applied: 2, repeated: 1, late: 1, unwanted: 1, looked: 0 };
    assert_eq!((stats.hints, stats.objects), (hints, 2));
    assert_eq!(stats.views.iter().map(|view| view.objects).collect::<Vec<_>>(), [2, 1]);
    let matching = stats.matching;
    assert!(matching >= Duration::from_micros(1), "{matching:?}");
    handler.take(&batch[..1]).await.unwrap();
    assert!(handler.stats().matching > matching);
}
