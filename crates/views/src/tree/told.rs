//! What a view shows: what the handler said, and over it what this client did and the handler has not heard yet.

use super::names::Names;
use super::naming::directory_of;
use crate::{ObjectName, Shown};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::Timestamp;

/// For so long the handler may say otherwise than this client did: events take their time. Then it is believed.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Names, and what the handler does not know of them yet.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) names: Names,
    told: HashMap<ObjectName, News>,
    ends: VecDeque<(Timestamp, ObjectName)>,
}

/// What this client did to an object.
#[derive(Debug)]
struct News {
    /// `None`: it is not to be seen any more.
    shown: Option<Arc<Shown>>,
    /// What the handler has said meanwhile.
    heard: Option<Option<Arc<Shown>>>,
    /// Until when the client is believed; `None` is until it says so.
    until: Option<Timestamp>,
}

impl Told {
    pub(super) fn new(names: Names) -> Self {
        Self { names, told: HashMap::new(), ends: VecDeque::new() }
    }

    /// Takes what the handler says: an object that matches now, or one that does not.
    pub(super) fn heard(&mut self, object: &ObjectName, said: Option<Arc<Shown>>) {
        if let Some(news) = self.told.get_mut(object) {
            if news.until.is_none() || !confirms(&said, &news.shown) {
                news.heard = Some(said);
                return;
            }
            self.told.remove(object);
        }
        self.show(object, said);
    }

    /// Takes what this client did, and is believed until then, or until it tells again. Where an object is gone, its directory
    /// stays.
    pub(super) fn tell(&mut self, object: &ObjectName, shown: Option<Arc<Shown>>, until: Option<Timestamp>) {
        match &shown {
            Some(shown) => self.names.put(shown.clone()),
            None => self.names.remove_and_keep_directory(object),
        }
        if let Some(until) = until {
            self.ends.push_back((until, object.clone()));
        }
        let heard = self.told.remove(object).and_then(|before| before.heard);
        self.told.insert(object.clone(), News { shown, heard, until });
    }

    /// Believes the handler of whatever it had the time to hear of.
    pub(super) fn settle(&mut self, now: Timestamp) {
        while let Some((_, object)) = self.ends.pop_front_if(|(until, _)| is_over(*until, now)) {
            // What was told again meanwhile has another end.
            let is_last = |news: &News| news.until.is_some_and(|until| is_over(until, now));
            if self.told.get(&object).is_some_and(is_last)
                && let Some(News { heard: Some(heard), .. }) = self.told.remove(&object)
            {
                self.show(&object, heard);
            }
        }
    }

    /// Replaces all that the handler said.
    pub(super) fn begin_anew(&mut self, mut names: Names) {
        self.names.made_paths().iter().for_each(|path| names.make(path));
        self.names = names;
        for (object, news) in &mut self.told {
            news.heard = Some(self.names.get(object).cloned());
            match &news.shown {
                Some(shown) => self.names.put(shown.clone()),
                None => self.names.remove(object),
            }
        }
    }

    fn show(&mut self, object: &ObjectName, said: Option<Arc<Shown>>) {
        match said {
            Some(shown) => self.names.put(shown),
            None => self.names.remove(object),
        }
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
