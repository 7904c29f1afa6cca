//! Options for opening a drive.

/// Size of the buffer pool for reads and writes: the size of the read cache divided by `BUFFER_POOL_DIVISOR`, within
/// the following bounds in bytes.
const BUFFER_POOL_DIVISOR: u64 = 4;
const BUFFER_POOL_BYTES_MIN: u64 = 64 << 20;
const BUFFER_POOL_BYTES_MAX: u64 = 256 << 20;

/// Options for opening a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Memory for the index, in bytes. Half is for entries that are in no table yet, half for cached blocks and filters of tables. In
    /// addition, the index takes the entries of one commit and 1 KiB per million entries.
    pub index_bytes: usize,
    /// Size of the read cache for bytes of objects, in bytes; 0 disables it.
    pub read_cache_bytes: u64,
    /// Open without writing anything.
    pub read_only: bool,
    /// Open a damaged drive read-only with its intact part: the log up to the damage, and the readable tables of the index.
    /// [`Drive::losses`](crate::Drive::losses) lists what is missing.
    pub before_damage: bool,
}

impl OpenOptions {
    pub(super) fn buffer_pool_bytes(&self) -> usize {
        let part_bytes = self.read_cache_bytes / BUFFER_POOL_DIVISOR;
        part_bytes.clamp(BUFFER_POOL_BYTES_MIN, BUFFER_POOL_BYTES_MAX) as usize
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { index_bytes: 256 << 20, read_cache_bytes: 256 << 20, read_only: false, before_damage: false }
    }
}
