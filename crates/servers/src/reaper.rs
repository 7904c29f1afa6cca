//! Cleaning up after a test process, however it ends.
//!
//! A small shell holds the reading end of a pipe whose writing end only the test process has. Each line tells it
//! which process to kill with its whole group (an empty one: none). At the pipe's end, which comes when the test drops
//! the server and just as well when the test is killed, it kills that group and removes the directory.

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
    /// Removes `dir` at the end.
    pub(crate) fn for_dir(dir: &Path) -> Self {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "tenon-test-reaper"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self(shell.unwrap_or_else(|error| panic!("no /bin/sh to clean up with: {error}")))
    }

    /// From now on, kill this leader of a process group and the group at the end, or none.
    pub(crate) fn watch(&mut self, pid: Option<u32>) {
        let line = pid.map_or_else(|| "\n".to_owned(), |pid| format!("{pid}\n"));
        let pipe = self.0.stdin.as_mut();
        let written = pipe.map(|pipe| pipe.write_all(line.as_bytes()));
        assert!(matches!(written, Some(Ok(()))), "the shell that cleans up is gone");
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Nothing is left to do if even waiting fails.
        let _ = self.0.wait();
    }
}
