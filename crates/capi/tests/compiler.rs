//! C programs, compiled by gcc against the library that cargo built together with these tests.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Flags with which the header and the programs must compile without a warning.
const WARNINGS: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Returns a path in this crate.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns a file that cargo built together with this test.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let places = [profile.join(name), profile.join("deps").join(name)];
    // Cargo copies a library from `deps` only if it is asked to build it, so that the copy may be of an earlier build.
    let age = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    let found = places.into_iter().filter(|path| path.exists()).max_by_key(age);
    found.unwrap_or_else(|| panic!("{name} is not in {}: build the workspace", profile.display()))
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Program {
    /// Has the program, and the library under the names that linkers want.
    dir: TempDir,
}

impl Program {
    /// Compiles a program.
    ///
    /// # Panics
    /// If the compiler is missing, or warns.
    pub(crate) fn compile(path: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libtenon.so", "libtenon.so.0"] {
            symlink(built("libtenon.so"), dir.path().join(name)).unwrap();
        }
        let compiled = Command::new("gcc")
            .args(WARNINGS)
            .args(["-D_POSIX_C_SOURCE=200809L", "-D_XOPEN_SOURCE=700", "-g", "-pthread", "-I"])
            .arg(source("include"))
            .arg(source(path))
            .arg("-L")
            .arg(dir.path())
            .args(["-ltenon", "-o"])
            .arg(dir.path().join("program"))
            .output()
            .expect("gcc runs");
        assert!(compiled.status.success(), "{path}: {}", String::from_utf8_lossy(&compiled.stderr));
        Self { dir }
    }

    /// Returns a command that runs the program with the library of this build.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.dir.path().join("program"));
        command.env("LD_LIBRARY_PATH", self.dir.path());
        command
    }
}
