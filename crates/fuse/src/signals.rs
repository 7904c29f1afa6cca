//! Detects signals that are pending for a program that waits for a lock.
//!
//! The kernel announces a signal by INTERRUPT, which `fuser` does not pass on, and then keeps the program waiting, even
//! if the program was killed. A request that waits for another program therefore polls `/proc` (proc_pid_status(5)).

use std::time::Duration;

/// Interval of polling `/proc`.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns when a signal is pending that would wake the thread. The signal must be there at two consecutive polls,
/// because another thread may handle a signal sent to the process. Never returns for a thread that has ended, or is
/// invisible here because it is in another PID namespace.
pub(crate) async fn wait_for_signal(thread: u32) {
    let mut was_pending = false;
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) {
        let is_pending = has_pending_signal(&status);
        if is_pending && was_pending {
            return;
        }
        was_pending = is_pending;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    std::future::pending().await
}

/// Returns whether the `status` of a thread in `/proc` shows a pending signal that is neither blocked nor ignored.
fn has_pending_signal(status: &str) -> bool {
    let set = |name: &str| {
        let field = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(field.trim(), 16).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_would_be_handled_count() {
        let status = |own, shared, blocked, ignored| {
            format!(
                "Name:\tsh\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        assert!(has_pending_signal(&status(0x100, 0, 0, 0)) && has_pending_signal(&status(0, 0x4000, 0, 0)));
        assert!(
            !has_pending_signal(&status(0, 0, 0, 0)) && !has_pending_signal(&status(0x4000, 0, 0x4000, 0))
        );
        assert!(!has_pending_signal(&status(0, 0x4000, 0, 0x4000)) && !has_pending_signal(""));
    }
}
