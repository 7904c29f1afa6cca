//! File descriptors of this process: their limit, and how many clients may use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for files, the engine, the cache and the connections to the store.
const RESERVED: u64 = 1024;

/// Raises the soft limit to the hard limit. Returns the limit in force.
pub(crate) fn raise_limit() -> u64 {
    let given = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: given.maximum, maximum: given.maximum };
    let in_force = if setrlimit(Resource::Nofile, raised).is_ok() { given.maximum } else { given.current };
    in_force.unwrap_or(u64::MAX)
}

/// Returns how many of the wanted connections clients may have under this limit.
pub(crate) fn connections_within(limit: u64, wanted: u32) -> u32 {
    let left = limit.saturating_sub(RESERVED).max(limit / 2);
    wanted.min(u32::try_from(left).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_by_clients() {
        for (limit, connections) in
            [(u64::MAX, 16_384), (20_000, 16_384), (4096, 3072), (1024, 512), (20, 10)]
        {
            assert_eq!(connections_within(limit, 16_384), connections);
        }
    }
}
