//! Checks of this machine: kernel, FUSE, limits, memory and disk.

use super::finding::Finding;
use crate::command::units::human_bytes;
use crate::process::{VERSION, environment};
use rustix::process::{Resource, geteuid, getrlimit};
use std::fs::{self, File};
use std::path::Path;

/// Oldest kernel with all the requests that Tenon uses: copies inside the file system that do not cross mounts.
const KERNEL_MIN: (u32, u32) = (5, 4);
/// Kernel from which direct reads and parallel directory operations do not serialize requests.
const KERNEL_GOOD: (u32, u32) = (6, 1);
/// Descriptors below which many open files and clients fail.
const DESCRIPTORS_GOOD: u64 = 65_536;
/// Memory below which the default `--memory-limit` of 1 GiB is too large.
const MEMORY_GOOD: u64 = 2 << 30;
/// Free space below which random writes may fail, as edited files are on the local disk.
const SPACE_GOOD: u64 = 1 << 30;

/// Runs all checks.
pub(super) fn check() -> Vec<Finding> {
    let mut findings = vec![Finding::ok("version", VERSION), kernel(), fuse_device()];
    findings.extend(fuse_helper());
    findings.extend([descriptors(), memory(), state_space(), clock_source()]);
    findings
}

/// Checks the version of the kernel.
fn kernel() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let numbers = kernel_numbers(&release);
    let check = "kernel";
    match numbers {
        Some(found) if found < KERNEL_MIN => {
            Finding::failed(check, release, format!("use Linux {}.{} or later", KERNEL_MIN.0, KERNEL_MIN.1))
        }
        Some(found) if found < KERNEL_GOOD => Finding::warning(
            check,
            release,
            format!("Linux {}.{} and later are faster", KERNEL_GOOD.0, KERNEL_GOOD.1),
        ),
        _ => Finding::ok(check, release),
    }
}

fn kernel_numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn fuse_device() -> Finding {
    let check = "/dev/fuse";
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::ok(check, "can be opened"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Finding::failed(
            check,
            "does not exist",
            "load the module (`modprobe fuse`), or give the container `--device /dev/fuse --cap-add SYS_ADMIN`",
        ),
        Err(error) => {
            Finding::failed(check, error.to_string(), "let this user read and write /dev/fuse (mode 666)")
        }
    }
}

/// Checks what users other than root need.
fn fuse_helper() -> Vec<Finding> {
    if geteuid().is_root() {
        return vec![Finding::ok("rights", "root mounts without helpers")];
    }
    let helper = match environment::program("fusermount3") {
        Some(path) => Finding::ok("fusermount3", path.display().to_string()),
        None => {
            Finding::failed("fusermount3", "is not installed", "install the package fuse3, or mount as root")
        }
    };
    let config = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let allows = config.lines().any(|line| line.trim() == "user_allow_other");
    let allow_other = match allows {
        true => Finding::ok("allow_other", "/etc/fuse.conf permits it"),
        false => Finding::warning(
            "allow_other",
            "/etc/fuse.conf does not permit it",
            "to use --allow-other, add the line `user_allow_other` to /etc/fuse.conf",
        ),
    };
    vec![helper, allow_other]
}

/// Checks how many files a process may have open.
fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let check = "file descriptors";
    match limit {
        limit if limit < DESCRIPTORS_GOOD => Finding::warning(
            check,
            format!("at most {limit}"),
            format!("raise the hard limit to {DESCRIPTORS_GOOD} (`ulimit -Hn`, LimitNOFILE= of systemd)"),
        ),
        u64::MAX => Finding::ok(check, "no limit"),
        limit => Finding::ok(check, format!("at most {limit}")),
    }
}

fn memory() -> Finding {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = info.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    let limit = group.trim().parse::<u64>().map_or(bytes, |limit| limit.min(bytes));
    let check = "memory";
    match limit < MEMORY_GOOD {
        true => Finding::warning(
            check,
            human_bytes(limit),
            "the default --memory-limit is 1 GiB; set a lower one when you mount",
        ),
        false => Finding::ok(check, human_bytes(limit)),
    }
}

/// Checks the free space for state directories.
fn state_space() -> Finding {
    let states = environment::states_dir();
    let existing = states.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let check = "disk of the state";
    match rustix::fs::statvfs(existing) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let shown = format!("{} free at {}", human_bytes(free), states.display());
            match free < SPACE_GOOD {
                true => Finding::warning(
                    check,
                    shown,
                    "files being edited are there; free some space, or choose another disk with --state-dir",
                ),
                false => Finding::ok(check, shown),
            }
        }
        Err(error) => Finding::warning(check, error.to_string(), format!("check {}", existing.display())),
    }
}

/// Checks whether reading the time is cheap.
fn clock_source() -> Finding {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let check = "clock source";
    match source.as_str() {
        "acpi_pm" | "hpet" | "jiffies" => Finding::warning(
            check,
            source,
            "reading the time costs a system call; use tsc or kvm-clock if you can",
        ),
        "" => Finding::ok(check, "not known"),
        _ => Finding::ok(check, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert_eq!(kernel_numbers("6.18.5-amd64"), Some((6, 18)));
        assert_eq!(kernel_numbers("5.4-rc1"), Some((5, 4)));
        assert_eq!(kernel_numbers("unknown"), None);
        assert!((6, 2) > KERNEL_GOOD && (4, 19) < KERNEL_MIN);
    }
}
