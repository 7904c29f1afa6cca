//! The archives of a package: Debian's, RPM's, a tarball, and the debug symbols.

use super::tree::{CONFIGURATION, PackageTree};
use super::{Settings, run_program};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Packages of the libraries that the program uses, apart from the C library.
const LIBRARIES: [(&str, &str); 2] = [("libstdc++.so", "libstdc++6"), ("libgcc_s.so", "libgcc-s1")];

/// Directories that only these packages use.
const OWN_DIRECTORIES: [&str; 6] = [
    "/etc/tenon",
    "/etc/tenon/mounts",
    "/etc/tenon/serve",
    "/usr/share/doc/tenon",
    "/usr/share/doc/libtenon",
    "/usr/share/doc/libtenon/examples",
];

/// Files of a package's folder in `packaging/debian` that dpkg runs or reads.
const CONTROL_FILES: [(&str, u32); 5] =
    [("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755), ("triggers", 0o644), ("shlibs", 0o644)];

/// Makes the Debian package. Returns its path.
pub(super) fn debian(repository: &Path, tree: &PackageTree, settings: &Settings) -> Result<PathBuf> {
    let Settings { version, out, .. } = settings;
    let architecture = architecture()?;
    let control = tree.root.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let sources = repository.join("packaging/debian").join(tree.name);
    let text = fs::read_to_string(sources.join("control")).context("cannot read control")?;
    let text = text
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@SIZE_KIB@", &tree.size_kib()?.to_string())
        .replace("@DEPENDS@", &dependencies(&tree.binary)?);
    fs::write(control.join("control"), text)?;
    let is_packed = |place: &&str| tree.root.join(place.trim_start_matches('/')).exists();
    let configuration: String =
        CONFIGURATION.iter().filter(|place| is_packed(place)).map(|place| format!("{place}\n")).collect();
    if !configuration.is_empty() {
        fs::write(control.join("conffiles"), configuration)?;
    }
    for (file, mode) in CONTROL_FILES.into_iter().filter(|(file, _)| sources.join(file).exists()) {
        let to = control.join(file);
        fs::copy(sources.join(file), &to).with_context(|| file.to_owned())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
    }
    let level = format!("-z{}", level(settings));
    let package = out.join(format!("{}_{version}_{architecture}.deb", tree.name));
    let arguments = [
        "--root-owner-group".as_ref(),
        "-Zxz".as_ref(),
        level.as_ref(),
        "--build".as_ref(),
        tree.root.as_os_str(),
        package.as_os_str(),
    ];
    run_program("dpkg-deb", &arguments)?;
    fs::remove_dir_all(&control)?;
    Ok(package)
}

/// Makes the RPM package of the same files. Returns its path; `None` if there is no rpmbuild.
pub(super) fn rpm(repository: &Path, tree: &PackageTree, settings: &Settings) -> Result<Option<PathBuf>> {
    if run_program("rpmbuild", &["--version".as_ref()]).is_err() {
        eprintln!("no RPM package is made, because rpmbuild is missing (Debian: apt install rpm)");
        return Ok(None);
    }
    let stage = tree.symbols.with_file_name("rpm");
    fs::create_dir_all(&stage)?;
    let files = stage.join("files");
    fs::write(&files, rpm_files(tree)?)?;
    // In a version of RPM, a hyphen would begin the release; a tilde sorts before the end.
    let version = settings.version.replace('-', "~");
    let source = repository.join("packaging/rpm").join(format!("{}.spec", tree.name));
    let spec = fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let spec = spec
        .replace("@VERSION@", &version)
        .replace("@LICENSE@", &settings.license)
        .replace("@LEVEL@", &level(settings).to_string())
        .replace("@ROOT@", &tree.root.to_string_lossy())
        .replace("@FILES@", &files.to_string_lossy());
    let spec_file = stage.join("tenon.spec");
    fs::write(&spec_file, spec)?;
    let define = |name: &str, value: &Path| format!("{name} {}", value.display());
    let (top, out) = (define("_topdir", &stage), define("_rpmdir", &stage.join("out")));
    let define_flag = "--define".as_ref();
    let arguments =
        ["-bb".as_ref(), define_flag, top.as_ref(), define_flag, out.as_ref(), spec_file.as_os_str()];
    run_program("rpmbuild", &arguments)?;
    let name = format!("{}-{version}-1.{}.rpm", tree.name, std::env::consts::ARCH);
    let made = stage.join("out").join(std::env::consts::ARCH).join(&name);
    let package = settings.out.join(name);
    fs::copy(&made, &package).with_context(|| format!("cannot copy {}", made.display()))?;
    Ok(Some(package))
}

/// Returns the list of the package's files, and of the directories that are its own.
fn rpm_files(tree: &PackageTree) -> Result<String> {
    let is_packed = |dir: &&str| tree.root.join(dir.trim_start_matches('/')).exists();
    let arguments: [&std::ffi::OsStr; 6] = [
        tree.root.as_os_str(),
        "!".as_ref(),
        "-type".as_ref(),
        "d".as_ref(),
        "-printf".as_ref(),
        "/%P\n".as_ref(),
    ];
    let output = run_program("find", &arguments)?;
    let mut lines: Vec<String> =
        OWN_DIRECTORIES.iter().filter(|dir| is_packed(dir)).map(|dir| format!("%dir {dir}")).collect();
    for place in String::from_utf8_lossy(&output).lines() {
        lines.push(match CONFIGURATION.contains(&place) {
            true => format!("%config(noreplace) {place}"),
            false => place.to_owned(),
        });
    }
    lines.sort();
    Ok(format!("%defattr(-,root,root)\n{}\n", lines.join("\n")))
}

/// Makes a tarball of the tree, with one directory at its root. Returns its path.
pub(super) fn tarball(tree: &PackageTree, settings: &Settings) -> Result<PathBuf> {
    let Settings { version, out, .. } = settings;
    let name = format!("{}-{version}-{}-linux", tree.name, std::env::consts::ARCH);
    let archive = out.join(format!("{name}.tar.xz"));
    let compressor = format!("--use-compress-program=xz -T0 -{}", level(settings));
    let rename = format!("--transform=s,^\\.,{name},S");
    let arguments = [
        "--create".as_ref(),
        compressor.as_ref(),
        "--sort=name".as_ref(),
        "--owner=root:0".as_ref(),
        "--group=root:0".as_ref(),
        "--directory".as_ref(),
        tree.root.as_os_str(),
        rename.as_ref(),
        "--file".as_ref(),
        archive.as_os_str(),
        ".".as_ref(),
    ];
    run_program("tar", &arguments)?;
    Ok(archive)
}

/// Copies the debug symbols beside the packages. Returns their path.
pub(super) fn symbols(tree: &PackageTree, settings: &Settings) -> Result<PathBuf> {
    let Settings { version, out, .. } = settings;
    let to = out.join(format!("{}-{version}-{}.debug", tree.name, std::env::consts::ARCH));
    fs::copy(&tree.symbols, &to).context("cannot copy the debug symbols")?;
    Ok(to)
}

/// Returns the level of compression.
fn level(settings: &Settings) -> u8 {
    if settings.is_fast { 0 } else { 9 }
}

fn architecture() -> Result<String> {
    let output = run_program("dpkg", &["--print-architecture".as_ref()])?;
    Ok(String::from_utf8_lossy(&output).trim().to_owned())
}

/// Returns the packages that a program or library needs: the C library from the newest version of its symbols that it uses, and its other
/// libraries.
fn dependencies(program: &Path) -> Result<String> {
    let output = run_program("objdump", &["-p".as_ref(), program.as_os_str()])?;
    let text = String::from_utf8_lossy(&output).into_owned();
    let versions = text.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let numbers = versions.filter_map(|version| {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    let (major, minor) = numbers.max().context("the program uses no C library")?;
    let libraries =
        LIBRARIES.iter().filter(|(file, _)| text.contains(file)).map(|(_, package)| (*package).to_owned());
    let all: Vec<String> = [format!("libc6 (>= {major}.{minor})")].into_iter().chain(libraries).collect();
    Ok(all.join(", "))
}
