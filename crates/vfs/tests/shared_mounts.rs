//! Mounts of one bucket on several machines, coordinated by leases in the bucket.

use crate::world::{Bucket, CALLER, World, errno};
use staging::leases::LAPSE;
use std::sync::Arc;
use store::wrap::{Fault, Operation, Rule};
use vfs::{Config, Ino, Mapping};

async fn mounts(bucket: &Bucket) -> [World; 2] {
    [bucket.mount(shared).await, bucket.mount(shared).await]
}

fn shared(config: &mut Config) {
    config.is_shared = true;
}

async fn create_exclusively(world: &World, name: &str) -> vfs::Result<vfs::Handle> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    let made = world.fs.create(CALLER, Ino::ROOT, name.as_bytes(), 0o600, flags).await;
    made.map(|(_, opened)| opened.handle)
}

/// Renames without waiting until the objects have moved.
async fn rename(world: &World, from: &str, to: &str) -> vfs::Result<()> {
    world.rename_at_once(from, to, 0).await
}

#[tokio::test]
async fn s213_one_of_several_mounts_creates_a_file_exclusively() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    assert!(here.names("/").await.unwrap().is_empty() && there.names("/").await.unwrap().is_empty());
    let handle = create_exclusively(&here, "file").await.unwrap();
    assert_eq!(bucket.object("file").await.unwrap(), b"", "before it is closed");
    assert_eq!(errno(create_exclusively(&there, "file").await), libc::EEXIST);
    // The mount that lost finds the file at once.
    assert_eq!(there.read_file("file").await.unwrap(), b"");
    here.write_all(handle, b"first").await.unwrap();
    here.close(handle).await.unwrap();
    assert_eq!(bucket.object("file").await.unwrap(), b"first");
    assert_eq!(there.read_file("file").await.unwrap(), b"first");
    for world in [&here, &there] {
        world.assert_healthy().await;
    }
}

#[tokio::test]
async fn s213_one_of_several_mounts_creates_a_directory_or_a_link() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    assert!(there.names("/").await.unwrap().is_empty());
    here.mkdir("dir").await.unwrap();
    assert_eq!(errno(there.mkdir("dir").await), libc::EEXIST);
    assert_eq!(there.names("dir").await.unwrap(), Vec::<String>::new(), "as mkdir -p expects");
    here.symlink("link", b"dir").await.unwrap();
    assert_eq!(errno(there.symlink("link", b"elsewhere").await), libc::EEXIST);
    assert_eq!(there.stat("link").await.unwrap().kind, vfs::Kind::Symlink);
}

/// Regression: two machines created the same log within the revalidation time. Each had its own lines, and one mount lost them
/// at close.
#[tokio::test]
async fn s214_an_open_with_o_creat_finds_a_file_created_by_another_mount() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    assert!(there.names("/").await.unwrap().is_empty());
    here.write_file("log", "one").await.unwrap();
    let flags = libc::O_CREAT | libc::O_WRONLY;
    let made = there.fs.create(CALLER, Ino::ROOT, b"log", 0o600, flags).await;
    assert_eq!(errno(made), libc::ESTALE, "so that the kernel repeats the lookup and the open");
    assert_eq!(there.read_file("log").await.unwrap(), b"one");
}

#[tokio::test]
async fn s214_an_open_sees_at_once_what_another_mount_closed() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    here.write_file("file", "first").await.unwrap();
    assert_eq!(there.read_file("file").await.unwrap(), b"first");
    here.write_file("file", "and second").await.unwrap();
    assert_eq!(there.read_file("file").await.unwrap(), b"and second");
    there.write_file("file", "third").await.unwrap();
    assert_eq!(here.read_file("file").await.unwrap(), b"third");
}

/// The bytes and the etag are the same: only the storage time tells of the change.
#[tokio::test]
async fn s215_attributes_that_another_mount_changed_are_seen() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    here.write_file("file", "text").await.unwrap();
    assert_eq!(there.stat("file").await.unwrap().mode, here.stat("file").await.unwrap().mode);
    for mode in [0o600, 0o640, 0o755] {
        here.chmod("file", mode).await.unwrap();
        here.fs.sync().await.unwrap();
        there.expire();
        assert_eq!(there.stat("file").await.unwrap().mode, mode);
        // This mount's later change must not be reverted.
        there.chmod("file", mode | 0o001).await.unwrap();
        assert_eq!(there.stat("file").await.unwrap().mode, mode | 0o001);
        there.expire();
        assert_eq!(there.stat("file").await.unwrap().mode, mode | 0o001, "not stored yet");
        there.fs.sync().await.unwrap();
        there.expire();
        assert_eq!(here.stat("file").await.unwrap().mode, mode | 0o001);
    }
}

#[tokio::test]
async fn s215_directory_attributes_changed_by_another_mount_are_seen_after_a_listing() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    here.mkdir("dir").await.unwrap();
    assert_eq!(there.stat("dir").await.unwrap().mode, here.stat("dir").await.unwrap().mode);
    for mode in [0o700, 0o750] {
        here.chmod("dir", mode).await.unwrap();
        here.fs.sync().await.unwrap();
        there.expire();
        assert!(there.names("dir").await.unwrap().is_empty());
        assert_eq!(there.stat("dir").await.unwrap().mode, mode);
    }
}

#[tokio::test]
async fn s216_one_of_several_mounts_renames_a_file() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    for number in 0..20 {
        let (from, ours, theirs) = (format!("f{number}"), format!("a{number}"), format!("b{number}"));
        here.write_file(&from, "").await.unwrap();
        there.expire();
        assert_eq!(there.stat(&from).await.unwrap().size_bytes, 0);
        let (one, other) = tokio::join!(rename(&here, &from, &ours), rename(&there, &from, &theirs));
        assert!(bucket.head(&from).await.is_none(), "the object has moved when the calls return");
        let (winner, lost) = if one.is_ok() { (&ours, other) } else { (&theirs, one) };
        assert_eq!(errno(lost), libc::ENOENT);
        assert!(bucket.head(winner).await.is_some());
    }
    assert_eq!(bucket.keys().await.len(), 20, "no lease is left, and no copy");
}

#[tokio::test]
async fn s216_of_two_renames_to_one_name_the_last_wins() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    here.write_file("target", "old").await.unwrap();
    assert_eq!(there.read_file("target").await.unwrap(), b"old");
    here.write_file("one", "1").await.unwrap();
    there.write_file("other", "2").await.unwrap();
    let (one, other) = tokio::join!(rename(&here, "one", "target"), rename(&there, "other", "target"));
    one.and(other).unwrap();
    assert_eq!(bucket.keys().await, ["target"]);
    let found = bucket.object("target").await.unwrap();
    assert!(found == b"1" || found == b"2");
    assert_eq!(here.read_file("target").await.unwrap(), found);
    assert_eq!(there.read_file("target").await.unwrap(), found);
}

#[tokio::test]
async fn s216_of_two_renames_without_replacement_the_first_wins() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    here.write_file("one", "1").await.unwrap();
    there.write_file("other", "2").await.unwrap();
    let flags = libc::RENAME_NOREPLACE;
    let (one, other) = tokio::join!(
        here.rename_at_once("one", "target", flags),
        there.rename_at_once("other", "target", flags)
    );
    let (kept, left, lost) = if one.is_ok() { ("1", "other", other) } else { ("2", "one", one) };
    assert_eq!(errno(lost), libc::EEXIST);
    assert_eq!(bucket.object("target").await.unwrap(), kept.as_bytes());
    assert_eq!(bucket.keys().await, [left, "target"]);
}

#[tokio::test]
async fn s216_one_of_several_mounts_renames_a_directory() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    here.mkdir("dir").await.unwrap();
    for number in 0..30 {
        here.write_file(format!("dir/{number}"), "text").await.unwrap();
    }
    assert_eq!(there.names("dir").await.unwrap().len(), 30);
    let (one, other) = tokio::join!(rename(&here, "dir", "a"), rename(&there, "dir", "b"));
    let (winner, lost) = if one.is_ok() { ("a", other) } else { ("b", one) };
    assert_eq!(errno(lost), libc::ENOENT);
    let keys = bucket.keys().await;
    assert_eq!(keys.len(), 31);
    assert!(keys.iter().all(|key| key.starts_with(&format!("{winner}/"))), "{keys:?}");
    for world in [&here, &there] {
        world.expire();
        assert_eq!(world.names("/").await.unwrap(), [winner]);
    }
}

#[tokio::test]
async fn s216_a_file_deleted_before_its_rename_replaces_nothing() {
    let bucket = Bucket::in_memory();
    let [here, _] = mounts(&bucket).await;
    here.write_file("target", "old").await.unwrap();
    here.write_file("file", "new").await.unwrap();
    let held = here.bucket.late.hold(Operation::List);
    let renaming = async { rename(&here, "file", "target").await };
    let deleting = async {
        // Both names have been looked up.
        let answer = held.done().await;
        bucket.delete("file").await;
        drop(answer);
    };
    let (renamed, ()) = tokio::join!(renaming, deleting);
    assert_eq!(errno(renamed), libc::ENOENT);
    assert_eq!(bucket.object("target").await.unwrap(), b"old");
    assert_eq!(here.read_file("target").await.unwrap(), b"old");
}

#[tokio::test]
async fn s216_a_file_changed_before_its_rename_keeps_the_change() {
    let bucket = Bucket::in_memory();
    let [here, _] = mounts(&bucket).await;
    here.write_file("file", "text").await.unwrap();
    let held = here.bucket.late.hold(Operation::List);
    let changing = async {
        let answer = held.done().await;
        bucket.put("file", "newer").await;
        drop(answer);
    };
    let (renamed, ()) = tokio::join!(rename(&here, "file", "there"), changing);
    renamed.unwrap();
    assert_eq!(bucket.keys().await, ["there"]);
    assert_eq!(here.read_file("there").await.unwrap(), b"newer");
}

#[tokio::test(start_paused = true)]
async fn s217_a_rename_of_a_dead_mount_blocks_others_only_until_its_lease_expires() {
    let bucket = Bucket::in_memory();
    let [here, there] = mounts(&bucket).await;
    let here = Arc::new(here);
    here.write_file("file", "text").await.unwrap();
    assert_eq!(there.read_file("file").await.unwrap(), b"text");
    // The first mount holds the leases and looks up the names.
    bucket.faults.add(Rule::new(Fault::Stall).on(Operation::List).times(1));
    let dying = {
        let here = here.clone();
        tokio::spawn(async move { rename(&here, "file", "a").await })
    };
    while bucket.faults.struck(Operation::List) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    dying.abort();
    let began = tokio::time::Instant::now();
    rename(&there, "file", "b").await.unwrap();
    assert!(began.elapsed() >= LAPSE / 2, "{:?}", began.elapsed());
    assert_eq!(bucket.keys().await.len(), 2, "the lease on the other name is left and blocks no operation");
    assert_eq!(there.fs.admin().collect_garbage(false).await.unwrap().len(), 1);
    assert_eq!(bucket.keys().await, ["b"]);
}

#[tokio::test]
async fn s218_changes_invisible_to_other_mounts_are_refused() {
    let [here, _] = mounts(&Bucket::in_memory()).await;
    here.write_file("file", "text").await.unwrap();
    here.write_file("other", "text").await.unwrap();
    assert_eq!(errno(here.link("file", "name").await), libc::EPERM);
    let exchanged = here.rename_with("file", "other", libc::RENAME_EXCHANGE).await;
    assert_eq!(errno(exchanged), libc::EINVAL);
}

#[tokio::test]
async fn s218_a_volume_named_by_inode_is_not_shared() {
    let bucket = Bucket::by_inode(Mapping::Whole).await;
    let record = vfs::VolumeRecord::read(bucket.store(), b"").await.unwrap();
    let cache = tempfile::TempDir::new().unwrap();
    let parts = vfs::Dependencies {
        store: Arc::new(store::memory::MemoryStore::new(bucket.clock.clone())),
        clock: bucket.clock.clone(),
        entropy: Arc::new(store::Entropy::new(1)),
        engine: Arc::new(meta::MemoryEngine::default()),
        record,
    };
    let config = Config { is_shared: true, ..Config::new(cache.path().to_owned()) };
    let refused = vfs::Filesystem::mount(parts, config).unwrap_err().to_string();
    assert!(refused.contains("cannot be shared"), "{refused}");
}
