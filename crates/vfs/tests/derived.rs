//! Derived directories: views show files of the volume without requests to the store, and create files where the view requires.

use crate::world::{Bucket, CALLER, World, errno};
use meta::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Attributes, Clock as _, ObjectKey, Payload, PutOptions, Timestamp};
use vfs::{
    Attr, Derived, DerivedEntry, DerivedFile, DerivedStale, Error, Handle, Ino, Invalidation, Kind,
    ListingCache, Placed, Result,
};

/// A view `raw` of all objects whose `stage` is `raw`, with the directories given by `tenon-directory`. Knows only reported
/// files.
#[derive(Debug, Default)]
struct View {
    files: Mutex<BTreeMap<Vec<Name>, DerivedFile>>,
    directories: Mutex<BTreeSet<Vec<Name>>>,
    recency: Duration,
}

fn name(text: &str) -> Name {
    Name::try_from(text).unwrap()
}

fn path(text: &str) -> Vec<Name> {
    text.split('/').map(name).collect()
}

impl View {
    /// Reports the current state of an object to the view.
    async fn report(&self, at: &str, bucket: &Bucket, key: &str) {
        let meta = bucket.head(key).await.unwrap();
        let file = DerivedFile {
            key: ObjectKey::try_from(key).unwrap(),
            size_bytes: meta.size_bytes,
            etag: meta.object.etag,
            modified: meta.object.last_modified.unwrap(),
            properties: None,
        };
        self.files.lock().unwrap().insert(path(at), file);
    }

    fn forget(&self, at: &str) {
        self.files.lock().unwrap().remove(&path(at));
    }

    fn children(&self, dir: &[Name]) -> BTreeMap<Name, DerivedEntry> {
        let files = self.files.lock().unwrap();
        let directories = self.directories.lock().unwrap();
        let mut found = BTreeMap::new();
        if dir.is_empty() {
            found.insert(name("raw"), DerivedEntry::Directory);
        }
        let below = |path: &Vec<Name>| path.len() > dir.len() && path.starts_with(dir);
        for path in directories.iter().filter(|path| below(path)) {
            found.insert(path[dir.len()].clone(), DerivedEntry::Directory);
        }
        for (path, file) in files.iter().filter(|(path, _)| below(path)) {
            let entry = match path.len() == dir.len() + 1 {
                true => DerivedEntry::File(file.clone()),
                false => DerivedEntry::Directory,
            };
            found.insert(path[dir.len()].clone(), entry);
        }
        found
    }
}

#[async_trait::async_trait]
impl Derived for View {
    async fn find(&self, path: &[Name]) -> Result<Option<DerivedEntry>> {
        let Some((last, dir)) = path.split_last() else { return Ok(Some(DerivedEntry::Directory)) };
        Ok(self.children(dir).remove(last))
    }

    async fn list(
        &self,
        dir: &[Name],
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, DerivedEntry)>> {
        let children = self.children(dir).into_iter();
        Ok(children.filter(|(name, _)| after.is_none_or(|after| name > after)).take(limit).collect())
    }

    async fn place(&self, path: &[Name]) -> Result<Placed> {
        if path.last().unwrap().as_bytes().starts_with(b"no") {
            return Err(Error::Errno { errno: libc::EINVAL, what: "the view could not show it" });
        }
        let directory: Vec<_> = path[1..path.len() - 1]
            .iter()
            .map(|name| String::from_utf8(name.as_bytes().to_vec()).unwrap())
            .collect();
        let mut properties = BTreeMap::from([("stage".to_owned(), "raw".to_owned())]);
        if !directory.is_empty() {
            properties.insert("tenon-directory".to_owned(), directory.join("/"));
        }
        let below = path[1..].iter().map(|name| name.as_bytes().to_vec());
        Ok(Placed {
            path: [b"in".to_vec()].into_iter().chain(below).collect(),
            properties,
            tags: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
            content_type: Some("text/x-raw".to_owned()),
        })
    }

    async fn make_directory(&self, path: &[Name]) -> Result<()> {
        self.directories.lock().unwrap().insert(path.to_vec());
        Ok(())
    }

    async fn remove_directory(&self, path: &[Name]) -> Result<()> {
        if !self.children(path).is_empty() {
            return Err(Error::Errno { errno: libc::ENOTEMPTY, what: "not empty" });
        }
        self.directories.lock().unwrap().remove(path);
        Ok(())
    }

    async fn rename(&self, from: &[Name], to: &[Name]) -> Result<()> {
        let moved = |path: &Vec<Name>| [to, &path[from.len()..]].concat();
        let mut files = self.files.lock().unwrap();
        *files = std::mem::take(&mut *files)
            .into_iter()
            .map(|(path, file)| (if path.starts_with(from) { moved(&path) } else { path }, file))
            .collect();
        let mut directories = self.directories.lock().unwrap();
        *directories = std::mem::take(&mut *directories)
            .into_iter()
            .map(|path| if path.starts_with(from) { moved(&path) } else { path })
            .collect();
        Ok(())
    }

    async fn version(&self, _: &[Name]) -> Result<u64> {
        Ok(0)
    }

    fn lifetime(&self, _: &[Name]) -> Duration {
        self.recency
    }

    fn recency(&self, _: &[Name]) -> Duration {
        self.recency
    }
}

/// Returns a mount with views under `.views`.
async fn world() -> (World, Arc<View>) {
    let world = World::new().await;
    let view = Arc::new(View::default());
    world.fs.attach_view(Some(b".views"), view.clone(), None).unwrap();
    (world, view)
}

impl World {
    /// Lists a directory in small pages, like a front end.
    async fn pages(&self, dir: Ino, plus: bool) -> Vec<vfs::DirectoryEntry> {
        let handle = self.fs.opendir(dir).await.unwrap();
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.fs.readdir(handle, cookie, 7, plus).await.unwrap();
            let Some(last) = page.last() else { break };
            cookie = last.cookie;
            all.extend(page);
        }
        self.fs.releasedir(handle);
        all
    }

    async fn visible_names(&self, dir: &str) -> Vec<String> {
        let entries = self.pages(self.ino(dir).await.unwrap(), true).await;
        let names = entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap());
        names.filter(|name| name != "." && name != "..").collect()
    }

    async fn create_in_view(&self, dir: &str, name: &str) -> Result<(Attr, Handle)> {
        let dir = self.ino(dir).await?;
        let (attr, opened) = self.fs.create(CALLER, dir, name.as_bytes(), 0o640, libc::O_WRONLY).await?;
        Ok((attr, opened.handle))
    }
}

#[tokio::test]
async fn s260_a_file_of_a_view_is_the_volumes_file_and_its_lookup_sends_no_request() {
    let (world, view) = world().await;
    world.bucket.put("a/b/one.raw", "hello").await;
    view.report("raw/one.raw", &world.bucket, "a/b/one.raw").await;
    let (attr, requests) = world.counting(world.stat(".views/raw/one.raw")).await;
    let attr = attr.unwrap();
    assert_eq!((attr.size_bytes, requests.total()), (5, 0), "{requests}");
    let (again, requests) = world
        .counting(async {
            world.expire();
            world.fs.getattr(attr.ino).await
        })
        .await;
    assert_eq!((again.unwrap(), requests.total()), (attr.clone(), 0));
    assert_eq!(world.ino("a/b/one.raw").await.unwrap(), attr.ino, "one inode by both paths");
    assert_eq!(world.read_file(".views/raw/one.raw").await.unwrap(), b"hello");
    assert_eq!(world.visible_names(".views").await, ["raw"]);
    assert_eq!(world.visible_names(".views/raw").await, ["one.raw"]);
    assert_eq!(world.names("").await.unwrap(), ["a"], "listings of the root omit the views");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s260_views_may_be_all_that_a_mount_shows() {
    let world = World::new().await;
    let view = Arc::new(View::default());
    world.bucket.put("one.raw", "hello").await;
    view.report("raw/one.raw", &world.bucket, "one.raw").await;
    world.fs.attach_view(None, view.clone(), None).unwrap();
    assert_eq!(world.visible_names("").await, ["raw"]);
    assert_eq!(world.read_file("raw/one.raw").await.unwrap(), b"hello");
    assert_eq!(errno(world.stat("one.raw").await), libc::ENOENT);
    world.rename("raw/one.raw", "raw/two.raw").await.unwrap();
    world.settle().await;
    assert_eq!(world.bucket.keys().await, ["two.raw"]);
    world.unlink("raw/two.raw").await.unwrap();
    assert_eq!(world.bucket.keys().await, [""; 0]);
}

#[tokio::test]
async fn s260_a_view_is_listed_in_pages_without_a_request() {
    let (world, view) = world().await;
    world.bucket.put("x", "hello").await;
    view.report("raw/x", &world.bucket, "x").await;
    let one = view.files.lock().unwrap()[&path("raw/x")].clone();
    let file = |n: usize| DerivedFile {
        key: ObjectKey::try_from(format!("d{}/{n:06}", n % 10).as_str()).unwrap(),
        ..one.clone()
    };
    let files = (0..3000).map(|n| (path(&format!("raw/{n:06}")), file(n)));
    view.files.lock().unwrap().extend(files);
    let dir = world.ino(".views/raw").await.unwrap();
    let handle = world.fs.opendir(dir).await.unwrap();
    let (listed, requests) = world
        .counting(async {
            let (mut names, mut cookie) = (Vec::new(), 0);
            loop {
                let page = world.fs.readdir(handle, cookie, 100, true).await.unwrap();
                let Some(last) = page.last() else { break };
                cookie = last.cookie;
                names.extend(page.iter().map(|entry| entry.name.clone()));
                // Entries that are created and removed meanwhile do not disturb the others.
                view.forget(&format!("raw/{:06}", names.len() / 2));
            }
            names
        })
        .await;
    assert_eq!((listed.len(), requests.total()), (3001 + 2, 0), "{requests}");
    assert!(listed.is_sorted_by(|a, b| a < b || a == ".."), "in order, each once");
}

#[tokio::test]
async fn s261_a_file_created_in_a_view_is_stored_with_the_metadata_of_the_view() {
    let (world, view) = world().await;
    let (attr, handle) = world.create_in_view(".views/raw", "new.raw").await.unwrap();
    assert_eq!(world.visible_names(".views/raw").await, ["new.raw"], "before the file is stored");
    world.write_all(handle, b"mine").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.keys().await, ["in/new.raw"], "no marker, and no second PUT for its properties");
    let meta = world.bucket.head("in/new.raw").await.unwrap();
    assert_eq!(meta.attributes.user["stage"], "raw");
    assert_eq!(meta.attributes.content_type.as_deref(), Some("text/x-raw"));
    let key = ObjectKey::try_from("in/new.raw").unwrap();
    assert_eq!(world.bucket.store().tags(&key).await.unwrap()["team"], "red");
    assert_eq!(
        world.visible_names(".views/raw").await,
        ["new.raw"],
        "before the file is reported to the view"
    );
    view.report("raw/new.raw", &world.bucket, "in/new.raw").await;
    assert_eq!(world.ino(".views/raw/new.raw").await.unwrap(), attr.ino);
    assert_eq!(world.read_file("in/new.raw").await.unwrap(), b"mine");
    let value = world.fs.getxattr(attr.ino, b"user.stage").await.unwrap();
    assert_eq!(value, "raw");
    assert!(world.fs.getxattr(attr.ino, b"tenon.content-type").await.is_err());
    world.assert_healthy().await;
}

#[tokio::test]
async fn s261_the_first_put_of_a_new_file_has_its_properties() {
    let (world, _view) = world().await;
    let written = async {
        let (_, handle) = world.create_in_view(".views/raw", "new.raw").await.unwrap();
        world.write_all(handle, b"mine").await.unwrap();
        world.close(handle).await.unwrap();
    };
    let ((), requests) = world.counting(written).await;
    // Two PUTs: the volume record and the file.
    assert_eq!(requests.of(store::wrap::Operation::Put), 2, "{requests}");
    world.settle().await;
    assert_eq!(world.bucket.header("in/new.raw", "stage").await.unwrap(), "raw");
}

#[tokio::test]
async fn s261_entries_that_a_view_could_not_show_are_refused() {
    let (world, _view) = world().await;
    assert_eq!(errno(world.create_in_view(".views/raw", "no.txt").await), libc::EINVAL);
    let dir = world.ino(".views/raw").await.unwrap();
    assert_eq!(errno(world.fs.symlink(CALLER, dir, b"l", b"t").await), libc::EPERM);
    assert_eq!(errno(world.fs.mknod(CALLER, dir, b"p", Kind::Fifo, 0o644, 0).await), libc::EPERM);
    world.write_file("f", "x").await.unwrap();
    assert_eq!(errno(world.link("f", ".views/raw/f").await), libc::EPERM);
    assert_eq!(errno(world.mkdir(".views/other").await), libc::EPERM);
    assert_eq!(errno(world.rmdir(".views/raw").await), libc::EPERM);
    assert_eq!(errno(world.rmdir(".views").await), libc::EPERM);
    assert_eq!(errno(world.chmod(".views/raw", 0o700).await), libc::EPERM);
    assert_eq!(errno(world.fs.setxattr(dir, b"user.a", b"b", 0, |_| true).await), libc::EPERM);
    assert_eq!(errno(world.rename("f", ".views/raw/f").await), libc::EXDEV);
    assert_eq!(errno(world.rename(".views", "elsewhere").await), libc::EPERM);
    assert_eq!(errno(world.mkdir(".views").await), libc::EPERM);
}

#[tokio::test]
async fn s262_a_file_is_removed_with_its_object_and_open_handles_read_on() {
    let (world, view) = world().await;
    world.bucket.put("a.raw", "hello").await;
    view.report("raw/a.raw", &world.bucket, "a.raw").await;
    let handle = world.open_handle(".views/raw/a.raw", libc::O_RDONLY).await.unwrap();
    view.forget("raw/a.raw");
    assert_eq!(errno(world.stat(".views/raw/a.raw").await), libc::ENOENT);
    assert_eq!(world.read_all(handle).await.unwrap(), b"hello");
    world.close(handle).await.unwrap();
    assert_eq!(world.read_file("a.raw").await.unwrap(), b"hello", "the file is in the volume");
    view.report("raw/a.raw", &world.bucket, "a.raw").await;
    world.unlink(".views/raw/a.raw").await.unwrap();
    assert_eq!(
        errno(world.stat(".views/raw/a.raw").await),
        libc::ENOENT,
        "although the removal is not reported to the view"
    );
    assert_eq!(world.bucket.keys().await, [""; 0]);
    assert_eq!(world.visible_names(".views/raw").await, [""; 0]);
}

#[tokio::test]
async fn s262_a_view_replaces_only_older_known_state() {
    let (world, view) = world().await;
    world.bucket.put("a.raw", "old").await;
    view.report("raw/a.raw", &world.bucket, "a.raw").await;
    assert_eq!(world.read_file(".views/raw/a.raw").await.unwrap(), b"old");
    // A file written here: the view still has the old state.
    world.write_file("a.raw", "newer").await.unwrap();
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 5);
    assert_eq!(world.read_file(".views/raw/a.raw").await.unwrap(), b"newer");
    // A file stored by another client and reported to the view.
    world.bucket.clock.advance(Duration::from_secs(20));
    world.bucket.put("a.raw", "newest of all").await;
    view.report("raw/a.raw", &world.bucket, "a.raw").await;
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 13);
    assert_eq!(world.read_file("a.raw").await.unwrap(), b"newest of all");
    // A file being written here: the local state is shown.
    let handle = world.open_handle(".views/raw/a.raw", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 13, b"!").await.unwrap();
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 14);
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("a.raw").await.unwrap(), b"newest of all!");
    world.assert_healthy().await;
}

/// Regression: an object was stored twice within a second. The first was reported by an event, whose time has milliseconds; the
/// second was looked up, and its time has none. The second was taken for the older one, and the first was shown permanently.
#[tokio::test]
async fn s266_objects_stored_within_one_second_are_read_from_the_bucket() {
    let (world, view) = world().await;
    let dated = |modified: Timestamp| {
        view.files.lock().unwrap().get_mut(&path("raw/a.raw")).unwrap().modified = modified;
    };
    let event = Timestamp::from_secs(world.bucket.clock.now().secs(), 716_000_000);
    let header = Timestamp::from_secs(event.secs(), 0);
    let hour_before = Timestamp::from_secs(event.secs() - 3600, 0);
    world.bucket.put("a.raw", "zz").await;
    view.report("raw/a.raw", &world.bucket, "a.raw").await;
    dated(event);
    let file = world.stat(".views/raw/a.raw").await.unwrap();
    assert_eq!(file.size_bytes, 2);
    let first = view.files.lock().unwrap()[&path("raw/a.raw")].clone();
    // A multipart upload is even dated by its begin.
    for (content, modified) in [("zzz", header), ("zzzz", hour_before)] {
        world.bucket.put("a.raw", content).await;
        view.report("raw/a.raw", &world.bucket, "a.raw").await;
        dated(modified);
        assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, content.len() as u64);
        assert_eq!(world.fs.getattr(file.ino).await.unwrap().size_bytes, content.len() as u64);
        let entries = world.pages(world.ino(".views/raw").await.unwrap(), true).await;
        let listed = entries.iter().find(|entry| &*entry.name == b"a.raw").unwrap();
        assert_eq!(listed.attr.as_ref().unwrap().size_bytes, content.len() as u64);
    }
    // A lagging view does not bring back the first state.
    view.files.lock().unwrap().insert(path("raw/a.raw"), first);
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 4);
}

/// Regression: a view without the report of a removal brought the file back, also under its directory in the volume.
#[tokio::test]
async fn s262_a_lagging_view_does_not_bring_back_removed_files() {
    let (world, view) = world().await;
    world.bucket.put("d/a.raw", "old").await;
    view.report("raw/a.raw", &world.bucket, "d/a.raw").await;
    world.unlink("d/a.raw").await.unwrap();
    assert_eq!(errno(world.stat(".views/raw/a.raw").await), libc::ENOENT);
    assert_eq!(world.visible_names(".views/raw").await, [""; 0]);
    assert_eq!(world.names("d").await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn s263_directories_of_a_view_are_created_renamed_and_removed_without_objects() {
    let (world, view) = world().await;
    world.mkdir(".views/raw/sub").await.unwrap();
    let dir = world.ino(".views/raw/sub").await.unwrap();
    let (_, handle) = world.create_in_view(".views/raw/sub", "x.raw").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(errno(world.rmdir(".views/raw/sub").await), libc::ENOTEMPTY);
    assert_eq!(world.bucket.header("in/sub/x.raw", "tenon-directory").await.unwrap(), "sub");
    view.report("raw/sub/x.raw", &world.bucket, "in/sub/x.raw").await;
    world.rename(".views/raw/sub", ".views/raw/other").await.unwrap();
    assert_eq!(world.ino(".views/raw/other").await.unwrap(), dir, "the directory keeps its inode number");
    assert_eq!(world.visible_names(".views/raw/other").await, ["x.raw"]);
    assert_eq!(errno(world.stat(".views/raw/sub").await), libc::ENOENT);
    world.unlink(".views/raw/other/x.raw").await.unwrap();
    view.forget("raw/other/x.raw");
    world.rmdir(".views/raw/other").await.unwrap();
    assert_eq!(world.visible_names(".views/raw").await, [""; 0]);
    assert_eq!(world.bucket.keys().await, [""; 0], "no objects are left");
}

#[tokio::test]
async fn s263_a_rename_in_a_view_renames_the_file_in_the_volume() {
    let (world, view) = world().await;
    for name in ["a.raw", "b.raw"] {
        world.bucket.put(format!("deep/{name}"), name).await;
        view.report(&format!("raw/{name}"), &world.bucket, &format!("deep/{name}")).await;
    }
    assert_eq!(errno(world.rename(".views/raw/a.raw", ".views/raw/no.txt").await), libc::EINVAL);
    world.rename(".views/raw/a.raw", ".views/raw/c.raw").await.unwrap();
    view.forget("raw/a.raw");
    assert_eq!(world.visible_names(".views/raw").await, ["b.raw", "c.raw"]);
    world.rename(".views/raw/c.raw", ".views/raw/b.raw").await.unwrap();
    world.settle().await;
    assert_eq!(world.bucket.keys().await, ["deep/b.raw"]);
    assert_eq!(world.bucket.object("deep/b.raw").await.unwrap(), b"a.raw", "the file replaced the other one");
    assert_eq!(errno(world.rename(".views/raw/b.raw", "b.raw").await), libc::EXDEV);
}

#[tokio::test]
async fn a_view_that_knows_properties_saves_reading_headers() {
    let bucket = Bucket::in_memory();
    let options = PutOptions {
        attributes: Attributes {
            user: BTreeMap::from([("mode".to_owned(), "33256".to_owned())]),
            ..Attributes::default()
        },
        ..PutOptions::default()
    };
    bucket
        .store()
        .put(&ObjectKey::try_from("run").unwrap(), Payload::from("x"), options.clone())
        .await
        .unwrap();
    let world = bucket.mount(|config| config.attributes = vfs::AttributeSource::Headers).await;
    let view = Arc::new(View::default());
    view.report("raw/run", &bucket, "run").await;
    view.files.lock().unwrap().get_mut(&path("raw/run")).unwrap().properties = Some(options.attributes.user);
    world.fs.attach_view(Some(b".views"), view, None).unwrap();
    let (attr, requests) = world.counting(world.stat(".views/raw/run")).await;
    assert_eq!((attr.unwrap().mode, requests.total()), (0o750, 0));
}

/// A reader of a listing cached by the kernel reaches the file system in the middle, where the kernel has dropped the rest.
#[tokio::test]
async fn s266_a_cached_listing_continues_where_another_handle_was() {
    let (world, view) = world().await;
    world.bucket.put("x", "hello").await;
    for name in ["a", "b", "c", "d", "e"] {
        view.report(&format!("raw/{name}"), &world.bucket, "x").await;
    }
    let dir = world.ino(".views/raw").await.unwrap();
    let names = |page: Vec<vfs::DirectoryEntry>| page.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    let first = world.fs.opendir(dir).await.unwrap();
    assert_eq!(world.fs.views().listing_cache(first), ListingCache::Anew);
    let page = world.fs.readdir(first, 0, 9, true).await.unwrap();
    let cookie = page.iter().find(|entry| &*entry.name == b"c").unwrap().cookie;
    let second = world.fs.opendir(dir).await.unwrap();
    assert_eq!(world.fs.views().listing_cache(second), ListingCache::Kept);
    view.forget("raw/a");
    assert_eq!(names(world.fs.readdir(second, cookie, 1, false).await.unwrap()), [&b"d"[..]]);
    assert_eq!(names(world.fs.readdir(second, cookie + 1, 9, false).await.unwrap()), [&b"e"[..]]);
    assert_eq!(names(world.fs.readdir(first, cookie, 9, false).await.unwrap()), [&b"d"[..], b"e"]);
    // A created file that the view does not know yet may never be reported as stale.
    let (_, handle) = world.create_in_view(".views/raw", "new").await.unwrap();
    let third = world.fs.opendir(dir).await.unwrap();
    assert_eq!(world.fs.views().listing_cache(third), ListingCache::None);
    assert_eq!(world.fs.views().lifetime(dir, b"new", world.fs.views().asked()), Duration::ZERO);
    world.close(handle).await.unwrap();
    for handle in [first, second, third] {
        world.fs.releasedir(handle);
    }
}

/// The name is invalidated before the attributes: a lookup under way, which the kernel completes first, may be the first to
/// find the file.
#[tokio::test]
async fn s266_front_ends_are_told_of_stale_names_and_do_not_cache_earlier_answers() {
    let world = World::new().await;
    let view = Arc::new(View { recency: Duration::from_secs(5), ..View::default() });
    world.fs.attach_view(Some(b".views"), view.clone(), None).unwrap();
    world.bucket.put("x", "hello").await;
    view.report("raw/one", &world.bucket, "x").await;
    let (dir, file) = (world.ino(".views/raw").await.unwrap(), world.ino(".views/raw/one").await.unwrap());
    let asked = world.fs.views().asked();
    assert_eq!(world.fs.views().lifetime(dir, b"one", asked), view.recency);
    assert_eq!(world.fs.views().lifetime_of(file), view.recency);
    let mut news = world.fs.kernel_caches().invalidations();
    let stale = DerivedStale { directory: vec![name("raw")], names: vec![name("one"), name("other")] };
    assert!(world.fs.views().say_stale(&stale));
    assert_eq!(world.fs.views().lifetime(dir, b"one", asked), Duration::ZERO);
    let entry = |name: &'static [u8]| Invalidation::Entry { parent: dir, name: name.into() };
    let expected = [Invalidation::Inode(dir), entry(b"one"), Invalidation::Attributes(file), entry(b"other")];
    for one in expected {
        assert_eq!(news.try_recv().unwrap(), one);
    }
    assert_eq!(world.fs.views().kept_below(&[]).len(), 2, "the view in the root, and the file in the view");
    // A busy front end is told later.
    while world.fs.views().say_stale(&stale) {}
    while news.try_recv().is_ok() {}
    assert!(world.fs.views().say_stale(&stale));
    // The file is no longer in the view.
    view.forget("raw/one");
    world.fs.getattr(file).await.unwrap();
    assert_eq!(world.fs.views().lifetime_of(file), world.fs.kernel_caches().ttl());
}
