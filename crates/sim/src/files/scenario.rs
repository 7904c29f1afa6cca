//! The parameters of a world that its seed determines: volume, programs and fault rates.

use store::Entropy;
use vfs::{Mapping, Naming};

/// The parameters of a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) naming: Naming,
    pub(crate) mapping: Mapping,
    pub(crate) write_back: bool,
    /// Number of concurrent programs, each in a directory of its own.
    pub(crate) programs: u64,
    /// Number of mount sessions, one after the other.
    pub(crate) sessions: u64,
    /// Ops per program and session.
    pub(crate) ops: u64,
    /// Calls have latency, so that calls of several programs overlap.
    pub(crate) is_slow: bool,
    pub(crate) rates: FaultRates,
    /// Typical maximum length of a write, in bytes.
    pub(crate) write_bytes: u64,
    /// Maximum distance of a write from the end of the file, in bytes.
    pub(crate) gap_bytes: u64,
    pub(crate) part_size_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
}

/// Fault rates per thousand calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultRates {
    /// A call of the store fails, before or after its effect.
    pub(crate) failures: u64,
    /// A call is sent twice, as after a lost reply; the second result counts.
    pub(crate) repeats: u64,
    /// A metadata commit or sync fails without effect.
    pub(crate) disk_failures: u64,
}

impl Scenario {
    pub(crate) fn draw(entropy: &Entropy) -> Self {
        let below = |bound| entropy.below(bound);
        let (naming, mapping) = draw_volume(entropy);
        let programs = [1, 1, 1, 2, 2, 3][below(6) as usize];
        let is_large = below(60) == 0;
        let part_size_bytes = [4 << 10, 64 << 10, 8 << 20][below(3) as usize];
        let write_bytes = match below(3) {
            _ if is_large => 700 << 10,
            0 => 3 * part_size_bytes.min(8 << 10),
            _ => 300,
        };
        Self {
            naming,
            mapping,
            write_back: below(3) == 0,
            programs,
            sessions: 1 + below(3),
            ops: if is_large { 10 } else { 10 + below(30) },
            is_slow: programs > 1 || below(4) == 0,
            rates: draw_rates(entropy, naming),
            write_bytes,
            gap_bytes: if below(8) == 0 { 200 << 10 } else { 200 },
            part_size_bytes,
            memory_limit_bytes: if below(4) == 0 { 9 << 20 } else { 1 << 30 },
        }
    }

    pub(crate) fn by_path(&self) -> bool {
        self.naming == Naming::FilePath
    }
}

fn draw_volume(entropy: &Entropy) -> (Naming, Mapping) {
    match entropy.below(3) {
        0 => (Naming::FilePath, Mapping::Whole),
        1 => (Naming::Inode, Mapping::Whole),
        _ => {
            let bytes = [4 << 10, 16 << 10, 1 << 20][entropy.below(3) as usize];
            (Naming::Inode, Mapping::Chunked { bytes })
        }
    }
}

/// Draws the fault rates. A third of all worlds have crashes only.
fn draw_rates(entropy: &Entropy, naming: Naming) -> FaultRates {
    // Volumes by path keep their names in memory, which has no disk failures.
    let is_on_disk = u64::from(naming == Naming::Inode);
    match entropy.below(3) {
        0 => FaultRates { failures: 0, repeats: 0, disk_failures: 0 },
        1 => FaultRates { failures: entropy.below(20), repeats: entropy.below(20), disk_failures: 0 },
        _ => FaultRates {
            failures: entropy.below(150),
            repeats: entropy.below(100),
            disk_failures: is_on_disk * entropy.below(2) * entropy.below(50),
        },
    }
}
