//! Derived directories: what a view shows are files of the volume, found without asking the store, made where the view says.

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

/// A view `raw` of everything whose `stage` is `raw`, with the directories that `tenon-directory` says; what it knows it was told.
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
    /// Hears of an object as it is in the bucket.
    async fn hear(&self, at: &str, bucket: &Bucket, key: &str) {
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

/// A mount with views under `.views`.
async fn world() -> (World, Arc<View>) {
    let world = World::new().await;
    let view = Arc::new(View::default());
    world.fs.derive(Some(b".views"), view.clone(), None).unwrap();
    (world, view)
}

impl World {
    /// The entries of a directory, asked for a few at a time as a front end does.
    async fn pages(&self, dir: Ino, plus: bool) -> Vec<vfs::Listed> {
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

    async fn shown(&self, dir: &str) -> Vec<String> {
        let entries = self.pages(self.ino(dir).await.unwrap(), true).await;
        let names = entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap());
        names.filter(|name| name != "." && name != "..").collect()
    }

    async fn make(&self, dir: &str, name: &str) -> Result<(Attr, Handle)> {
        let dir = self.ino(dir).await?;
        let (attr, opened) = self.fs.create(CALLER, dir, name.as_bytes(), 0o640, libc::O_WRONLY).await?;
        Ok((attr, opened.handle))
    }
}

#[tokio::test]
async fn s260_a_file_of_a_view_is_the_volumes_and_looking_at_it_asks_nothing() {
    let (world, view) = world().await;
    world.bucket.put("a/b/one.raw", "hello").await;
    view.hear("raw/one.raw", &world.bucket, "a/b/one.raw").await;
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
    assert_eq!(world.shown(".views").await, ["raw"]);
    assert_eq!(world.shown(".views/raw").await, ["one.raw"]);
    assert_eq!(world.names("").await.unwrap(), ["a"], "listings of the root leave views out");
    world.assert_healthy().await;
}

#[tokio::test]
async fn s260_views_may_be_all_that_a_mount_shows() {
    let world = World::new().await;
    let view = Arc::new(View::default());
    world.bucket.put("one.raw", "hello").await;
    view.hear("raw/one.raw", &world.bucket, "one.raw").await;
    world.fs.derive(None, view.clone(), None).unwrap();
    assert_eq!(world.shown("").await, ["raw"]);
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
    view.hear("raw/x", &world.bucket, "x").await;
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
                // What comes and goes meanwhile does not disturb the others.
                view.forget(&format!("raw/{:06}", names.len() / 2));
            }
            names
        })
        .await;
    assert_eq!((listed.len(), requests.total()), (3001 + 2, 0), "{requests}");
    assert!(listed.is_sorted_by(|a, b| a < b || a == ".."), "in order, each once");
}

#[tokio::test]
async fn s261_a_file_made_in_a_view_is_stored_with_what_keeps_it_there() {
    let (world, view) = world().await;
    let (attr, handle) = world.make(".views/raw", "new.raw").await.unwrap();
    assert_eq!(world.shown(".views/raw").await, ["new.raw"], "before it is stored");
    world.write_all(handle, b"mine").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.keys().await, ["in/new.raw"], "no marker, and no second PUT for its properties");
    let meta = world.bucket.head("in/new.raw").await.unwrap();
    assert_eq!(meta.attributes.user["stage"], "raw");
    assert_eq!(meta.attributes.content_type.as_deref(), Some("text/x-raw"));
    let key = ObjectKey::try_from("in/new.raw").unwrap();
    assert_eq!(world.bucket.store().tags(&key).await.unwrap()["team"], "red");
    assert_eq!(world.shown(".views/raw").await, ["new.raw"], "before the view has heard of it");
    view.hear("raw/new.raw", &world.bucket, "in/new.raw").await;
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
        let (_, handle) = world.make(".views/raw", "new.raw").await.unwrap();
        world.write_all(handle, b"mine").await.unwrap();
        world.close(handle).await.unwrap();
    };
    let ((), requests) = world.counting(written).await;
    // The volume's record, and the file.
    assert_eq!(requests.of(store::wrap::Operation::Put), 2, "{requests}");
    world.settle().await;
    assert_eq!(world.bucket.header("in/new.raw", "stage").await.unwrap(), "raw");
}

#[tokio::test]
async fn s261_what_a_view_could_not_show_is_refused() {
    let (world, _view) = world().await;
    assert_eq!(errno(world.make(".views/raw", "no.txt").await), libc::EINVAL);
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
async fn s262_a_file_leaves_with_its_object_and_who_has_it_open_reads_on() {
    let (world, view) = world().await;
    world.bucket.put("a.raw", "hello").await;
    view.hear("raw/a.raw", &world.bucket, "a.raw").await;
    let handle = world.open_handle(".views/raw/a.raw", libc::O_RDONLY).await.unwrap();
    view.forget("raw/a.raw");
    assert_eq!(errno(world.stat(".views/raw/a.raw").await), libc::ENOENT);
    assert_eq!(world.read_all(handle).await.unwrap(), b"hello");
    world.close(handle).await.unwrap();
    assert_eq!(world.read_file("a.raw").await.unwrap(), b"hello", "it is in the volume");
    view.hear("raw/a.raw", &world.bucket, "a.raw").await;
    world.unlink(".views/raw/a.raw").await.unwrap();
    assert_eq!(
        errno(world.stat(".views/raw/a.raw").await),
        libc::ENOENT,
        "though the view has not heard of it"
    );
    assert_eq!(world.bucket.keys().await, [""; 0]);
    assert_eq!(world.shown(".views/raw").await, [""; 0]);
}

#[tokio::test]
async fn s262_of_what_is_known_here_only_the_older_gives_way_to_a_view() {
    let (world, view) = world().await;
    world.bucket.put("a.raw", "old").await;
    view.hear("raw/a.raw", &world.bucket, "a.raw").await;
    assert_eq!(world.read_file(".views/raw/a.raw").await.unwrap(), b"old");
    // Written here: the view still speaks of the old one.
    world.write_file("a.raw", "newer").await.unwrap();
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 5);
    assert_eq!(world.read_file(".views/raw/a.raw").await.unwrap(), b"newer");
    // Stored by somebody else, of which the view was told.
    world.bucket.clock.advance(Duration::from_secs(20));
    world.bucket.put("a.raw", "newest of all").await;
    view.hear("raw/a.raw", &world.bucket, "a.raw").await;
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 13);
    assert_eq!(world.read_file("a.raw").await.unwrap(), b"newest of all");
    // Being written here: that is what there is.
    let handle = world.open_handle(".views/raw/a.raw", libc::O_RDWR).await.unwrap();
    world.fs.write(handle, 13, b"!").await.unwrap();
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 14);
    world.close(handle).await.unwrap();
    assert_eq!(world.bucket.object("a.raw").await.unwrap(), b"newest of all!");
    world.assert_healthy().await;
}

/// An object was stored twice within a second. The view heard of the first by an event, whose time has milliseconds, and looked
/// at the second, whose time has none. The second was taken for the older one, and the first was shown for ever.
#[tokio::test]
async fn s266_what_was_stored_within_one_second_is_what_the_bucket_says() {
    let (world, view) = world().await;
    let dated = |modified: Timestamp| {
        view.files.lock().unwrap().get_mut(&path("raw/a.raw")).unwrap().modified = modified;
    };
    let event = Timestamp::from_secs(world.bucket.clock.now().secs(), 716_000_000);
    let header = Timestamp::from_secs(event.secs(), 0);
    let hour_before = Timestamp::from_secs(event.secs() - 3600, 0);
    world.bucket.put("a.raw", "zz").await;
    view.hear("raw/a.raw", &world.bucket, "a.raw").await;
    dated(event);
    let file = world.stat(".views/raw/a.raw").await.unwrap();
    assert_eq!(file.size_bytes, 2);
    let first = view.files.lock().unwrap()[&path("raw/a.raw")].clone();
    // An upload in parts even has the time at which it began.
    for (content, modified) in [("zzz", header), ("zzzz", hour_before)] {
        world.bucket.put("a.raw", content).await;
        view.hear("raw/a.raw", &world.bucket, "a.raw").await;
        dated(modified);
        assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, content.len() as u64);
        assert_eq!(world.fs.getattr(file.ino).await.unwrap().size_bytes, content.len() as u64);
        let entries = world.pages(world.ino(".views/raw").await.unwrap(), true).await;
        let listed = entries.iter().find(|entry| &*entry.name == b"a.raw").unwrap();
        assert_eq!(listed.attr.as_ref().unwrap().size_bytes, content.len() as u64);
    }
    // A view that lags does not bring back what it heard first.
    view.files.lock().unwrap().insert(path("raw/a.raw"), first);
    assert_eq!(world.stat(".views/raw/a.raw").await.unwrap().size_bytes, 4);
}

/// A view that has not heard of a removal brought the file back, under its directory in the volume too.
#[tokio::test]
async fn s262_what_was_removed_here_does_not_come_back_by_a_view_that_lags() {
    let (world, view) = world().await;
    world.bucket.put("d/a.raw", "old").await;
    view.hear("raw/a.raw", &world.bucket, "d/a.raw").await;
    world.unlink("d/a.raw").await.unwrap();
    assert_eq!(errno(world.stat(".views/raw/a.raw").await), libc::ENOENT);
    assert_eq!(world.shown(".views/raw").await, [""; 0]);
    assert_eq!(world.names("d").await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn s263_directories_of_a_view_are_made_renamed_and_removed_without_objects() {
    let (world, view) = world().await;
    world.mkdir(".views/raw/sub").await.unwrap();
    let dir = world.ino(".views/raw/sub").await.unwrap();
    let (_, handle) = world.make(".views/raw/sub", "x.raw").await.unwrap();
    world.close(handle).await.unwrap();
    assert_eq!(errno(world.rmdir(".views/raw/sub").await), libc::ENOTEMPTY);
    assert_eq!(world.bucket.header("in/sub/x.raw", "tenon-directory").await.unwrap(), "sub");
    view.hear("raw/sub/x.raw", &world.bucket, "in/sub/x.raw").await;
    world.rename(".views/raw/sub", ".views/raw/other").await.unwrap();
    assert_eq!(world.ino(".views/raw/other").await.unwrap(), dir, "it keeps its number");
    assert_eq!(world.shown(".views/raw/other").await, ["x.raw"]);
    assert_eq!(errno(world.stat(".views/raw/sub").await), libc::ENOENT);
    world.unlink(".views/raw/other/x.raw").await.unwrap();
    view.forget("raw/other/x.raw");
    world.rmdir(".views/raw/other").await.unwrap();
    assert_eq!(world.shown(".views/raw").await, [""; 0]);
    assert_eq!(world.bucket.keys().await, [""; 0], "no junk");
}

#[tokio::test]
async fn s263_a_new_name_in_a_view_is_a_new_name_in_the_volume() {
    let (world, view) = world().await;
    for name in ["a.raw", "b.raw"] {
        world.bucket.put(format!("deep/{name}"), name).await;
        view.hear(&format!("raw/{name}"), &world.bucket, &format!("deep/{name}")).await;
    }
    assert_eq!(errno(world.rename(".views/raw/a.raw", ".views/raw/no.txt").await), libc::EINVAL);
    world.rename(".views/raw/a.raw", ".views/raw/c.raw").await.unwrap();
    view.forget("raw/a.raw");
    assert_eq!(world.shown(".views/raw").await, ["b.raw", "c.raw"]);
    world.rename(".views/raw/c.raw", ".views/raw/b.raw").await.unwrap();
    world.settle().await;
    assert_eq!(world.bucket.keys().await, ["deep/b.raw"]);
    assert_eq!(world.bucket.object("deep/b.raw").await.unwrap(), b"a.raw", "it took the other's place");
    assert_eq!(errno(world.rename(".views/raw/b.raw", "b.raw").await), libc::EXDEV);
}

#[tokio::test]
async fn a_view_that_says_more_of_a_file_saves_its_headers() {
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
    view.hear("raw/run", &bucket, "run").await;
    view.files.lock().unwrap().get_mut(&path("raw/run")).unwrap().properties = Some(options.attributes.user);
    world.fs.derive(Some(b".views"), view, None).unwrap();
    let (attr, requests) = world.counting(world.stat(".views/raw/run")).await;
    assert_eq!((attr.unwrap().mode, requests.total()), (0o750, 0));
}

/// Who reads a listing that the kernel keeps comes to the file system in the middle, where the kernel lost the rest.
#[tokio::test]
async fn s266_a_kept_listing_goes_on_where_another_handle_was() {
    let (world, view) = world().await;
    world.bucket.put("x", "hello").await;
    for name in ["a", "b", "c", "d", "e"] {
        view.hear(&format!("raw/{name}"), &world.bucket, "x").await;
    }
    let dir = world.ino(".views/raw").await.unwrap();
    let names = |page: Vec<vfs::Listed>| page.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    let first = world.fs.opendir(dir).await.unwrap();
    assert_eq!(world.fs.listing_cache(first), ListingCache::Anew);
    let page = world.fs.readdir(first, 0, 9, true).await.unwrap();
    let cookie = page.iter().find(|entry| &*entry.name == b"c").unwrap().cookie;
    let second = world.fs.opendir(dir).await.unwrap();
    assert_eq!(world.fs.listing_cache(second), ListingCache::Kept);
    view.forget("raw/a");
    assert_eq!(names(world.fs.readdir(second, cookie, 1, false).await.unwrap()), [&b"d"[..]]);
    assert_eq!(names(world.fs.readdir(second, cookie + 1, 9, false).await.unwrap()), [&b"e"[..]]);
    assert_eq!(names(world.fs.readdir(first, cookie, 9, false).await.unwrap()), [&b"d"[..], b"e"]);
    // What was made here and the view has not heard of may go unsaid.
    let (_, handle) = world.make(".views/raw", "new").await.unwrap();
    let third = world.fs.opendir(dir).await.unwrap();
    assert_eq!(world.fs.listing_cache(third), ListingCache::None);
    assert_eq!(world.fs.lifetime(dir, b"new", world.fs.asked()), Duration::ZERO);
    world.close(handle).await.unwrap();
    for handle in [first, second, third] {
        world.fs.releasedir(handle);
    }
}

/// The name before the number: a lookup under way, which the kernel ends first, may be the first to find the file.
#[tokio::test]
async fn s266_front_ends_hear_what_is_stale_and_do_not_keep_what_was_asked_before() {
    let world = World::new().await;
    let view = Arc::new(View { recency: Duration::from_secs(5), ..View::default() });
    world.fs.derive(Some(b".views"), view.clone(), None).unwrap();
    world.bucket.put("x", "hello").await;
    view.hear("raw/one", &world.bucket, "x").await;
    let (dir, file) = (world.ino(".views/raw").await.unwrap(), world.ino(".views/raw/one").await.unwrap());
    let asked = world.fs.asked();
    assert_eq!(world.fs.lifetime(dir, b"one", asked), view.recency);
    assert_eq!(world.fs.lifetime_of(file), view.recency);
    let mut news = world.fs.invalidations();
    let stale = DerivedStale { directory: vec![name("raw")], names: vec![name("one"), name("other")] };
    assert!(world.fs.say_stale(&stale));
    assert_eq!(world.fs.lifetime(dir, b"one", asked), Duration::ZERO);
    let entry = |name: &'static [u8]| Invalidation::Entry { parent: dir, name: name.into() };
    let expected = [Invalidation::Inode(dir), entry(b"one"), Invalidation::Attributes(file), entry(b"other")];
    for one in expected {
        assert_eq!(news.try_recv().unwrap(), one);
    }
    assert_eq!(world.fs.kept_below(&[]).len(), 2, "the view in the root, and the file in it");
    // A front end that is busy is told later.
    while world.fs.say_stale(&stale) {}
    while news.try_recv().is_ok() {}
    assert!(world.fs.say_stale(&stale));
    // The file has left.
    view.forget("raw/one");
    world.fs.getattr(file).await.unwrap();
    assert_eq!(world.fs.lifetime_of(file), world.fs.ttl());
}
