//! Cleanup after a test process, however the process ends.
//!
//! A small shell reads from a pipe whose only writer is the test process. Each line names the process group to kill at the end
//! (an empty line: none). The pipe ends when the test drops the server and also when the test is killed. The shell then kills
//! the process group and removes the directory.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then kill -9 "-$pid" 2>/dev/null; fi
umount -l -- "$1/data" 2>/dev/null
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// The shell that cleans up.
#[derive(Debug)]
pub(crate) struct Reaper(Child);

impl Reaper {
    /// Starts a reaper that removes `dir` at the end.
    pub(crate) fn for_dir(dir: &Path) -> Self {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "tenon-test-reaper"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self(shell.unwrap_or_else(|error| panic!("cannot start /bin/sh for the cleanup: {error}")))
    }

    /// Sets the process group to kill at the end by the pid of its leader; `None`: no group.
    pub(crate) fn watch(&mut self, pid: Option<u32>) {
        let line = pid.map_or_else(|| "\n".to_owned(), |pid| format!("{pid}\n"));
        let pipe = self.0.stdin.as_mut();
        let written = pipe.map(|pipe| pipe.write_all(line.as_bytes()));
        assert!(matches!(written, Some(Ok(()))), "the cleanup shell has ended");
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // A failed wait leaves nothing to do.
        let _ = self.0.wait();
    }
}
