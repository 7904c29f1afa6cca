//! Answers to requests that observe a mount for a while: metrics with times, profiles, traces and activity.

use crate::bucket::Bucket;
use crate::control::live_messages::{Activity, TraceFilter};
use crate::control::profile_row::ProfileRow;
use crate::control::protocol::{Answer, Status};
use crate::control::server::Replies;
use crate::serving::activity::{self, ActivityRecorder};
use crate::serving::mount_points::MountPoints;
use crate::serving::observed_mounts::ObservedMount;
use crate::serving::traces::Trace;
use ::metrics::Collection;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Maximum time for which one request for metrics lets times be measured, in seconds.
const MEASURE_SECS_MAX: u64 = 60;
/// Maximum time of a profile, in seconds.
const PROFILE_SECS_MAX: u64 = 3600;

/// Measures the times of the kernel's requests for a while from now on.
pub(super) fn measure_times(mount_points: &MountPoints, secs: u64) {
    let timing = mount_points.measure_times();
    let duration = Duration::from_secs(secs.min(MEASURE_SECS_MAX));
    tokio::spawn(async move {
        tokio::time::sleep(duration).await;
        drop(timing);
    });
}

/// Records the operations of programs for some seconds, and returns them by process.
pub(super) async fn profile(mounts: &[ObservedMount], secs: u64) -> Answer {
    let meters = mounts.iter().flat_map(|mount| &mount.meters);
    let runs: Vec<_> = meters.map(|meter| meter.profile()).collect();
    tokio::time::sleep(Duration::from_secs(secs.min(PROFILE_SECS_MAX))).await;
    Answer::Profile { rows: runs.iter().flat_map(|run| run.rows()).map(ProfileRow::from).collect() }
}

/// Reports the operations that match a filter until the client disconnects. The answer that is returned then reaches no client.
pub(super) async fn trace(
    mounts: &[ObservedMount],
    bucket: &Bucket,
    filter: &TraceFilter,
    replies: &mut Replies,
) -> Answer {
    let trace = match Trace::start(mounts, bucket, filter) {
        Ok(trace) => trace,
        Err(error) => return Answer::Failed { reason: format!("{error:#}") },
    };
    // The first message tells the client that the trace has begun.
    let mut is_connected = replies.try_send(&Answer::Traced(Default::default())).await;
    while is_connected {
        is_connected = replies.try_send(&Answer::Traced(trace.next().await)).await;
    }
    Answer::Traced(Default::default())
}

/// Reports the activity of each interval until the client disconnects. `describe` returns status and metrics. Without a recorder, no
/// files and processes are reported.
pub(super) async fn report_activity(
    interval_ms: u64,
    recorder: Option<ActivityRecorder>,
    describe: impl Fn() -> (Status, Collection),
    replies: &mut Replies,
) -> Answer {
    let mut ticks = tokio::time::interval(activity::interval(interval_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        ticks.tick().await;
        let (processes, files) = recorder.as_ref().map(ActivityRecorder::take).unwrap_or_default();
        let (status, collection) = describe();
        let interval = before.elapsed();
        before = Instant::now();
        let activity = Activity {
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            status: Box::new(status),
            samples: collection.samples(),
            processes,
            files,
        };
        if !replies.try_send(&Answer::Activity(activity)).await {
            return Answer::Activity(Activity::default());
        }
    }
}
