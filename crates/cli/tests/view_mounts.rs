//! Views in real mounts, over real buckets that other clients change.

use crate::endpoint::client_of;
use crate::fixture::{Home, capture, eventually};
use crate::s3::{buckets, home, new_bucket};
use futures_util::StreamExt as _;
use rustix::fs::XattrFlags;
use servers::S3Server;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use store::{
    Attributes, Buckets, GetOptions, ObjectKey, ObjectMeta, ObjectStore, Payload, Precondition, PutOptions,
};
use tokio::runtime::Runtime;

/// Another client of a bucket.
pub(crate) struct Client {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
}

impl Client {
    pub(crate) fn of(server: &S3Server, bucket: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let store = runtime.block_on(buckets(server).open(bucket)).unwrap();
        Self { runtime, store }
    }

    /// Returns the client of a bucket of an endpoint with [`crate::endpoint::KEY`].
    pub(crate) fn at(url: &str, bucket: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let store = runtime.block_on(client_of(url).open(bucket)).unwrap();
        Self { runtime, store }
    }

    /// Returns the bytes of an object; `None` if it is missing.
    pub(crate) fn read(&self, key: &str) -> Option<Vec<u8>> {
        let key = ObjectKey::try_from(key).unwrap();
        self.runtime.block_on(async {
            let mut object = self.store.get(&key, GetOptions::default()).await.ok()?;
            let mut bytes = Vec::new();
            while let Some(part) = object.body.next().await {
                bytes.extend_from_slice(&part.unwrap());
            }
            Some(bytes)
        })
    }

    pub(crate) fn put(&self, key: &str, body: &str, user: &[(&str, &str)]) {
        let user = user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options =
            PutOptions { attributes: Attributes { user, ..Attributes::default() }, ..PutOptions::default() };
        let key = ObjectKey::try_from(key).unwrap();
        self.runtime.block_on(self.store.put(&key, Payload::from(body.to_owned()), options)).unwrap();
    }

    pub(crate) fn delete(&self, key: &str) {
        let key = ObjectKey::try_from(key).unwrap();
        self.runtime.block_on(self.store.delete(&key, Precondition::None)).unwrap();
    }

    pub(crate) fn find(&self, key: &str) -> Option<ObjectMeta> {
        self.runtime.block_on(self.store.find(&ObjectKey::try_from(key).unwrap())).unwrap()
    }

    pub(crate) fn user(&self, key: &str) -> BTreeMap<String, String> {
        self.find(key).map(|meta| meta.attributes.user).unwrap_or_default()
    }
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&outcome.unwrap_err()).unwrap()
}

pub(crate) fn requests(home: &Home) -> u64 {
    let status = home.status();
    status["store_requests"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// The first `ls` in a small view waited for the listing of its bucket. With 400,000 objects in views, a mount used
/// 473 MiB of memory, of which `tenon status` reported only 4.
#[test]
fn s292_s540_small_views_are_listed_before_the_first_ls() {
    let server = servers::shared_minio();
    let name = new_bucket(server, "views-ready");
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("rules.yaml"), format!("all:\n  container: {name}\n")).unwrap();
    let bucket = Client::of(server, &name);
    ["a", "b"].iter().for_each(|key| bucket.put(key, "", &[]));
    home.ok(["mount", "--views", "rules.yaml", "mnt"]);
    eventually("the view has been listed", || home.status()["views"][0]["objects"] == 2);
    assert!(home.status()["views_bytes"].as_u64().unwrap() >= 2 * 240);
    let before = requests(&home);
    assert_eq!(names(&home.mnt().join("all")), ["a", "b"]);
    assert_eq!(requests(&home), before, "ls sends no request to the bucket");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s264_a_views_only_mount_shows_objects_of_several_buckets() {
    let server = servers::shared_minio();
    let names_of = ["views-one", "views-two"].map(|name| new_bucket(server, name));
    let [one, two] = names_of.each_ref().map(|name| Client::of(server, name));
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let rules = format!(
        "raw:\n  container: [{a}, {b}]\n  properties: {{stage: raw}}\n  output: {{container: {a}}}\n\
         done:\n  container: {a}\n  object: '**/*.txt'\n  properties: {{stage: done}}\n",
        a = names_of[0],
        b = names_of[1]
    );
    fs::write(home.path("rules.yaml"), rules).unwrap();
    one.put("in/a.txt", "first", &[("stage", "raw")]);
    two.put("b.txt", "second", &[("stage", "raw")]);
    two.put("c.txt", "not shown", &[]);
    home.ok(["mount", "--views", "rules.yaml", "mnt", "--metadata-ttl=500ms"]);
    let (raw, done) = (home.mnt().join("raw"), home.mnt().join("done"));
    assert_eq!(names(&home.mnt()), ["done", "raw"]);
    assert_eq!(names(&raw), ["a.txt", "b.txt"]);
    assert_eq!(fs::read_to_string(raw.join("a.txt")).unwrap(), "first");
    assert_eq!(fs::read_to_string(raw.join("b.txt")).unwrap(), "second");
    assert_eq!(names(&done), [""; 0]);

    // Changes by other clients.
    two.put("d.txt", "third", &[("stage", "raw")]);
    eventually("a new object appears", || raw.join("d.txt").exists());
    one.put("in/a.txt", "processed", &[("stage", "done")]);
    eventually("an object moves to the other view", || {
        done.join("a.txt").exists() && !raw.join("a.txt").exists()
    });
    assert_eq!(fs::read_to_string(done.join("a.txt")).unwrap(), "processed");
    two.delete("d.txt");
    eventually("a deleted object disappears", || !raw.join("d.txt").exists());

    // Changes by programs in the mount.
    fs::write(raw.join("new.txt"), "made here").unwrap();
    assert_eq!(names(&raw), ["b.txt", "new.txt"]);
    assert_eq!(one.user("new.txt")["stage"], "raw");
    assert_eq!(errno(fs::write(done.join("picture.png"), "x")), rustix::io::Errno::INVAL);
    rustix::fs::setxattr(raw.join("new.txt"), "user.stage", b"done", XattrFlags::empty()).unwrap();
    eventually("a file moves to the other view", || {
        done.join("new.txt").exists() && !raw.join("new.txt").exists()
    });
    assert_eq!(one.user("new.txt")["stage"], "done");
    fs::rename(done.join("new.txt"), done.join("newer.txt")).unwrap();
    assert_eq!(names(&done), ["a.txt", "newer.txt"]);
    eventually("the object has its new key", || {
        one.find("newer.txt").is_some() && one.find("new.txt").is_none()
    });
    assert_eq!(fs::read_to_string(done.join("newer.txt")).unwrap(), "made here");
    // A removed file that a program still has open can be read, although its object is no longer in the bucket.
    let mut open = fs::File::open(done.join("newer.txt")).unwrap();
    fs::remove_file(done.join("newer.txt")).unwrap();
    assert_eq!(names(&done), ["a.txt"]);
    assert!(one.find("newer.txt").is_none());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "made here");
    drop(open);
    assert!(home.ok(["status", "mnt"]).contains("raw: 1 objects"));
    home.ok(["umount", "mnt"]);
}

#[test]
fn s263_directories_of_a_view_are_properties_of_its_objects() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "views-directories");
    let client = Client::of(server, &bucket);
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("rules.yaml"), format!("all:\n  container: {bucket}\n  properties: {{os: linux}}\n"))
        .unwrap();
    client.put("flat-1", "one", &[("os", "linux"), ("tenon-directory", "usr/bin")]);
    home.ok(["mount", "--views=rules.yaml", "mnt", "--metadata-ttl=500ms"]);
    let all = home.mnt().join("all");
    assert_eq!(names(&all), ["usr"]);
    assert_eq!(fs::read_to_string(all.join("usr/bin/flat-1")).unwrap(), "one");
    fs::create_dir(all.join("etc")).unwrap();
    fs::write(all.join("etc/passwd"), "root").unwrap();
    assert_eq!(client.user("etc/passwd")["tenon-directory"], "etc");
    fs::rename(all.join("etc"), all.join("conf")).unwrap();
    assert_eq!(names(&all), ["conf", "usr"]);
    assert_eq!(fs::read_to_string(all.join("conf/passwd")).unwrap(), "root");
    eventually("the object's property is updated", || {
        client.user("etc/passwd").get("tenon-directory").is_some_and(|at| at == "conf")
    });
    fs::rename(all.join("conf/passwd"), all.join("usr/bin/passwd")).unwrap();
    assert_eq!(names(&all.join("usr/bin")), ["flat-1", "passwd"]);
    eventually("the property follows the rename", || {
        client.user("etc/passwd")["tenon-directory"] == "usr/bin"
    });
    fs::remove_dir(all.join("conf")).unwrap();
    assert_eq!(names(&all), ["usr"]);
    home.ok(["umount", "mnt"]);
}

/// A change through the mount's own endpoint is visible in the views as soon as the client has its answer.
#[test]
fn s265_changes_through_the_endpoint_are_visible_at_once() {
    let home = Home::new().with_users();
    home.ok(["format", "volume", "--naming=file-path"]);
    let rules = "raw: {container: volume, properties: {stage: raw}}\ndone: {container: volume, properties: {stage: done}}\n";
    fs::write(home.path("rules.yaml"), rules).unwrap();
    let url = home.mount_and_serve("volume", &["--views=rules.yaml", "--metadata-ttl=1h"]);
    let client = Client::at(&url, "volume");
    let (raw, done) = (home.mnt().join(".views/raw"), home.mnt().join(".views/done"));
    assert_eq!((names(&raw), names(&done)), (Vec::new(), Vec::new()));
    for number in 0..20 {
        let name = format!("{number}.txt");
        client.put(&format!("in/{name}"), "x", &[("stage", "raw")]);
        assert!(raw.join(&name).exists(), "{name}");
    }
    client.put("in/0.txt", "processed", &[("stage", "done")]);
    assert_eq!(fs::read_to_string(done.join("0.txt")).unwrap(), "processed");
    assert!(!raw.join("0.txt").exists());
    client.delete("in/0.txt");
    assert_eq!(names(&done), [""; 0]);
    client.put(".views/object", "hidden from programs", &[]);
    assert!(client.find(".views/object").is_some());
    assert_eq!(names(&home.mnt().join(".views")), ["done", "raw"]);
    assert_eq!(names(&home.mnt()), ["in"]);
    home.ok(["umount", "mnt"]);
}

/// A server whose buckets can send notifications of changes to a URL.
pub(crate) struct NotifyingServer {
    pub(crate) server: S3Server,
    /// The event source's flags.
    pub(crate) flags: [String; 2],
}

impl NotifyingServer {
    pub(crate) fn start() -> Self {
        let port = servers::free_address().port();
        let server = servers::minio_with(&[
            ("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"),
            ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &format!("http://127.0.0.1:{port}/minio")),
            ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_TENON", "hush"),
        ]);
        let events = format!("--events=webhook://127.0.0.1:{port}/minio");
        Self { server, flags: [events, "--event-secret=secret".to_owned()] }
    }

    /// A home with the server's credentials and the event source's secret.
    pub(crate) fn home(&self) -> Home {
        let home = home(&self.server).with("AWS_ENDPOINT_URL", &self.server.endpoint());
        fs::write(home.path("secret"), "hush").unwrap();
        fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        home
    }

    /// Makes a bucket send notifications from now on. The receiver must be running already.
    pub(crate) fn enable_notifications(&self, home: &Home, bucket: &str) {
        let (user, password) = (self.server.access_key(), self.server.secret_key());
        let host = self.server.endpoint().replace("http://", &format!("http://{user}:{password}@"));
        let mut mc = home.command(servers::program("mc"));
        mc.env("MC_HOST_m", host).args(["--quiet", "event", "add", &format!("m/{bucket}")]);
        let output =
            crate::fixture::capture(mc.args(["arn:minio:sqs::TENON:webhook", "--event", "put,delete"]));
        assert_eq!(output.code, 0, "{output:?}");
    }
}

/// A bucket that sends notifications by a webhook to a views-only mount.
struct NotifyingBucket {
    notifier: NotifyingServer,
    bucket: String,
    client: Client,
    home: Home,
}

impl NotifyingBucket {
    fn new(name: &str) -> Self {
        let notifier = NotifyingServer::start();
        let bucket = new_bucket(&notifier.server, name);
        let (client, home) = (Client::of(&notifier.server, &bucket), notifier.home());
        Self { notifier, bucket, client, home }
    }

    /// Mounts with a metadata TTL so long that no listing helps, and then makes the bucket send notifications.
    fn mount(&self, rules: &str) {
        fs::write(self.home.path("rules.yaml"), rules).unwrap();
        let [events, secret] = &self.notifier.flags;
        self.home.ok(["mount", "--views=rules.yaml", events, secret, "mnt", "--metadata-ttl=1h"]);
        self.notifier.enable_notifications(&self.home, &self.bucket);
    }
}

/// Counts the kernel's requests for names, attributes and listings so far.
fn kernel_requests(home: &Home) -> u64 {
    let status = home.status();
    let count = |name| status["fuse_requests"][name].as_u64().unwrap_or(0);
    ["LOOKUP", "GETATTR", "READDIR", "READDIRPLUS", "GETXATTR"].map(count).iter().sum()
}

/// Returns names and lengths, as `ls -l` shows them.
fn names_and_lengths(dir: &Path) -> Vec<(String, u64)> {
    let names = names(dir).into_iter();
    names.map(|name| (name.clone(), fs::metadata(dir.join(&name)).map_or(0, |found| found.len()))).collect()
}

/// The kernel's cache of a view (directories, attributes, open files, under either name) follows the bucket's
/// notifications.
#[test]
fn s266_the_kernel_caches_entries_of_views_until_they_change() {
    let setup = NotifyingBucket::new("views-kept");
    let client = &setup.client;
    for number in 0..50 {
        client.put(&format!("in/{number:02}"), "x", &[("stage", "raw")]);
    }
    client.put("deep", "x", &[("stage", "raw"), ("tenon-directory", "a/b")]);
    let rules = |name: &str, rest: &str| format!("{name}: {{container: {}{rest}}}\n", setup.bucket);
    let stage = |stage: &str| rules(stage, &format!(", properties: {{stage: {stage}}}"));
    setup.mount(&format!("{}{}{}", stage("raw"), stage("done"), rules("all", "")));
    let [raw, done, all] = ["raw", "done", "all"].map(|name| setup.home.mnt().join(name));
    assert_eq!(
        (names_and_lengths(&raw).len(), names_and_lengths(&done).len(), names_and_lengths(&all).len()),
        (51, 0, 51)
    );
    names_and_lengths(&raw);

    // Repeated listings are answered from the kernel's cache.
    let before = kernel_requests(&setup.home);
    for _ in 0..3 {
        assert_eq!(names_and_lengths(&raw).len(), 51);
    }
    let requests = kernel_requests(&setup.home) - before;
    assert!(requests < 10, "{requests} requests");
    assert!(!raw.join("50").exists() && !done.join("07").exists());

    // Files that change, appear, move to another view, and are deleted.
    let open = fs::File::open(raw.join("07")).unwrap();
    client.put("in/07", "longer", &[("stage", "raw")]);
    eventually("an open file is longer", || open.metadata().unwrap().len() == 6);
    drop(open);
    eventually("a file is longer", || names_and_lengths(&raw)[7] == ("07".to_owned(), 6));
    assert_eq!(fs::read_to_string(raw.join("07")).unwrap(), "longer");
    client.put("in/50", "x", &[("stage", "raw")]);
    eventually("a new file appears", || raw.join("50").exists() && names_and_lengths(&raw).len() == 52);
    client.put("in/08", "yy", &[("stage", "done")]);
    eventually("a file has left the view", || {
        !raw.join("08").exists() && names_and_lengths(&raw).len() == 51
    });
    assert_eq!((names_and_lengths(&done), names_and_lengths(&all)[8].1), (vec![("08".to_owned(), 2)], 2));
    client.delete("in/09");
    eventually("a file is gone", || !raw.join("09").exists() && !all.join("09").exists());
    assert_eq!((names_and_lengths(&raw).len(), names_and_lengths(&all).len()), (50, 51));

    // Directories.
    let deep = raw.join("a/b/deep");
    assert!(deep.exists());
    client.put("deep", "zz", &[("stage", "raw"), ("tenon-directory", "a/c")]);
    eventually("a file has moved to another directory", || raw.join("a/c/deep").exists() && !deep.exists());
    assert_eq!(names(&raw.join("a")), ["c"]);
    fs::rename(raw.join("a"), raw.join("z")).unwrap();
    assert_eq!(names_and_lengths(&raw.join("z/c")), [("deep".to_owned(), 2)]);
    assert!(!raw.join("a").exists() && names(&raw).contains(&"z".to_owned()));
    // MinIO does not compare and copy in one step, so a copy in progress would overwrite what another client stores
    // meanwhile.
    eventually("the rename is stored", || {
        client.user("deep").get("tenon-directory").is_some_and(|dir| dir == "z/c")
    });
    client.put("deep", "zzz", &[("stage", "raw"), ("tenon-directory", "z/c")]);
    eventually("a file in the renamed directory is longer", || names_and_lengths(&raw.join("z/c"))[0].1 == 3);

    // Changes by programs of this machine are visible at once in the directory itself.
    for number in 0..20 {
        let made = raw.join(format!("made-{number}"));
        fs::write(&made, "1234").unwrap();
        assert!(names(&raw).contains(&format!("made-{number}")));
        assert_eq!(fs::metadata(&made).unwrap().len(), 4);
        let moved = raw.join(format!("moved-{number}"));
        fs::rename(&made, &moved).unwrap();
        assert!(!made.exists() && fs::metadata(&moved).unwrap().len() == 4);
        fs::remove_file(&moved).unwrap();
        assert!(!moved.exists() && !names(&raw).contains(&format!("moved-{number}")));
    }
    eventually("the other views show none of these files", || {
        names_and_lengths(&all).len() == names_and_lengths(&raw).len() + 1
    });
    setup.home.ok(["umount", "mnt"]);
}

/// If two objects have the same file name, one of them also has a longer, unique name. Both names must show the
/// current object.
#[test]
fn s266_a_longer_name_is_cached_no_longer_than_the_plain_one() {
    let setup = NotifyingBucket::new("views-namesakes");
    setup.client.put("a/x.fq", "first", &[]);
    setup.client.put("b/x.fq", "second", &[]);
    setup.mount(&format!("all: {{container: {}}}\n", setup.bucket));
    let all = setup.home.mnt().join("all");
    let names_then = names(&all);
    assert_eq!(names_then.len(), 2, "{names_then:?}");
    let longer = names_then.iter().find(|name| name.contains('~')).unwrap();
    assert_eq!(fs::read_to_string(all.join(longer)).unwrap(), "second");
    setup.client.delete("a/x.fq");
    eventually("the remaining object has the plain name", || names(&all) == ["x.fq"]);
    assert_eq!(fs::read_to_string(all.join("x.fq")).unwrap(), "second");
    assert_eq!(fs::metadata(all.join(longer)).unwrap().len(), 6);
    setup.client.put("b/x.fq", "its third", &[]);
    eventually("the plain name shows the new object", || fs::metadata(all.join("x.fq")).unwrap().len() == 9);
    eventually("the longer name shows the new object", || fs::metadata(all.join(longer)).unwrap().len() == 9);
    setup.client.delete("b/x.fq");
    eventually("both names disappear", || !all.join("x.fq").exists() && !all.join(longer).exists());
    setup.home.ok(["umount", "mnt"]);
}

/// Without notifications, the kernel asks again when the metadata TTL has expired.
#[test]
fn s267_without_events_the_kernel_caches_views_for_the_ttl() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "views-unheard");
    let client = Client::of(server, &bucket);
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("rules.yaml"), format!("all: {{container: {bucket}}}\n")).unwrap();
    (0..20).for_each(|number| client.put(&format!("{number:02}"), "x", &[]));
    let all = home.mnt().join("all");
    home.ok(["mount", "--views=rules.yaml", "mnt", "--metadata-ttl=1h"]);
    names_and_lengths(&all);
    let (before, heads) = (kernel_requests(&home), requests(&home));
    client.put("00", "longer", &[]);
    assert_eq!(names_and_lengths(&all).iter().map(|(_, len)| len).sum::<u64>(), 20);
    assert!(kernel_requests(&home) - before < 10 && requests(&home) == heads);
    fs::write(all.join("01"), "made here").unwrap();
    assert_eq!(names_and_lengths(&all)[1], ("01".to_owned(), 9));
    home.ok(["umount", "mnt"]);
    home.ok(["mount", "--views=rules.yaml", "mnt", "--metadata-ttl=500ms"]);
    eventually("the change before the mount is visible", || {
        names_and_lengths(&all)[0] == ("00".to_owned(), 6)
    });
    client.put("00", "the longest", &[]);
    client.delete("02");
    client.put("20", "x", &[]);
    eventually("all changes are visible", || {
        let listed = names_and_lengths(&all);
        listed.len() == 20 && listed[0].1 == 11 && !all.join("02").exists()
    });
    home.ok(["umount", "mnt"]);
}

/// A bucket that sends notifications is not listed again to find changes.
#[test]
fn s265_notified_changes_are_visible_soon() {
    let setup = NotifyingBucket::new("views-events");
    let (client, home, bucket) = (&setup.client, &setup.home, &setup.bucket);
    let (raw, done) = (home.mnt().join("raw"), home.mnt().join("done"));
    setup.mount(&format!(
        "raw: {{container: {bucket}, properties: {{stage: raw}}}}\ndone: {{container: {bucket}, properties: {{stage: done}}}}\n"
    ));
    assert_eq!((names(&raw), names(&done)), (Vec::new(), Vec::new()));
    for number in 0..20 {
        let name = format!("{number}.txt");
        client.put(&name, "x", &[("stage", "raw")]);
        eventually("the new object appears", || raw.join(&name).exists());
    }
    client.put("0.txt", "processed", &[("stage", "done")]);
    eventually("the object moves to the other view", || {
        done.join("0.txt").exists() && !raw.join("0.txt").exists()
    });
    assert_eq!(fs::read_to_string(done.join("0.txt")).unwrap(), "processed");
    client.delete("1.txt");
    eventually("the deleted object disappears", || !raw.join("1.txt").exists());
    let status = home.ok(["status", "mnt"]);
    assert!(status.contains("connected") && status.contains("raw: 18 objects"), "{status}");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s264_a_volume_has_its_views_in_a_hidden_directory() {
    let home = Home::new();
    let bucket = home.path("bucket");
    fs::create_dir_all(bucket.join("logs")).unwrap();
    for number in 0..10_000 {
        fs::write(bucket.join(format!("logs/{number:05}.log")), "x").unwrap();
    }
    fs::write(bucket.join("logs/other.txt"), "x").unwrap();
    fs::write(home.path("rules.yaml"), "logs:\n  container: bucket\n  object: '**/*.log'\n  recency: 1s\n")
        .unwrap();
    let volume = format!("file://{}", bucket.display());
    home.ok(["mount", &volume, "mnt", "--views=rules.yaml", "--metadata-ttl=1h"]);
    assert_eq!(names(&home.mnt()), ["logs"]);
    let view = home.mnt().join(".views/logs");
    assert_eq!(names(&view).len(), 10_000);
    let before = requests(&home);
    let listed: u64 =
        fs::read_dir(&view).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(listed, 10_000);
    // The background listing may send requests meanwhile.
    assert!(requests(&home) - before < 100, "`ls -l` sends no requests to the bucket");
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&view.join("00007.log")), inode(&home.mnt().join("logs/00007.log")));
    assert_eq!(errno(fs::rename(view.join("00007.log"), home.mnt().join("x.log"))), rustix::io::Errno::XDEV);
    assert_eq!(errno(fs::create_dir(home.mnt().join(".views/more"))), rustix::io::Errno::PERM);
    fs::write(home.mnt().join("logs/new.log"), "new").unwrap();
    assert_eq!(
        fs::read_to_string(view.join("new.log")).unwrap(),
        "new",
        "the new file is in the view at once"
    );
    home.ok(["umount", "mnt"]);
}

#[test]
fn s264_a_mount_of_a_server_shows_all_buckets_as_directories() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "views-all");
    let client = Client::of(server, &bucket);
    client.put("a/b", "hello", &[]);
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", "s3://", "mnt"]);
    let inside = home.mnt().join(&bucket);
    assert!(names(&home.mnt()).contains(&bucket));
    assert_eq!(fs::read_to_string(inside.join("a/b")).unwrap(), "hello");
    fs::write(inside.join("made"), "here").unwrap();
    assert_eq!(client.find("made").unwrap().size_bytes, 4);
    assert!(fs::create_dir(home.mnt().join("new-bucket")).is_err());
    home.ok(["umount", "mnt"]);
}

#[test]
fn rulesets_that_a_mount_cannot_show_are_refused() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let refused = |rules: &str| {
        fs::write(home.path("rules.yaml"), rules).unwrap();
        home.refused(["mount", "volume", "mnt", "--views=rules.yaml"])
    };
    let output = refused("a:\n  container: other\n");
    assert!(output.contains("'a' shows nothing of the mounted bucket 'volume'"), "{output}");
    let output = refused("a:\n  account: else\n  container: volume\n");
    assert!(output.contains("'a' shows nothing of the mounted bucket 'volume'"), "{output}");
    assert!(home.refused(["mount", "mnt"]).contains("DIR"));
    home.ok(["format", "by-inode", "--naming=inode"]);
    fs::write(home.path("rules.yaml"), "a:\n  container: by-inode\n").unwrap();
    let output = home.refused(["mount", "by-inode", "mnt", "--views=rules.yaml"]);
    assert!(output.contains("named by inode"), "{output}");
}

/// A file of mode 0644 in a directory of mode 0700 could be read by every user through `.views`.
#[test]
fn s521_views_of_a_volume_need_a_flag_to_be_readable_by_other_users() {
    let home = Home::new();
    fs::write(home.path("rules.yaml"), "all: {container: volume}\n").unwrap();
    home.ok(["format", "volume", "--naming", "file-path"]);
    // Temporary directories are accessible to their owner only.
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let reads = |path: &str| {
        let mut command = home.command("setpriv");
        command.args(["--reuid", "2001", "--regid", "2001", "--clear-groups", "cat"]);
        capture(command.arg(home.mnt().join(path)))
    };
    for (flag, is_open) in [(None, false), (Some("--views-for-all"), true)] {
        let mount = ["mount", "volume", "mnt", "--views=rules.yaml", "--allow-other"];
        home.ok(mount.into_iter().chain(flag));
        let closed = home.mnt().join("closed");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join("file"), "secret").unwrap();
        fs::set_permissions(closed.join("file"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(reads("closed/file").out, "");
        assert_eq!(fs::read_to_string(home.mnt().join(".views/all/file")).unwrap(), "secret");
        let read = reads(".views/all/file");
        assert_eq!(read.out, if is_open { "secret" } else { "" }, "{read:?}");
        home.ok(["umount", "mnt"]);
    }
}
