//! Features that need a second client of the bucket: what other programs see, and what a rename costs.

use super::Trials;
use crate::raw_client::{Bucket, Call};
use harness::{Proxy, RequestKind, Stopwatch};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;

/// Interval at which a change of the other side is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A mount, and a client of its bucket past the proxy.
#[derive(Debug, Clone)]
pub(crate) struct BothSides {
    /// Mount point.
    pub(crate) root: PathBuf,
    pub(crate) bucket: Bucket,
    /// Proxy between the mount and the bucket.
    pub(crate) proxy: Option<Proxy>,
    /// Time after which a change of one side must be visible on the other.
    pub(crate) visibility_limit: Duration,
    pub(crate) runtime: Handle,
}

/// A feature of the two sides. Returns a note.
type Probe = fn(&BothSides) -> Result<String, String>;

const FEATURES: [(&str, Probe); 4] = [
    ("object visible after close", BothSides::visible_after_close),
    ("foreign object visible", BothSides::foreign_visible),
    ("rename copies no object", BothSides::rename_without_copy),
    ("metadata of others survives an edit", BothSides::metadata_survives),
];

/// Tries what the two sides of a bucket see of each other.
pub(crate) fn probe_bucket(sides: &BothSides, trials: &mut Trials<'_>) {
    for (name, probe) in FEATURES {
        let sides = sides.clone();
        trials.run(name, move || probe(&sides));
    }
}

impl BothSides {
    /// Tries whether a file is in the bucket once it is closed.
    fn visible_after_close(&self) -> Result<String, String> {
        fs::write(self.root.join("visible"), "hello").map_err(text)?;
        self.wait_for(|| {
            let sizes = self.runtime.block_on(self.bucket.sizes("visible")).unwrap_or_default();
            sizes.get("visible") == Some(&5)
        })
    }

    /// Tries whether an object of another client appears in the mount.
    fn foreign_visible(&self) -> Result<String, String> {
        let is_listed = || {
            let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
            entries.into_iter().any(|entry| entry.file_name() == "foreign")
        };
        // The directory is listed before, so that a cache of names has something to be wrong about.
        is_listed();
        self.runtime.block_on(self.bucket.call_one(Call::Put, "foreign")).map_err(text)?;
        self.wait_for(is_listed)
    }

    /// Tries whether a rename works without copying the object.
    fn rename_without_copy(&self) -> Result<String, String> {
        let Some(proxy) = &self.proxy else { return Err("no proxy counts requests".to_owned()) };
        fs::write(self.root.join("before"), vec![b'a'; 1 << 20]).map_err(text)?;
        let start = proxy.traffic();
        fs::rename(self.root.join("before"), self.root.join("after")).map_err(text)?;
        let requests = proxy.traffic().since(&start).requests;
        let copies: u64 = [RequestKind::Copy, RequestKind::Put, RequestKind::Part]
            .into_iter()
            .filter_map(|kind| requests.get(&kind))
            .sum();
        match copies {
            0 => Ok(String::new()),
            count => Err(format!("{count} requests that store or copy an object")),
        }
    }

    /// Another client's object is appended to as a file: its user metadata must be on the new object.
    fn metadata_survives(&self) -> Result<String, String> {
        const NAME: &str = "described";
        let metadata = [("colour".to_owned(), "green".to_owned())];
        let put = self.bucket.put_described(NAME, b"one", metadata.clone().into());
        self.runtime.block_on(put).map_err(text)?;
        let path = self.root.join(NAME);
        self.wait_for(|| path.exists())?;
        let opened = fs::OpenOptions::new().append(true).open(&path);
        opened.and_then(|mut file| file.write_all(b"two")).map_err(text)?;
        let described = || self.runtime.block_on(self.bucket.described(NAME)).ok();
        self.wait_for(|| described().is_some_and(|(size_bytes, _)| size_bytes == 6))?;
        match described() {
            Some((_, found)) if found.get("colour") == Some(&metadata[0].1) => Ok(String::new()),
            _ => Err("it is lost".to_owned()),
        }
    }

    /// Waits until a condition holds. Returns after which time, or fails after the limit.
    fn wait_for(&self, mut is_true: impl FnMut() -> bool) -> Result<String, String> {
        let waiting = Stopwatch::start();
        while !is_true() {
            if waiting.elapsed() >= self.visibility_limit {
                return Err(format!("not within {} s", self.visibility_limit.as_secs()));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(format!("after {:.2} s", waiting.elapsed().as_secs_f64()))
    }
}

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}
