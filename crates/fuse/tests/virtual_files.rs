//! Files that a mount shows beside those of its volume, through the kernel.

use crate::fixture::{Mount, options};
use bytes::Bytes;
use fuse::{MountOptions, VirtualEntry, VirtualFiles};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::Timestamp;

/// Number of entries of the directory `many`: more than one reply holds.
const MANY: usize = 3000;

/// A directory `many` and a file `reads`, which counts how often it is made.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

fn entry(is_directory: bool) -> VirtualEntry {
    let mode = if is_directory { 0o555 } else { 0o444 };
    VirtualEntry { is_directory, mode, modified: Timestamp(1_000_000_000) }
}

impl VirtualFiles for Counting {
    fn find(&self, path: &[String]) -> Option<VirtualEntry> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path[..] {
            [] | ["many"] => Some(entry(true)),
            ["reads"] => Some(entry(false)),
            ["many", name] => {
                name.parse::<usize>().ok().filter(|number| *number < MANY).map(|_| entry(false))
            }
            _ => None,
        }
    }

    fn list(&self, path: &[String]) -> Vec<(String, VirtualEntry)> {
        match path {
            [] => vec![("many".to_owned(), entry(true)), ("reads".to_owned(), entry(false))],
            _ => (0..MANY).map(|number| (number.to_string(), entry(false))).collect(),
        }
    }

    fn read(&self, path: &[String]) -> Option<Bytes> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        let line = format!("{} {count}\n", path.join("/"));
        Some(Bytes::from(line.repeat(10_000)))
    }
}

fn mount(is_shared: bool) -> Mount {
    let virtual_files: Arc<dyn VirtualFiles> = Arc::new(Counting::default());
    Mount::with(&MountOptions { virtual_files: Some(virtual_files), is_shared, ..options() })
}

#[test]
fn virtual_files_are_found_listed_and_read() {
    for mount in [mount(false), mount(true)] {
        fs::write(mount.path("file"), b"of the volume").unwrap();
        let names = |path: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(mount.path(path)).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(names("."), ["file".to_owned()].into());
        assert_eq!(names(".tenon"), ["many".to_owned(), "reads".to_owned()].into());
        assert_eq!(names(".tenon/many").len(), MANY);
        // The kernel asks again for files whose attributes came with the listing.
        for entry in fs::read_dir(mount.path(".tenon/many")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().mtime(), 1);
        }
        // Longer than one reply: all pieces are of one moment.
        let text = fs::read_to_string(mount.path(".tenon/reads")).unwrap();
        assert_eq!(text.lines().collect::<BTreeSet<_>>().len(), 1, "{}", text.len());
        assert_eq!(text.lines().count(), 10_000);
        assert_ne!(fs::read_to_string(mount.path(".tenon/reads")).unwrap(), text);
        assert!(fs::metadata(mount.path(".tenon/none")).is_err());
        assert!(fs::metadata(mount.path("file/none")).is_err());
        assert_eq!(fs::read(mount.path("file")).unwrap(), b"of the volume");
    }
}

#[test]
fn virtual_files_cannot_be_changed() {
    let mount = mount(false);
    let path = mount.path(".tenon/reads");
    let write = fs::OpenOptions::new().write(true).open(&path);
    let refused = |outcome: std::io::Result<()>| {
        let errno = outcome.unwrap_err().raw_os_error().unwrap();
        assert!(matches!(errno, libc::EPERM | libc::EACCES), "{errno}");
    };
    refused(write.map(drop));
    refused(fs::remove_file(&path));
    refused(fs::rename(&path, mount.path("taken")));
    refused(fs::create_dir(mount.path(".tenon/many/new")));
    let name = rustix::fs::setxattr(&path, "user.name", b"x", rustix::fs::XattrFlags::empty());
    assert!(matches!(name, Err(Errno::PERM | Errno::ACCESS)), "{name:?}");
    assert_eq!(rustix::fs::listxattr(&path, &mut [0; 10][..]), Ok(0));
    // A mount without virtual files has no `.tenon`.
    assert!(fs::metadata(Mount::new().path(".tenon")).is_err());
}
