//! The process that makes a request, and its supplementary groups, which the request does not contain.
//!
//! The process waits for the reply meanwhile, so its entry in `/proc` is valid (proc_pid_status(5)). A process in
//! another PID namespace, which is invisible here, counts as a member of its primary group only.

use fuser::Request;

/// The capability to keep set-group-id bits regardless of group membership (capabilities(7)).
const CAP_FSETID: u32 = 4;

/// The process that makes a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester {
    pid: u32,
    uid: u32,
    gid: u32,
}

impl Requester {
    pub(crate) fn of(request: &Request) -> Self {
        Self { pid: request.pid(), uid: request.uid(), gid: request.gid() }
    }

    /// Returns whether the process is a member of a group, or may keep a set-group-id bit without being one (root and
    /// `CAP_FSETID`).
    pub(crate) fn is_in_group(self, gid: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        self.uid == 0 || self.gid == gid || has_group_or_capability(&status(), gid)
    }
}

/// Returns whether the `status` of a process in `/proc` lists a supplementary group or `CAP_FSETID`.
fn has_group_or_capability(status: &str, gid: u32) -> bool {
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
        assert!(
            has_group_or_capability(status, 24)
                && !has_group_or_capability(status, 2)
                && !has_group_or_capability("", 0)
        );
        assert!(has_group_or_capability("CapEff:\t0000000000000010\n", 2));
    }
}
