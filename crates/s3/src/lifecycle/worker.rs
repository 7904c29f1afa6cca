//! The worker that applies lifecycle rules.
//!
//! A bucket is swept once a day, since items become due at midnight (UTC), and when its rules have changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::Timestamp;
use tokio::sync::watch;

use super::rule::Rule;
use super::sweep::{Expired, Sweep};
use crate::endpoint::Shared;

/// How often the worker checks which buckets are due for a sweep.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// The delay of the first check, so that an endpoint started for a short query does not sweep.
const FIRST_LOOK: Duration = Duration::from_secs(5);
const DAY_SECS: i64 = 86_400;

/// The day and the rules of a bucket's last sweep.
type Swept = (i64, Vec<Rule>);

/// Applies lifecycle rules until `ends` becomes true.
pub(crate) async fn run(shared: Arc<Shared>, mut ends: watch::Receiver<bool>) {
    let work = async {
        let mut swept = HashMap::new();
        tokio::time::sleep(FIRST_LOOK).await;
        loop {
            look(&shared, &mut swept).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = work => {}
        // An error means that the server was dropped.
        _ = ends.wait_for(|is_ending| *is_ending) => {}
    }
}

/// Sweeps all buckets now.
pub(crate) async fn expire_all(shared: &Shared) -> Expired {
    look(shared, &mut HashMap::new()).await
}

async fn look(shared: &Shared, swept: &mut HashMap<String, Swept>) -> Expired {
    let names = match shared.buckets.list().await {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "what is due stays until the buckets can be listed");
            return Expired { failures: 1, ..Expired::default() };
        }
    };
    swept.retain(|name, _| names.contains(name));
    let mut expired = Expired::default();
    for name in names {
        let now = shared.clock.now();
        let outcome = sweep(shared, &name, now, swept.get(&name)).await;
        if let Some((by, outcome)) = outcome {
            if outcome.failures == 0 {
                swept.insert(name, by);
            }
            expired = expired.and(outcome);
        }
    }
    expired
}

/// Sweeps a bucket unless it was swept today by the same rules. Returns the sweep's day and rules, and its results.
async fn sweep(
    shared: &Shared,
    name: &str,
    now: Timestamp,
    last: Option<&Swept>,
) -> Option<(Swept, Expired)> {
    // A bucket deleted in the meantime is no failure.
    let bucket = shared.bucket(name).await.ok()?;
    let by = (now.secs().div_euclid(DAY_SECS), super::enabled(&bucket).await.ok()?);
    if by.1.is_empty() || last == Some(&by) {
        return None;
    }
    let sweep = Sweep::new(bucket, by.1.clone(), now, shared.notifier.clone());
    let failed = match sweep.run().await {
        Ok(_) => 0,
        Err(error) => {
            tracing::warn!(bucket = name, ?error, "what is due stays until the bucket can be read");
            1
        }
    };
    let expired = sweep.expired();
    let expired = Expired { failures: expired.failures + failed, ..expired };
    if expired != Expired::default() {
        tracing::info!(bucket = name, ?expired, "lifecycle rules were acted on");
    }
    Some((by, expired))
}
