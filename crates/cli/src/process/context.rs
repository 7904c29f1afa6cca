//! The clock and the random numbers of this process.

use anyhow::{Context as _, Result};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use store::{Clock, Entropy, SystemClock};

/// The clock and the random numbers of this process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessContext {
    /// The system clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Random numbers, seeded by the system.
    pub(crate) entropy: Arc<Entropy>,
}

impl ProcessContext {
    /// Returns the clock and the random numbers of the system.
    pub(crate) fn system() -> Result<Self> {
        let seed = random_bytes()?;
        Ok(Self { clock: Arc::new(SystemClock), entropy: Arc::new(Entropy::keyed(&seed)) })
    }
}

/// Returns a random id of the system, so that no two volumes have the same.
pub(crate) fn random_id() -> Result<u64> {
    random_bytes().map(u64::from_le_bytes)
}

/// Returns random bytes of the system.
fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random numbers from /dev/urandom")?;
    Ok(bytes)
}
