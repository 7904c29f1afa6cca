//! Names, through the kernel.

use crate::fixture::Mount;
use fuse::Operation;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

fn names(mount: &Mount, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(mount.path(dir)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_large_directory_lists_every_name_once() {
    let mount = Mount::new();
    fs::create_dir(mount.path("d")).unwrap();
    let made: BTreeSet<String> = (0..3000).map(|number| format!("file-{number:05}")).collect();
    for name in &made {
        fs::write(mount.path("d").join(name), b"x").unwrap();
    }
    let listed = names(&mount, "d");
    assert_eq!(listed.len(), made.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), made);
    let sizes = fs::read_dir(mount.path("d")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(sizes.sum::<u64>(), 3000);
}

#[test]
fn listing_with_attributes_saves_lookups() {
    let mount = Mount::new();
    for number in 0..100 {
        mount.put(["a", "b", "c"][number % 3], &b""[..]);
    }
    let entries: Vec<_> = fs::read_dir(mount.root()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len(), 3);
    for entry in entries {
        assert!(entry.metadata().unwrap().is_file());
    }
    assert!(mount.count(Operation::ReadDirPlus) > 0);
    assert_eq!(mount.count(Operation::Lookup), 0);
}

#[test]
fn a_listing_survives_the_removal_of_listed_entries() {
    let mount = Mount::new();
    for number in 0..1500 {
        fs::write(mount.path(&format!("file-{number:05}")), b"").unwrap();
    }
    let mut seen = 0;
    for entry in fs::read_dir(mount.root()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 1500);
    assert_eq!(names(&mount, ""), [] as [&str; 0]);
}

#[test]
fn names_are_made_moved_and_removed() {
    let mount = Mount::new();
    fs::create_dir_all(mount.path("a/b")).unwrap();
    fs::write(mount.path("a/b/file"), b"hello").unwrap();
    symlink("b/file", mount.path("a/link")).unwrap();
    assert_eq!(fs::read(mount.path("a/link")).unwrap(), b"hello");
    fs::rename(mount.path("a"), mount.path("z")).unwrap();
    assert_eq!(fs::read(mount.path("z/link")).unwrap(), b"hello");
    assert_eq!(fs::metadata(mount.path("a")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(fs::remove_dir(mount.path("z")).is_err());
    fs::remove_file(mount.path("z/link")).unwrap();
    fs::remove_dir_all(mount.path("z")).unwrap();
    assert_eq!(names(&mount, ""), [] as [&str; 0]);
}

#[test]
fn a_directory_shows_itself_and_its_parent() {
    let mount = Mount::new();
    fs::create_dir(mount.path("d")).unwrap();
    let here = fs::metadata(mount.path("d")).unwrap().ino();
    assert_eq!(fs::metadata(mount.path("d/.")).unwrap().ino(), here);
    assert_eq!(fs::metadata(mount.path("d/..")).unwrap().ino(), fs::metadata(mount.root()).unwrap().ino());
}

#[test]
fn s89_special_files_attributes_and_links_work_and_unsupported_calls_have_the_right_error() {
    let mount = Mount::new();
    fs::write(mount.path("file"), b"").unwrap();
    rustix::fs::mknodat(CWD, mount.path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(fs::metadata(mount.path("pipe")).unwrap().file_type().is_fifo());
    let set = rustix::fs::setxattr(mount.path("file"), "user.color", b"blue", XattrFlags::empty());
    assert_eq!(set, Ok(()));
    assert_eq!(rustix::fs::getxattr(mount.path("file"), "user.color", &mut [0; 8]), Ok(4));
    let odd = rustix::fs::setxattr(mount.path("file"), "system.color", b"blue", XattrFlags::empty());
    assert_eq!(odd, Err(Errno::OPNOTSUPP));
    fs::hard_link(mount.path("file"), mount.path("other")).unwrap();
    assert_eq!(fs::metadata(mount.path("file")).unwrap().nlink(), 2);
    let linked = fs::hard_link(mount.root(), mount.path("another")).unwrap_err();
    assert_eq!(linked.raw_os_error(), Some(libc::EPERM));
    let found = fs::metadata(mount.path("nothing")).unwrap_err();
    assert_eq!(found.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn s102_the_file_system_has_a_size_and_names_of_255_bytes() {
    let mount = Mount::new();
    let described = rustix::fs::statvfs(mount.root()).unwrap();
    assert_eq!(described.f_namemax, 255);
    assert!(described.f_bavail > 0 && described.f_blocks >= described.f_bavail);
}
