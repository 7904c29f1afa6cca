//! The steps of renames and deletions: computed from the unfinished moves, and applied after the journal has them.

use super::{Move, Moves, Step, Target};
use crate::mover::candidate::Candidate;
use store::{ETag, ObjectKey, ObjectRef, Precondition};

/// Steps that take effect together.
struct Plan {
    /// The number of the next move.
    next: u64,
    steps: Vec<Step>,
}

impl Moves {
    /// Returns the steps that rename one object. `from` has the physical keys at which it may be stored, with its
    /// etag at each. What is visible under the target now is replaced.
    pub(in crate::mover) fn plan_rename(
        &self,
        from: &[(ETag, Candidate)],
        to: &ObjectKey,
        at_target: &Precondition,
    ) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: Vec::new() };
        let at_target = self.delete_arriving(to, &mut plan).unwrap_or_else(|| at_target.clone());
        let is_certain = |by| self.is_certainly_at_source(by);
        let is_certainly_at_source =
            from.iter().any(|(_, candidate)| candidate.by_move.is_some_and(is_certain));
        let mut ended = Vec::new();
        for (etag, candidate) in
            from.iter().filter(|(_, candidate)| candidate.by_move.is_some() || !is_certainly_at_source)
        {
            let target = Target::Key(to.as_bytes().to_vec(), at_target.clone());
            let known = candidate.by_move.and_then(|number| Some((number, self.object_move(number)?)));
            match known {
                Some((number, mv)) => {
                    match candidate.key == *to {
                        true => ended.push(Step::Done { number }),
                        false => plan.steps.push(Step::Retarget { number, to: target }),
                    }
                    // The object that this move was to replace at its previous target is no longer replaced, so it is
                    // deleted: unless it may be the renamed object itself, which has just arrived there.
                    if mv.replaced().is_some() || is_certainly_at_source {
                        plan.delete_replaced(mv);
                    }
                }
                None => plan.begin(Move::of_object(&candidate.key, Some(etag.clone()), target)),
            }
        }
        // These steps come last: a possible duplicate begun above is recognised as one only while the move that ends
        // here is known.
        plan.steps.extend(ended);
        plan.steps
    }

    /// Adds the steps that delete the object on its way to a key that a rename gives to another one. Returns the condition on what is stored
    /// at the key, if it is that of a move of one object.
    fn delete_arriving(&self, to: &ObjectKey, plan: &mut Plan) -> Option<Precondition> {
        let deleted_with_copy = || Target::DeletedWithCopy(to.as_bytes().to_vec());
        let mut at_target = None;
        for candidate in self.candidates(to) {
            let Some(number) = candidate.by_move else { continue };
            if let Some(Target::Key(_, replaced)) = self.object_move(number).map(|mv| &mv.to) {
                at_target = Some(replaced.clone());
                let gone = if self.untried.contains(&number) { Target::Deleted } else { deleted_with_copy() };
                plan.steps.push(Step::Retarget { number, to: gone });
            } else {
                plan.begin(Move::of_object(&candidate.key, None, deleted_with_copy()));
            }
        }
        at_target
    }

    /// Returns the steps that delete an object whose move is not finished.
    pub(in crate::mover) fn plan_delete(&self, number: u64) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: vec![Step::Retarget { number, to: Target::Deleted }] };
        if let Some(mv) = self.object_move(number).filter(|_| self.uncertain_target(number).is_none()) {
            plan.delete_replaced(mv);
        }
        plan.steps
    }

    /// Returns the steps that delete an object at its key, where no other move begins.
    pub(in crate::mover) fn plan_deletion(&self, object: &ObjectRef) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: Vec::new() };
        plan.begin(Move::of_object(&object.key, Some(object.etag.clone()), Target::Deleted));
        plan.steps
    }

    /// Returns the steps that rename all keys that begin with `from`. `at_marker` is the condition on the empty object with the key `to`, which
    /// is replaced.
    pub(in crate::mover) fn plan_rename_tree(
        &self,
        from: &[u8],
        to: &[u8],
        at_marker: &Precondition,
    ) -> Vec<Step> {
        let mut plan = Plan { next: self.next, steps: Vec::new() };
        if let Ok(marker) = ObjectKey::new(to.to_vec()) {
            self.delete_arriving(&marker, &mut plan);
        }
        for number in self.moves_into(from) {
            let mv = &self.all[&number];
            let Target::Key(shown, at_target) = &mv.to else { continue };
            match shown.strip_prefix(from) {
                Some(rest) => {
                    let place = [to, rest].concat();
                    let at_target = match at_target {
                        _ if mv.is_tree && rest.is_empty() => at_marker.clone(),
                        // The object that this move was to replace is stored in the old tree, so there is nothing to replace
                        // in the new one.
                        Precondition::Matches(_) => Precondition::Absent,
                        other => other.clone(),
                    };
                    plan.steps.push(match place == mv.from {
                        true => Step::Done { number },
                        false => Step::Retarget { number, to: Target::Key(place, at_target) },
                    });
                    if mv.replaced().is_some() || self.is_certainly_at_source(number) {
                        plan.delete_replaced(mv);
                    }
                }
                None => {
                    // `from` lies inside a tree whose own move is not finished.
                    let source = [&mv.from, &from[shown.len()..]].concat();
                    if self.tree_owner(&source) == Some(number) {
                        plan.begin(Move::of_tree(source, to, at_marker));
                    }
                }
            }
        }
        if self.tree_owner(from).is_none() {
            plan.begin(Move::of_tree(from.to_vec(), to, at_marker));
        }
        plan.steps
    }
}

impl Plan {
    /// Adds the step that begins a move.
    fn begin(&mut self, mv: Move) {
        self.steps.push(Step::Begin { number: self.next, mv });
        self.next += 1;
    }

    /// Deletes the object that a move was to replace, if it is still there.
    fn delete_replaced(&mut self, mv: &Move) {
        if let Target::Key(shown, Precondition::Matches(replaced)) = &mv.to {
            let etag = Some(replaced.clone());
            self.begin(Move { from: shown.clone(), is_tree: false, etag, to: Target::Deleted });
        }
    }
}
