//! Conformance suite of [`Views`]: run on the handler in this process and on clients of one elsewhere.

use crate::{Changes, Cursor, Ruleset, ViewError, ViewId, Views, read};
use std::collections::{BTreeMap, BTreeSet};

/// The only bucket of the suite.
pub const CONTAINER: &str = "bucket";

/// The store under test. Each call returns when the views have seen its effect.
#[async_trait::async_trait]
pub trait World: Send + Sync {
    /// Returns the views under test.
    fn views(&self) -> &dyn Views;

    /// Stores an object of this size with these properties.
    async fn put(&self, key: &str, size_bytes: u64, properties: &[(&str, &str)]);

    /// Removes an object.
    async fn remove(&self, key: &str);
}

/// Runs the suite. The store must be empty.
///
/// # Panics
/// If the views violate the interface.
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
    long_changes_come_in_pages(world, &mut first, &green).await;
    a_cursor_of_another_epoch_begins_anew(world, &mut first).await;
    errors_are_reported(world).await;
}

async fn equal_rulesets_are_one_view(world: &dyn World, ruleset: &Ruleset, client: &Client) {
    let reopened = world.views().open(ruleset).await;
    assert_eq!(expect_ok(reopened), client.view, "equal rulesets have the same view");
}

async fn objects_enter_change_and_leave(world: &dyn World, green: &mut Client, large: &mut Client) {
    world.put("d/b.fq", 1000, &[("color", "green")]).await;
    green.expect(world, &["a.fq", "d/b.fq"]).await;
    world.put("d/b.fq", 2000, &[("color", "green")]).await;
    large.expect(world, &["d/b.fq"]).await;
    assert_eq!(large.sizes["d/b.fq"], 2000, "an overwritten object is reported again");
    world.put("d/b.fq", 50, &[("color", "red")]).await;
    green.expect(world, &["a.fq"]).await;
    large.expect(world, &[]).await;
    world.remove("a.fq").await;
    world.put("a.fq", 10, &[("color", "green")]).await;
    world.remove("a.fq").await;
    green.expect(world, &[]).await;
}

async fn long_changes_come_in_pages(world: &dyn World, client: &mut Client, ruleset: &Ruleset) {
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

async fn a_cursor_of_another_epoch_begins_anew(world: &dyn World, client: &mut Client) {
    let cursor = client.cursor.take();
    client.cursor = cursor.map(|cursor| Cursor { epoch: cursor.epoch ^ 1, ..cursor });
    client.sizes.insert("long-gone".to_owned(), 1);
    client.expect(world, &["n/0"]).await;
}

async fn errors_are_reported(world: &dyn World) {
    let unknown = world.views().changes(ViewId(u64::MAX), None, 10).await;
    assert!(matches!(unknown, Err(ViewError::Unknown)), "{unknown:?}");
    let missing = world.views().open(&ruleset("missing: {container: not-there}")).await;
    let message = missing.map_err(|error| error.to_string());
    assert!(message.as_ref().is_err_and(|message| message.contains("container 'not-there'")), "{message:?}");
}

fn ruleset(text: &str) -> Ruleset {
    match read(text).map(<[Ruleset; 1]>::try_from) {
        Ok(Ok([ruleset])) => ruleset,
        other => panic!("expected one ruleset, read {other:?}"),
    }
}

fn expect_ok<T>(answer: Result<T, ViewError>) -> T {
    answer.unwrap_or_else(|error| panic!("the views failed: {error}"))
}

/// A client that follows a view.
struct Client {
    view: ViewId,
    cursor: Option<Cursor>,
    limit: usize,
    sizes: BTreeMap<String, u64>,
}

impl Client {
    async fn open(world: &dyn World, ruleset: &Ruleset) -> Self {
        let view = expect_ok(world.views().open(ruleset).await);
        Self { view, cursor: None, limit: 1000, sizes: BTreeMap::new() }
    }

    /// Reads all changes, and asserts that the view shows exactly these keys.
    async fn expect(&mut self, world: &dyn World, keys: &[&str]) {
        loop {
            let result = world.views().changes(self.view, self.cursor.as_ref(), self.limit).await;
            let changes = expect_ok(result);
            assert!(
                self.cursor.is_some() || changes.is_beginning,
                "a request without a cursor returns the whole content"
            );
            let has_more = changes.has_more;
            self.apply(changes);
            if !has_more {
                break;
            }
        }
        let known: BTreeSet<&str> = self.sizes.keys().map(String::as_str).collect();
        assert_eq!(known, keys.iter().copied().collect());
    }

    fn apply(&mut self, changes: Changes) {
        if changes.is_beginning {
            self.sizes.clear();
        }
        for gone in &changes.gone {
            self.sizes.remove(&text(gone.key.as_bytes()));
        }
        for shown in &changes.shown {
            assert_eq!(&**shown.container(), CONTAINER);
            self.sizes.insert(text(shown.key()), shown.size_bytes());
        }
        self.cursor = Some(changes.cursor);
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
