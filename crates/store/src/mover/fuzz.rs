//! The journal of moves, as a damaged disk or somebody else may have left it.

use super::journal;

/// Replays a journal with any damage; what is replayed is written as a journal that replays to the same.
pub fn mover_journal(bytes: &[u8]) {
    journal::fuzz(bytes);
}
