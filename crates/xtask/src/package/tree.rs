//! The files of a package, in a directory that is the root of the system that they are installed on.

use super::run_program;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Files that are copied, with their places in the package.
const FILES: [(&str, &str); 11] = [
    ("packaging/etc/tenon.toml", "etc/tenon/tenon.toml"),
    ("packaging/etc/logrotate", "etc/logrotate.d/tenon"),
    ("packaging/etc/mount-example.conf", "etc/tenon/mounts/example.conf.sample"),
    ("packaging/etc/serve-example.conf", "etc/tenon/serve/example.conf.sample"),
    ("packaging/systemd/tenon-mount@.service", "usr/lib/systemd/system/tenon-mount@.service"),
    ("packaging/systemd/tenon-serve@.service", "usr/lib/systemd/system/tenon-serve@.service"),
    ("packaging/prometheus/tenon.rules.yml", "usr/share/doc/tenon/prometheus/tenon.rules.yml"),
    ("packaging/prometheus/prometheus.yml", "usr/share/doc/tenon/prometheus/prometheus.yml"),
    ("packaging/grafana/tenon.json", "usr/share/doc/tenon/grafana/tenon.json"),
    ("LICENSE", "usr/share/doc/tenon/copyright"),
    ("CHANGELOG.md", "usr/share/doc/tenon/changelog"),
];

/// Files of the C library that are copied, with their places in its package.
const LIBRARY_FILES: [(&str, &str); 5] = [
    ("crates/capi/include/tenon.h", "usr/include/tenon.h"),
    ("crates/capi/examples/tenon-job.c", "usr/share/doc/libtenon/examples/tenon-job.c"),
    ("docs/c.md", "usr/share/doc/libtenon/c.md"),
    ("LICENSE", "usr/share/doc/libtenon/copyright"),
    ("CHANGELOG.md", "usr/share/doc/libtenon/changelog"),
];

/// Directory of libraries on systems with RPM.
pub(super) const RPM_LIBRARIES: &str = "usr/lib64";

/// Names of the C library: the file, and the one that linkers ask for.
const LIBRARY: &str = "libtenon.so.0";
const LIBRARY_LINK: &str = "libtenon.so";

/// Places of files that an administrator may change. An upgrade asks before it replaces them.
pub(super) const CONFIGURATION: [&str; 2] = ["/etc/tenon/tenon.toml", "/etc/logrotate.d/tenon"];

/// Completions by shell, with their places.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/tenon"),
    ("zsh", "usr/share/zsh/vendor-completions/_tenon"),
    ("fish", "usr/share/fish/vendor_completions.d/tenon.fish"),
];

/// Names under which mount(8) and umount(8) call the program.
const HELPERS: [&str; 2] = ["usr/sbin/mount.fuse.tenon", "usr/sbin/umount.fuse.tenon"];

/// The content of a package, as it was built.
#[derive(Debug)]
pub(super) enum Built {
    Program(PathBuf),
    Library(PathBuf),
}

/// The files of a package.
#[derive(Debug)]
pub(super) struct PackageTree {
    /// Name of the package.
    pub(super) name: &'static str,
    pub(super) root: PathBuf,
    /// The program or library, which determines what else must be installed.
    pub(super) binary: PathBuf,
    /// The debug symbols, outside of the tree.
    pub(super) symbols: PathBuf,
}

impl PackageTree {
    /// Writes all files below `stage`, without debug symbols in the program or library. `libraries` is the directory of libraries.
    pub(super) fn write(
        repository: &Path,
        built: &Built,
        version: &str,
        libraries: &str,
        stage: &Path,
    ) -> Result<Self> {
        let root = stage.join("root");
        let (name, binary) = match built {
            Built::Program(_) => ("tenon", root.join("usr/bin/tenon")),
            Built::Library(_) => ("libtenon", root.join(libraries).join(LIBRARY)),
        };
        let tree = Self { name, root, binary, symbols: stage.join(format!("{name}.debug")) };
        match built {
            Built::Program(program) => tree.write_program(repository, program)?,
            Built::Library(library) => tree.write_library(repository, library, version, libraries)?,
        }
        let changelog = tree.root.join("usr/share/doc").join(name).join("changelog");
        run_program("gzip", &["-9n".as_ref(), changelog.as_os_str()])?;
        Ok(tree)
    }

    fn write_program(&self, repository: &Path, built: &Path) -> Result<()> {
        self.copy(repository, &FILES)?;
        self.add("usr/bin/tenon", &read(built)?, 0o755)?;
        let program = &self.binary;
        self.split_symbols(program)?;
        for helper in HELPERS {
            let path = self.make_parent(helper)?;
            symlink("../bin/tenon", &path).with_context(|| format!("cannot write {helper}"))?;
        }
        for (shell, to) in COMPLETIONS {
            let script = run_program(&program.to_string_lossy(), &["completions".as_ref(), shell.as_ref()])?;
            self.add(to, &script, 0o644)?;
        }
        self.add_manual(program)
    }

    fn write_library(&self, repository: &Path, built: &Path, version: &str, libraries: &str) -> Result<()> {
        self.copy(repository, &LIBRARY_FILES)?;
        self.add(&format!("{libraries}/{LIBRARY}"), &read(built)?, 0o644)?;
        self.split_symbols(&self.binary)?;
        symlink(LIBRARY, self.root.join(libraries).join(LIBRARY_LINK)).context("cannot write a link")?;
        let text = String::from_utf8(read(&repository.join("packaging/c/tenon.pc"))?)?;
        let text =
            text.replace("@LIBRARIES@", libraries.trim_start_matches("usr/")).replace("@VERSION@", version);
        self.add(&format!("{libraries}/pkgconfig/tenon.pc"), text.as_bytes(), 0o644)
    }

    fn copy(&self, repository: &Path, files: &[(&str, &str)]) -> Result<()> {
        for (from, to) in files {
            self.add(to, &read(&repository.join(from))?, 0o644)?;
        }
        Ok(())
    }

    fn add(&self, place: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.make_parent(place)?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {place}"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
    }

    fn make_parent(&self, place: &str) -> Result<PathBuf> {
        let path = self.root.join(place);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(path)
    }

    /// Moves the debug symbols of the program or library to a file of their own. A library keeps the symbols by which it is linked.
    fn split_symbols(&self, program: &Path) -> Result<()> {
        let symbols = self.symbols.as_os_str();
        run_program("objcopy", &["--only-keep-debug".as_ref(), program.as_os_str(), symbols])?;
        run_program("strip", &["--strip-all".as_ref(), program.as_os_str()])?;
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(symbols);
        run_program("objcopy", &[&link, program.as_os_str()]).map(drop)
    }

    /// Writes the manual pages, compressed as Debian wants them.
    fn add_manual(&self, program: &Path) -> Result<()> {
        let dir = self.root.join("usr/share/man/man1");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        run_program(&program.to_string_lossy(), &["man".as_ref(), dir.as_os_str()])?;
        for page in fs::read_dir(&dir)? {
            run_program("gzip", &["-9n".as_ref(), page?.path().as_os_str()])?;
        }
        Ok(())
    }

    /// Returns the length of all files in KiB.
    pub(super) fn size_kib(&self) -> Result<u64> {
        let output = run_program("du", &["-sk".as_ref(), "--apparent-size".as_ref(), self.root.as_os_str()])?;
        let text = String::from_utf8_lossy(&output).into_owned();
        text.split_whitespace().next().and_then(|size| size.parse().ok()).context("du printed no size")
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the directory of libraries on this system, without the first `/`.
pub(super) fn debian_libraries() -> Result<String> {
    let output = run_program("gcc", &["-print-multiarch".as_ref()])?;
    Ok(format!("usr/lib/{}", String::from_utf8_lossy(&output).trim()))
}
