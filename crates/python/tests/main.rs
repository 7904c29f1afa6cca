//! Runs the tests of the Python package with pytest: the module as cargo built it, a real Python and a real S3 server.
//!
//! `scripts/servers` makes the interpreter with the libraries.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use servers::{program, run_to_end, shared_minio};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn s754_s755_volumes_are_used_from_python() {
    pytest(&["test_volume.py", "-k", "not processes and not process and not state"]);
}

#[test]
fn s756_s757_processes_open_volumes() {
    pytest(&["test_volume.py", "-k", "processes or process or state"]);
}

#[test]
fn s758_the_suites_of_fsspec_pass() {
    pytest(&["test_fsspec_suites.py"]);
}

#[test]
fn s759_libraries_read_and_write_by_fsspec() {
    pytest(&["test_libraries.py"]);
}

#[test]
fn s769_the_caches_have_settings() {
    pytest(&["test_caches.py"]);
}

/// Runs tests of the Python package.
///
/// # Panics
/// If one fails, or the interpreter or the module is missing.
fn pytest(arguments: &[&str]) {
    let server = shared_minio();
    let site = tempfile::tempdir().expect("a temporary directory");
    install_in(site.path());
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let states = site.path().join("states");
    let mut python = Command::new(program("python/bin/python"));
    python
        .current_dir(crate_dir.join("tests"))
        .args(["-m", "pytest", "--rootdir", "..", "--config-file", "../pyproject.toml", "--tb=short"])
        .args(arguments)
        .env("PYTHONPATH", site.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_STATE_HOME", states)
        .env("TENON_TEST_ENDPOINT", server.endpoint())
        .env("TENON_TEST_KEY", server.access_key())
        .env("TENON_TEST_SECRET", server.secret_key())
        .env("TENON_TEST_PROGRAM", built("tenon"));
    let output = run_to_end(&mut python);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "pytest {arguments:?} failed:\n{said}\n{errors}");
    println!("{said}");
}

/// Makes a directory that Python imports the package from, as `pip install` would fill it.
fn install_in(site: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = site.join("tenon");
    fs::create_dir(&package).expect("a directory");
    for entry in fs::read_dir(source.join("python/tenon")).expect("the package") {
        let file = entry.expect("a file").path();
        if file.is_file() {
            fs::copy(&file, package.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    std::os::unix::fs::symlink(built("libtenon_python.so"), package.join("_native.abi3.so")).expect("a link");
    let project = fs::read_to_string(source.join("pyproject.toml")).expect("the project file");
    let (_, entry_points) = project.split_once("entry-points.").expect("entry points");
    let (group, rest) = entry_points.split_once("]\n").expect("a group");
    let names = rest.split("\n\n").next().unwrap_or_default().replace('"', "");
    let installed = site.join("tenon_fs-0.dist-info");
    fs::create_dir(&installed).expect("a directory");
    fs::write(installed.join("METADATA"), "Metadata-Version: 2.1\nName: tenon-fs\nVersion: 0\n")
        .expect("a file");
    let entry_points = format!("[{}]\n{names}\n", group.trim_matches('"'));
    fs::write(installed.join("entry_points.txt"), entry_points).expect("a file");
}

/// Returns a file that cargo built together with this test. It copies libraries out of `deps` only when they are built and not for tests, so
/// the newest counts.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let profile = test.parent().and_then(Path::parent).expect("the directory of the profile");
    let places = [profile.join(name), profile.join("deps").join(name)].into_iter();
    let newest = places.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    newest.unwrap_or_else(|| panic!("{name} is not in {}: build the workspace", profile.display())).1
}
