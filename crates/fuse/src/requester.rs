//! The groups of who makes a request, which the request does not say.
//!
//! The process waits for its answer, so what `/proc` shows of it holds (proc_pid_status(5)). One that cannot be seen,
//! in a container of its own, is taken for a stranger.

use fuser::Request;

/// The capability to keep set-group-id bits whatever one's groups (capabilities(7)).
const CAP_FSETID: u32 = 4;

/// Who makes a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pid: u32,
    uid: u32,
    gid: u32,
}

impl Caller {
    pub(crate) fn of(request: &Request) -> Self {
        Self { pid: request.pid(), uid: request.uid(), gid: request.gid() }
    }

    /// Whether the caller is in a group, or may do as if.
    pub(crate) fn has(self, gid: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        self.uid == 0 || self.gid == gid || says_so(&status(), gid)
    }
}

fn says_so(status: &str, gid: u32) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let groups = field("Groups:").split_ascii_whitespace();
    let capabilities = u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or(0);
    groups.filter_map(|group| group.parse().ok()).any(|group: u32| group == gid)
        || capabilities >> CAP_FSETID & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_found_in_a_status() {
        let status = "Name:\tsh\nGroups:\t4 24 1000 \nCapEff:\t0000000000000000\n";
        assert!(says_so(status, 24) && !says_so(status, 2) && !says_so("", 0));
        assert!(says_so("CapEff:\t0000000000000010\n", 2));
    }
}
