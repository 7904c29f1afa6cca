//! What every [`Views`] does, whoever keeps it: run by the handler, and by a client of one elsewhere.

use crate::{Changes, Cursor, Ruleset, ViewError, ViewId, Views, read};
use std::collections::{BTreeMap, BTreeSet};

/// The bucket of the suite; there is no other.
pub const CONTAINER: &str = "bucket";

/// Objects of which the views under test hear. Each call returns when they have.
#[async_trait::async_trait]
pub trait World: Send + Sync {
    /// Who is asked.
    fn views(&self) -> &dyn Views;

    /// Stores an object of so many bytes with these properties.
    async fn put(&self, key: &str, size_bytes: u64, properties: &[(&str, &str)]);

    /// Removes an object.
    async fn remove(&self, key: &str);
}

/// Runs all of it, in a world in which nothing is yet.
///
/// # Panics
/// Where the views do otherwise.
pub async fn run(world: &dyn World) {
    let green = ruleset("green: {container: bucket, properties: {color: green}}");
    let large = ruleset("large: {container: bucket, object: '**/*.fq', size: '>100'}");
    world.put("a.fq", 10, &[("color", "green")]).await;
    world.put("d/b.fq", 1000, &[("color", "red")]).await;
    let mut first = Client::open(world, &green).await;
    let mut second = Client::open(world, &large).await;
    first.expect(world, &["a.fq"]).await;
    second.expect(world, &["d/b.fq"]).await;
    equal_rulesets_are_one_view(world, &green, &first).await;
    objects_enter_change_and_leave(world, &mut first, &mut second).await;
    long_changes_come_in_parts(world, &mut first, &green).await;
    another_life_begins_anew(world, &mut first).await;
    what_cannot_be_is_said(world).await;
}

async fn equal_rulesets_are_one_view(world: &dyn World, ruleset: &Ruleset, client: &Client) {
    let again = world.views().open(ruleset).await;
    assert_eq!(said(again), client.view, "the same ruleset is the same view");
}

async fn objects_enter_change_and_leave(world: &dyn World, green: &mut Client, large: &mut Client) {
    world.put("d/b.fq", 1000, &[("color", "green")]).await;
    green.expect(world, &["a.fq", "d/b.fq"]).await;
    world.put("d/b.fq", 2000, &[("color", "green")]).await;
    large.expect(world, &["d/b.fq"]).await;
    assert_eq!(large.sizes["d/b.fq"], 2000, "what is stored anew is said again");
    world.put("d/b.fq", 50, &[("color", "red")]).await;
    green.expect(world, &["a.fq"]).await;
    large.expect(world, &[]).await;
    world.remove("a.fq").await;
    world.put("a.fq", 10, &[("color", "green")]).await;
    world.remove("a.fq").await;
    green.expect(world, &[]).await;
}

async fn long_changes_come_in_parts(world: &dyn World, client: &mut Client, ruleset: &Ruleset) {
    let keys: Vec<String> = (0..50).map(|number| format!("n/{number}")).collect();
    for key in &keys {
        world.put(key, 1, &[("color", "green")]).await;
    }
    let mut new = Client::open(world, ruleset).await;
    new.limit = 7;
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    new.expect(world, &all).await;
    client.limit = 7;
    client.expect(world, &all).await;
    for key in &keys[1..] {
        world.remove(key).await;
    }
    new.expect(world, &["n/0"]).await;
    client.expect(world, &["n/0"]).await;
}

async fn another_life_begins_anew(world: &dyn World, client: &mut Client) {
    let cursor = client.cursor.take();
    client.cursor = cursor.map(|cursor| Cursor { epoch: cursor.epoch ^ 1, ..cursor });
    client.sizes.insert("long-gone".to_owned(), 1);
    client.expect(world, &["n/0"]).await;
}

async fn what_cannot_be_is_said(world: &dyn World) {
    let unknown = world.views().changes(ViewId(u64::MAX), None, 10).await;
    assert!(matches!(unknown, Err(ViewError::Unknown)), "{unknown:?}");
    let missing = world.views().open(&ruleset("missing: {container: not-there}")).await;
    let says = missing.map_err(|error| error.to_string());
    assert!(says.as_ref().is_err_and(|says| says.contains("container 'not-there'")), "{says:?}");
}

fn ruleset(text: &str) -> Ruleset {
    match read(text).map(<[Ruleset; 1]>::try_from) {
        Ok(Ok([ruleset])) => ruleset,
        other => panic!("one ruleset is not {other:?}"),
    }
}

fn said<T>(answer: Result<T, ViewError>) -> T {
    answer.unwrap_or_else(|error| panic!("the views say: {error}"))
}

/// What somebody knows who asks again and again.
struct Client {
    view: ViewId,
    cursor: Option<Cursor>,
    limit: usize,
    sizes: BTreeMap<String, u64>,
}

impl Client {
    async fn open(world: &dyn World, ruleset: &Ruleset) -> Self {
        let view = said(world.views().open(ruleset).await);
        Self { view, cursor: None, limit: 1000, sizes: BTreeMap::new() }
    }

    /// Asks to the end, and then knows these objects and no others.
    async fn expect(&mut self, world: &dyn World, keys: &[&str]) {
        loop {
            let asked = world.views().changes(self.view, self.cursor.as_ref(), self.limit).await;
            let changes = said(asked);
            assert!(self.cursor.is_some() || changes.is_beginning, "without a cursor there is a beginning");
            let has_more = changes.has_more;
            self.take(changes);
            if !has_more {
                break;
            }
        }
        let known: BTreeSet<&str> = self.sizes.keys().map(String::as_str).collect();
        assert_eq!(known, keys.iter().copied().collect());
    }

    fn take(&mut self, changes: Changes) {
        if changes.is_beginning {
            self.sizes.clear();
        }
        for gone in &changes.gone {
            self.sizes.remove(&text(gone.key.as_bytes()));
        }
        for shown in &changes.shown {
            assert_eq!(&*shown.name.container, CONTAINER);
            self.sizes.insert(text(shown.name.key.as_bytes()), shown.size_bytes);
        }
        self.cursor = Some(changes.cursor);
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
