//! Stores and moves of unrelated trees do not wait for each other.

use crate::world::World;
use std::time::Duration;
use store::wrap::Operation;
use vfs::Ino;

/// Regression: the rename of a directory waited for all uploads in flight, and all other stores waited for the rename. During
/// the upload of a large file, one `mv` of an unrelated directory blocked every `close`, `mkdir`, `unlink` and PUT of the mount
/// until the upload was over.
#[tokio::test(start_paused = true)]
async fn s416_a_slow_upload_blocks_no_unrelated_rename_or_store() {
    let world = World::new().await;
    for path in ["slow", "a", "other"] {
        world.mkdir(path).await.unwrap();
    }
    world.write_file("a/file", "moves").await.unwrap();
    world.write_file("other/old", "goes").await.unwrap();
    let slow = world.create("slow/file").await.unwrap();
    world.write_all(slow, b"slow").await.unwrap();
    let held = world.bucket.late.hold(Operation::Put);
    let upload = tokio::spawn({
        let fs = world.fs.clone();
        async move { fs.flush(slow).await }
    });
    let answer = held.done().await;
    // The directory of the file that is being uploaded cannot be renamed before the upload has ended.
    let own = tokio::spawn({
        let fs = world.fs.clone();
        async move { fs.rename((Ino::ROOT, b"slow"), (Ino::ROOT, b"slower"), 0).await }
    });
    tokio::task::yield_now().await;
    let others = async {
        world.rename("a", "b").await.unwrap();
        world.write_file("other/new", "stays").await.unwrap();
        world.mkdir("other/dir").await.unwrap();
        world.unlink("other/old").await.unwrap();
        world.rmdir("other/dir").await.unwrap();
        world.rename("b", "other/b").await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(60), others)
        .await
        .expect("an unrelated operation waits for the slow upload");
    assert!(!upload.is_finished() && !own.is_finished());
    answer.send(()).unwrap();
    upload.await.unwrap().unwrap();
    own.await.unwrap().unwrap();
    world.fs.release(slow).await.unwrap();
    assert_eq!(world.read_file("slower/file").await.unwrap(), b"slow");
    assert_eq!(world.read_file("other/b/file").await.unwrap(), b"moves");
    world.assert_healthy().await;
}

/// `mkdir` in a directory that is being renamed, and a rename of that directory to a name that is being created, both complete.
#[tokio::test]
async fn s416_directories_are_created_and_renamed_concurrently() {
    let world = World::new().await;
    for round in 0..20 {
        let (dir, to) = (format!("d{round}"), format!("t{round}"));
        world.mkdir(&dir).await.unwrap();
        let (inside, sibling) = (format!("{dir}/x"), to.clone());
        let (made, renamed, taken) =
            tokio::join!(world.mkdir(&inside), world.rename_at_once(&dir, &to, 0), world.mkdir(&sibling));
        // Either may come first, but errors must be those that POSIX allows.
        let errno = |done: vfs::Result<()>| done.err().map_or(0, |error| error.errno());
        let (made, taken) = (errno(made.map(drop)), errno(taken.map(drop)));
        let renamed = errno(renamed);
        assert!([0, libc::ENOENT].contains(&made), "{made}");
        assert!([0, libc::EEXIST].contains(&taken), "{taken}");
        assert!([0, libc::ENOTEMPTY, libc::EEXIST].contains(&renamed), "{renamed}");
    }
    world.assert_healthy().await;
}
