//! Descriptors of this process: as many as the system lets it have, and how many of them clients may take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What files, the engine, the cache and the connections to the store may take before clients do.
const OWN: u64 = 1024;

/// Raises the limit as far as anybody may; the limit in force.
pub(crate) fn raise() -> u64 {
    let given = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: given.maximum, maximum: given.maximum };
    let in_force = if setrlimit(Resource::Nofile, raised).is_ok() { given.maximum } else { given.current };
    in_force.unwrap_or(u64::MAX)
}

/// How many connections clients may have under this limit, of those that they could have.
pub(crate) fn for_connections(limit: u64, wanted: u32) -> u32 {
    let left = limit.saturating_sub(OWN).max(limit / 2);
    wanted.min(u32::try_from(left).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_some() {
        for (limit, connections) in
            [(u64::MAX, 16_384), (20_000, 16_384), (4096, 3072), (1024, 512), (20, 10)]
        {
            assert_eq!(for_connections(limit, 16_384), connections);
        }
    }
}
