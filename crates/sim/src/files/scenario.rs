//! What a seed makes of a world: the volume, the programs, the weather.

use store::Entropy;
use vfs::{Mapping, Naming};

/// The volume and what happens to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) naming: Naming,
    pub(crate) mapping: Mapping,
    pub(crate) write_back: bool,
    /// Programs at the same time, each in a directory of its own.
    pub(crate) programs: u64,
    /// Mounts, one after the other.
    pub(crate) sessions: u64,
    /// Ops of a program in one life.
    pub(crate) ops: u64,
    /// Calls take their time, so that those of several programs overlap.
    pub(crate) is_slow: bool,
    pub(crate) rates: FaultRates,
    /// Writes are mostly shorter, in bytes.
    pub(crate) write_bytes: u64,
    /// Writes begin at most so far behind the end of the file, in bytes.
    pub(crate) gap_bytes: u64,
    pub(crate) part_size_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
}

/// How often in a thousand calls of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultRates {
    /// One fails, before or after its effect.
    pub(crate) failures: u64,
    /// One is made twice, as a client does that got no answer; the second answer counts.
    pub(crate) repeats: u64,
    /// A commit of the metadata, or a sync, fails without effect.
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

/// A third of all worlds have fine weather but for crashes.
fn draw_rates(entropy: &Entropy, naming: Naming) -> FaultRates {
    // The names of a volume named by path are in memory, which does not fail.
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
