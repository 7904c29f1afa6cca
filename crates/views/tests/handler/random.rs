//! Random worlds: hints are lost, repeated, late or cut off, and in the end every view must show the objects in the
//! store that match its rules.

use super::world::{Client, TestEvent, World, map, ruleset};
use events::Sink;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Entropy;
use views::{Handler, Ruleset};

const RULESETS: [&str; 9] = [
    "container: alpha",
    "container: alpha\nobject: \"d0/*\"\nsize: \">3\"",
    "container: alpha\nmodified: \"<2 days\"",
    "container: [alpha, beta]\nmodified: [\">1 hour\", \"<1 month\"]\nsize: \"<=4\"",
    "container: alpha\nproperties:\n  color: [black, \"gr*\"]",
    "container: beta\nproperties:\n  stage: null\nobject: \"**/x*\"",
    "container: alpha\ntags:\n  project: [one, null]",
    "container: \"*\"\ncontent_type: \"text/*\"\nobject: [\"d1/**\", \"*\"]",
    "container: beta\nobject: \"d1/x1\"",
];

struct RandomWorld {
    world: World,
    entropy: Entropy,
    undelivered: Vec<TestEvent>,
    /// Order of the last PUT, by bucket and key.
    orders: BTreeMap<(String, String), u128>,
    is_lost: bool,
    clients: Vec<(Ruleset, Client)>,
}

impl RandomWorld {
    fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    fn key(&self) -> String {
        let name = format!("x{}", self.below(6));
        match self.below(3) {
            0 => name,
            directory => format!("d{}/{name}", directory - 1),
        }
    }

    async fn change(&mut self) {
        let bucket = ["alpha", "beta"][self.below(2) as usize];
        let key = self.key();
        let is_there = self.orders.contains_key(&(bucket.to_owned(), key.clone()));
        let pick = |values: &[&str], random: u64| values[random as usize % values.len()].to_owned();
        let mut properties = BTreeMap::new();
        if self.below(2) == 0 {
            properties.insert("color".to_owned(), pick(&["black", "green", "white"], self.below(3)));
        }
        if self.below(3) == 0 {
            properties.insert("stage".to_owned(), "raw".to_owned());
        }
        let tags = if self.below(2) == 0 {
            map(&[("project", &pick(&["one", "two"], self.below(2)))])
        } else {
            map(&[])
        };
        let event = match self.below(6) {
            5 if is_there => {
                let event = self.world.set_properties(bucket, &key, properties).await;
                self.orders.insert((bucket.to_owned(), key), event.order.unwrap());
                event
            }
            0 if is_there => {
                self.orders.remove(&(bucket.to_owned(), key.clone()));
                self.world.delete(bucket, &key).await
            }
            1 if is_there => {
                let repeated = self.orders[&(bucket.to_owned(), key.clone())];
                let order = (self.below(2) == 0).then_some(repeated);
                self.world.set_tags(bucket, &key, tags, order).await
            }
            _ => {
                let size = self.below(8) as usize;
                let event = self.world.put(bucket, &key, size, properties, tags).await;
                self.orders.insert((bucket.to_owned(), key), event.order.unwrap());
                event
            }
        };
        self.undelivered.push(match self.below(4) {
            0 => event.without_metadata(),
            1 => TestEvent { order: None, ..event },
            _ => event,
        });
    }

    async fn deliver(&mut self, handler: &Handler) {
        if self.undelivered.is_empty() {
            return;
        }
        let chosen = self.below(self.undelivered.len() as u64) as usize;
        let event = match self.below(4) {
            // Delivers the hint now and once more later.
            0 => self.undelivered[chosen].clone(),
            _ => self.undelivered.remove(chosen),
        };
        handler.take(&[event.hint()]).await.unwrap();
    }

    fn lose(&mut self) {
        if !self.undelivered.is_empty() {
            let chosen = self.below(self.undelivered.len() as u64) as usize;
            self.undelivered.remove(chosen);
            self.is_lost = true;
        }
    }

    async fn step(&mut self, handler: &Handler) {
        match self.below(20) {
            0..8 => self.change().await,
            8..13 => self.deliver(handler).await,
            13 => self.lose(),
            14 if self.is_lost => {
                self.is_lost = false;
                handler.lost(None).await.unwrap();
            }
            15 => drop(self.world.clock.advance(Duration::from_secs(self.below(100_000)))),
            16 if self.clients.len() < RULESETS.len() => {
                let ruleset = ruleset(RULESETS[self.clients.len()]);
                let client = Client::open(handler, &ruleset).await;
                self.clients.push((ruleset, client));
            }
            _ if !self.clients.is_empty() => {
                let (client, limit) = (self.below(self.clients.len() as u64), 1 + self.below(5));
                self.clients[client as usize].1.ask(handler, limit as usize).await;
            }
            _ => {}
        }
        // Lets tasks in progress run for a while, or not.
        for _ in 0..self.below(3) {
            tokio::task::yield_now().await;
        }
    }

    /// Delivers all hints, and reports the loss of the others.
    async fn settle(&mut self, handler: &Handler) {
        while !self.undelivered.is_empty() {
            self.deliver(handler).await;
        }
        if std::mem::take(&mut self.is_lost) {
            handler.lost(Some("alpha")).await.unwrap();
            handler.lost(Some("beta")).await.unwrap();
        }
        handler.wait_until_idle().await;
    }

    async fn check(&mut self, handler: &Handler, seed: u64) {
        for (ruleset, client) in &mut self.clients {
            let expected = self.world.expected(ruleset).await;
            client.follow(handler, 3).await;
            assert_eq!(client.shown(), expected, "followed client, seed {seed}: {ruleset:?}");
            let mut new = Client::open(handler, ruleset).await;
            new.follow(handler, 1000).await;
            assert_eq!(new.shown(), expected, "new client, seed {seed}: {ruleset:?}");
        }
    }
}

/// Returns a copy of the state directory as a kill may leave it: perhaps without the end of the last write.
fn copy_after_kill(dir: &Path, number: usize, cut_bytes: u64) -> PathBuf {
    let copy = dir.with_extension(number.to_string());
    std::fs::create_dir(&copy).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in &names {
        std::fs::copy(dir.join(name), copy.join(name)).unwrap();
    }
    let last = names.iter().rfind(|name| name.to_str().unwrap().starts_with("log-")).unwrap();
    let log = std::fs::OpenOptions::new().write(true).open(copy.join(last)).unwrap();
    log.set_len(log.metadata().unwrap().len() - cut_bytes).unwrap();
    copy
}

async fn world(seed: u64, has_state_dir: bool) {
    let scratch = tempfile::tempdir().unwrap();
    let mut dir = has_state_dir.then(|| scratch.path().join("state"));
    let mut random = RandomWorld {
        world: World::new(&["alpha", "beta"]).await,
        entropy: Entropy::new(seed),
        undelivered: Vec::new(),
        orders: BTreeMap::new(),
        is_lost: false,
        clients: Vec::new(),
    };
    let mut handler: Arc<Handler> = random.world.start(dir.clone(), seed).await;
    for round in 0..6 {
        for _ in 0..40 {
            random.step(&handler).await;
        }
        if let Some(before) = &dir {
            if random.below(3) == 0 {
                handler.snapshot().await.unwrap();
                random.step(&handler).await;
            }
            let after = copy_after_kill(before, round, random.below(2) * random.below(8));
            handler = random.world.start(Some(after.clone()), seed + 1_000 * (1 + round as u64)).await;
            dir = Some(after);
        }
        random.settle(&handler).await;
        random.check(&handler, seed).await;
    }
}

#[tokio::test]
async fn s250_views_show_the_objects_that_match_in_the_store() {
    for seed in 0..60 {
        world(seed, false).await;
    }
}

#[tokio::test]
async fn s251_acknowledged_hints_survive_a_kill() {
    for seed in 0..60 {
        world(seed, true).await;
    }
}
