//! Test fixture: a home directory, a runtime directory and mount points for one test, and `tenon` run in them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The directories and the environment of one test. Dropping it unmounts its mounts.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// Exit code and output of a run of `tenon`.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["run", "home", "mnt"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, variables: Vec::new() }
    }

    /// Adds an environment variable for every run.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns a path in the home, with symbolic links resolved as far as it exists.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Returns a path in the home as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Returns the mount point that every home has.
    pub(crate) fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    /// Returns a command with this home's environment and no other.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs `tenon` and waits for its end.
    pub(crate) fn tenon<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        let mut command = self.command(tenon());
        capture(command.args(words))
    }

    /// Runs `tenon`, which must succeed. Returns what it printed.
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let output = self.tenon(words);
        assert_eq!(output.code, 0, "{output:?}");
        output.out
    }

    /// Lets `tenon fsck` remove content that no file refers to, which a crash or a restored backup leaves. Asserts
    /// that all else is sound.
    pub(crate) fn assert_sound_but_for_garbage(&self, volume: &str) {
        self.assert_sound_but_for_garbage_in(volume, &[]);
    }

    /// Like [`Home::assert_sound_but_for_garbage`], with more flags.
    pub(crate) fn assert_sound_but_for_garbage_in(&self, volume: &str, flags: &[&str]) {
        let checked = self.tenon([&["fsck", volume], flags].concat());
        let is_garbage = |line: &str| {
            line.starts_with("content that no file refers to: ")
                || line.starts_with("left by a mount that died: ")
                || line.ends_with(", 0 left")
                || line.ends_with("is clean")
        };
        assert!(checked.out.lines().all(is_garbage) && checked.err.is_empty(), "{checked:?}");
        let again = self.ok([&["fsck", volume], flags].concat());
        assert!(again.contains("is clean"), "{again}");
    }

    /// Runs `tenon`, which must fail with one line that begins with its name. Returns that line.
    pub(crate) fn refused<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let output = self.tenon(words);
        assert!(matches!(output.code, 1 | 2), "{output:?}");
        assert!(
            output.err.starts_with("tenon: ") && output.err.trim_end().lines().count() == 1,
            "{output:?}"
        );
        output.err
    }

    /// Makes and mounts an embedded volume. Returns the mount point.
    pub(crate) fn mount_volume(&self) -> PathBuf {
        self.ok(["format", "volume"]);
        self.ok(["mount", "volume", "mnt", "--metadata-ttl=0s"]);
        self.mnt()
    }

    /// Unmounts, waiting for the end, and mounts again.
    pub(crate) fn remount(&self) {
        self.ok(["umount", "mnt"]);
        self.ok(["mount", "volume", "mnt"]);
    }

    /// Kills the daemon as a crash would, and mounts again.
    pub(crate) fn kill_and_remount(&self) {
        self.signal(self.pid(), rustix::process::Signal::KILL);
        self.ok(["umount", "mnt"]);
        assert!(!is_mounted(&self.mnt()));
        self.ok(["mount", "volume", "mnt"]);
    }

    /// Removes the file that names the current files of the metadata engine.
    pub(crate) fn damage_metadata(&self) {
        let engines = fs::read_dir(self.path("volume/state/meta")).unwrap();
        let current = engines.map(|entry| entry.unwrap().path().join("CURRENT")).find(|path| path.exists());
        fs::remove_file(current.unwrap()).unwrap();
    }

    /// Returns the process id of the daemon of `mnt`.
    pub(crate) fn pid(&self) -> u32 {
        self.status()["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Returns the peak memory of the daemon of `mnt`, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        peak_bytes(self.pid())
    }

    /// Returns the status of the mount at `mnt`.
    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok(["status", "mnt", "--json"])).unwrap()
    }

    /// Sends a signal to a process.
    pub(crate) fn signal(&self, pid: u32, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let root = self.dir.path().canonicalize().unwrap();
        let mounts = fuse::mounts().unwrap_or_default();
        for mount in mounts.iter().filter(|mount| mount.mount_point.starts_with(&root)) {
            // The store or the database may be gone: a test that failed ends nevertheless.
            let flags = ["umount", "--lazy", "--timeout=20s"].map(AsRef::<OsStr>::as_ref);
            let left = self.tenon(flags.into_iter().chain([mount.mount_point.as_os_str()]));
            if left.code != 0 {
                let _ = fuse::detach(&mount.mount_point);
            }
        }
    }
}

/// The program under test.
pub(crate) fn tenon() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tenon"))
}

/// Runs a command to its end.
pub(crate) fn capture(command: &mut Command) -> Output {
    let output = servers::run_to_end(command);
    Output {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Returns whether a Tenon volume is mounted at a path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    fuse::mounted_at(path).unwrap().is_some()
}

/// Waits until a condition holds. Panics if it does not after 20 seconds.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("timed out waiting until {what}");
}

/// Returns the peak memory of a process in bytes.
pub(crate) fn peak_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

/// Returns the peak memory of a process without pages of the program's own file, in bytes: those of a test build are
/// many, and the kernel can drop them.
pub(crate) fn peak_bytes_without_program(pid: u32) -> u64 {
    peak_bytes(pid) - status_bytes(pid, "RssFile:")
}

/// Returns a memory value of a process, as the kernel shows it, in bytes.
fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
