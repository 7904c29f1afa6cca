//! What a view shows: what the handler said, and over it what this client did and the handler has not heard yet.

use super::Stale;
use super::journal::Move;
use super::move_worker::moved;
use super::naming::directory_of;
use super::path_index::Names;
use crate::{ObjectName, Shown};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::Timestamp;

/// For so long the handler may say otherwise than this client did: events take their time. Then it is believed.
const GRACE: Duration = Duration::from_secs(10);

/// Names, and what the handler does not know of them yet.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) names: Names,
    told: HashMap<ObjectName, Belief>,
    ends: VecDeque<(Timestamp, ObjectName)>,
    /// Objects that this client is changing.
    changing: HashMap<ObjectName, UnderWay>,
    /// What is to lie in another directory than it says.
    moving: HashMap<ObjectName, Move>,
    /// All was replaced, and nobody took note of it yet.
    is_anew: bool,
}

/// Changes of an object by this client that have not ended.
#[derive(Debug, Default)]
struct UnderWay {
    changes: usize,
    /// The last word of the handler about the object since the first of these changes began.
    heard: Option<Option<Arc<Shown>>>,
}

/// What this client did to an object.
#[derive(Debug)]
struct Belief {
    /// `None`: it is not to be seen any more.
    shown: Option<Arc<Shown>>,
    /// The last word of the handler about the object since this client changed it.
    heard: Option<Option<Arc<Shown>>>,
    until: Timestamp,
}

impl Told {
    pub(super) fn new(names: Names, moves: &[Move]) -> Self {
        let moving = moves.iter().map(|one| (one.object.clone(), one.clone())).collect();
        let (told, ends, changing) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { names, told, ends, changing, moving, is_anew: false }
    }

    /// Takes what the handler says: an object that matches now, or one that does not.
    pub(super) fn heard(&mut self, object: &ObjectName, said: Option<Arc<Shown>>) {
        if let Some(under_way) = self.changing.get_mut(object) {
            under_way.heard = Some(said.clone());
        }
        if let Some(belief) = self.told.get_mut(object) {
            if !confirms(&said, &belief.shown) {
                belief.heard = Some(said);
                return;
            }
            self.told.remove(object);
        }
        self.show(object, said);
    }

    /// This client begins to change an object.
    pub(super) fn begin_change(&mut self, object: &ObjectName) {
        self.changing.entry(object.clone()).or_default().changes += 1;
    }

    /// A change has ended, and was told if it was made.
    pub(super) fn end_change(&mut self, object: &ObjectName) {
        let Some(under_way) = self.changing.get_mut(object) else { return };
        under_way.changes = under_way.changes.saturating_sub(1);
        if under_way.changes == 0 {
            self.changing.remove(object);
        }
    }

    /// Takes what this client did. Where an object is gone, its directory stays. What the handler has said while that was under
    /// way may be later, and is believed when this client's own word ends.
    pub(super) fn tell(&mut self, object: &ObjectName, shown: Option<Arc<Shown>>, now: Timestamp) {
        let meanwhile = self.changing.get(object).and_then(|under_way| under_way.heard.clone());
        match &shown {
            Some(shown) => self.put(shown.clone()),
            None => self.names.remove_and_keep_directory(object),
        }
        let until = now.after(GRACE);
        self.ends.push_back((until, object.clone()));
        let before = self.told.remove(object).and_then(|before| before.heard);
        let heard = meanwhile.or(before);
        self.told.insert(object.clone(), Belief { shown, heard, until });
    }

    /// Believes the handler of whatever it had the time to hear of.
    pub(super) fn settle(&mut self, now: Timestamp) {
        while let Some((_, object)) = self.ends.pop_front_if(|(until, _)| is_over(*until, now)) {
            // What was told again meanwhile has another end.
            if self.told.get(&object).is_some_and(|belief| is_over(belief.until, now))
                && let Some(Belief { heard: Some(heard), .. }) = self.told.remove(&object)
            {
                self.show(&object, heard);
            }
        }
    }

    /// Whether something this client did is believed more than the handler, for a time.
    pub(super) fn believes(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Replaces all that the handler said.
    pub(super) fn begin_anew(&mut self, mut names: Names) {
        self.names.made_paths().iter().for_each(|path| names.make(path));
        names.go_on_from(&self.names);
        // Of what showed nothing so far nobody remembers anything.
        match self.names.is_bare() {
            true => names.forget_stale(),
            false => self.is_anew = true,
        }
        self.names = names;
        for (object, under_way) in &mut self.changing {
            under_way.heard = Some(self.names.get(object).cloned());
        }
        for (object, belief) in &mut self.told {
            belief.heard = Some(self.names.get(object).cloned());
            match &belief.shown {
                Some(shown) => self.names.put(shown.clone()),
                None => self.names.remove(object),
            }
        }
        let moving: Vec<ObjectName> = self.moving.keys().cloned().collect();
        moving.iter().for_each(|object| self.show_anew(object));
    }

    /// Shows an object where it is to lie from now on.
    pub(super) fn begin_move(&mut self, one: &Move) {
        self.moving.insert(one.object.clone(), one.clone());
        self.show_anew(&one.object);
    }

    /// From now on an object lies where it says, if that was its newest move. Nothing is shown otherwise before somebody says so.
    pub(super) fn end_move(&mut self, one: &Move) {
        if self.moving.get(&one.object).is_some_and(|newest| newest.to == one.to) {
            self.moving.remove(&one.object);
        }
    }

    /// The directories in which something happened, each once, with so many names at most.
    pub(super) fn take_stale(&mut self, limit: usize) -> Vec<Stale> {
        if !std::mem::take(&mut self.is_anew) {
            return self.names.take_stale(limit);
        }
        self.names.forget_stale();
        vec![Stale { directory: Vec::new(), names: None }]
    }

    /// Whether something happened that nobody took note of.
    pub(super) fn is_stirred(&self) -> bool {
        self.is_anew || self.names.is_stirred()
    }

    fn show_anew(&mut self, object: &ObjectName) {
        if let Some(shown) = self.names.get(object).cloned() {
            self.put(shown);
        }
    }

    fn show(&mut self, object: &ObjectName, said: Option<Arc<Shown>>) {
        match said {
            Some(shown) => self.put(shown),
            None => self.names.remove(object),
        }
    }

    fn put(&mut self, shown: Arc<Shown>) {
        self.names.put(moved(&self.moving, shown));
    }
}

/// Whether a belief has ended; also where the clock was put back.
fn is_over(until: Timestamp, now: Timestamp) -> bool {
    until <= now || now.after(GRACE) < until
}

/// Whether the handler has heard of what was told, or of what came after it.
fn confirms(said: &Option<Arc<Shown>>, told: &Option<Arc<Shown>>) -> bool {
    match (said, told) {
        (None, None) => true,
        (Some(said), Some(told)) => {
            said.modified > told.modified
                || (said.etag == told.etag && directory_of(said) == directory_of(told))
        }
        _ => false,
    }
}
