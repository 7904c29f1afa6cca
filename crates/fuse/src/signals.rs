//! Whether a program that waits for an answer has a signal to look at.
//!
//! The kernel says so with INTERRUPT, which the transport does not hand on, and then lets the program wait, even one that
//! was killed. So whoever lets a program wait for another one looks at what `/proc` shows of it (proc_pid_status(5)).

use std::time::Duration;

/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns when a signal waits for a thread that it would wake: at two looks, as another thread may take one that is
/// sent to the process. Never for one that cannot be seen, in a container of its own.
pub(crate) async fn arrive_at(thread: u32) {
    let mut was_there = false;
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) {
        let is_there = waits(&status);
        if is_there && was_there {
            return;
        }
        was_there = is_there;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    std::future::pending().await
}

/// Whether there is a signal that is neither blocked nor ignored.
fn waits(status: &str) -> bool {
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
    fn only_signals_count_that_would_be_looked_at() {
        let status = |own, shared, blocked, ignored| {
            format!(
                "Name:\tsh\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        assert!(waits(&status(0x100, 0, 0, 0)) && waits(&status(0, 0x4000, 0, 0)));
        assert!(!waits(&status(0, 0, 0, 0)) && !waits(&status(0x4000, 0, 0x4000, 0)));
        assert!(!waits(&status(0, 0x4000, 0, 0x4000)) && !waits(""));
    }
}
