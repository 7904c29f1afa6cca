//! A world of the whole chain: what happens in it by one number, and what must be so when everything has come to rest.

use super::carrier::{Carrier, Kind};
use super::clients::{Follower, Mounted, flag};
use super::rules::{BUCKETS, RULES, Seen};
use crate::fixture::{Home, said};
use crate::handlers::Run;
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

/// How often it is looked whether all has come to rest, in fifths of a second: brokers give what a dead client had to another after 25 s.
const LOOKS: usize = 300;

/// What a world is made of.
pub(super) struct Setting {
    pub(super) carrier: Kind,
    /// Of each handler the part of all objects that it has, or "" for all.
    pub(super) handlers: &'static [&'static str],
    pub(super) mounts: usize,
    /// How often all comes to rest, and what happens before.
    pub(super) rests: usize,
    pub(super) steps: usize,
}

pub(super) struct World {
    seed: u64,
    entropy: Entropy,
    runtime: Runtime,
    carrier: Carrier,
    server: S3Server,
    stores: Vec<Arc<dyn ObjectStore>>,
    handlers: Vec<Handler>,
    follower: Follower,
    mounts: Vec<Mounted>,
    made: u32,
    tale: Vec<String>,
}

/// A handler, which listens at the same address whenever it runs.
struct Handler {
    home: Home,
    part: &'static str,
    words: Vec<String>,
    address: String,
    run: Option<Run>,
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
        let run = Run::start(&self.home, &words);
        self.address = run.first_line().trim_start_matches("http://").to_owned();
        self.run = Some(run);
    }

    fn at(&self) -> (&'static str, String) {
        (self.part, format!("http://{}", self.address))
    }
}

impl World {
    pub(super) fn new(setting: &Setting, seed: u64) -> Self {
        let runtime = Runtime::new().unwrap();
        let carrier = Carrier::start(setting.carrier, setting.handlers.len(), &runtime);
        let server = carrier.minio(&Home::new(), &runtime);
        let of = buckets(&server);
        let stores = BUCKETS.map(|bucket| runtime.block_on(of.open(bucket)).unwrap()).into();
        let user = || home(&server).with("AWS_ENDPOINT_URL", &server.endpoint());
        let handler = |(at, part): (usize, &&'static str)| {
            let home = match carrier.secret() {
                Some(secret) => user().with("TENON_EVENTS_SECRET", &secret),
                None => user(),
            };
            Handler::new(home, part, &carrier.source(at))
        };
        let handlers: Vec<Handler> = setting.handlers.iter().enumerate().map(handler).collect();
        let at: Vec<_> = handlers.iter().map(Handler::at).collect();
        let mounts = (0..setting.mounts).map(|_| Mounted::start(user(), &at)).collect();
        let (entropy, follower) = (Entropy::new(seed), Follower::of(&at));
        let (made, tale) = (0, Vec::new());
        Self { seed, entropy, runtime, carrier, server, stores, handlers, follower, mounts, made, tale }
    }

    fn below(&self, bound: usize) -> usize {
        self.entropy.below(bound as u64) as usize
    }

    fn one<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn note(&mut self, what: String) {
        self.tale.push(what);
    }

    /// Something happens.
    pub(super) fn step(&mut self) {
        match self.below(100) {
            0..45 => self.put(),
            45..55 => self.set_tags(),
            55..65 => self.set_metadata(),
            65..75 => self.delete(),
            75..80 => self.use_a_mount(),
            80..86 => drop(self.follower.ask(1 + self.below(5), &self.runtime)),
            86..90 => self.look_at_a_mount(),
            90..94 => self.kill_or_start_a_handler(),
            94..96 => self.cut_or_restart(),
            96 => self.kill_a_mount(),
            97 => self.follower = Follower::of(&self.at()),
            _ => self.carrier.deliver(3, &self.entropy),
        }
    }

    /// A bucket and a key, of a few whose last components all differ.
    fn place(&self) -> (usize, ObjectKey) {
        let (bucket, number) = (self.below(2), self.below(10));
        let directory = self.one(&["", "d1/", "d1/e/", "d2/"]);
        let last = format!("{}-{}{number}", BUCKETS[bucket], directory.replace('/', "-"));
        let extension = if number % 2 == 0 { "txt" } else { "bin" };
        (bucket, ObjectKey::try_from(format!("{directory}{last}.{extension}").as_str()).unwrap())
    }

    fn attributes(&self) -> Attributes {
        let mut user = BTreeMap::new();
        let mut maybe = |name: &str, of: &[&str]| {
            if self.below(2) == 0 {
                user.insert(name.to_owned(), self.one(of).to_owned());
            }
        };
        maybe("color", &["green", "red", "blue", "black"]);
        maybe("stage", &["raw"]);
        maybe("tenon-directory", &["usr/bin", "usr/share", "etc"]);
        let content_type = self.one(&["text/plain", "application/octet-stream"]);
        Attributes { content_type: Some(content_type.to_owned()), user, ..Attributes::default() }
    }

    fn tags(&self) -> BTreeMap<String, String> {
        let project = self.one(&[None, Some("apollo"), Some("mercury")]);
        project.map(|project| ("project".to_owned(), project.to_owned())).into_iter().collect()
    }

    fn put(&mut self) {
        let (bucket, key) = self.place();
        let body = "x".repeat(self.below(9));
        let tags = if self.below(3) == 0 { self.tags() } else { BTreeMap::new() };
        let options = PutOptions { attributes: self.attributes(), tags, ..PutOptions::default() };
        self.note(format!("put {}/{key} {body} {:?}", BUCKETS[bucket], options.attributes.user));
        self.runtime.block_on(self.stores[bucket].put(&key, Payload::from(body), options)).unwrap();
    }

    fn set_tags(&mut self) {
        let ((bucket, key), tags) = (self.place(), self.tags());
        self.note(format!("tag {}/{key} {tags:?}", BUCKETS[bucket]));
        or_gone(self.runtime.block_on(self.stores[bucket].set_tags(&key, tags)));
    }

    fn set_metadata(&mut self) {
        let ((bucket, key), attributes) = (self.place(), self.attributes());
        self.note(format!("tell {}/{key} {:?}", BUCKETS[bucket], attributes.user));
        let Some(meta) = self.runtime.block_on(self.stores[bucket].find(&key)).unwrap() else { return };
        let options = CopyOptions { attributes: Some(attributes), ..CopyOptions::default() };
        or_gone(self.runtime.block_on(self.stores[bucket].copy(&meta.object, &key, options)).map(drop));
    }

    fn delete(&mut self) {
        let (bucket, key) = self.place();
        self.note(format!("delete {}/{key}", BUCKETS[bucket]));
        self.runtime.block_on(self.stores[bucket].delete(&key, Precondition::None)).unwrap();
    }

    /// A program in a mount makes a file, removes one, or renames a directory. It may be told that it cannot.
    fn use_a_mount(&mut self) {
        if self.mounts.is_empty() {
            return;
        }
        let mount = &self.mounts[self.below(self.mounts.len())];
        let view = RULES[self.below(3)].name;
        let (done, what) = match self.below(4) {
            0 | 1 => {
                self.made += 1;
                let path = mount.path(&format!("{view}/made-{}.txt", self.made));
                (fs::write(&path, "made"), format!("make {}", path.display()))
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
                let (from, to) = (self.one(&["usr", "etc", "opt"]), self.one(&["opt", "usr/lib", "etc"]));
                let [from, to] = [from, to].map(|name| mount.path(&format!("{view}/{name}")));
                (fs::rename(&from, &to), format!("rename {} to {}", from.display(), to.display()))
            }
        };
        self.note(format!("{what}: {done:?}"));
    }

    fn look_at_a_mount(&mut self) {
        if !self.mounts.is_empty() {
            let view = RULES[self.below(RULES.len())].name;
            let names = fs::read_dir(self.mounts[self.below(self.mounts.len())].path(view));
            self.note(format!("look at {view}: {:?}", names.map(Iterator::count)));
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
        self.note(format!("{what} handler {chosen}"));
    }

    fn cut_or_restart(&mut self) {
        let what = match self.below(5) {
            0 => {
                self.carrier.restart();
                "restart the broker"
            }
            1 | 2 => {
                self.carrier.cut();
                "cut"
            }
            _ => {
                self.carrier.mend();
                "mend"
            }
        };
        self.note(what.to_owned());
    }

    fn kill_a_mount(&mut self) {
        if !self.mounts.is_empty() {
            let chosen = self.below(self.mounts.len());
            self.note(format!("kill mount {chosen}"));
            self.mounts[chosen].kill();
        }
    }

    /// boto3 makes so many changes, meanwhile.
    pub(super) fn load(&self, count: u32) -> JoinHandle<()> {
        let home = home(&self.server).with("AWS_ENDPOINT_URL", &self.server.endpoint());
        let (script, seed) =
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/writer.py"), self.seed);
        std::thread::spawn(move || {
            let mut python = home.command("/usr/bin/python3");
            let written = said(python.arg(script).args([seed.to_string(), count.to_string()]));
            assert_eq!(written.code, 0, "{written:?}");
        })
    }

    /// Every client asks, while things happen.
    pub(super) fn ask(&mut self) {
        self.carrier.deliver(10, &self.entropy);
        self.follower.ask(100, &self.runtime).unwrap();
        self.look_at_a_mount();
        std::thread::sleep(Duration::from_millis(20));
    }

    /// One of the handlers dies, and does not come back.
    pub(super) fn lose_handler(&mut self, number: usize) {
        let handler = &mut self.handlers[number];
        (handler.run, handler.is_lost) = (None, true);
        self.note(format!("lose handler {number}"));
    }

    /// Where the handlers are.
    pub(super) fn at(&self) -> Vec<(&'static str, String)> {
        self.handlers.iter().map(Handler::at).collect()
    }

    /// All is well again, and everything comes to rest: then every client sees what a listing says, and so does who begins now.
    pub(super) fn rest(&mut self) {
        self.note("rest".to_owned());
        self.carrier.mend();
        for handler in self.handlers.iter_mut().filter(|handler| handler.run.is_none() && !handler.is_lost) {
            handler.start();
        }
        self.until_equal();
    }

    fn until_equal(&mut self) {
        let mut differs = String::new();
        for _ in 0..LOOKS {
            self.carrier.deliver(100, &self.entropy);
            match self.differs() {
                Ok(()) => return,
                Err(error) => differs = error,
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        self.fail(&differs);
    }

    fn differs(&mut self) -> Result<(), String> {
        self.follower.ask(100, &self.runtime).map_err(|error| error.to_string())?;
        let seen = self.seen();
        self.follower.differs(&seen).map_err(|differs| format!("who followed: {differs}"))?;
        for (at, mount) in self.mounts.iter().enumerate() {
            mount.differs(&seen).map_err(|differs| format!("mount {at}: {differs}"))?;
        }
        // Each handler is the first that some new client asks.
        let mut at = self.at();
        for _ in 0..at.len() {
            at.rotate_left(1);
            let mut fresh = Follower::of(&at);
            fresh.ask(1000, &self.runtime).map_err(|error| error.to_string())?;
            fresh.differs(&seen).map_err(|differs| format!("who begins now at {}: {differs}", at[0].1))?;
        }
        Ok(())
    }

    /// All objects, by listing the buckets and looking at each.
    fn seen(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        for (bucket, store) in BUCKETS.into_iter().zip(&self.stores) {
            self.runtime.block_on(async {
                let request = ListRequest { limit: 1000, ..ListRequest::default() };
                for entry in Pages::of(&**store, request).all().await.unwrap() {
                    let (object, _) = entry.into_object().unwrap();
                    all.extend(look(bucket, store, &object.key).await);
                }
            });
        }
        all
    }

    fn fail(&self, what: &str) -> ! {
        let logs = self.handlers.iter().map(|handler| handler.home.path("log"));
        for log in logs.chain(self.mounts.iter().map(Mounted::log)) {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("{}:\n{}\n", log.display(), lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        let flags = self.at().into_iter().flat_map(|at| ["--handler".to_owned(), flag(&at)]);
        let report = Home::new().tenon(["events", "stats"].map(str::to_owned).into_iter().chain(flags));
        eprintln!("{}\n{report:?}\n{}", self.tale.join("\n"), self.carrier.waiting());
        panic!("world {}: {what}", self.seed);
    }

    pub(super) fn end(&self) {
        self.mounts.iter().for_each(Mounted::end);
    }
}

/// An object, unless it has gone since it was listed.
async fn look(bucket: &'static str, store: &Arc<dyn ObjectStore>, key: &ObjectKey) -> Option<Seen> {
    let found = match store.get(key, GetOptions::default()).await {
        Err(StoreError::NotFound(_)) => return None,
        found => found.unwrap(),
    };
    let chunks: Vec<bytes::Bytes> = found.body.try_collect().await.unwrap();
    let tags = match store.tags(key).await {
        Err(StoreError::NotFound(_)) => return None,
        tags => tags.unwrap(),
    };
    Some(Seen {
        bucket,
        key: key.to_string(),
        etag: found.meta.object.etag.as_str().to_owned(),
        body: chunks.concat(),
        content_type: found.meta.attributes.content_type.unwrap_or_default(),
        properties: found.meta.attributes.user,
        tags,
    })
}

/// Whoever changes an object that is not there is told so.
fn or_gone(done: store::Result<()>) {
    match done {
        Ok(()) | Err(StoreError::NotFound(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Lives through a world.
pub(super) fn live(setting: &Setting, seed: u64) {
    let mut world = World::new(setting, seed);
    for _ in 0..setting.rests {
        (0..setting.steps).for_each(|_| world.step());
        world.rest();
    }
    world.end();
}
