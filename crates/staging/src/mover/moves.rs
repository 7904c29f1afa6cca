//! The moves that are not finished yet: pure state, no I/O.
//!
//! A move says that the object stored at a physical key is visible under a logical key. Physical keys are the
//! bucket's own and do not change while the object waits. A further rename only changes the logical key, so an object
//! that is renamed several times is moved once.
//!
//! Invariants: of several moves of one object that begin at the same key, the newest owns the object stored there,
//! and the earlier ones are executed first. Of moves whose prefixes are nested, the inner one owns the objects below
//! its prefix. Nothing is visible under a key or prefix that was renamed away until its objects have left.

mod plan;

use super::candidate::Candidate;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::{ETag, ObjectKey, ObjectRef, Precondition};

/// A rename to be carried out: the objects at `from` in the bucket are visible under `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    /// The physical key, or a prefix that ends in `/`.
    pub(super) from: Vec<u8>,
    /// Whether `from` is a prefix.
    pub(super) is_tree: bool,
    /// The etag that the object must have in the bucket; `None`: any.
    pub(super) etag: Option<ETag>,
    /// The key or prefix that the objects get, or their removal.
    pub(super) to: Target,
}

/// Outcome planned for the object of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The object moves to this key or prefix if the precondition holds for what the bucket has there.
    Key(Vec<u8>, Precondition),
    /// The object is deleted.
    Deleted,
    /// The object is deleted, and so is the copy at this key that an attempt of unknown outcome may have made.
    DeletedWithCopy(Vec<u8>),
}

/// A step in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Begin {
        number: u64,
        mv: Move,
    },
    /// The object was renamed again, or deleted, before it moved.
    Retarget {
        number: u64,
        to: Target,
    },
    Done {
        number: u64,
    },
    /// An object was copied to the key of its rename, where it has another etag than callers know. Recorded before the object at its old
    /// key is deleted, after which nothing else tells that the copy is that object.
    Copied {
        to: ObjectKey,
        issued: ETag,
        bucket: ETag,
    },
}

/// Numbers of moves in ascending order, by the key or prefix that they begin at.
type MovesBySource = BTreeMap<Vec<u8>, Vec<u64>>;

/// All unfinished moves, by number. Numbers ascend in the order of the renames.
#[derive(Debug, Default)]
pub(super) struct Moves {
    all: BTreeMap<u64, Move>,
    objects: MovesBySource,
    trees: MovesBySource,
    by_target: BTreeMap<(Vec<u8>, u64), ()>,
    /// Keys at which a stray copy may exist, with the number of the move that deletes it. A stray copy is one that an
    /// attempt of unknown outcome made before its object was renamed again or deleted.
    stray_copies: BTreeSet<(Vec<u8>, u64)>,
    /// Moves of one object that this process began and has not attempted yet.
    untried: BTreeSet<u64>,
    /// Moves of one object that began or were changed together with moves from other keys at which the same object may be.
    have_alternatives: BTreeSet<u64>,
    /// Moves of one object whose physical key may hold a mere copy: an earlier move with the same target may have
    /// copied its object there before both were renamed.
    possible_duplicates: BTreeSet<u64>,
    /// Keys or prefixes at which the objects of a move were visible before they were renamed again, in the order of the renames. Only
    /// those in the journal when it was opened: the names know the later ones.
    passed: BTreeMap<u64, Vec<Vec<u8>>>,
    /// The number of the next move.
    next: u64,
}

impl Moves {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Move> {
        self.all.get(&number)
    }

    /// Returns the unfinished moves by number.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &Move)> {
        self.all.iter().map(|(number, mv)| (*number, mv))
    }

    /// Applies a step that the journal has from an earlier process.
    pub(super) fn replay(&mut self, step: Step) {
        if let Step::Retarget { number, .. } = &step
            && let Some(place) = self.all.get(number).and_then(Move::target)
        {
            self.passed.entry(*number).or_default().push(place.to_vec());
        }
        self.apply(step);
    }

    /// Returns the keys or prefixes at which the objects of a move were visible until the last rename by an earlier process, the latest
    /// first. Renames that a rewrite of the journal dropped are missing.
    pub(super) fn earlier_places(&self, number: u64) -> Vec<Vec<u8>> {
        let passed = self.passed.get(&number).into_iter().flatten().rev();
        let first = self.all.get(&number).filter(|mv| !mv.is_return()).map(|mv| &mv.from);
        passed.chain(first).cloned().collect()
    }

    /// Applies steps of this process: the moves of objects that begin are not attempted yet.
    pub(super) fn apply_new(&mut self, steps: Vec<Step>) {
        self.note_new(&steps);
        steps.into_iter().for_each(|step| self.apply(step));
    }

    fn note_new(&mut self, steps: &[Step]) {
        let mut by_target: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
        for step in steps {
            let (number, to) = match step {
                Step::Begin { number, mv } if !mv.is_tree => {
                    self.untried.insert(*number);
                    (number, &mv.to)
                }
                Step::Retarget { number, to } => (number, to),
                Step::Begin { .. } | Step::Done { .. } | Step::Copied { .. } => continue,
            };
            if let Target::Key(to, _) = to {
                by_target.entry(to).or_default().push(*number);
            }
        }
        let alternatives = by_target.into_values().filter(|numbers| numbers.len() > 1);
        self.have_alternatives.extend(alternatives.flatten());
    }

    /// Returns the moves to a key whose object may be elsewhere: at another key from which a move begins, or at the key itself.
    pub(super) fn duplicates_to(&self, key: &ObjectKey) -> Vec<u64> {
        let moves = self.candidates(key).into_iter().filter_map(|candidate| candidate.by_move);
        let is_uncertain =
            |number: &u64| self.may_be_duplicate(*number) || self.have_alternatives.contains(number);
        moves.filter(|number| self.object_move(*number).is_some()).filter(is_uncertain).collect()
    }

    /// Returns the step that brings the objects of a move which a rename ends back to the key or prefix that they are at.
    pub(super) fn return_of(&self, done: &Step) -> Option<Step> {
        let Step::Done { number } = done else { return None };
        let from = self.all.get(number)?.from.clone();
        Some(Step::Retarget { number: *number, to: Target::Key(from, Precondition::Absent) })
    }

    /// Returns the key or prefix that the objects of a move have reached when it ends: for one that goes back, the last one that it
    /// has left.
    pub(super) fn reached(&self, number: u64) -> Option<&[u8]> {
        let mv = self.all.get(&number)?;
        match mv.is_return() {
            true => self.passed.get(&number)?.last().map(Vec::as_slice),
            false => mv.target(),
        }
    }

    /// Returns whether the object of a move is certainly at the key that the move begins at.
    fn is_certainly_at_source(&self, number: u64) -> bool {
        self.untried.contains(&number)
            && !self.may_be_duplicate(number)
            && !self.have_alternatives.contains(&number)
    }

    /// Marks a move as attempted.
    pub(super) fn mark_tried(&mut self, number: u64) {
        self.untried.remove(&number);
    }

    /// Returns whether a step may follow those applied so far: numbers ascend in the order of the renames.
    pub(super) fn is_in_order(&self, step: &Step) -> bool {
        !matches!(step, Step::Begin { number, .. } if *number < self.next)
    }

    /// Changes the moves as a step of the journal says.
    pub(super) fn apply(&mut self, step: Step) {
        match step {
            Step::Begin { number, mv } => {
                if self.could_duplicate(&mv) {
                    self.possible_duplicates.insert(number);
                }
                let starts = if mv.is_tree { &mut self.trees } else { &mut self.objects };
                starts.entry(mv.from.clone()).or_default().push(number);
                self.index_target(number, &mv.to);
                self.all.insert(number, mv);
                self.next = self.next.max(number + 1);
            }
            Step::Retarget { number, to } => {
                let Some(mv) = self.all.get_mut(&number) else { return };
                let old = std::mem::replace(&mut mv.to, to.clone());
                self.unindex_target(number, old);
                self.index_target(number, &to);
            }
            Step::Copied { .. } => {}
            Step::Done { number } => {
                self.next = self.next.max(number + 1);
                self.untried.remove(&number);
                self.have_alternatives.remove(&number);
                self.possible_duplicates.remove(&number);
                self.passed.remove(&number);
                let Some(mv) = self.all.remove(&number) else { return };
                let starts = if mv.is_tree { &mut self.trees } else { &mut self.objects };
                if let Entry::Occupied(mut occupied) = starts.entry(mv.from.clone()) {
                    occupied.get_mut().retain(|other| *other != number);
                    if occupied.get().is_empty() {
                        occupied.remove();
                    }
                }
                self.unindex_target(number, mv.to);
            }
        }
    }

    /// Adds the target of a move to the indexes.
    fn index_target(&mut self, number: u64, to: &Target) {
        match to {
            Target::Key(to, _) => {
                self.by_target.insert((to.clone(), number), ());
            }
            Target::DeletedWithCopy(place) => {
                self.stray_copies.insert((place.clone(), number));
            }
            Target::Deleted => {}
        }
    }

    /// Removes the target of a move from the indexes.
    fn unindex_target(&mut self, number: u64, to: Target) {
        match to {
            Target::Key(to, _) => {
                self.by_target.remove(&(to, number));
            }
            Target::DeletedWithCopy(place) => {
                self.stray_copies.remove(&(place, number));
            }
            Target::Deleted => {}
        }
    }

    /// Returns the stray copies below a prefix, as keys and the moves that delete them.
    pub(super) fn stray_copies_below<'m>(
        &'m self,
        prefix: &'m [u8],
    ) -> impl Iterator<Item = (&'m [u8], u64)> + 'm {
        let all = self
            .stray_copies
            .range((prefix.to_vec(), 0)..)
            .map(|(place, number)| (place.as_slice(), *number));
        all.take_while(move |(place, _)| place.starts_with(prefix))
    }

    /// Returns the moves that delete stray copies at a key.
    pub(super) fn stray_copies_at<'m>(&'m self, key: &'m [u8]) -> impl Iterator<Item = u64> + 'm {
        self.stray_copies_below(key).take_while(move |(place, _)| *place == key).map(|(_, number)| number)
    }

    /// Returns the moves that delete stray copies at, or below, the source and target of a move.
    pub(super) fn stray_copies_around(&self, number: u64) -> Vec<u64> {
        let Some(Move { from, to: Target::Key(to, _), is_tree, .. }) = self.all.get(&number) else {
            return Vec::new();
        };
        match is_tree {
            true => [from, to]
                .into_iter()
                .flat_map(|tree| self.stray_copies_below(tree))
                .map(|(_, by)| by)
                .collect(),
            false => [from, to].into_iter().flat_map(|key| self.stray_copies_at(key)).collect(),
        }
    }

    /// Returns whether the object at a move's source may be a copy of what an earlier move brings to the same target.
    pub(super) fn may_be_duplicate(&self, number: u64) -> bool {
        self.possible_duplicates.contains(&number)
    }

    /// Returns the sources of other moves at which copies of a move's object may be stored; the object has the etag `etag`. The move of a copy
    /// has the same target, unless one of the two was renamed or deleted alone. With each source comes the etag that its move expects.
    pub(super) fn possible_duplicates_of(&self, number: u64, etag: &ETag) -> Vec<(ObjectKey, Option<ETag>)> {
        let target = self.object_move(number).and_then(Move::target);
        let others = self.possible_duplicates.iter().filter(|other| **other != number);
        let moves = others.filter_map(|other| self.object_move(*other));
        let same = moves.filter(|mv| {
            mv.etag.as_ref() == Some(etag) || target.is_some_and(|target| mv.has_target(target))
        });
        same.filter_map(|mv| Some((ObjectKey::new(mv.from.clone()).ok()?, mv.etag.clone()))).collect()
    }

    /// Returns whether [`Moves::may_be_duplicate`] holds for any move.
    pub(super) fn has_possible_duplicates(&self) -> bool {
        !self.possible_duplicates.is_empty()
    }

    /// Returns whether an earlier move has the same target, or moves an object from that target to this move's
    /// source.
    fn could_duplicate(&self, mv: &Move) -> bool {
        let Target::Key(to, _) = &mv.to else { return false };
        let comes_from_target =
            || last_at(&self.objects, to).is_some_and(|number| self.all[&number].has_target(&mv.from));
        !mv.is_tree && (self.targeting(to).next().is_some() || comes_from_target())
    }

    /// Returns the moves to execute before a move. Earlier moves from the same key take their objects first, otherwise this move would take
    /// them for another client's. A copy at the source is recognized once the earlier move has brought the original to the target. If both
    /// are deleted, the deletion of the original comes first, because it recognizes and deletes the copy.
    pub(super) fn prerequisites(&self, number: u64) -> Vec<u64> {
        let Some(mv) = self.all.get(&number) else { return Vec::new() };
        if mv.is_tree {
            return self.prerequisites_of_tree(number, mv);
        }
        let is_earlier = |other: &u64| *other < number;
        let same_source = self.objects.get(&mv.from).into_iter().flatten().copied();
        let mut earlier: Vec<u64> = same_source.take_while(is_earlier).collect();
        match mv.target().filter(|_| self.may_be_duplicate(number)) {
            Some(to) => earlier.extend(self.targeting(to).take_while(is_earlier)),
            None if self.may_be_duplicate(number) => earlier.extend(self.earlier_moves_of_object(number, mv)),
            None => {}
        }
        earlier
    }

    /// Returns the moves with numbers below `number` of an object that has the etag of this move's object.
    fn earlier_moves_of_object(&self, number: u64, mv: &Move) -> impl Iterator<Item = u64> {
        let is_same = |other: &Move| !other.is_tree && mv.etag.is_some() && other.etag == mv.etag;
        self.all.range(..number).filter(move |(_, other)| is_same(other)).map(|(number, _)| *number)
    }

    /// Returns the moves that brought objects into a tree before it was renamed, and the deletions of objects that these replace. They come
    /// first, because a copy that was under way during the rename ends in the old tree.
    fn prerequisites_of_tree(&self, number: u64, mv: &Move) -> Vec<u64> {
        let Some(to) = mv.target() else { return Vec::new() };
        let inside = (Bound::Included(mv.from.as_slice()), Bound::Unbounded);
        let in_tree =
            self.objects.range::<[u8], _>(inside).take_while(|(from, _)| from.starts_with(&mv.from));
        let from_tree = in_tree.flat_map(|(_, numbers)| numbers).copied();
        let deletions = from_tree.filter(|other| self.all[other].deleted().is_some());
        let arrivals = self.moves_into(&mv.from).into_iter().chain(self.below(to).map(|(_, other)| other));
        deletions.chain(arrivals).filter(|other| *other < number).collect()
    }

    /// Returns the move that takes away what is stored at a key; `None` if no move does.
    pub(super) fn owner(&self, key: &[u8]) -> Option<u64> {
        last_at(&self.objects, key).or_else(|| self.tree_owner(key))
    }

    /// Returns the move that takes away this object. Unlike [`Moves::owner`] it leaves out the deletion of another object that was stored
    /// at the key before.
    pub(super) fn owner_of(&self, object: &ObjectRef) -> Option<u64> {
        let text = object.key.as_bytes();
        let takes = |number: &&u64| self.all[number].deleted().is_none_or(|etag| *etag == object.etag);
        let whole = self.objects.get(text).and_then(|numbers| numbers.iter().rev().find(takes)).copied();
        whole.or_else(|| self.tree_owner(text))
    }

    /// Returns the move of the innermost tree that is or contains a prefix, or contains a key.
    pub(super) fn tree_owner(&self, place: &[u8]) -> Option<u64> {
        enclosing_prefixes(place).find_map(|prefix| last_at(&self.trees, prefix))
    }

    /// Returns a move that takes away what is stored at a key, or at, around or below a prefix that ends in `/`, and that is not exempt.
    pub(super) fn move_out_of(&self, place: &[u8], is_exempt: impl Fn(&Move) -> bool) -> Option<u64> {
        let blocks = |number: &u64| !is_exempt(&self.all[number]);
        let around = || self.tree_owner(place).filter(blocks);
        let below = |starts: &MovesBySource| {
            let from_place = starts.range::<[u8], _>((Bound::Included(place), Bound::Unbounded));
            let inside = from_place.take_while(|(from, _)| place.ends_with(b"/") && from.starts_with(place));
            inside.flat_map(|(_, numbers)| numbers).copied().find(blocks)
        };
        let here = self.objects.get(place).into_iter().flatten().copied().find(blocks);
        here.or_else(around).or_else(|| below(&self.objects)).or_else(|| below(&self.trees))
    }

    /// Returns the number that the next move gets.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns whether an object is visible under its physical key, considering only moves with numbers below
    /// `before`: a listing that works with an older set of moves does not see where newer moves show the object.
    pub(super) fn is_object_in_place(&self, object: &ObjectRef, before: u64) -> bool {
        let text = object.key.as_bytes();
        let is_replaced = |number| {
            self.object_move(number).and_then(Move::replaced).is_some_and(|etag| *etag == object.etag)
        };
        let is_untouched = self.objects.is_empty() && self.trees.is_empty();
        (is_untouched || !self.is_taken_before(object, before))
            && self.stray_copies_at(text).next().is_none()
            && !self.targeting(text).take_while(|number| *number < before).any(is_replaced)
    }

    /// Returns whether a move with a number below `before` takes this object away. A later rename may have given it to another move.
    fn is_taken_before(&self, object: &ObjectRef, before: u64) -> bool {
        let text = object.key.as_bytes();
        let is_earlier = |number: &u64| *number < before;
        let is_same = |number: &&u64| self.all[number].etag.as_ref() == Some(&object.etag);
        let here = self.objects.get(text).into_iter().flatten().filter(is_same);
        let around = enclosing_prefixes(text).filter_map(|prefix| self.trees.get(prefix)).flatten();
        self.owner_of(object).as_ref().is_some_and(is_earlier) || here.chain(around).any(is_earlier)
    }

    /// Returns the logical key that a move gives to an object; `None` if the move does not own that object, or deletes it.
    pub(super) fn target_of(&self, number: u64, object: &ObjectRef) -> Option<ObjectKey> {
        let is_own = self.owner_of(object) == Some(number);
        is_own.then(|| self.target_key(number, &object.key)).flatten()
    }

    /// Returns the logical key that a move gives to what it owns at a physical key; `None` if it deletes that.
    fn target_key(&self, number: u64, key: &ObjectKey) -> Option<ObjectKey> {
        let mv = self.all.get(&number)?;
        join_key(mv.target()?, key.as_bytes().strip_prefix(mv.from.as_slice())?)
    }

    /// Returns the key under which the object stored at a key is visible; `None` if a move deletes that object.
    pub(super) fn visible_key(&self, stored_at: &ObjectKey) -> Option<ObjectKey> {
        match self.owner(stored_at.as_bytes()) {
            None => Some(stored_at.clone()),
            Some(number) => self.target_key(number, stored_at),
        }
    }

    /// Returns the physical keys at which the object visible under a key may be stored, in the order in which its
    /// moves take it from one to the next.
    pub(super) fn candidates(&self, key: &ObjectKey) -> Vec<Candidate> {
        let text = key.as_bytes();
        let mut numbers: Vec<u64> = self.targeting(text).collect();
        numbers.extend(enclosing_prefixes(text).flat_map(|prefix| self.targeting(prefix)));
        numbers.sort_unstable();
        let candidate = |number: &u64| self.candidate_of(*number, text);
        let mut found: Vec<_> = numbers.iter().filter_map(candidate).collect();
        let deleted = self.deleted_at(text).filter(|_| self.tree_owner(text).is_none());
        if let Some(mut replaced) = deleted.filter(|_| self.stray_copies_at(text).next().is_none()) {
            replaced.extend(
                self.targeting(text).filter_map(|number| self.object_move(number)?.replaced()).cloned(),
            );
            found.push(Candidate { key: key.clone(), by_move: None, etag: None, replaced });
        }
        found
    }

    /// Returns the physical keys to read, in order, for the object visible under a key. While an earlier move may
    /// have completed, a later one may still find the copy left by an attempt of unknown outcome, so the logical key
    /// itself is read before that copy and once more after it.
    pub(super) fn lookup_order(&self, key: &ObjectKey) -> Vec<Candidate> {
        let mut places = self.candidates(key);
        let first_duplicate =
            places.iter().position(|candidate| candidate.by_move.is_some_and(|by| self.may_be_duplicate(by)));
        if let Some(at) = first_duplicate
            && let Some(itself) = places.last().filter(|candidate| candidate.by_move.is_none()).cloned()
        {
            places.insert(at, itself);
        }
        places
    }

    /// Returns the physical key from which a move takes the object visible under `text`; `None` if this move does not.
    fn candidate_of(&self, number: u64, text: &[u8]) -> Option<Candidate> {
        let mv = self.all.get(&number)?;
        let Target::Key(to, _) = &mv.to else { return None };
        let rest = text.strip_prefix(to.as_slice())?;
        let key = join_key(&mv.from, rest).filter(|_| mv.is_tree || rest.is_empty())?;
        let place = key.as_bytes();
        // Another object may have come into the tree in place of objects that are still to be deleted.
        let replaced = match mv.is_tree {
            true => self.deleted_at(place).filter(|_| self.tree_owner(place) == Some(number))?,
            false => (last_at(&self.objects, place) == Some(number)).then(Vec::new)?,
        };
        Some(Candidate { key, by_move: Some(number), etag: mv.etag.clone(), replaced })
    }

    /// Returns the moves that delete one object, each with its key and etag. Those of a key that another object is leaving are left out: it
    /// had replaced the deleted one.
    pub(super) fn sole_deletions(&self) -> Vec<(u64, Vec<u8>, ETag)> {
        let is_sole = |mv: &Move| self.objects.get(&mv.from).is_some_and(|numbers| numbers.len() == 1);
        let deletion = |(number, mv): (u64, &Move)| Some((number, mv.from.clone(), mv.deleted()?.clone()));
        self.all().filter(|(_, mv)| is_sole(mv)).filter_map(deletion).collect()
    }

    /// Returns the etags of the objects that moves delete at a key; `None` if a move takes away whatever is stored there.
    fn deleted_at(&self, key: &[u8]) -> Option<Vec<ETag>> {
        let moves = self.objects.get(key).into_iter().flatten();
        moves.map(|number| self.all[number].deleted().cloned()).collect()
    }

    /// Returns the numbers of the moves whose target is exactly `to`.
    pub(super) fn targeting<'m>(&'m self, to: &'m [u8]) -> impl Iterator<Item = u64> + 'm {
        self.below(to).take_while(move |(target, _)| *target == to).map(|(_, number)| number)
    }

    /// Returns the moves whose targets begin with a prefix, by target.
    fn below(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
        let all = self.by_target.range((prefix.to_vec(), 0)..);
        let prefix = prefix.to_vec();
        all.map(|((to, number), ())| (to.as_slice(), *number))
            .take_while(move |(to, _)| to.starts_with(&prefix))
    }

    /// Returns the moves whose targets overlap a prefix, in ascending order.
    pub(super) fn moves_into(&self, prefix: &[u8]) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.below(prefix).map(|(_, number)| number).collect();
        let around = enclosing_prefixes(prefix).filter(|around| *around != prefix);
        numbers.extend(
            around.flat_map(|around| self.targeting(around)).filter(|number| self.all[number].is_tree),
        );
        numbers.sort_unstable();
        numbers
    }

    /// Returns the target of a move of one object that replaces another one and may have been attempted: either object
    /// may be stored there. `None` for any other move.
    pub(super) fn uncertain_target(&self, number: u64) -> Option<ObjectKey> {
        let mv = self.object_move(number).filter(|_| !self.untried.contains(&number))?;
        match &mv.to {
            Target::Key(to, _) if mv.replaced().is_some() => ObjectKey::new(to.clone()).ok(),
            _ => None,
        }
    }

    /// Returns a move unless it is a tree's.
    fn object_move(&self, number: u64) -> Option<&Move> {
        self.all.get(&number).filter(|mv| !mv.is_tree)
    }
}

impl Move {
    /// Returns the key or prefix that the objects get; `None` if they are deleted.
    fn target(&self) -> Option<&[u8]> {
        match &self.to {
            Target::Key(to, _) => Some(to),
            Target::Deleted | Target::DeletedWithCopy(_) => None,
        }
    }

    /// Returns whether the objects are to stay where they are: a crash interrupted a rename that brought them back.
    pub(super) fn is_return(&self) -> bool {
        self.has_target(&self.from)
    }

    /// Returns whether `place` is this move's target.
    pub(super) fn has_target(&self, place: &[u8]) -> bool {
        self.target() == Some(place)
    }

    /// Returns whether the move takes what is stored at a key, or anything below a prefix.
    pub(super) fn overlaps(&self, place: &[u8]) -> bool {
        let is_inside = self.is_tree && place.starts_with(&self.from) || self.from == place;
        is_inside || place.ends_with(b"/") && self.from.starts_with(place)
    }

    /// Returns the etag of the object that the move replaces; `None` if it replaces none. Two objects with equal etags
    /// cannot be told apart and need not be.
    fn replaced(&self) -> Option<&ETag> {
        match &self.to {
            Target::Key(_, Precondition::Matches(etag)) if self.etag.as_ref() != Some(etag) => Some(etag),
            _ => None,
        }
    }

    /// Returns the etag of the only object that the move deletes; `None` for a move that may take any object from its key.
    fn deleted(&self) -> Option<&ETag> {
        self.etag.as_ref().filter(|_| self.to == Target::Deleted)
    }

    /// Returns the move of one object.
    fn of_object(from: &ObjectKey, etag: Option<ETag>, to: Target) -> Self {
        Self { from: from.as_bytes().to_vec(), is_tree: false, etag, to }
    }

    /// Returns the move of all objects below a prefix.
    fn of_tree(from: Vec<u8>, to: &[u8], at_marker: &Precondition) -> Self {
        Self { from, is_tree: true, etag: None, to: Target::Key(to.to_vec(), at_marker.clone()) }
    }
}

/// Returns the newest move that begins at a key or prefix.
fn last_at(starts: &MovesBySource, place: &[u8]) -> Option<u64> {
    starts.get(place)?.last().copied()
}

/// Returns the prefixes of a key that end in `/`, the longest first; the key itself is included if it ends in `/`.
fn enclosing_prefixes(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..key.len()).rev().filter(|&at| key[at] == b'/').map(|at| &key[..=at])
}

/// Joins a key from prefix and rest; `None` if it would be empty or too long.
fn join_key(prefix: &[u8], rest: &[u8]) -> Option<ObjectKey> {
    ObjectKey::new([prefix, rest].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ObjectKey {
        ObjectKey::try_from(text).unwrap()
    }

    /// Renames the object visible under a key, as a program does that knows its etag.
    fn rename(moves: &mut Moves, from: &str, to: &str) {
        let tagged = |candidate| (ETag::new("tag"), candidate);
        let places: Vec<_> = moves.candidates(&key(from)).into_iter().map(tagged).collect();
        moves.apply_new(moves.plan_rename(&places, &key(to), &Precondition::Absent));
    }

    /// An object stayed at the key that its first move had brought it to, when it was renamed on while a second move,
    /// of a possible copy of the same object, had not been attempted yet (world of files 3304455).
    #[test]
    fn a_moved_object_is_renamed_on_while_its_possible_copy_waits() {
        let mut moves = Moves::default();
        rename(&mut moves, "a", "b");
        moves.mark_tried(0);
        rename(&mut moves, "b", "c");
        moves.apply(Step::Done { number: 0 });
        rename(&mut moves, "c", "d");
        let froms: Vec<ObjectKey> =
            moves.candidates(&key("d")).into_iter().map(|candidate| candidate.key).collect();
        assert_eq!(froms, [key("b"), key("c"), key("d")]);
    }

    /// An object that came to a key where another one was still to be deleted was not found there, nor deleted (world of files 60032177).
    #[test]
    fn an_object_is_found_at_a_key_where_another_is_still_to_be_deleted() {
        let mut moves = Moves::default();
        let earlier = ObjectRef::new(key("a"), ETag::new("earlier"));
        moves.apply_new(moves.plan_deletion(&earlier));
        let replaced = vec![earlier.etag];
        let itself = Candidate { key: key("a"), by_move: None, etag: None, replaced };
        assert_eq!(moves.candidates(&key("a")), [itself]);
    }

    /// An object was left behind that a rename took for certainly at another key, from which no attempt had been made yet (world of files
    /// 63004751).
    #[test]
    fn an_object_that_may_be_at_two_keys_is_renamed_from_both() {
        let mut moves = Moves::default();
        moves.apply_new(moves.plan_rename_tree(b"a/", b"b/", &Precondition::Absent));
        for (from, to) in [("b/x", "b/y"), ("b/y", "b/x"), ("b/x", "c")] {
            rename(&mut moves, from, to);
        }
        let froms: Vec<ObjectKey> =
            moves.candidates(&key("c")).into_iter().map(|candidate| candidate.key).collect();
        assert_eq!(froms, [key("a/x"), key("b/x"), key("c")]);
    }
}
