//! A random test of the whole chain: one seed decides what happens, and when everything has settled, all clients must
//! agree with a listing.

use super::clients::{Follower, ViewsMount, flag};
use super::rules::{BUCKETS, RULES, StoredObject};
use super::transport::{Kind, Transport};
use crate::fixture::{Home, capture};
use crate::handlers::RunningTenon;
use crate::s3::{buckets, home};
use futures_util::TryStreamExt as _;
use servers::S3Server;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use store::{
    Attributes, Buckets as _, CopyOptions, Entropy, GetOptions, ListRequest, ObjectKey, ObjectStore, Pages,
    Payload, Precondition, PutOptions, StoreError,
};
use tokio::runtime::Runtime;

/// How often the clients are compared with a listing, every 200 ms, until they agree. Brokers hand messages of a dead
/// client to another one after 25 s.
const MAX_COMPARISONS: usize = 300;

/// The parameters of a random test.
pub(super) struct Setting {
    pub(super) transport: Kind,
    /// Per handler, the part of all objects that it serves, or "" for all.
    pub(super) handlers: &'static [&'static str],
    pub(super) mounts: usize,
    /// The number of phases, each of which ends when everything has settled, and of steps in each phase.
    pub(super) phases: usize,
    pub(super) steps: usize,
}

pub(super) struct ChainTest {
    seed: u64,
    entropy: Entropy,
    runtime: Runtime,
    transport: Transport,
    server: S3Server,
    stores: Vec<Arc<dyn ObjectStore>>,
    handlers: Vec<Handler>,
    follower: Follower,
    mounts: Vec<ViewsMount>,
    made: u32,
    history: Vec<String>,
}

/// A handler, which listens at the same address each time it runs.
struct Handler {
    home: Home,
    part: &'static str,
    words: Vec<String>,
    address: String,
    run: Option<RunningTenon>,
    is_lost: bool,
}

impl Handler {
    fn new(home: Home, part: &'static str, source: &str) -> Self {
        let words =
            ["events", "serve", "--state-dir=state", "--log-file=log", "--log-level=info,views=debug"];
        let events = format!("--events={source}");
        let of_part = (!part.is_empty()).then(|| format!("--part={part}"));
        let words = words.map(str::to_owned).into_iter().chain([events]).chain(of_part).collect();
        let mut handler =
            Self { home, part, words, address: "127.0.0.1:0".to_owned(), run: None, is_lost: false };
        handler.start();
        handler
    }

    fn start(&mut self) {
        let listen = format!("--listen={}", self.address);
        let words: Vec<&str> = self.words.iter().map(String::as_str).chain([listen.as_str()]).collect();
        let run = RunningTenon::start(&self.home, &words);
        self.address = run.first_line().trim_start_matches("http://").to_owned();
        self.run = Some(run);
    }

    fn part_and_url(&self) -> (&'static str, String) {
        (self.part, format!("http://{}", self.address))
    }
}

impl ChainTest {
    pub(super) fn new(setting: &Setting, seed: u64) -> Self {
        let runtime = Runtime::new().unwrap();
        let transport = Transport::start(setting.transport, setting.handlers.len(), &runtime);
        let server = transport.minio(&Home::new(), &runtime);
        let of = buckets(&server);
        let stores = BUCKETS.map(|bucket| runtime.block_on(of.open(bucket)).unwrap()).into();
        let user = || home(&server).with("AWS_ENDPOINT_URL", &server.endpoint());
        let handler = |(at, part): (usize, &&'static str)| {
            let home = match transport.secret() {
                Some(secret) => user().with("TENON_EVENTS_SECRET", &secret),
                None => user(),
            };
            Handler::new(home, part, &transport.source(at))
        };
        let handlers: Vec<Handler> = setting.handlers.iter().enumerate().map(handler).collect();
        let at: Vec<_> = handlers.iter().map(Handler::part_and_url).collect();
        let mounts = (0..setting.mounts).map(|_| ViewsMount::start(user(), &at)).collect();
        let (entropy, follower) = (Entropy::new(seed), Follower::of(&at));
        let (made, history) = (0, Vec::new());
        Self { seed, entropy, runtime, transport, server, stores, handlers, follower, mounts, made, history }
    }

    fn below(&self, bound: usize) -> usize {
        self.entropy.below(bound as u64) as usize
    }

    fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn record(&mut self, what: String) {
        self.history.push(what);
    }

    /// Performs one random action.
    pub(super) fn step(&mut self) {
        match self.below(100) {
            0..45 => self.put(),
            45..55 => self.set_tags(),
            55..65 => self.set_metadata(),
            65..75 => self.delete(),
            75..80 => self.change_through_a_mount(),
            80..86 => drop(self.follower.fetch_changes(1 + self.below(5), &self.runtime)),
            86..90 => self.list_in_a_mount(),
            90..94 => self.kill_or_start_a_handler(),
            94..96 => self.cut_or_restart(),
            96 => self.kill_a_mount(),
            97 => self.follower = Follower::of(&self.handlers_by_part()),
            _ => self.transport.deliver(3, &self.entropy),
        }
    }

    /// Picks a bucket and one of a few keys. The last components of all keys differ.
    fn pick_key(&self) -> (usize, ObjectKey) {
        let (bucket, number) = (self.below(2), self.below(10));
        let directory = self.pick(&["", "d1/", "d1/e/", "d2/"]);
        let last = format!("{}-{}{number}", BUCKETS[bucket], directory.replace('/', "-"));
        let extension = if number % 2 == 0 { "txt" } else { "bin" };
        (bucket, ObjectKey::try_from(format!("{directory}{last}.{extension}").as_str()).unwrap())
    }

    fn attributes(&self) -> Attributes {
        let mut user = BTreeMap::new();
        let mut maybe = |name: &str, of: &[&str]| {
            if self.below(2) == 0 {
                user.insert(name.to_owned(), self.pick(of).to_owned());
            }
        };
        maybe("color", &["green", "red", "blue", "black"]);
        maybe("stage", &["raw"]);
        maybe("tenon-directory", &["usr/bin", "usr/share", "etc"]);
        let content_type = self.pick(&["text/plain", "application/octet-stream"]);
        Attributes { content_type: Some(content_type.to_owned()), user, ..Attributes::default() }
    }

    fn tags(&self) -> BTreeMap<String, String> {
        let project = self.pick(&[None, Some("apollo"), Some("mercury")]);
        project.map(|project| ("project".to_owned(), project.to_owned())).into_iter().collect()
    }

    fn put(&mut self) {
        let (bucket, key) = self.pick_key();
        let body = "x".repeat(self.below(9));
        let tags = if self.below(3) == 0 { self.tags() } else { BTreeMap::new() };
        let options = PutOptions { attributes: self.attributes(), tags, ..PutOptions::default() };
        self.record(format!("put {}/{key} {body} {:?}", BUCKETS[bucket], options.attributes.user));
        self.runtime.block_on(self.stores[bucket].put(&key, Payload::from(body), options)).unwrap();
    }

    fn set_tags(&mut self) {
        let ((bucket, key), tags) = (self.pick_key(), self.tags());
        self.record(format!("tag {}/{key} {tags:?}", BUCKETS[bucket]));
        assert_done_or_gone(self.runtime.block_on(self.stores[bucket].set_tags(&key, tags)));
    }

    fn set_metadata(&mut self) {
        let ((bucket, key), attributes) = (self.pick_key(), self.attributes());
        self.record(format!("set metadata of {}/{key} {:?}", BUCKETS[bucket], attributes.user));
        let Some(meta) = self.runtime.block_on(self.stores[bucket].find(&key)).unwrap() else { return };
        let options = CopyOptions { attributes: Some(attributes), ..CopyOptions::default() };
        assert_done_or_gone(
            self.runtime.block_on(self.stores[bucket].copy(&meta.object, &key, options)).map(drop),
        );
    }

    fn delete(&mut self) {
        let (bucket, key) = self.pick_key();
        self.record(format!("delete {}/{key}", BUCKETS[bucket]));
        self.runtime.block_on(self.stores[bucket].delete(&key, Precondition::None)).unwrap();
    }

    /// A program in a mount creates a file, removes one, or renames a directory. An error is allowed.
    fn change_through_a_mount(&mut self) {
        if self.mounts.is_empty() {
            return;
        }
        let mount = &self.mounts[self.below(self.mounts.len())];
        let view = RULES[self.below(3)].name;
        let (done, what) = match self.below(4) {
            0 | 1 => {
                self.made += 1;
                let path = mount.path(&format!("{view}/made-{}.txt", self.made));
                (fs::write(&path, "made"), format!("create {}", path.display()))
            }
            2 => {
                let all = fs::read_dir(mount.path(view)).into_iter().flatten().flatten();
                let mut files: Vec<PathBuf> =
                    all.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
                files.sort();
                let Some(path) = files.get(self.below(files.len().max(1))) else { return };
                (fs::remove_file(path), format!("remove {}", path.display()))
            }
            _ => {
                let (from, to) = (self.pick(&["usr", "etc", "opt"]), self.pick(&["opt", "usr/lib", "etc"]));
                let [from, to] = [from, to].map(|name| mount.path(&format!("{view}/{name}")));
                (fs::rename(&from, &to), format!("rename {} to {}", from.display(), to.display()))
            }
        };
        self.record(format!("{what}: {done:?}"));
    }

    fn list_in_a_mount(&mut self) {
        if !self.mounts.is_empty() {
            let view = RULES[self.below(RULES.len())].name;
            let names = fs::read_dir(self.mounts[self.below(self.mounts.len())].path(view));
            self.record(format!("list {view}: {:?}", names.map(Iterator::count)));
        }
    }

    fn kill_or_start_a_handler(&mut self) {
        let chosen = self.below(self.handlers.len());
        let handler = &mut self.handlers[chosen];
        if handler.is_lost {
            return;
        }
        let what = match handler.run.take() {
            Some(run) => {
                drop(run);
                "kill"
            }
            None => {
                handler.start();
                "start"
            }
        };
        self.record(format!("{what} handler {chosen}"));
    }

    fn cut_or_restart(&mut self) {
        let what = match self.below(5) {
            0 => {
                self.transport.restart();
                "restart the broker"
            }
            1 | 2 => {
                self.transport.cut();
                "cut"
            }
            _ => {
                self.transport.restore();
                "restore"
            }
        };
        self.record(what.to_owned());
    }

    fn kill_a_mount(&mut self) {
        if !self.mounts.is_empty() {
            let chosen = self.below(self.mounts.len());
            self.record(format!("kill mount {chosen}"));
            self.mounts[chosen].kill();
        }
    }

    /// Starts boto3, which makes `count` changes meanwhile.
    pub(super) fn load(&self, count: u32) -> JoinHandle<()> {
        let home = home(&self.server).with("AWS_ENDPOINT_URL", &self.server.endpoint());
        let (script, seed) =
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/writer.py"), self.seed);
        std::thread::spawn(move || {
            let mut python = home.command("/usr/bin/python3");
            let written = capture(python.arg(script).args([seed.to_string(), count.to_string()]));
            assert_eq!(written.code, 0, "{written:?}");
        })
    }

    /// Updates every client while things happen.
    pub(super) fn update_clients(&mut self) {
        self.transport.deliver(10, &self.entropy);
        self.follower.fetch_changes(100, &self.runtime).unwrap();
        self.list_in_a_mount();
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Kills a handler for good.
    pub(super) fn lose_handler(&mut self, number: usize) {
        let handler = &mut self.handlers[number];
        (handler.run, handler.is_lost) = (None, true);
        self.record(format!("lose handler {number}"));
    }

    /// Returns the part and the URL of each handler.
    pub(super) fn handlers_by_part(&self) -> Vec<(&'static str, String)> {
        self.handlers.iter().map(Handler::part_and_url).collect()
    }

    /// Restores all connections, starts stopped handlers, and waits until every client, including new ones, agrees
    /// with a listing.
    pub(super) fn settle(&mut self) {
        self.record("settle".to_owned());
        self.transport.restore();
        for handler in self.handlers.iter_mut().filter(|handler| handler.run.is_none() && !handler.is_lost) {
            handler.start();
        }
        self.wait_until_equal();
    }

    fn wait_until_equal(&mut self) {
        let mut difference = String::new();
        for _ in 0..MAX_COMPARISONS {
            self.transport.deliver(100, &self.entropy);
            match self.compare() {
                Ok(()) => return,
                Err(error) => difference = error,
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        self.fail(&difference);
    }

    fn compare(&mut self) -> Result<(), String> {
        self.follower.fetch_changes(100, &self.runtime).map_err(|error| error.to_string())?;
        let seen = self.seen();
        self.follower.compare(&seen).map_err(|difference| format!("the old follower: {difference}"))?;
        for (at, mount) in self.mounts.iter().enumerate() {
            mount.compare(&seen).map_err(|difference| format!("mount {at}: {difference}"))?;
        }
        // Each handler in turn is the first that a new client asks.
        let mut handlers = self.handlers_by_part();
        for _ in 0..handlers.len() {
            handlers.rotate_left(1);
            let mut fresh = Follower::of(&handlers);
            fresh.fetch_changes(1000, &self.runtime).map_err(|error| error.to_string())?;
            fresh
                .compare(&seen)
                .map_err(|difference| format!("a new follower at {}: {difference}", handlers[0].1))?;
        }
        Ok(())
    }

    /// Returns all objects, by listing the buckets and reading each object.
    fn seen(&self) -> Vec<StoredObject> {
        let mut all = Vec::new();
        for (bucket, store) in BUCKETS.into_iter().zip(&self.stores) {
            self.runtime.block_on(async {
                let request = ListRequest { limit: 1000, ..ListRequest::default() };
                for entry in Pages::new(&**store, request).collect().await.unwrap() {
                    let (object, _) = entry.into_object().unwrap();
                    all.extend(read_object(bucket, store, &object.key).await);
                }
            });
        }
        all
    }

    fn fail(&self, what: &str) -> ! {
        let logs = self.handlers.iter().map(|handler| handler.home.path("log"));
        for log in logs.chain(self.mounts.iter().map(ViewsMount::log)) {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("{}:\n{}\n", log.display(), lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        let flags =
            self.handlers_by_part().into_iter().flat_map(|handler| ["--handler".to_owned(), flag(&handler)]);
        let report = Home::new().tenon(["events", "stats"].map(str::to_owned).into_iter().chain(flags));
        eprintln!("{}\n{report:?}\n{}", self.history.join("\n"), self.transport.waiting());
        panic!("seed {}: {what}", self.seed);
    }

    pub(super) fn end(&self) {
        self.mounts.iter().for_each(ViewsMount::end);
    }
}

/// Reads an object. Returns `None` if it was deleted since it was listed.
async fn read_object(
    bucket: &'static str,
    store: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
) -> Option<StoredObject> {
    let found = match store.get(key, GetOptions::default()).await {
        Err(StoreError::NotFound(_)) => return None,
        found => found.unwrap(),
    };
    let chunks: Vec<bytes::Bytes> = found.body.try_collect().await.unwrap();
    let tags = match store.tags(key).await {
        Err(StoreError::NotFound(_)) => return None,
        tags => tags.unwrap(),
    };
    Some(StoredObject {
        bucket,
        key: key.to_string(),
        etag: found.meta.object.etag.as_str().to_owned(),
        body: chunks.concat(),
        content_type: found.meta.attributes.content_type.unwrap_or_default(),
        properties: found.meta.attributes.user,
        tags,
    })
}

/// Checks that a change succeeded or failed because the object is gone.
fn assert_done_or_gone(done: store::Result<()>) {
    match done {
        Ok(()) | Err(StoreError::NotFound(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Runs the random test of one seed.
pub(super) fn run_seed(setting: &Setting, seed: u64) {
    let mut test = ChainTest::new(setting, seed);
    for _ in 0..setting.phases {
        (0..setting.steps).for_each(|_| test.step());
        test.settle();
    }
    test.end();
}
