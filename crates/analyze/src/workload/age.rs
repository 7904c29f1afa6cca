//! Ageing a store: filled, then overwritten and deleted in mixed sizes until its free space is in pieces.

use super::load::{Done, Load, LoadError, Operation};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use store::Entropy;

/// Where the objects of ageing are among the numbers of objects: behind those of the workloads.
const FIRST_OBJECT: u64 = 1 << 40;
/// Writers at a time, each with objects of its own.
const WRITERS: usize = 8;
/// Objects of a writer, at most.
const SLOTS: u64 = 1 << 20;

/// How to age.
#[derive(Debug, Clone, Serialize)]
pub struct Age {
    /// How much fits, in bytes.
    pub capacity_bytes: u64,
    /// How much of it is full while things are overwritten.
    pub fill_percent: u64,
    /// How much of it is full at the end: room for what comes then.
    pub left_percent: u64,
    /// How many times the capacity is written.
    pub turnovers: u64,
    /// Lengths of objects are 4 KiB times a power of two up to this.
    pub size_bytes_max: u64,
}

impl Age {
    /// 80 % full, three turnovers, and at the end room so that what comes then makes it as full again.
    pub(super) fn before(coming_bytes: u64, capacity_bytes: u64, size_bytes_max: u64) -> Self {
        const FILL_PERCENT: u64 = 80;
        let coming_percent = (coming_bytes * 100).div_ceil(capacity_bytes.max(1));
        Self {
            capacity_bytes,
            fill_percent: FILL_PERCENT,
            left_percent: FILL_PERCENT.saturating_sub(coming_percent),
            turnovers: 3,
            size_bytes_max,
        }
    }
}

impl Load {
    /// Ages.
    ///
    /// # Errors
    /// As [`Load::mix`].
    pub async fn age(&self, age: &Age) -> Result<Done, LoadError> {
        let writers: Vec<_> =
            (0..WRITERS).map(|number| Mutex::new(Writer::new(age, self.seed(), number))).collect();
        // No await and nothing that panics happens under the lock; each writer has one task.
        self.run(WRITERS, move |task| writers[task].lock().unwrap_or_else(PoisonError::into_inner).next())
            .await
    }
}

/// One writer's part of the store.
#[derive(Debug)]
struct Writer {
    entropy: Entropy,
    first_object: u64,
    /// Lengths by slot; 0 is no object.
    slots: Vec<u64>,
    live_bytes: u64,
    written_bytes: u64,
    sizes: u64,
    goal: Goal,
}

#[derive(Debug)]
struct Goal {
    full_bytes: u64,
    left_bytes: u64,
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

    /// Fills with new objects; then overwrites, deletes first where it does not fit; then deletes down to what is to be left.
    fn next(&mut self) -> Option<Operation> {
        let size_bytes = 4096 << self.entropy.below(self.sizes);
        if self.written_bytes >= self.goal.written_bytes {
            return (self.live_bytes > self.goal.left_bytes).then(|| self.delete());
        }
        if self.live_bytes + size_bytes <= self.goal.full_bytes {
            return Some(self.put(size_bytes));
        }
        if self.live_bytes == 0 {
            // Not even one of this length fits: a store of a few blocks.
            return None;
        }
        Some(self.delete_or_overwrite(size_bytes))
    }

    /// Into an empty slot, or a new one.
    fn put(&mut self, size_bytes: u64) -> Operation {
        let slot = self.slots.iter().position(|held| *held == 0).unwrap_or_else(|| {
            self.slots.push(0);
            self.slots.len() - 1
        });
        self.store(slot, size_bytes)
    }

    fn delete_or_overwrite(&mut self, size_bytes: u64) -> Operation {
        let slot = self.full_slot();
        if self.live_bytes - self.slots[slot] + size_bytes <= self.goal.full_bytes {
            return self.store(slot, size_bytes);
        }
        self.delete()
    }

    fn delete(&mut self) -> Operation {
        let slot = self.full_slot();
        self.live_bytes -= std::mem::take(&mut self.slots[slot]);
        Operation::Delete { object: self.first_object + slot as u64 }
    }

    fn store(&mut self, slot: usize, size_bytes: u64) -> Operation {
        self.live_bytes = self.live_bytes - self.slots[slot] + size_bytes;
        self.written_bytes += size_bytes;
        self.slots[slot] = size_bytes;
        Operation::Put { object: self.first_object + slot as u64, version: self.written_bytes, size_bytes }
    }

    /// Any slot with an object; there is one.
    fn full_slot(&mut self) -> usize {
        let from = self.entropy.below(self.slots.len() as u64) as usize;
        let is_full = |slot: &usize| self.slots[*slot] > 0;
        let found = (from..self.slots.len()).find(is_full).or_else(|| (0..from).find(is_full));
        assert!(found.is_some(), "no object though some bytes live");
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_filled_turned_over_and_never_fuller_than_it_may_be() {
        let age = Age {
            capacity_bytes: 64 << 20,
            fill_percent: 80,
            left_percent: 50,
            turnovers: 3,
            size_bytes_max: 1 << 20,
        };
        let mut writer = Writer::new(&age, 1, 0);
        let (mut put_bytes, mut deletes, mut most) = (0, 0, 0);
        while let Some(operation) = writer.next() {
            match operation {
                Operation::Put { size_bytes, .. } => put_bytes += size_bytes,
                Operation::Delete { .. } => deletes += 1,
                Operation::Get { .. } => panic!("ageing reads nothing"),
            }
            most = most.max(writer.live_bytes);
            assert_eq!(writer.live_bytes, writer.slots.iter().sum::<u64>());
        }
        let part = age.capacity_bytes / WRITERS as u64;
        assert!(most <= part * 80 / 100 && most > part * 60 / 100, "{most}");
        assert!(put_bytes >= part * 380 / 100 && deletes > 10, "{put_bytes} {deletes}");
        assert!(writer.live_bytes <= part / 2 && writer.live_bytes > part / 4, "{}", writer.live_bytes);
    }
}
