//! `cargo xtask package`: a Debian package, an RPM package and a tarball of the program with its manual, completions, units and examples, and the
//! same of the C library with its header.
//!
//! All packages of one content have one tree of files ([`tree`]). The debug symbols are in files of their own.

mod archives;
mod tree;

use crate::package::tree::{Built, PackageTree};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str =
    "usage: cargo xtask package [--out DIR] [--binary FILE] [--library FILE] [--version VERSION] [--fast]";

/// Settings of the command.
#[derive(Debug)]
struct Settings {
    out: PathBuf,
    /// A program that is built already.
    binary: Option<PathBuf>,
    /// A C library that is built already. Both are built if neither is given; otherwise only what is given is packed.
    library: Option<PathBuf>,
    version: String,
    license: String,
    /// Compresses less, for tests.
    is_fast: bool,
}

/// Builds the packages.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let settings = parse(root, arguments)?;
    let (binary, library) = match (&settings.binary, &settings.library) {
        (None, None) => build(root)?,
        (binary, library) => (binary.clone(), library.clone()),
    };
    std::fs::create_dir_all(&settings.out)
        .with_context(|| format!("cannot create {}", settings.out.display()))?;
    let built = [binary.map(Built::Program), library.map(Built::Library)];
    for built in built.into_iter().flatten() {
        for made in pack(root, &built, &settings)? {
            let len = std::fs::metadata(&made).map_or(0, |found| found.len());
            println!("{} ({:.1} MiB)", made.display(), len as f64 / f64::from(1 << 20));
        }
    }
    Ok(())
}

/// Makes the packages of what was built. Returns their paths.
fn pack(root: &Path, built: &Built, settings: &Settings) -> Result<Vec<PathBuf>> {
    let stage = tempfile::tempdir().context("cannot create a temporary directory")?;
    let tree = PackageTree::write(root, built, &settings.version, &tree::debian_libraries()?, stage.path())?;
    let stage = tempfile::tempdir().context("cannot create a temporary directory")?;
    let rpm_tree = match built {
        Built::Program(_) => None,
        // Other systems have libraries in another directory.
        Built::Library(_) => {
            Some(PackageTree::write(root, built, &settings.version, tree::RPM_LIBRARIES, stage.path())?)
        }
    };
    let made = [
        Some(archives::debian(root, &tree, settings)?),
        archives::rpm(root, rpm_tree.as_ref().unwrap_or(&tree), settings)?,
        Some(archives::tarball(&tree, settings)?),
        Some(archives::symbols(&tree, settings)?),
    ];
    Ok(made.into_iter().flatten().collect())
}

fn parse(root: &Path, arguments: &[String]) -> Result<Settings> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let value = |name: &str| package.and_then(|package| Some(package.get(name)?.as_str()?.to_owned()));
    let mut settings = Settings {
        out: root.join("target/packages"),
        binary: None,
        library: None,
        version: value("version").context("Cargo.toml has no version")?,
        license: value("license").context("Cargo.toml has no license")?,
        is_fast: false,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--fast" {
            settings.is_fast = true;
            continue;
        }
        let value = words.next().with_context(|| USAGE.to_owned())?;
        match word.as_str() {
            "--out" => settings.out = PathBuf::from(value),
            "--binary" => settings.binary = Some(PathBuf::from(value)),
            "--library" => settings.library = Some(PathBuf::from(value)),
            "--version" => value.clone_into(&mut settings.version),
            _ => bail!(USAGE),
        }
    }
    Ok(settings)
}

/// Builds the program and the C library as they are released. Returns their paths.
fn build(root: &Path) -> Result<(Option<PathBuf>, Option<PathBuf>)> {
    let mut cargo = Command::new("cargo");
    // One command with the features of the whole workspace, so that nothing is compiled twice.
    let built = cargo
        .args(["build", "--release", "--locked", "--workspace", "--exclude", "python", "--lib"])
        .args(["--bin", "tenon", "--message-format=json"]);
    let output = built
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo could not build the program");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let files: Vec<PathBuf> = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .flat_map(|message| message.get("filenames").and_then(|files| files.as_array().cloned()))
        .flatten()
        .filter_map(|file| Some(PathBuf::from(file.as_str()?)))
        .collect();
    let file = |name: &str| {
        let found = files.iter().find(|path| path.file_name().is_some_and(|found| found == name));
        found.cloned().with_context(|| format!("cargo did not say where {name} is"))
    };
    Ok((Some(file("tenon")?), Some(file("libtenon.so")?)))
}

/// Runs a program, which must succeed. Returns its standard output.
fn run_program(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<Vec<u8>> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
