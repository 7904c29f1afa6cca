//! Ageing of a store: it is filled, then objects of mixed sizes are overwritten and deleted until the free space is fragmented.

use super::load::{Done, Load, LoadError, Operation};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use store::Entropy;

/// First object number of ageing. The workloads use lower ones.
const FIRST_OBJECT: u64 = 1 << 40;
/// Number of concurrent writers, each with its own objects.
const WRITERS: usize = 8;
/// Maximum number of objects of a writer.
const SLOTS: u64 = 1 << 20;

/// The parameters of ageing.
#[derive(Debug, Clone, Serialize)]
pub struct Age {
    /// Capacity of the store, in bytes.
    pub capacity_bytes: u64,
    /// Share of the capacity that is full while objects are overwritten.
    pub fill_percent: u64,
    /// Share of the capacity that is full at the end; the rest is free for later objects.
    pub left_percent: u64,
    /// Number of times that the capacity is overwritten.
    pub turnovers: u64,
    /// Maximum object size. Sizes are 4 KiB times a power of two.
    pub size_bytes_max: u64,
}

impl Age {
    /// Returns parameters for 80 % fill and three turnovers. At the end so much less than 80 % is full that objects
    /// of `later_bytes`, put after ageing, fill the store to 80 % again.
    pub(super) fn before(later_bytes: u64, capacity_bytes: u64, size_bytes_max: u64) -> Self {
        const FILL_PERCENT: u64 = 80;
        let later_percent = (later_bytes * 100).div_ceil(capacity_bytes.max(1));
        Self {
            capacity_bytes,
            fill_percent: FILL_PERCENT,
            left_percent: FILL_PERCENT.saturating_sub(later_percent),
            turnovers: 3,
            size_bytes_max,
        }
    }
}

impl Load {
    /// Ages the store.
    ///
    /// # Errors
    /// As [`Load::mix`].
    pub async fn age(&self, age: &Age) -> Result<Done, LoadError> {
        let writers: Vec<_> =
            (0..WRITERS).map(|number| Mutex::new(Writer::new(age, self.seed(), number))).collect();
        // Each writer has one task. The lock is not held across an await, and nothing panics under it.
        self.run(WRITERS, move |task| {
            writers[task].lock().unwrap_or_else(PoisonError::into_inner).next_operation()
        })
        .await
    }
}

/// A writer with its part of the store.
#[derive(Debug)]
struct Writer {
    entropy: Entropy,
    first_object: u64,
    /// Size of the object in each slot; 0 if the slot is empty.
    slots: Vec<u64>,
    live_bytes: u64,
    written_bytes: u64,
    /// Number of different object sizes.
    sizes: u64,
    goal: Goal,
}

/// The fill levels of a writer and the bytes that it writes.
#[derive(Debug)]
struct Goal {
    /// Fill level while objects are overwritten.
    full_bytes: u64,
    /// Fill level at the end.
    left_bytes: u64,
    /// Bytes to write in total.
    written_bytes: u64,
}

impl Writer {
    fn new(age: &Age, seed: u64, number: usize) -> Self {
        let part = age.capacity_bytes / WRITERS as u64;
        Self {
            entropy: Entropy::new(seed ^ (number as u64).wrapping_mul(0xd6e8_feb8_6659_fd93)),
            first_object: FIRST_OBJECT + number as u64 * SLOTS,
            slots: Vec::new(),
            live_bytes: 0,
            written_bytes: 0,
            sizes: u64::from((age.size_bytes_max >> 12).max(1).ilog2()) + 1,
            goal: Goal {
                full_bytes: part * age.fill_percent / 100,
                left_bytes: part * age.left_percent / 100,
                written_bytes: part * age.fill_percent / 100 + part * age.turnovers,
            },
        }
    }

    /// Returns the next operation: first PUTs of new objects until the part is full, then overwrites (or deletions, if an overwrite does not
    /// fit), and at the end deletions down to the final fill level.
    fn next_operation(&mut self) -> Option<Operation> {
        let size_bytes = 4096 << self.entropy.below(self.sizes);
        if self.written_bytes >= self.goal.written_bytes {
            return (self.live_bytes > self.goal.left_bytes).then(|| self.delete());
        }
        if self.live_bytes + size_bytes <= self.goal.full_bytes {
            return Some(self.put(size_bytes));
        }
        if self.live_bytes == 0 {
            // The part is too small for even one object of this size.
            return None;
        }
        Some(self.delete_or_overwrite(size_bytes))
    }

    /// Puts an object into an empty slot, or into a new one.
    fn put(&mut self, size_bytes: u64) -> Operation {
        let slot = self.slots.iter().position(|held| *held == 0).unwrap_or_else(|| {
            self.slots.push(0);
            self.slots.len() - 1
        });
        self.store(slot, size_bytes)
    }

    fn delete_or_overwrite(&mut self, size_bytes: u64) -> Operation {
        let slot = self.random_full_slot();
        if self.live_bytes - self.slots[slot] + size_bytes <= self.goal.full_bytes {
            return self.store(slot, size_bytes);
        }
        self.delete()
    }

    fn delete(&mut self) -> Operation {
        let slot = self.random_full_slot();
        self.live_bytes -= std::mem::take(&mut self.slots[slot]);
        Operation::Delete { object: self.first_object + slot as u64 }
    }

    fn store(&mut self, slot: usize, size_bytes: u64) -> Operation {
        self.live_bytes = self.live_bytes - self.slots[slot] + size_bytes;
        self.written_bytes += size_bytes;
        self.slots[slot] = size_bytes;
        Operation::Put { object: self.first_object + slot as u64, version: self.written_bytes, size_bytes }
    }

    /// Returns a random slot that holds an object. There must be one.
    fn random_full_slot(&mut self) -> usize {
        let from = self.entropy.below(self.slots.len() as u64) as usize;
        let is_full = |slot: &usize| self.slots[*slot] > 0;
        let found = (from..self.slots.len()).find(is_full).or_else(|| (0..from).find(is_full));
        assert!(found.is_some(), "live_bytes is not 0, but all slots are empty");
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_reaches_its_goals_and_never_exceeds_its_fill_level() {
        let age = Age {
            capacity_bytes: 64 << 20,
            fill_percent: 80,
            left_percent: 50,
            turnovers: 3,
            size_bytes_max: 1 << 20,
        };
        let mut writer = Writer::new(&age, 1, 0);
        let (mut put_bytes, mut deletes, mut max_live) = (0, 0, 0);
        while let Some(operation) = writer.next_operation() {
            match operation {
                Operation::Put { size_bytes, .. } => put_bytes += size_bytes,
                Operation::Delete { .. } => deletes += 1,
                Operation::Get { .. } => panic!("ageing reads nothing"),
            }
            max_live = max_live.max(writer.live_bytes);
            assert_eq!(writer.live_bytes, writer.slots.iter().sum::<u64>());
        }
        let part = age.capacity_bytes / WRITERS as u64;
        assert!(max_live <= part * 80 / 100 && max_live > part * 60 / 100, "{max_live}");
        assert!(put_bytes >= part * 380 / 100 && deletes > 10, "{put_bytes} {deletes}");
        assert!(writer.live_bytes <= part / 2 && writer.live_bytes > part / 4, "{}", writer.live_bytes);
    }
}
