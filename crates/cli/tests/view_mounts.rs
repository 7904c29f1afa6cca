//! Views in real mounts, over real buckets that other clients change.

use crate::endpoint::{KEY, SECRET};
use crate::fixture::{Home, eventually};
use crate::s3::{buckets, home, new_bucket};
use rustix::fs::XattrFlags;
use servers::S3Server;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use store::s3::{Credentials, S3Buckets, S3Config};
use store::{
    Attributes, Buckets, Entropy, ObjectKey, ObjectMeta, ObjectStore, Payload, Precondition, PutOptions,
    SystemClock,
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

    fn user(&self, key: &str) -> BTreeMap<String, String> {
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

#[test]
fn s264_a_mount_of_views_alone_shows_objects_of_several_buckets() {
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

    // What others do.
    two.put("d.txt", "third", &[("stage", "raw")]);
    eventually("a new object is shown", || raw.join("d.txt").exists());
    one.put("in/a.txt", "processed", &[("stage", "done")]);
    eventually("an object changes its view", || done.join("a.txt").exists() && !raw.join("a.txt").exists());
    assert_eq!(fs::read_to_string(done.join("a.txt")).unwrap(), "processed");
    two.delete("d.txt");
    eventually("a deleted object goes", || !raw.join("d.txt").exists());

    // What programs do.
    fs::write(raw.join("new.txt"), "made here").unwrap();
    assert_eq!(names(&raw), ["b.txt", "new.txt"]);
    assert_eq!(one.user("new.txt")["stage"], "raw");
    assert_eq!(errno(fs::write(done.join("picture.png"), "x")), rustix::io::Errno::INVAL);
    rustix::fs::setxattr(raw.join("new.txt"), "user.stage", b"done", XattrFlags::empty()).unwrap();
    eventually("a file changes its view", || done.join("new.txt").exists() && !raw.join("new.txt").exists());
    assert_eq!(one.user("new.txt")["stage"], "done");
    fs::rename(done.join("new.txt"), done.join("newer.txt")).unwrap();
    assert_eq!(names(&done), ["a.txt", "newer.txt"]);
    eventually("the object has its new key", || {
        one.find("newer.txt").is_some() && one.find("new.txt").is_none()
    });
    assert_eq!(fs::read_to_string(done.join("newer.txt")).unwrap(), "made here");
    fs::remove_file(done.join("newer.txt")).unwrap();
    assert_eq!(names(&done), ["a.txt"]);
    assert!(one.find("newer.txt").is_none());
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
    eventually("the object says so", || {
        client.user("etc/passwd").get("tenon-directory").is_some_and(|at| at == "conf")
    });
    fs::rename(all.join("conf/passwd"), all.join("usr/bin/passwd")).unwrap();
    assert_eq!(names(&all.join("usr/bin")), ["flat-1", "passwd"]);
    eventually("it follows", || client.user("etc/passwd")["tenon-directory"] == "usr/bin");
    fs::remove_dir(all.join("conf")).unwrap();
    assert_eq!(names(&all), ["usr"]);
    home.ok(["umount", "mnt"]);
}

/// What a client of the mount's own endpoint did is in the views when it hears that it is done.
#[test]
fn s265_what_goes_through_the_endpoint_is_seen_at_once() {
    let home = Home::new().with_users();
    home.ok(["format", "volume", "--naming=file-path"]);
    let rules = "raw: {container: volume, properties: {stage: raw}}\ndone: {container: volume, properties: {stage: done}}\n";
    fs::write(home.path("rules.yaml"), rules).unwrap();
    let url = home.mount_and_serve("volume", &["--views=rules.yaml", "--metadata-ttl=1h"]);
    let config = S3Config {
        endpoint: Some(url),
        credentials: Credentials::new(KEY, SECRET, None).unwrap().into(),
        ..S3Config::default()
    };
    let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1))).unwrap();
    let runtime = Runtime::new().unwrap();
    let store = runtime.block_on(buckets.open("volume")).unwrap();
    let client = Client { runtime, store };
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

/// A server whose buckets can say at a URL what happens in them.
pub(crate) struct Telling {
    pub(crate) server: S3Server,
    /// The source's flags.
    pub(crate) flags: [String; 2],
}

impl Telling {
    pub(crate) fn start() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = servers::minio_with(&[
            ("MINIO_NOTIFY_WEBHOOK_ENABLE_TENON", "on"),
            ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_TENON", &format!("http://127.0.0.1:{port}/minio")),
            ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_TENON", "hush"),
        ]);
        let events = format!("--events=webhook://127.0.0.1:{port}/minio");
        Self { server, flags: [events, "--event-secret=secret".to_owned()] }
    }

    /// A home that knows the server's credentials and the source's secret.
    pub(crate) fn home(&self) -> Home {
        let home = home(&self.server).with("AWS_ENDPOINT_URL", &self.server.endpoint());
        fs::write(home.path("secret"), "hush").unwrap();
        fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        home
    }

    /// Has a bucket tell, from now on; the receiver is there.
    pub(crate) fn tells_of(&self, home: &Home, bucket: &str) {
        let (user, password) = (self.server.access_key(), self.server.secret_key());
        let host = self.server.endpoint().replace("http://", &format!("http://{user}:{password}@"));
        let mut mc = home.command(servers::program("mc"));
        mc.env("MC_HOST_m", host).args(["--quiet", "event", "add", &format!("m/{bucket}")]);
        let said = crate::fixture::said(mc.args(["arn:minio:sqs::TENON:webhook", "--event", "put,delete"]));
        assert_eq!(said.code, 0, "{said:?}");
    }
}

/// A bucket that says what happens in it is not listed again.
#[test]
fn s265_what_a_bucket_says_is_seen_soon() {
    let telling = Telling::start();
    let bucket = new_bucket(&telling.server, "views-events");
    let client = Client::of(&telling.server, &bucket);
    let home = telling.home();
    let rules = format!(
        "raw: {{container: {bucket}, properties: {{stage: raw}}}}\ndone: {{container: {bucket}, properties: {{stage: done}}}}\n"
    );
    fs::write(home.path("rules.yaml"), rules).unwrap();
    let [events, secret] = &telling.flags;
    home.ok(["mount", "--views=rules.yaml", events, secret, "mnt", "--metadata-ttl=1h"]);
    let (raw, done) = (home.mnt().join("raw"), home.mnt().join("done"));
    assert_eq!((names(&raw), names(&done)), (Vec::new(), Vec::new()));
    telling.tells_of(&home, &bucket);
    for number in 0..20 {
        let name = format!("{number}.txt");
        client.put(&name, "x", &[("stage", "raw")]);
        eventually("it is shown", || raw.join(&name).exists());
    }
    client.put("0.txt", "processed", &[("stage", "done")]);
    eventually("it changes its view", || done.join("0.txt").exists() && !raw.join("0.txt").exists());
    assert_eq!(fs::read_to_string(done.join("0.txt")).unwrap(), "processed");
    client.delete("1.txt");
    eventually("it goes", || !raw.join("1.txt").exists());
    let status = home.ok(["status", "mnt"]);
    assert!(status.contains("connected") && status.contains("raw: 18 objects"), "{status}");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s264_a_volume_has_its_views_in_a_directory_that_is_not_listed() {
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
    assert_eq!((listed, requests(&home) - before), (10_000, 0), "`ls -l` asks the bucket nothing");
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&view.join("00007.log")), inode(&home.mnt().join("logs/00007.log")));
    assert_eq!(errno(fs::rename(view.join("00007.log"), home.mnt().join("x.log"))), rustix::io::Errno::XDEV);
    assert_eq!(errno(fs::create_dir(home.mnt().join(".views/more"))), rustix::io::Errno::PERM);
    fs::write(home.mnt().join("logs/new.log"), "new").unwrap();
    assert_eq!(fs::read_to_string(view.join("new.log")).unwrap(), "new", "at once");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s264_all_buckets_of_a_server_are_directories() {
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
    let said = refused("a:\n  container: other\n");
    assert!(said.contains("'a' shows nothing of the bucket 'volume'"), "{said}");
    let said = refused("a:\n  account: else\n  container: volume\n");
    assert!(said.contains("its own endpoint only"), "{said}");
    assert!(home.refused(["mount", "mnt"]).contains("DIR"));
    home.ok(["format", "by-inode", "--naming=inode"]);
    fs::write(home.path("rules.yaml"), "a:\n  container: by-inode\n").unwrap();
    let said = home.refused(["mount", "by-inode", "mnt", "--views=rules.yaml"]);
    assert!(said.contains("named by inode"), "{said}");
}
