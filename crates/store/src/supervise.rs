//! Restarts background tasks that panic.

use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// First and longest delay between a panic and the restart.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Runs a background task until it returns. After a panic the task is started again from its beginning, after a delay
/// that doubles with each panic: one defect must not end the task for the rest of the process.
pub async fn supervise<F: Future<Output = ()>>(name: &str, mut task: impl FnMut() -> F) {
    let mut pause = PAUSES.0;
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        tracing::error!(
            task = name,
            again_in_secs = pause.as_secs(),
            "a background task panicked and will be restarted"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// A panic in the background lister or in a drive's maintenance ended that task until the next mount, without a
    /// message.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_runs_again_until_it_returns() {
        let (began, mut runs) = (Instant::now(), 0);
        supervise("test", || {
            runs += 1;
            let run = runs;
            async move {
                tokio::task::yield_now().await;
                assert_eq!(run, 4, "a defect");
            }
        })
        .await;
        assert_eq!((runs, began.elapsed().as_secs()), (4, 1 + 2 + 4));
    }
}
