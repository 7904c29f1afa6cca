//! `tenon batch end --lazy`: batches that are merged in the background, on MinIO behind a proxy.

use crate::fixture::{Home, eventually, is_mounted};
use crate::s3::{home, new_bucket};
use rustix::process::Signal;
use servers::{Mode, Proxy};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Files of a batch. Their contents are in one pack, which is uploaded when the batch is merged.
const FILES: usize = 200;

/// A volume with a directory in batch mode, on a server behind a proxy.
struct Setup {
    home: Home,
    proxy: Proxy,
    volume: String,
}

impl Setup {
    /// Mounts a volume with a directory in batch mode, in which files were made.
    fn new(name: &str) -> Self {
        let server = servers::shared_minio();
        let volume = format!("s3://{}", new_bucket(server, name));
        let proxy = servers::proxy(&server.endpoint());
        let home = home(server).with("AWS_ENDPOINT_URL", &proxy.endpoint());
        home.ok(["format", &volume, "--naming", "inode"]);
        let setup = Self { home, proxy, volume };
        setup.mount();
        fs::create_dir_all(setup.job().join("old")).unwrap();
        fs::create_dir(setup.home.mnt().join("other")).unwrap();
        setup.home.ok(["batch", "begin", "mnt/job"]);
        for number in 0..FILES {
            fs::write(setup.job().join(format!("old/file-{number}")), content(number)).unwrap();
        }
        setup
    }

    fn mount(&self) {
        self.home.ok(["mount", &self.volume, "mnt", "--retry-timeout=2s"]);
    }

    fn job(&self) -> PathBuf {
        self.home.mnt().join("job")
    }

    /// Submits the batch while the server does not answer.
    fn submit(&self, mode: Mode) -> String {
        self.proxy.set(mode);
        let submitted = self.home.ok(["batch", "end", "mnt/job", "--lazy"]);
        assert!(submitted.contains("is submitted"), "{submitted}");
        submitted.split(' ').nth(1).unwrap().to_owned()
    }

    fn listed(&self) -> String {
        self.home.ok(["batch", "list", "mnt"])
    }

    fn assert_merged(&self) {
        eventually("the batch is merged", || self.listed().contains("merged"));
        for number in 0..FILES {
            let path = self.job().join(format!("old/file-{number}"));
            assert_eq!(fs::read_to_string(path).unwrap(), content(number));
        }
        self.home.ok(["umount", "mnt"]);
        self.home.ok(["fsck", &self.volume]);
    }
}

fn content(number: usize) -> String {
    format!("content {number} ").repeat(number % 90)
}

/// Accesses a path on a thread of its own. Returns the receiver of the outcome.
fn access(path: &Path, access: fn(&Path) -> String) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || sender.send(access(&path)));
    receiver
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| error.to_string())
}

fn count(path: &Path) -> String {
    fs::read_dir(path).unwrap().count().to_string()
}

#[test]
fn s630_s631_accesses_wait_for_a_merge_in_the_background() {
    let setup = Setup::new("lazy-waits");
    let id = setup.submit(Mode::BlackHole);
    let listed = setup.listed();
    assert!(listed.contains(&id) && (listed.contains("submitted") || listed.contains("merging")), "{listed}");
    let again = setup.home.refused(["batch", "begin", "mnt/other/.."]);
    assert!(again.contains("above or below"), "{again}");
    let file = access(&setup.job().join("old/file-7"), read);
    let names = access(&setup.job().join("old"), count);
    // Other directories do not wait.
    fs::write(setup.home.mnt().join("other/file"), "").unwrap();
    assert_eq!(fs::read_dir(setup.home.mnt().join("other")).unwrap().count(), 1);
    let waiting = Duration::from_millis(700);
    assert_eq!(file.recv_timeout(waiting), Err(RecvTimeoutError::Timeout));
    assert_eq!(names.recv_timeout(waiting), Err(RecvTimeoutError::Timeout));
    setup.proxy.set(Mode::Pass);
    let limit = Duration::from_secs(60);
    assert_eq!(file.recv_timeout(limit).unwrap(), content(7));
    assert_eq!(names.recv_timeout(limit).unwrap(), FILES.to_string());
    setup.assert_merged();
}

#[test]
fn s632_a_killed_mount_goes_on_with_a_submitted_batch() {
    let setup = Setup::new("lazy-killed");
    let id = setup.submit(Mode::BlackHole);
    setup.home.signal(setup.home.pid(), Signal::KILL);
    setup.proxy.set(Mode::Pass);
    setup.home.ok(["umount", "mnt"]);
    setup.mount();
    assert!(!is_mounted(&setup.job()), "the batch is not in use again");
    // This access waits for the merge, too.
    assert_eq!(fs::read_dir(setup.job().join("old")).unwrap().count(), FILES);
    eventually("the batch is merged", || setup.listed().contains("merged"));
    assert!(setup.listed().contains(&id));
    setup.assert_merged();
}

/// A merge that fails is tried again, delays no access meanwhile, and loses nothing.
#[test]
fn s632_a_merge_that_fails_can_be_repeated_or_the_batch_used_again() {
    let setup = Setup::new("lazy-fails");
    let id = setup.submit(Mode::Broken);
    eventually("the merge has failed", || {
        setup.home.ok(["batch", "show", "mnt", &id]).contains("not merged")
    });
    assert!(setup.listed().contains("submitted"), "{}", setup.listed());
    assert_eq!(fs::read_dir(setup.job().join("old")).unwrap().count(), 0, "the volume as it was");
    setup.proxy.set(Mode::Pass);
    let begun = setup.home.ok(["batch", "begin", "mnt/job"]);
    assert!(begun.contains("again") && begun.contains(&id), "{begun}");
    assert_eq!(fs::read_to_string(setup.job().join("old/file-9")).unwrap(), content(9));
    // A batch in use is not submitted.
    let used = fs::File::open(setup.job().join("old/file-9")).unwrap();
    assert!(setup.home.refused(["batch", "end", "mnt/job", "--lazy"]).contains("programs use"));
    drop(used);
    setup.submit(Mode::Broken);
    eventually("the merge has failed", || {
        setup.home.ok(["batch", "show", "mnt", &id]).contains("not merged")
    });
    setup.proxy.set(Mode::Pass);
    let ended = setup.home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains("0 refused"), "{ended}");
    setup.assert_merged();
}
