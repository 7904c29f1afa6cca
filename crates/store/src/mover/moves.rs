//! What is on its way: pure state, no I/O.
//!
//! A move says that what lies at one place of the bucket shows at another. The places that things lie at are the
//! bucket's own keys and never change; where they show follows every further rename, so that however often something
//! is renamed its objects are moved once.
//!
//! Invariants: of moves of one object that begin at the same place the last has what lies there, and the earlier ones are
//! carried out first; of moves that begin one inside the other the inner one has what lies there; nothing shows at a place
//! that things have moved away from before they have left it.

use crate::{ETag, ObjectKey, ObjectMeta, ObjectRef, Precondition};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// What lies at `from` and shows at `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    /// A key, or what keys begin with: a prefix that ends in `/`.
    pub(super) from: Vec<u8>,
    /// Whether `from` is what keys begin with.
    pub(super) is_tree: bool,
    /// The object's tag in the bucket; `None`: whatever lies there.
    pub(super) etag: Option<ETag>,
    pub(super) to: Target,
}

/// Where something goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// There, where this must hold of what the bucket has.
    Place(Vec<u8>, Precondition),
    /// Nowhere: it is to be deleted.
    Nowhere,
    /// Nowhere, after an attempt of unknown outcome to copy it to this place: a copy of it there is to be deleted too.
    GivenUp(Vec<u8>),
}

/// One step of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Begin {
        number: u64,
        one: Move,
    },
    /// It is renamed again, or deleted, before it got there.
    Retarget {
        number: u64,
        to: Target,
    },
    Done {
        number: u64,
    },
}

/// A place where an object may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) key: ObjectKey,
    /// The move that takes it from there; `None`: it is where it shows.
    pub(super) by: Option<u64>,
    /// The tag that it must have there.
    pub(super) etag: Option<ETag>,
    /// The tag of what is replaced there, and gone for who looks.
    pub(super) replaced: Option<ETag>,
}

impl Candidate {
    /// Whether what was found there is what is replaced.
    pub(super) fn is_replaced(&self, found: &ObjectMeta) -> bool {
        self.replaced.as_ref() == Some(&found.object.etag)
    }
}

/// Moves by the places that they begin at, in the order of their numbers.
type Starts = BTreeMap<Vec<u8>, Vec<u64>>;

/// All moves under way, by their numbers, in which they were begun.
#[derive(Debug, Default)]
pub(super) struct Moves {
    all: BTreeMap<u64, Move>,
    objects: Starts,
    trees: Starts,
    by_target: BTreeMap<(Vec<u8>, u64), ()>,
    /// Places where copies may lie that nobody wants any more, and the moves that delete them.
    given_up: BTreeSet<(Vec<u8>, u64)>,
    /// Moves of one object that nobody has tried to carry out: what they take lies where it lay.
    untried: BTreeSet<u64>,
    /// Moves from a place to which an earlier one may have copied, before both were renamed to another.
    doubles: BTreeSet<u64>,
    next: u64,
}

impl Moves {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Move> {
        self.all.get(&number)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &Move)> {
        self.all.iter().map(|(number, one)| (*number, one))
    }

    /// A move that was begun in this life of the journal.
    pub(super) fn is_new(&mut self, number: u64) {
        self.untried.insert(number);
    }

    /// Somebody carries a move out.
    pub(super) fn is_tried(&mut self, number: u64) {
        self.untried.remove(&number);
    }

    pub(super) fn apply(&mut self, step: Step) {
        match step {
            Step::Begin { number, one } => {
                if self.may_be_double(&one) {
                    self.doubles.insert(number);
                }
                let starts = if one.is_tree { &mut self.trees } else { &mut self.objects };
                starts.entry(one.from.clone()).or_default().push(number);
                self.heads_for(number, &one.to);
                self.all.insert(number, one);
                self.next = self.next.max(number + 1);
            }
            Step::Retarget { number, to } => {
                let Some(one) = self.all.get_mut(&number) else { return };
                let old = std::mem::replace(&mut one.to, to.clone());
                self.heads_no_more_for(number, old);
                self.heads_for(number, &to);
            }
            Step::Done { number } => {
                self.next = self.next.max(number + 1);
                self.untried.remove(&number);
                self.doubles.remove(&number);
                let Some(one) = self.all.remove(&number) else { return };
                let starts = if one.is_tree { &mut self.trees } else { &mut self.objects };
                if let Entry::Occupied(mut there) = starts.entry(one.from.clone()) {
                    there.get_mut().retain(|other| *other != number);
                    if there.get().is_empty() {
                        there.remove();
                    }
                }
                self.heads_no_more_for(number, one.to);
            }
        }
    }

    fn heads_for(&mut self, number: u64, to: &Target) {
        match to {
            Target::Place(to, _) => {
                self.by_target.insert((to.clone(), number), ());
            }
            Target::GivenUp(place) => {
                self.given_up.insert((place.clone(), number));
            }
            Target::Nowhere => {}
        }
    }

    fn heads_no_more_for(&mut self, number: u64, to: Target) {
        match to {
            Target::Place(to, _) => {
                self.by_target.remove(&(to, number));
            }
            Target::GivenUp(place) => {
                self.given_up.remove(&(place, number));
            }
            Target::Nowhere => {}
        }
    }

    /// Moves that delete copies nobody wants under the keys that begin so.
    pub(super) fn given_up_below<'m>(
        &'m self,
        prefix: &'m [u8],
    ) -> impl Iterator<Item = (&'m [u8], u64)> + 'm {
        let all =
            self.given_up.range((prefix.to_vec(), 0)..).map(|(place, number)| (place.as_slice(), *number));
        all.take_while(move |(place, _)| place.starts_with(prefix))
    }

    /// Moves that delete copies nobody wants under a key.
    pub(super) fn given_up_at<'m>(&'m self, key: &'m [u8]) -> impl Iterator<Item = u64> + 'm {
        self.given_up_below(key).take_while(move |(place, _)| *place == key).map(|(_, number)| number)
    }

    /// Moves that delete copies nobody wants where a move takes things from or to.
    pub(super) fn given_up_around(&self, number: u64) -> Vec<u64> {
        let Some(Move { from, to: Target::Place(to, _), is_tree, .. }) = self.all.get(&number) else {
            return Vec::new();
        };
        match is_tree {
            true => {
                [from, to].into_iter().flat_map(|tree| self.given_up_below(tree)).map(|(_, by)| by).collect()
            }
            false => [from, to].into_iter().flat_map(|key| self.given_up_at(key)).collect(),
        }
    }

    /// Whether what a move of one object finds may be a copy of what an earlier one brings to the same place.
    pub(super) fn is_double(&self, number: u64) -> bool {
        self.doubles.contains(&number)
    }

    /// Whether any move may find such a copy.
    pub(super) fn has_doubles(&self) -> bool {
        !self.doubles.is_empty()
    }

    /// Whether an earlier move brings the same object to the same place, or took it from there.
    fn may_be_double(&self, one: &Move) -> bool {
        let Target::Place(to, _) = &one.to else { return false };
        let came_from_there =
            || last_at(&self.objects, to).is_some_and(|number| self.all[&number].shows_at(&one.from));
        !one.is_tree && (self.targeting(to).next().is_some() || came_from_there())
    }

    /// Moves to be carried out before one: those that begin at the same place, and, before one of what may be a copy, those
    /// to the same place.
    pub(super) fn earlier(&self, number: u64) -> Vec<u64> {
        let Some(one) = self.plain(number) else { return Vec::new() };
        let is_earlier = |other: &u64| *other < number;
        let from_there = self.objects.get(&one.from).into_iter().flatten().copied();
        let mut earlier: Vec<u64> = from_there.take_while(is_earlier).collect();
        if let Target::Place(to, _) = &one.to
            && self.is_double(number)
        {
            earlier.extend(self.targeting(to).take_while(is_earlier));
        }
        earlier
    }

    /// The move that takes away what lies under a key, or under all keys that begin so.
    pub(super) fn owner(&self, place: &[u8]) -> Option<u64> {
        let whole = last_at(&self.objects, place);
        whole.or_else(|| inside(place).find_map(|prefix| last_at(&self.trees, prefix)))
    }

    /// A move that begins at, around or inside a place.
    pub(super) fn owner_near(&self, prefix: &[u8]) -> Option<u64> {
        let below = |starts: &Starts| {
            let range = (Bound::Included(prefix), Bound::Unbounded);
            let (from, _) = starts.range::<[u8], _>(range).next()?;
            last_at(starts, from).filter(|_| from.starts_with(prefix))
        };
        self.owner(prefix).or_else(|| below(&self.objects)).or_else(|| below(&self.trees))
    }

    /// The number of the next move.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether an object of the bucket shows under its own key, as far as the moves before `before` say: who looks at these
    /// does not see where others show it.
    pub(super) fn shows_object(&self, object: &ObjectRef, before: u64) -> bool {
        let text = object.key.as_bytes();
        let is_replaced =
            |number| self.plain(number).and_then(Move::replaced).is_some_and(|etag| *etag == object.etag);
        let stays = self.shows(text) || self.owner(text).is_some_and(|number| number >= before);
        stays
            && self.given_up_at(text).next().is_none()
            && !self.targeting(text).take_while(|number| *number < before).any(is_replaced)
    }

    /// Whether what lies under a key shows there.
    pub(super) fn shows(&self, key: &[u8]) -> bool {
        self.objects.is_empty() && self.trees.is_empty() || self.owner(key).is_none()
    }

    /// Where what a move takes from a key shows; `None` if it has nothing there, or is going.
    pub(super) fn target_of(&self, number: u64, key: &[u8]) -> Option<ObjectKey> {
        let one = self.all.get(&number).filter(|_| self.owner(key) == Some(number))?;
        let Target::Place(to, _) = &one.to else { return None };
        joined(to, key.strip_prefix(one.from.as_slice())?)
    }

    /// Where what shows under a key may lie, in the order in which it gets from one place to the next.
    pub(super) fn candidates(&self, key: &ObjectKey) -> Vec<Candidate> {
        let text = key.as_bytes();
        let mut numbers: Vec<u64> = self.targeting(text).collect();
        numbers.extend(inside(text).flat_map(|prefix| self.targeting(prefix)));
        numbers.sort_unstable();
        let lies = |number: &u64| self.source(*number, text);
        let mut found: Vec<_> = numbers.iter().filter_map(lies).collect();
        if self.owner(text).is_none() && self.given_up_at(text).next().is_none() {
            let replaced = self.targeting(text).find_map(|number| self.plain(number)?.replaced().cloned());
            found.push(Candidate { key: key.clone(), by: None, etag: None, replaced });
        }
        found
    }

    /// The places to look at for what shows under a key, in this order. Where an earlier move has arrived, a later one may
    /// still have the copy of an attempt that nobody heard of: the key itself is looked at before that, and once more after it.
    pub(super) fn lookup_order(&self, key: &ObjectKey) -> Vec<Candidate> {
        let mut places = self.candidates(key);
        let first_double = places.iter().position(|there| there.by.is_some_and(|by| self.is_double(by)));
        if let Some(at) = first_double
            && let Some(itself) = places.last().filter(|there| there.by.is_none()).cloned()
        {
            places.insert(at, itself);
        }
        places
    }

    /// The place that a move would have what shows at `text` from.
    fn source(&self, number: u64, text: &[u8]) -> Option<Candidate> {
        let one = self.all.get(&number)?;
        let Target::Place(to, _) = &one.to else { return None };
        let rest = text.strip_prefix(to.as_slice())?;
        let key = joined(&one.from, rest).filter(|_| one.is_tree || rest.is_empty())?;
        let is_its_own = self.owner(key.as_bytes()) == Some(number);
        is_its_own.then(|| Candidate { key, by: Some(number), etag: one.etag.clone(), replaced: None })
    }

    fn targeting<'m>(&'m self, to: &'m [u8]) -> impl Iterator<Item = u64> + 'm {
        self.below(to).take_while(move |(target, _)| *target == to).map(|(_, number)| number)
    }

    /// Moves whose targets begin so, by target.
    fn below(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
        let all = self.by_target.range((prefix.to_vec(), 0)..);
        let prefix = prefix.to_vec();
        all.map(|((to, number), ())| (to.as_slice(), *number))
            .take_while(move |(to, _)| to.starts_with(&prefix))
    }

    /// Moves whose targets are among the keys that begin so, or around them, in their order.
    pub(super) fn showing_in(&self, prefix: &[u8]) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.below(prefix).map(|(_, number)| number).collect();
        let around = inside(prefix).filter(|around| *around != prefix);
        numbers.extend(
            around.flat_map(|around| self.targeting(around)).filter(|number| self.all[number].is_tree),
        );
        numbers.sort_unstable();
        numbers
    }

    /// What renames one object: from the places where it may lie, which have these tags there. What shows at the target now
    /// goes.
    pub(super) fn rename(
        &self,
        from: &[(ETag, Candidate)],
        to: &ObjectKey,
        at_target: &Precondition,
    ) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: Vec::new() };
        let mut at_target = at_target.clone();
        let given_up = || Target::GivenUp(to.as_bytes().to_vec());
        for there in self.candidates(to) {
            let Some(number) = there.by else { continue };
            if let Some(Target::Place(_, replaced)) = self.plain(number).map(|one| &one.to) {
                at_target = replaced.clone();
                let gone = if self.untried.contains(&number) { Target::Nowhere } else { given_up() };
                plan.steps.push(Step::Retarget { number, to: gone });
            } else {
                plan.begin(Move::of_object(&there.key, None, given_up()));
            }
        }
        let is_untouched = |by| self.untried.contains(&by) && !self.is_double(by);
        let is_surely_on_its_way = from.iter().any(|(_, there)| there.by.is_some_and(is_untouched));
        let mut back = Vec::new();
        for (etag, there) in from.iter().filter(|(_, there)| there.by.is_some() || !is_surely_on_its_way) {
            let target = Target::Place(to.as_bytes().to_vec(), at_target.clone());
            let known = there.by.and_then(|number| Some((number, self.plain(number)?)));
            match known {
                Some((number, one)) => {
                    match there.key == *to {
                        true => back.push(Step::Done { number }),
                        false => plan.steps.push(Step::Retarget { number, to: target }),
                    }
                    // What it was to replace where it showed until now is not replaced any more, and goes, unless it may be what
                    // has just arrived there.
                    if one.replaced().is_some() || is_surely_on_its_way {
                        plan.replaced_goes(one);
                    }
                }
                None => plan.begin(Move::of_object(&there.key, Some(etag.clone()), target)),
            }
        }
        // These end last: the move of a possible copy that begins above is known as one by the move that ends here.
        plan.steps.extend(back);
        plan.steps
    }

    /// Where the move of one object replaces another, if it was tried: nobody knows which of the two is there.
    pub(super) fn half_replaced(&self, number: u64) -> Option<ObjectKey> {
        let one = self.plain(number).filter(|_| !self.untried.contains(&number))?;
        match &one.to {
            Target::Place(to, _) if one.replaced().is_some() => ObjectKey::new(to.clone()).ok(),
            _ => None,
        }
    }

    /// What deletes an object that is on its way.
    pub(super) fn delete(&self, number: u64) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: vec![Step::Retarget { number, to: Target::Nowhere }] };
        if let Some(one) = self.plain(number).filter(|_| self.half_replaced(number).is_none()) {
            plan.replaced_goes(one);
        }
        plan.steps
    }

    /// What renames everything whose keys begin so.
    pub(super) fn rename_tree(&self, from: &[u8], to: &[u8]) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: Vec::new() };
        for number in self.showing_in(from) {
            let one = &self.all[&number];
            let Target::Place(shown, at_target) = &one.to else { continue };
            match shown.strip_prefix(from) {
                Some(rest) => {
                    let place = [to, rest].concat();
                    // What it was to replace lies in the tree that moves, and does not come along.
                    let at_target = match at_target {
                        Precondition::Matches(_) => Precondition::Absent,
                        other => other.clone(),
                    };
                    plan.steps.push(match place == one.from {
                        true => Step::Done { number },
                        false => Step::Retarget { number, to: Target::Place(place, at_target) },
                    });
                    if one.replaced().is_some() || self.untried.contains(&number) {
                        plan.replaced_goes(one);
                    }
                }
                None => {
                    // It lies in a tree that is on its way itself.
                    let there = [&one.from, &from[shown.len()..]].concat();
                    if self.owner(&there) == Some(number) {
                        plan.begin(Move::of_tree(there, to));
                    }
                }
            }
        }
        if self.owner(from).is_none() {
            plan.begin(Move::of_tree(from.to_vec(), to));
        }
        plan.steps
    }

    /// The move of one object.
    fn plain(&self, number: u64) -> Option<&Move> {
        self.all.get(&number).filter(|one| !one.is_tree)
    }
}

impl Move {
    /// Whether it shows exactly there.
    pub(super) fn shows_at(&self, place: &[u8]) -> bool {
        matches!(&self.to, Target::Place(to, _) if to == place)
    }

    /// Whether it takes what lies under a key, or any of what lies under keys that begin so.
    pub(super) fn covers(&self, place: &[u8]) -> bool {
        let is_inside = self.is_tree && place.starts_with(&self.from) || self.from == place;
        is_inside || place.ends_with(b"/") && self.from.starts_with(place)
    }

    /// The tag of what it replaces. Of two with the same tag nobody can tell which is there, and either will do.
    fn replaced(&self) -> Option<&ETag> {
        match &self.to {
            Target::Place(_, Precondition::Matches(etag)) if self.etag.as_ref() != Some(etag) => Some(etag),
            _ => None,
        }
    }

    fn of_object(from: &ObjectKey, etag: Option<ETag>, to: Target) -> Self {
        Self { from: from.as_bytes().to_vec(), is_tree: false, etag, to }
    }

    fn of_tree(from: Vec<u8>, to: &[u8]) -> Self {
        Self { from, is_tree: true, etag: None, to: Target::Place(to.to_vec(), Precondition::Absent) }
    }
}

/// Steps that belong together.
struct Plan {
    next: u64,
    steps: Vec<Step>,
}

impl Plan {
    fn begin(&mut self, one: Move) {
        self.steps.push(Step::Begin { number: self.next, one });
        self.next += 1;
    }

    /// What a move was to replace goes without it, if it is still there.
    fn replaced_goes(&mut self, one: &Move) {
        if let Target::Place(shown, Precondition::Matches(replaced)) = &one.to {
            let etag = Some(replaced.clone());
            self.begin(Move { from: shown.clone(), is_tree: false, etag, to: Target::Nowhere });
        }
    }
}

/// The move that has what lies at a place.
fn last_at(starts: &Starts, place: &[u8]) -> Option<u64> {
    starts.get(place)?.last().copied()
}

/// What a key lies in, from the innermost on: its beginnings that end in `/`, itself included if it does.
fn inside(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..key.len()).rev().filter(|&at| key[at] == b'/').map(|at| &key[..=at])
}

/// A key that is too long, or empty, has nothing.
fn joined(prefix: &[u8], rest: &[u8]) -> Option<ObjectKey> {
    ObjectKey::new([prefix, rest].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ObjectKey {
        ObjectKey::try_from(text).unwrap()
    }

    /// Renames what shows under a key, as a program does that knows its tag.
    fn rename(moves: &mut Moves, from: &str, to: &str) {
        let tagged = |there| (ETag::new("tag"), there);
        let places: Vec<_> = moves.candidates(&key(from)).into_iter().map(tagged).collect();
        for step in moves.rename(&places, &key(to), &Precondition::Absent) {
            if let Step::Begin { number, .. } = step {
                moves.is_new(number);
            }
            moves.apply(step);
        }
    }

    /// An object stayed where its first move had brought it when it was renamed on, as a second move, of what might have been
    /// a copy of it, had not been tried yet (world of files 3304455).
    #[test]
    fn what_has_arrived_moves_on_beside_what_may_be_its_copy() {
        let mut moves = Moves::default();
        rename(&mut moves, "a", "b");
        moves.is_tried(0);
        rename(&mut moves, "b", "c");
        moves.apply(Step::Done { number: 0 });
        rename(&mut moves, "c", "d");
        let froms: Vec<ObjectKey> = moves.candidates(&key("d")).into_iter().map(|there| there.key).collect();
        assert_eq!(froms, [key("b"), key("c"), key("d")]);
    }
}
