//! Followers of the op log: parts of the mount that derive state from committed ops.

pub(crate) mod front_ends;
