//! The ways in which batches are verified.

/// The way in which a batch is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Proof {
    /// By canonical ops that are derived from its rows. If none lead to the rows, by [`Replay`](Self::Replay).
    #[default]
    Reduced,
    /// By its ops: each is checked and applied again.
    Replay,
}
