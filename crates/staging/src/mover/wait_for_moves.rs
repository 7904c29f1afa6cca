//! Waits for moves, for callers that must not return before other clients see a rename.

use super::Mover;
use store::{ObjectKey, Result};

impl Mover {
    /// Returns when the object visible under a key is stored there and nowhere else.
    pub async fn arrive(&self, key: &ObjectKey) -> Result<()> {
        self.finish_moves_into(key).await
    }

    /// Returns when all objects visible below a prefix are stored there and nowhere else.
    pub async fn arrive_tree(&self, prefix: &[u8]) -> Result<()> {
        let numbers = self.executor.state().moves.moves_into(prefix);
        for number in numbers {
            self.executor.execute(number).await?;
        }
        Ok(())
    }
}
