//! The Debian packages of the program and of the C library: made from this build, then installed, upgraded and removed by the real dpkg on a copy of this system (an overlay, in
//! a mount namespace of its own). Needs the rights of root, as mounts do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn repository() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// A file of this build. Cargo puts libraries beside the tools only when they are built and not for tests, so the newest counts.
fn built(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_BIN_EXE_xtask")).parent().unwrap();
    let places = [tools.join(name), tools.join("deps").join(name)].into_iter();
    let newest = places.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().unwrap(), path))).max();
    newest.unwrap_or_else(|| panic!("no {name} in {}: build the whole workspace", tools.display())).1
}

/// The program `tenon` of this build.
pub(crate) fn program() -> PathBuf {
    built("tenon")
}

/// Makes the packages of the program or of the C library. Returns the Debian package.
fn package(name: &str, version: &str, out: &Path) -> PathBuf {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let (flag, file) = match name {
        "tenon" => ("--binary", program()),
        _ => ("--library", built("libtenon.so")),
    };
    let made = xtask
        .args(["package", "--fast", "--version", version, flag])
        .arg(file)
        .arg("--out")
        .arg(out)
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let packages = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let is_made = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(&format!("{name}_{version}_")) && file.ends_with(".deb")
    };
    packages.into_iter().find(is_made).unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a shell script on a copy of this system, in which it can change everything without an effect outside. Returns what it
/// printed.
fn on_a_copy_of_this_system(dir: &Path, script: &str) -> String {
    for name in ["changes", "root"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::write(dir.join("script"), script).unwrap();
    let enter = "set -e; cd \"$0\"; mount -t tmpfs changes changes; mkdir changes/upper changes/work
        mount -t overlay -o lowerdir=/,upperdir=changes/upper,workdir=changes/work copy root
        mount -t proc proc root/proc; mount --rbind /dev root/dev; mount --bind . root/mnt
        exec chroot root /bin/sh -euc '. /mnt/script'";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c", enter])
        .arg(dir)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

#[test]
fn s707_s708_the_package_has_sound_files_and_is_installed_upgraded_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (package("tenon", "0.0.1", dir.path()), package("tenon", "0.0.2", dir.path()));
    check_files(dir.path(), &new);
    install_upgrade_and_remove(dir.path(), &old, &new);
}

/// A program is compiled and linked with the installed library, as documented, and runs.
#[test]
fn s785_the_package_of_the_library_is_installed_used_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let package = package("libtenon", "0.0.1", dir.path());
    let script = format!(
        "dpkg -i /mnt/{}
        cp /usr/share/doc/libtenon/examples/tenon-job.c /tmp/tenon-job.c
        cd /tmp
        gcc -Wall -Wextra -Werror tenon-job.c $(pkg-config --cflags --libs tenon) -o tenon-job
        pkg-config --modversion tenon | sed 's/^/version /'
        mkdir -p /tmp/volume
        XDG_STATE_HOME=/tmp/state ./tenon-job file:///tmp/volume results 20
        ls /tmp/volume/results/step-0000 | grep -c '^file-' | sed 's/^/files: /'
        dpkg --verify libtenon
        dpkg -P libtenon
        test ! -e /usr/include/tenon.h && ! ./tenon-job 2>&1 && echo removed",
        package.file_name().unwrap().to_str().unwrap()
    );
    let printed = on_a_copy_of_this_system(dir.path(), &script);
    for line in ["20 files without a batch", "version 0.0.1", "files: 20", "removed"] {
        assert!(printed.lines().any(|found| found.contains(line)), "{line}: {printed}");
    }
    assert!(!Path::new("/usr/include/tenon.h").exists(), "the test must not install anything on this system");
    use_unpacked_library(dir.path());
    let rpm = dir.path().join(format!("libtenon-0.0.1-1.{}.rpm", std::env::consts::ARCH));
    let listed = Command::new("rpm").args(["-qpl"]).arg(rpm).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed));
    for place in ["/usr/lib64/libtenon.so.0", "/usr/lib64/pkgconfig/tenon.pc", "/usr/include/tenon.h"] {
        assert!(text(&listed).lines().any(|line| line == place), "{}", text(&listed));
    }
}

/// Compiles and runs the example with the library of the tarball, which is unpacked in a directory of a user.
fn use_unpacked_library(dir: &Path) {
    let name = format!("libtenon-0.0.1-{}-linux", std::env::consts::ARCH);
    let script = format!(
        "tar --extract --file {name}.tar.xz
        prefix=$PWD/{name}/usr
        export PKG_CONFIG_PATH=$(dirname $(find $prefix -name tenon.pc))
        flags=$(pkg-config --define-variable=prefix=$prefix --cflags --libs tenon)
        gcc -Wall -Wextra -Werror $prefix/share/doc/libtenon/examples/tenon-job.c $flags -o unpacked-job
        export LD_LIBRARY_PATH=$(dirname $(find $prefix -name libtenon.so.0))
        mkdir unpacked-volume
        XDG_STATE_HOME=$PWD/state ./unpacked-job file://$PWD/unpacked-volume results 20
        ls unpacked-volume/results/step-0000 | grep -c '^file-'
        ldd unpacked-job | grep libtenon"
    );
    let output = Command::new("/bin/sh").args(["-euc", &script]).current_dir(dir).output().unwrap();
    let printed = text(&output);
    assert!(output.status.success() && printed.lines().any(|line| line == "20"), "{printed}");
    let loaded = printed.lines().find(|line| line.contains("libtenon.so.0 => ")).unwrap();
    assert!(loaded.contains(&name), "the program uses the unpacked library: {loaded}");
}

fn install_upgrade_and_remove(dir: &Path, old: &Path, new: &Path) {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let script = format!(
        "dpkg -i /mnt/{old}
        tenon version
        mkdir -p /tmp/a /tmp/b
        tenon format /tmp/a/volume
        tenon mount /tmp/a/volume /tmp/b --state-dir /var/lib/tenon/a
        echo kept > /tmp/b/file
        tenon umount /tmp/b
        sed -i 's/^\\[mount\\]$/[mount]\\nmemory-limit = \"64MiB\"/' /etc/tenon/tenon.toml
        dpkg -i --force-confold /mnt/{new}
        dpkg-query --show --showformat='upgraded to ${{Version}}\\n' tenon
        grep memory-limit.*64MiB /etc/tenon/tenon.toml
        mount -t fuse.tenon /tmp/a/volume /tmp/b -o state-dir=/var/lib/tenon/a
        cat /tmp/b/file
        tenon status /tmp/b | grep memory
        umount /tmp/b
        zcat /usr/share/man/man1/tenon-mount.1.gz | grep -c 'metadata.*ttl'
        bash -n /usr/share/bash-completion/completions/tenon
        dpkg --verify tenon | grep -v conffile || true
        dpkg -r tenon
        test ! -e /usr/bin/tenon && test -e /etc/tenon/tenon.toml && echo removed
        dpkg -P tenon
        test ! -e /etc/tenon/tenon.toml && test -d /var/lib/tenon/a && echo purged",
        old = name(old),
        new = name(new),
    );
    let printed = on_a_copy_of_this_system(dir, &script);
    for line in ["upgraded to 0.0.2", "kept", "of 64.00 MiB", "removed", "purged"] {
        assert!(printed.lines().any(|found| found.contains(line)), "{line}: {printed}");
    }
    assert!(!Path::new("/usr/bin/tenon").exists(), "the test must not install anything on this system");
}

/// Checks that the RPM package has the files of the Debian package, with the same bytes. Needs Debian's
/// package `rpm`.
fn check_rpm(dir: &Path, root: &Path) {
    let rpm = dir.join(format!("tenon-0.0.2-1.{}.rpm", std::env::consts::ARCH));
    let query = |flags: &[&str]| {
        let output = Command::new("rpm").args(flags).arg(&rpm).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = query(&["-qpl"]);
    // SHA-256 of each file; directories and links have none.
    let packed = query(&["-qp", "--queryformat", "[%{FILEDIGESTS}  .%{FILENAMES}\\n]"]);
    let mut packed: Vec<&str> = packed.lines().filter(|line| !line.starts_with(' ')).collect();
    let mut find = Command::new("find");
    let sums =
        find.args([".", "-type", "f", "-exec", "sha256sum", "{}", "+"]).current_dir(root).output().unwrap();
    let sums = String::from_utf8(sums.stdout).unwrap();
    let mut expected: Vec<&str> = sums.lines().collect();
    packed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(packed, expected);
    for place in ["/usr/bin/tenon", "/usr/sbin/mount.fuse.tenon", "/etc/tenon/tenon.toml"] {
        assert!(listed.lines().any(|line| line == place), "{listed}");
    }
    assert_eq!(query(&["-qpc"]), "/etc/logrotate.d/tenon\n/etc/tenon/tenon.toml\n");
    let needed = query(&["-qp", "--requires"]);
    assert!(needed.contains("libc.so.6(GLIBC_2."), "{needed}");
    assert!(query(&["-qp", "--scripts"]).contains("systemctl stop 'tenon-mount@*.service'"));
}

/// Checks that package and tarball have the same files, and that systemd accepts the units.
fn check_files(dir: &Path, deb: &Path) {
    let root = dir.join("extracted");
    let run = |command: &mut Command| {
        let output = command.env("LC_ALL", "C").output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    run(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(&root));
    let tarball = format!("tenon-0.0.2-{}-linux", std::env::consts::ARCH);
    run(Command::new("tar")
        .arg("--extract")
        .arg("--directory")
        .arg(dir)
        .arg("--file")
        .arg(dir.join(format!("{tarball}.tar.xz"))));
    run(Command::new("diff").arg("--recursive").arg(&root).arg(dir.join(&tarball)));
    check_rpm(dir, &root);
    for place in [
        "usr/bin/tenon",
        "usr/sbin/mount.fuse.tenon",
        "usr/share/man/man1/tenon.1.gz",
        "usr/share/man/man1/tenon-object-put.1.gz",
        "usr/share/zsh/vendor-completions/_tenon",
        "usr/share/fish/vendor_completions.d/tenon.fish",
        "etc/logrotate.d/tenon",
    ] {
        assert!(root.join(place).exists(), "{place} is missing");
    }
    let control = run(Command::new("dpkg-deb").arg("--field").arg(deb));
    assert!(control.contains("Depends: libc6 (>= 2.") && control.contains("Recommends: fuse3"), "{control}");
    // The units name the installed program, which is not there in this test.
    let units = dir.join("units");
    fs::create_dir(&units).unwrap();
    for unit in ["tenon-mount@x.service", "tenon-serve@x.service"] {
        let packaged = root.join("usr/lib/systemd/system").join(unit.replace('x', ""));
        let program = root.join("usr/bin/tenon").display().to_string();
        let unit_text = fs::read_to_string(packaged).unwrap().replace("/usr/bin/tenon", &program);
        fs::write(units.join(unit), unit_text).unwrap();
        run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(units.join(unit)));
    }
    let security = "security --offline=true --no-pager --threshold=40";
    run(Command::new("systemd-analyze").args(security.split(' ')).arg(units.join("tenon-serve@x.service")));
}
