//! Slots of objects in the order of a key, which the caller derives from each slot. Takes about five bytes for a slot.
//!
//! Invariants: no two slots have equal keys; no chunk is empty or longer than [`CHUNK_MAX`]; a slot's key does not change while the slot
//! is in the list.

/// Maximum number of slots in a chunk: so many that chunks are few, so few that inserting into one is cheap.
const CHUNK_MAX: usize = 512;

/// Slots in chunks, both in ascending order of keys.
#[derive(Debug, Default)]
pub(super) struct SortedSlots {
    chunks: Vec<Vec<u32>>,
}

/// The index of a chunk, and an index in it.
type Position = (usize, usize);

impl SortedSlots {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns whether there is exactly one slot.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.chunks.as_slice(), [only] if only.len() == 1)
    }

    /// Returns the slot with the least key; `None` if there are no slots.
    pub(super) fn first(&self) -> Option<u32> {
        self.chunks.first()?.first().copied()
    }

    /// Returns the slot of a key; `None` if no slot has it.
    pub(super) fn find<K: Ord>(&self, key: &K, key_of: impl Fn(u32) -> K) -> Option<u32> {
        let (chunk, at) = self.position(key, &key_of).ok()?;
        Some(self.chunks[chunk][at])
    }

    /// Inserts a slot, whose key no other slot has.
    pub(super) fn insert<K: Ord>(&mut self, slot: u32, key_of: impl Fn(u32) -> K) {
        let Err((chunk, at)) = self.position(&key_of(slot), &key_of) else {
            unreachable!("a name or an object has one slot")
        };
        let Some(slots) = self.chunks.get_mut(chunk) else { return self.chunks.push(vec![slot]) };
        if slots.len() < CHUNK_MAX {
            return slots.insert(at, slot);
        }
        let mut upper = slots.split_off(CHUNK_MAX / 2);
        slots.shrink_to_fit();
        match at.checked_sub(slots.len()) {
            Some(at) if at > 0 => upper.insert(at, slot),
            _ => slots.insert(at, slot),
        }
        self.chunks.insert(chunk + 1, upper);
    }

    /// Removes and returns the slot of a key; `None` if no slot has it.
    pub(super) fn remove<K: Ord>(&mut self, key: &K, key_of: impl Fn(u32) -> K) -> Option<u32> {
        let (chunk, at) = self.position(key, &key_of).ok()?;
        let slot = self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
        Some(slot)
    }

    /// Returns the slots after a key, or all for `None`, in ascending order of keys.
    pub(super) fn after<K: Ord, F: Fn(u32) -> K>(
        &self,
        key: Option<K>,
        key_of: F,
    ) -> impl Iterator<Item = u32> + use<'_, K, F> {
        let (chunk, at) = match key.map(|key| self.position(&key, &key_of)) {
            None => (0, 0),
            Some(Ok((chunk, at))) => (chunk, at + 1),
            Some(Err(position)) => position,
        };
        let first = self.chunks.get(chunk).map_or(&[][..], |slots| &slots[at..]);
        let others = self.chunks.get(chunk + 1..).unwrap_or_default();
        first.iter().chain(others.iter().flatten()).copied()
    }

    /// Returns the position of a key, or as an error the position at which it would be inserted.
    fn position<K: Ord>(&self, key: &K, key_of: &impl Fn(u32) -> K) -> Result<Position, Position> {
        // The last chunk whose first key is not after the key, or the first chunk.
        let chunk = self.chunks.partition_point(|slots| key_of(slots[0]) <= *key).saturating_sub(1);
        let Some(slots) = self.chunks.get(chunk) else { return Err((chunk, 0)) };
        let at = slots.binary_search_by(|slot| key_of(*slot).cmp(key));
        at.map(|at| (chunk, at)).map_err(|at| (chunk, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::ops::Bound;

    #[test]
    fn slots_are_kept_in_the_order_of_their_keys() {
        let key_of = |slot: u32| slot.reverse_bits();
        let (mut sorted, mut model) = (SortedSlots::default(), BTreeSet::new());
        let random = store::Entropy::new(1);
        for _ in 0..20_000 {
            let slot = random.below(4000) as u32;
            let is_new = model.insert(key_of(slot));
            assert_eq!(sorted.find(&key_of(slot), key_of), (!is_new).then_some(slot));
            if is_new {
                sorted.insert(slot, key_of);
            } else if random.below(3) == 0 {
                model.remove(&key_of(slot));
                assert_eq!(sorted.remove(&key_of(slot), key_of), Some(slot));
            }
            let after = random.next_u64() as u32;
            let expected = model.range((Bound::Excluded(after), Bound::Unbounded)).next().copied();
            assert_eq!(sorted.after(Some(after), key_of).next().map(key_of), expected);
        }
        assert!(
            sorted.chunks.len() > 4
                && sorted.chunks.iter().all(|slots| (1..=CHUNK_MAX).contains(&slots.len()))
        );
        assert_eq!(sorted.after(None, key_of).map(key_of).collect::<Vec<_>>(), Vec::from_iter(model));
        let all: Vec<u32> = sorted.after(None, key_of).collect();
        assert_eq!(sorted.first(), all.first().copied());
        for slot in all {
            assert!(!sorted.is_empty());
            sorted.remove(&key_of(slot), key_of);
        }
        assert!(sorted.is_empty() && !sorted.is_single());
    }
}
