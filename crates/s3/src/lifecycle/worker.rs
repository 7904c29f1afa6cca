//! The worker that applies lifecycle rules.
//!
//! A bucket is swept once a day, since items become due at midnight (UTC), when its rules have changed, and again after
//! a sweep with failures.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::Timestamp;
use tokio::sync::watch;

use super::rule::Rule;
use super::sweep::{Expired, Sweep};
use crate::context::EndpointContext;

/// The interval at which the worker checks which buckets are due for a sweep.
const CHECK_INTERVAL: Duration = Duration::from_secs(600);
/// The delay of the first check, so that an endpoint started for a short query does not sweep.
const FIRST_CHECK_DELAY: Duration = Duration::from_secs(5);
const DAY_SECS: i64 = 86_400;

/// The day and the rules of a bucket's last sweep.
type LastSweep = (i64, Vec<Rule>);

/// Applies lifecycle rules until `ends` becomes true.
pub(crate) async fn run(context: Arc<EndpointContext>, mut ends: watch::Receiver<bool>) {
    let work = async {
        let mut last_sweeps = HashMap::new();
        tokio::time::sleep(FIRST_CHECK_DELAY).await;
        loop {
            sweep_due_buckets(&context, &mut last_sweeps).await;
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = work => {}
        // An error means that the server was dropped.
        _ = ends.wait_for(|is_ending| *is_ending) => {}
    }
}

/// Sweeps all buckets now.
pub(crate) async fn expire_all(context: &EndpointContext) -> Expired {
    sweep_due_buckets(context, &mut HashMap::new()).await
}

/// Applies the lifecycle rules of the buckets whose next sweep is due.
async fn sweep_due_buckets(
    context: &EndpointContext,
    last_sweeps: &mut HashMap<String, LastSweep>,
) -> Expired {
    let names = match context.buckets.list().await {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(%error, "cannot list the buckets; lifecycle rules are applied later");
            return Expired { failures: 1, ..Expired::default() };
        }
    };
    last_sweeps.retain(|name, _| names.contains(name));
    let mut expired = Expired::default();
    for name in names {
        let now = context.clock.now();
        let outcome = sweep(context, &name, now, last_sweeps.get(&name)).await;
        if let Some((key, outcome)) = outcome {
            if outcome.failures == 0 {
                last_sweeps.insert(name, key);
            }
            expired = expired.plus(outcome);
        }
    }
    expired
}

/// Sweeps a bucket unless it was swept today by the same rules. Returns the sweep's day and rules, and its results;
/// `None` if there was no sweep, as for a bucket without enabled rules.
async fn sweep(
    context: &EndpointContext,
    name: &str,
    now: Timestamp,
    last: Option<&LastSweep>,
) -> Option<(LastSweep, Expired)> {
    // A bucket deleted in the meantime is no failure.
    let bucket = context.open_bucket(name).await.ok()?;
    let key = (now.secs().div_euclid(DAY_SECS), super::enabled_rules(&bucket).await.ok()?);
    if key.1.is_empty() || last == Some(&key) {
        return None;
    }
    let sweep = Sweep::new(bucket, key.1.clone(), now, context.notifier.clone());
    let failed = match sweep.run().await {
        Ok(_) => 0,
        Err(error) => {
            tracing::warn!(
                bucket = name,
                ?error,
                "cannot read the bucket; its lifecycle rules are applied later"
            );
            1
        }
    };
    let expired = sweep.expired();
    let expired = Expired { failures: expired.failures + failed, ..expired };
    if expired != Expired::default() {
        tracing::info!(bucket = name, ?expired, "applied lifecycle rules");
    }
    Some((key, expired))
}
