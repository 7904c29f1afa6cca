//! Locks of one file: which owner holds which bytes, and how. Pure, without I/O or waiting.
//!
//! Invariants: the locks of one owner do not overlap, and those of the same kind and open file do not touch. An exclusive lock
//! overlaps no lock of another owner.

use crate::Handle;
use meta::Locker;

/// The owner of a lock: a process or an open file, as the front end defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// The session of the metadata engine; the default if locks hold in this process only.
    pub locker: Locker,
    /// The number of the front end that assigned `id`.
    pub session: u64,
    /// The owner's number in that front end.
    pub id: u64,
}

/// Kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// A lock that allows other owners shared locks in the same range.
    Shared,
    /// A lock that allows other owners no lock in the same range.
    Exclusive,
}

/// A lock of a range of bytes, held or wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The owner.
    pub owner: LockOwner,
    /// The open file through which the lock was requested. The lock ends when that file is closed, at the latest.
    pub handle: Handle,
    /// The first byte.
    pub first: u64,
    /// The last byte, which belongs to the range.
    pub last: u64,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The process that requested the lock, as reported to other owners.
    pub pid: u32,
}

impl Lock {
    fn overlaps(&self, first: u64, last: u64) -> bool {
        self.first <= last && first <= self.last
    }

    /// Returns whether two locks cannot both be held.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let is_any_exclusive = self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive;
        is_any_exclusive && self.owner != other.owner && self.overlaps(other.first, other.last)
    }
}

/// Held locks of one file, ordered by their first byte.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Held(Vec<Lock>);

impl Held {
    /// Returns the held locks that conflict with a lock, ordered by their first byte.
    pub(super) fn against<'a>(&'a self, wanted: &'a Lock) -> impl Iterator<Item = &'a Lock> {
        self.0.iter().filter(|held| held.excludes(wanted))
    }

    /// Gives an owner a lock in place of what it holds in that range. No other lock may conflict.
    pub(super) fn set(&mut self, wanted: Lock) {
        debug_assert!(
            self.against(&wanted).next().is_none(),
            "{wanted:?} is given although others hold {self:?}"
        );
        self.clear(wanted.owner, wanted.first, wanted.last);
        let touches = |held: &Lock| {
            (held.owner, held.handle, held.kind) == (wanted.owner, wanted.handle, wanted.kind)
                && held.overlaps(wanted.first.saturating_sub(1), wanted.last.saturating_add(1))
        };
        let mut merged = wanted;
        for neighbour in self.0.extract_if(.., |held| touches(held)) {
            merged.first = merged.first.min(neighbour.first);
            merged.last = merged.last.max(neighbour.last);
        }
        self.insert(merged);
    }

    /// Removes what an owner holds in a range.
    pub(super) fn clear(&mut self, owner: LockOwner, first: u64, last: u64) {
        let cut: Vec<Lock> =
            self.0.extract_if(.., |held| held.owner == owner && held.overlaps(first, last)).collect();
        for held in cut {
            if held.first < first {
                self.insert(Lock { last: first - 1, ..held });
            }
            if held.last > last {
                self.insert(Lock { first: last + 1, ..held });
            }
        }
    }

    /// Removes the locks for which `is_meant` returns true.
    pub(super) fn drop_all(&mut self, is_meant: impl Fn(&Lock) -> bool) {
        self.0.retain(|held| !is_meant(held));
    }

    /// Returns all locks, ordered by their first byte.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a lock that was held before.
    pub(super) fn insert(&mut self, lock: Lock) {
        let at = self.0.partition_point(|held| held.first <= lock.first);
        self.0.insert(at, lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Number of bytes in the model. The last one stands for all bytes after it.
    const BYTES: u64 = 12;
    const OWNERS: u64 = 3;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Set(Lock),
        Clear(LockOwner, u64, u64),
        DropAll(LockOwner),
        DropHandle(Handle),
    }

    fn owner(number: u64) -> LockOwner {
        // Owners with the same number in different sessions are different owners.
        LockOwner { locker: Locker::default(), session: number % 2, id: number / 2 }
    }

    fn last(byte: u64) -> u64 {
        if byte == BYTES - 1 { u64::MAX } else { byte }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), last(a.max(b))));
        let kind = prop_oneof![Just(LockKind::Shared), Just(LockKind::Exclusive)];
        let owners = (0..OWNERS).prop_map(owner);
        let handle = || (0..OWNERS).prop_map(Handle);
        let step = prop_oneof![
            6 => (owners.clone(), handle(), range.clone(), kind).prop_map(|(owner, handle, (first, last), kind)| {
                Step::Set(Lock { owner, handle, first, last, kind, pid: owner.id as u32 })
            }),
            3 => (owners.clone(), range).prop_map(|(owner, (first, last))| Step::Clear(owner, first, last)),
            1 => owners.prop_map(Step::DropAll),
            1 => handle().prop_map(Step::DropHandle),
        ];
        proptest::collection::vec(step, 1..60)
    }

    /// The lock that each owner holds on each byte.
    #[derive(Default, PartialEq, Debug)]
    struct Model([[Option<(LockKind, u64)>; OWNERS as usize]; BYTES as usize]);

    fn number(owner: LockOwner) -> usize {
        (owner.id * 2 + owner.session) as usize
    }

    impl Model {
        fn write(&mut self, owner: LockOwner, first: u64, last: u64, kind: Option<(LockKind, u64)>) {
            for byte in first..=last.min(BYTES - 1) {
                self.0[byte as usize][number(owner)] = kind;
            }
        }

        fn drop_handle(&mut self, handle: Handle) {
            for held in self.0.iter_mut().flatten() {
                held.take_if(|(_, through)| *through == handle.0);
            }
        }

        fn allows(&self, lock: &Lock) -> bool {
            (lock.first..=lock.last.min(BYTES - 1)).all(|byte| {
                let others = self.0[byte as usize].iter().enumerate();
                others.filter(|(other, _)| *other != number(lock.owner)).all(|(_, held)| match held {
                    None => true,
                    Some((kind, _)) => (*kind, lock.kind) == (LockKind::Shared, LockKind::Shared),
                })
            })
        }

        fn of(held: &Held) -> Self {
            let mut model = Self::default();
            for lock in &held.0 {
                model.write(lock.owner, lock.first, lock.last, Some((lock.kind, lock.handle.0)));
            }
            model
        }
    }

    fn assert_normal(held: &Held) {
        assert!(held.0.is_sorted_by_key(|lock| lock.first), "{held:?}");
        for (at, one) in held.0.iter().enumerate() {
            assert!(one.first <= one.last, "{one:?}");
            for other in held.0[at + 1..].iter().filter(|other| other.owner == one.owner) {
                let may_touch = u64::from((one.kind, one.handle) == (other.kind, other.handle));
                assert!(one.last.saturating_add(may_touch) < other.first, "{held:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn locks_are_what_a_plain_model_says(steps in steps()) {
            let (mut held, mut model) = (Held::default(), Model::default());
            for step in steps {
                match step {
                    Step::Set(lock) => {
                        let fits = held.against(&lock).next().is_none();
                        prop_assert_eq!(fits, model.allows(&lock), "{:?} {:?}", lock, held);
                        if fits {
                            held.set(lock);
                            model.write(lock.owner, lock.first, lock.last, Some((lock.kind, lock.handle.0)));
                        }
                    }
                    Step::Clear(owner, first, last) => {
                        held.clear(owner, first, last);
                        model.write(owner, first, last, None);
                    }
                    Step::DropAll(owner) => {
                        held.drop_all(|held| held.owner == owner);
                        model.write(owner, 0, u64::MAX, None);
                    }
                    Step::DropHandle(handle) => {
                        held.drop_all(|held| held.handle == handle);
                        model.drop_handle(handle);
                    }
                }
                prop_assert_eq!(Model::of(&held), Model(model.0));
                assert_normal(&held);
            }
        }
    }
}
