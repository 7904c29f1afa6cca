//! The kernel drops cached data that the file system finds to be stale.

use crate::fixture::{Mount, TTL, eventually};
use std::fs;
use std::time::Duration;

#[test]
fn s37_a_foreign_change_reaches_programs_before_the_kernel_would_ask() {
    let mount = Mount::new();
    mount.put("file", &b"old"[..]);
    let path = mount.path("file");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    mount.put("file", &b"newer"[..]);
    // The kernel trusts its cache for an hour of real time. For the file system, an hour of the test clock passes now.
    assert_eq!(fs::metadata(&path).unwrap().len(), 3);
    mount.clock.advance(TTL + Duration::from_secs(1));
    mount.runtime.block_on(mount.fs.lookup(vfs::Ino(1), b"file")).unwrap();
    mount.fs.forget(mount.runtime.block_on(mount.fs.admin().locate(b"file")).unwrap().ino, 1);
    eventually("the new length shows", || fs::metadata(&path).unwrap().len() == 5);
    assert_eq!(fs::read(&path).unwrap(), b"newer");
}
