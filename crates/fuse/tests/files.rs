//! Contents of files, through the kernel, and the number of requests that they take.

use crate::fixture::{Mount, TTL, noise};
use fuse::Operation;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::ptr::null_mut;

const MIB: usize = 1 << 20;

/// A file created through a descriptor that cannot write was lost at its close.
#[test]
fn s11_a_file_made_for_reading_is_stored() {
    let mount = Mount::new();
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDONLY;
    drop(rustix::fs::open(mount.path("made"), flags, rustix::fs::Mode::RUSR).unwrap());
    assert_eq!(mount.object("made"), b"");
    assert_eq!(std::fs::metadata(mount.path("made")).unwrap().len(), 0);
}

#[test]
fn s151_data_and_holes_are_found() {
    let mount = Mount::new();
    fs::write(mount.path("file"), b"bytes").unwrap();
    let file = File::open(mount.path("file")).unwrap();
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(2)), Ok(2));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(5));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(5)), Err(rustix::io::Errno::NXIO));
    assert_eq!(mount.count(Operation::Lseek), 3);
}

/// With FUSE_ATOMIC_O_TRUNC the kernel has the file truncated before it finds that a program runs from it.
#[test]
fn a_running_program_cannot_be_truncated() {
    let mount = Mount::new();
    let program = mount.path("sleep");
    fs::copy("/bin/sleep", &program).unwrap();
    let before = fs::read(&program).unwrap();
    let mut running = std::process::Command::new(&program).arg("30").spawn().unwrap();
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC, libc::O_RDWR | libc::O_TRUNC]
    {
        let flags = rustix::fs::OFlags::from_bits_retain(flags as u32);
        let opened = rustix::fs::open(&program, flags, rustix::fs::Mode::empty());
        assert_eq!(opened.unwrap_err(), rustix::io::Errno::TXTBSY);
    }
    assert!(running.try_wait().unwrap().is_none(), "the program must still run");
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(fs::read(&program).unwrap() == before);
}

/// For a name that it knows, the kernel opens the file without O_CREAT: open(O_CREAT | O_TRUNC) gave ENOENT if another client had
/// removed the object meanwhile.
#[test]
fn s405_open_with_creat_makes_a_file_that_another_client_removed() {
    let mount = Mount::new();
    for flags in [libc::O_TRUNC, 0] {
        mount.put("file", "theirs");
        mount.clock.advance(TTL);
        // From here on the kernel has cached the name.
        assert_eq!(fs::metadata(mount.path("file")).unwrap().len(), 6);
        mount.delete("file");
        mount.clock.advance(TTL);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).custom_flags(flags).open(mount.path("file")).unwrap();
        file.write_all(b"ours").unwrap();
        drop(file);
        assert_eq!(mount.object("file"), b"ours");
        fs::remove_file(mount.path("file")).unwrap();
    }
    // The kernel has cached that there is no such name.
    fs::metadata(mount.path("made")).unwrap_err();
    mount.put("made", "theirs");
    mount.clock.advance(TTL);
    let mut file = OpenOptions::new().append(true).create(true).open(mount.path("made")).unwrap();
    file.write_all(b" and ours").unwrap();
    drop(file);
    assert_eq!(mount.object("made"), b"theirs and ours");
    mount.put("file", "theirs");
    mount.clock.advance(TTL);
    fs::metadata(mount.path("file")).unwrap();
    mount.delete("file");
    mount.clock.advance(TTL);
    assert_eq!(File::open(mount.path("file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn written_bytes_are_read_back_and_stored() {
    let mount = Mount::new();
    let bytes = noise(3 * MIB + 17);
    fs::write(mount.path("file"), &bytes).unwrap();
    assert!(fs::read(mount.path("file")).unwrap() == bytes);
    assert_eq!(fs::metadata(mount.path("file")).unwrap().len(), bytes.len() as u64);
    assert!(mount.object("file") == bytes);
}

#[test]
fn a_new_small_file_takes_the_minimum_of_requests() {
    let mount = Mount::new();
    fs::write(mount.path("first"), b"the session has begun").unwrap();
    let before = mount.session.as_ref().unwrap().meter().counts().seen();
    fs::write(mount.path("second"), b"hello").unwrap();
    let of = |operation: Operation| {
        let earlier =
            before.iter().find(|(name, _)| *name == operation.name()).map_or(0, |(_, count)| *count);
        mount.count(operation) - earlier
    };
    // Before the first write to a file the kernel checks whether the file is a program with capabilities.
    let once =
        [Operation::Lookup, Operation::Create, Operation::GetXattr, Operation::Write, Operation::Flush];
    for operation in once {
        assert_eq!(of(operation), 1, "{operation:?}");
    }
    // For the directory, whose times have changed.
    assert!(of(Operation::GetAttr) <= 1);
}

#[test]
fn writes_come_in_mebibytes_and_no_getxattr_follows_them() {
    let mount = Mount::new();
    let mut file = File::create(mount.path("big")).unwrap();
    let piece = noise(MIB);
    for _ in 0..32 {
        file.write_all(&piece).unwrap();
    }
    drop(file);
    assert_eq!(mount.count(Operation::Write), 32);
    assert_eq!(mount.count(Operation::GetXattr), 1);
}

#[test]
fn reads_come_in_mebibytes() {
    let mount = Mount::new();
    let bytes = noise(32 * MIB);
    mount.put("big", bytes.clone());
    let mut read = Vec::new();
    let mut file = File::open(mount.path("big")).unwrap();
    file.read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    // The first requests are small, because read-ahead must first detect a sequential reader, and again whenever the reader overtakes
    // it on a busy machine. With the kernel's initial 128 KiB there would be 256 requests.
    let requests = mount.count(Operation::Read);
    assert!((32..=128).contains(&requests), "{requests} READs for 32 MiB");
}

#[test]
fn a_descriptor_that_only_reads_is_not_flushed() {
    let mount = Mount::new();
    fs::write(mount.path("file"), b"x").unwrap();
    let flushed = mount.count(Operation::Flush);
    fs::read(mount.path("file")).unwrap();
    assert_eq!(mount.count(Operation::Flush), flushed);
}

#[test]
fn s37_unchanged_bytes_stay_in_the_page_cache_between_opens() {
    let mount = Mount::new();
    fs::write(mount.path("file"), noise(MIB)).unwrap();
    let first = fs::read(mount.path("file")).unwrap();
    let read = mount.count(Operation::Read);
    assert!(fs::read(mount.path("file")).unwrap() == first);
    assert_eq!(mount.count(Operation::Read), read);
}

#[test]
fn files_are_patched_truncated_and_appended_to() {
    let mount = Mount::new();
    let path = mount.path("file");
    fs::write(&path, b"0123456789").unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(3)).unwrap();
    file.write_all(b"abc").unwrap();
    drop(file);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"!").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"012abc6789!");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"012a");
    File::create(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn attributes_are_kept_and_the_kernel_applies_the_umask() {
    let mount = Mount::new();
    let path = mount.path("file");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o666).open(&path).unwrap();
    drop(file);
    let mode = fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o7777 & !0o666, 0, "{mode:o}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    std::os::unix::fs::chown(&path, Some(1234), Some(567)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1234, 567));
    assert_eq!(metadata.mode() & 0o4000, 0, "chown drops the set-user-id bit");
}

/// The kernel serializes appends of one mount by the inode's lock and computes each offset from the size that it knows.
#[test]
fn s33_appends_land_at_the_end_each_whole() {
    let mount = Mount::new();
    let path = mount.path("log");
    fs::write(&path, b"").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(path).unwrap();
                (0..50).for_each(|line| log.write_all(format!("{writer} {line:02}\n").as_bytes()).unwrap());
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    for writer in 0..4 {
        let own = lines.iter().filter(|line| line.starts_with(&writer.to_string()));
        assert!(own.is_sorted(), "each writer's lines must be in the order of its writes");
    }
    lines.sort_unstable();
    lines.dedup();
    assert_eq!((lines.len(), text.len()), (200, 200 * 5));
}

#[test]
fn s38_a_shared_mapping_is_stored() {
    let mount = Mount::new();
    fs::write(mount.path("file"), b"....").unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mount.path("file")).unwrap();
    // SAFETY: a new mapping of an open file that nothing else maps or truncates.
    unsafe {
        let at = libc::mmap(
            null_mut(),
            4,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<[u8; 4]>().write(*b"mmap");
        assert_eq!(libc::msync(at, 4, libc::MS_SYNC), 0);
        assert_eq!(libc::munmap(at, 4), 0);
    }
    drop(file);
    assert_eq!(mount.object("file"), b"mmap");
}
