//! Renamed directories, and the objects that are moved with them.

use super::{ManualClock, World, split, tree};
use crate::fake_handler::FakeHandler;
use crate::tree::faulty_bucket::FaultyBucket;
use std::sync::Arc;
use std::time::Duration;
use store::wrap::{Call, Fault, Layer, Operation, Rule, Wrapped};
use store::{Buckets, ObjectStore, StoreError};
use tokio::sync::Notify;
use views::tree::{Tree, TreeError, TreeParts};

const SETS: &str = "set: {container: bucket}\nother: {container: bucket, object: '**/*.fq'}";

impl World {
    /// Waits until all moves have ended.
    pub(crate) async fn followed(&self) {
        followed(&self.tree).await;
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), TreeError> {
        self.tree.rename(&split(from), &split(to)).await
    }

    async fn store(&self, key: &str, directory: &str) {
        let shown = self.bucket.put(key, directory).await;
        self.handler.put(shown);
    }
}

async fn followed(tree: &Tree) {
    for _ in 0..10_000 {
        if tree.following() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} moves have not ended", tree.following());
}

#[tokio::test]
async fn s272_a_directory_is_renamed_at_once_and_its_objects_later() {
    let world = World::new(SETS).await;
    for (key, at) in [("a.fq", "u"), ("b", "u/v"), ("c", "w"), ("d", "")] {
        world.store(key, at).await;
    }
    world.tree.make_directory(&split("set/u/empty")).await.unwrap();
    world.bucket.faults().set_down(true);
    world.rename("set/u", "set/x%y").await.unwrap();
    for _ in 0..2 {
        assert_eq!(world.names("set").await, ["d", "w/", "x%y/"]);
        assert_eq!(world.names("set/x%y").await, ["a.fq", "empty/", "v/"]);
        // The property belongs to the object, so it has moved in all views.
        assert_eq!(world.names("other").await, ["x%y/"]);
        world.handler.restart();
        world.clock.move_by(60);
    }
    assert_eq!(world.tree.following(), 2);
    world.bucket.faults().set_down(false);
    world.followed().await;
    assert_eq!(world.bucket.directory("a.fq").await, "x%25y");
    assert_eq!(world.bucket.directory("b").await, "x%25y/v");
    assert_eq!(world.bucket.directory("c").await, "w");
    // The events of the copies arrive late.
    assert_eq!(world.names("set").await, ["d", "w/", "x%y/"]);
    for key in ["a.fq", "b"] {
        world.handler.put(world.bucket.shown(key).await);
    }
    world.clock.move_by(60);
    assert_eq!(world.names("set").await, ["d", "w/", "x%y/"]);
}

/// A rename before a kill is visible in the next process, which continues the moves.
#[tokio::test]
async fn s272_a_rename_survives_the_end_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let (handler, clock) = (Arc::new(FakeHandler::default()), Arc::new(ManualClock::default()));
    let bucket = FaultyBucket::new(clock.clone());
    for number in 0..100 {
        handler.put(bucket.put(&format!("key{number}"), "old").await);
    }
    let start = || tree(SETS, Duration::ZERO, &handler, &clock, &bucket, Some(dir.path()));
    let first = start().await;
    // Some moves are made, then the store fails.
    bucket.faults().add(Rule::new(Fault::unavailable()).on(Operation::Copy).after(30).always());
    first.rename(&split("set/old"), &split("set/new")).await.unwrap();
    while bucket.faults().struck(Operation::Copy) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(first);
    bucket.faults().clear();
    for number in 0..100 {
        handler.put(bucket.shown(&format!("key{number}")).await);
    }
    let second = start().await;
    let names = second.list(&split("set/new"), None, 1000).await.unwrap();
    assert_eq!(names.len(), 100);
    assert!(second.find(&split("set/old")).await.unwrap().is_none());
    followed(&second).await;
    for number in 0..100 {
        assert_eq!(bucket.directory(&format!("key{number}")).await, "new");
    }
    drop(second);
    assert_eq!(start().await.following(), 0);
}

#[tokio::test]
async fn s272_the_newest_rename_wins_and_changes_by_others_are_kept() {
    let world = World::new(SETS).await;
    world.store("a", "one").await;
    world.store("b", "one").await;
    world.store("c", "one").await;
    world.bucket.faults().set_down(true);
    world.rename("set/one", "set/two").await.unwrap();
    world.rename("set/two", "set/three").await.unwrap();
    // Another client stores one object with a third directory, and one with the old directory.
    world.bucket.faults().set_down(false);
    world.bucket.put("b", "elsewhere").await;
    world.bucket.put("c", "one").await;
    world.followed().await;
    assert_eq!(world.bucket.directory("a").await, "three");
    assert_eq!(world.bucket.directory("b").await, "elsewhere");
    assert_eq!(world.bucket.directory("c").await, "three");
    assert_eq!(world.names("set").await, ["elsewhere/", "three/"]);
    assert_eq!(world.names("set/three").await, ["a", "c"]);
}

/// A store whose copies take effect at once, while their answers wait for the test.
#[derive(Debug, Clone)]
struct DelayedCopies {
    bucket: FaultyBucket,
    copied: Arc<Notify>,
    answer: Arc<Notify>,
}

impl Layer for DelayedCopies {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        let outcome = work.await;
        if call.operation == Operation::Copy {
            self.copied.notify_one();
            self.answer.notified().await;
        }
        outcome
    }
}

#[async_trait::async_trait]
impl Buckets for DelayedCopies {
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(Wrapped::new(self.bucket.open(name).await?, self.clone())))
    }

    async fn create(&self, name: &str) -> store::Result<()> {
        self.bucket.create(name).await
    }

    async fn delete(&self, name: &str) -> store::Result<()> {
        self.bucket.delete(name).await
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        self.bucket.list().await
    }
}

/// Another client stored an object just after it had been moved, and the handler reported it before the answer to the
/// copy arrived. The object was then shown for ever as the copy had left it.
#[tokio::test]
async fn s272_a_put_before_the_answer_to_a_copy_is_not_lost() {
    let (handler, clock) = (Arc::new(FakeHandler::default()), Arc::new(ManualClock::default()));
    let late = DelayedCopies {
        bucket: FaultyBucket::new(clock.clone()),
        copied: Arc::default(),
        answer: Arc::default(),
    };
    clock.move_by(1 << 30);
    let tree = Tree::start(TreeParts {
        views: handler.clone(),
        rulesets: views::read(SETS).unwrap(),
        recency: Duration::ZERO,
        clock: clock.clone(),
        buckets: Arc::new(late.clone()),
        handler: None,
        dir: None,
        memory_max_bytes: None,
    });
    let world = World { handler, clock, bucket: late.bucket.clone(), tree: tree.await.unwrap() };
    world.store("a", "old").await;
    world.rename("set/old", "set/new").await.unwrap();
    late.copied.notified().await;
    world.store("a", "elsewhere").await;
    assert_eq!(world.names("set").await, ["elsewhere/"]);
    late.answer.notify_one();
    world.followed().await;
    world.clock.move_by(11);
    assert_eq!(world.names("set").await, ["elsewhere/"]);
    assert_eq!(world.names("set/elsewhere").await, ["a"]);
}

/// The store refused the copy, the move was forgotten, and after rename(2) had returned 0 the object was back in its old
/// directory.
#[tokio::test]
async fn s272_an_object_that_the_store_refuses_to_copy_stays_in_the_new_directory() {
    let world = World::new(SETS).await;
    world.store("a", "old").await;
    world.store("gone", "old").await;
    assert_eq!(world.names("set/old").await, ["a", "gone"]);
    world.bucket.remove("gone").await;
    let denied = Fault::Before(|| StoreError::Denied("not yours".into()));
    world.bucket.faults().add(Rule::new(denied).on(Operation::Copy).always());
    world.rename("set/old", "set/new").await.unwrap();
    world.followed().await;
    assert_eq!(world.names("set").await, ["new/"]);
    assert_eq!(world.names("set/new").await, ["a"]);
    assert_eq!(world.bucket.directory("a").await, "old");
    let refused = world.tree.refused();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].0.key.to_string() == "a" && refused[0].1.contains("not yours"), "{refused:?}");

    // When it is moved again and the store allows the copy, the move is made.
    world.bucket.faults().clear();
    world.rename("set/new", "set/newer").await.unwrap();
    world.followed().await;
    assert_eq!(world.bucket.directory("a").await, "newer");
    assert_eq!(world.tree.refused(), []);
}

#[tokio::test]
async fn files_move_between_directories_and_keep_their_names() {
    let world = World::new(SETS).await;
    world.store("a/x.fq", "").await;
    world.store("b/x.fq", "d").await;
    world.store("y.fq", "").await;
    world.rename("set/y.fq", "set/d/y.fq").await.unwrap();
    assert_eq!(world.key("set/d/y.fq").await.unwrap(), "y.fq");
    world.followed().await;
    assert_eq!(world.bucket.directory("y.fq").await, "d");
    for (from, to) in [("set/d/y.fq", "set/z.fq"), ("set/x.fq", "set/d/x.fq"), ("set/x.fq", "other/x.fq")] {
        let renamed = world.rename(from, to).await;
        assert!(matches!(renamed, Err(TreeError::Elsewhere)), "{from} {to}: {renamed:?}");
    }
    world.rename("set/d/y.fq", "set/y.fq").await.unwrap();
    world.followed().await;
    assert_eq!(world.bucket.directory("y.fq").await, "");
    for (from, to, wanted) in [
        ("set/none", "set/x", "NotFound"),
        ("set/y.fq", "set/none/y.fq", "NotFound"),
        ("set/y.fq", "set/x.fq/y.fq", "NotDirectory"),
        ("set/y.fq", "set/d", "IsDirectory"),
        ("set/d", "set/y.fq", "NotDirectory"),
        ("set/d", "set/d/e", "Invalid"),
        ("set", "set2", "Fixed"),
        ("set/d", "other", "Fixed"),
    ] {
        let error = world.rename(from, to).await.unwrap_err();
        assert!(format!("{error:?}").starts_with(wanted), "{from} {to}: {error:?}");
    }
    assert!(world.rename("set/y.fq", "set/y.fq").await.is_ok());
}
