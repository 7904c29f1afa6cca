//! Who must not return before others see what was renamed.

use super::Mover;
use crate::{ObjectKey, Result};

impl Mover {
    /// Returns when what shows under a key lies there, and nowhere else.
    pub async fn arrive(&self, key: &ObjectKey) -> Result<()> {
        self.settle(key).await
    }

    /// Returns when everything that shows under keys that begin so lies there, and nowhere else.
    pub async fn arrive_tree(&self, prefix: &[u8]) -> Result<()> {
        let numbers = self.state().moves.showing_in(prefix);
        for number in numbers {
            self.carry_out(number).await?;
        }
        Ok(())
    }
}
