//! Fuzzing of the journal of moves.

use super::journal;

/// Replays a journal with any damage and checks that the replayed moves, written as a journal, replay to the same.
pub fn mover_journal(bytes: &[u8]) {
    journal::fuzz(bytes);
}
