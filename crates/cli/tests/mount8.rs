//! Mounts by mount(8) and fstab.

use crate::fixture::{Home, capture, is_mounted, tenon};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn the_mount_helper_mounts() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let helper = home.path("mount.fuse.tenon");
    symlink(tenon(), &helper).unwrap();
    let options = "rw,nofail,_netdev,x-systemd.automount,metadata_ttl=1s,memory_limit=128M";
    let mounted = capture(home.command(&helper).args(["volume", "mnt", "-n", "-o", options]));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    assert_eq!(home.status()["memory_limit_bytes"], 128 << 20);
    fs::write(home.mnt().join("file"), "x").unwrap();
}

#[test]
fn the_generic_fuse_helper_mounts() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    home.ok([home.text("volume").as_str(), home.text("mnt").as_str(), "-o", "rw,dev,suid"]);
    assert!(is_mounted(&home.mnt()));
}
