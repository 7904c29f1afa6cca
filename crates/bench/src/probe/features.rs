//! Features of a file system that can be tried on a mount alone.

use super::Trials;
use rustix::fs::{FlockOperation, XattrFlags, flock, getxattr, setxattr};
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// A feature, tried in an empty directory.
type Probe = fn(&Path) -> Result<()>;

const FEATURES: [(&str, Probe); 28] = [
    ("read after close", read_after_close),
    ("overwrite in the middle", overwrite_in_the_middle),
    ("append (O_APPEND)", append),
    ("truncate", truncate),
    ("holes", holes),
    ("exclusive create (O_EXCL)", exclusive_create),
    ("rename a file", rename_file),
    ("rename over a file", rename_over_file),
    ("rename a directory", rename_directory),
    ("hard link", hard_link),
    ("symbolic link", symbolic_link),
    ("chmod", chmod),
    ("modification time", modification_time),
    ("extended attributes", extended_attributes),
    ("read after unlink", read_after_unlink),
    ("flock", exclusive_flock),
    ("record lock (OFD)", record_lock),
    ("shared writable mmap", shared_mmap),
    ("copy_file_range", copy_range),
    ("fallocate", allocate),
    ("punch hole", punch_hole),
    ("name of 255 bytes", long_name),
    ("chown", change_owner),
    ("named pipe", named_pipe),
    ("rename that must not replace", rename_without_replacing),
    ("exchange of two names", exchange_names),
    ("seek to data and holes", seek_holes),
    ("names with other characters", other_characters),
];

/// Tries every feature in a directory of its own below `root`.
pub(crate) fn probe_files(root: &Path, trials: &mut Trials<'_>) {
    for (number, (name, probe)) in FEATURES.into_iter().enumerate() {
        let dir = root.join(format!("probe-{number}"));
        trials.run(name, move || {
            let tried = fs::create_dir(&dir).and_then(|()| probe(&dir));
            tried.map(|()| String::new()).map_err(|error| error.to_string())
        });
    }
}

/// Returns an error unless the condition holds.
fn require(condition: bool, otherwise: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::other(otherwise)) }
}

fn read_after_close(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), "hello")?;
    require(fs::read(dir.join("f"))? == b"hello", "other bytes")
}

fn overwrite_in_the_middle(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), [b'a'; 10_000])?;
    OpenOptions::new().write(true).open(dir.join("f"))?.write_all_at(b"b", 5000)?;
    let bytes = fs::read(dir.join("f"))?;
    require(bytes.len() == 10_000 && bytes[5000] == b'b' && bytes[5001] == b'a', "other bytes")
}

fn append(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), "one")?;
    OpenOptions::new().append(true).open(dir.join("f"))?.write_all(b"two")?;
    require(fs::read(dir.join("f"))? == b"onetwo", "other bytes")
}

fn truncate(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), "hello")?;
    OpenOptions::new().write(true).open(dir.join("f"))?.set_len(2)?;
    require(fs::read(dir.join("f"))? == b"he", "other bytes")
}

fn holes(dir: &Path) -> Result<()> {
    let file = File::create(dir.join("f"))?;
    file.write_all_at(b"end", 1 << 20)?;
    drop(file);
    let bytes = fs::read(dir.join("f"))?;
    require(bytes.len() == (1 << 20) + 3 && bytes[..1 << 20].iter().all(|byte| *byte == 0), "other bytes")
}

fn exclusive_create(dir: &Path) -> Result<()> {
    let create = || OpenOptions::new().write(true).create_new(true).open(dir.join("f"));
    create()?;
    match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::other("an existing file was created again")),
    }
}

fn rename_file(dir: &Path) -> Result<()> {
    fs::write(dir.join("a"), "hello")?;
    fs::rename(dir.join("a"), dir.join("b"))?;
    require(!dir.join("a").exists() && fs::read(dir.join("b"))? == b"hello", "other files")
}

fn rename_over_file(dir: &Path) -> Result<()> {
    fs::write(dir.join("b"), "old")?;
    rename_file(dir)
}

fn rename_directory(dir: &Path) -> Result<()> {
    fs::create_dir(dir.join("a"))?;
    fs::write(dir.join("a/f"), "hello")?;
    fs::rename(dir.join("a"), dir.join("b"))?;
    require(!dir.join("a").exists() && fs::read(dir.join("b/f"))? == b"hello", "other files")
}

fn hard_link(dir: &Path) -> Result<()> {
    fs::write(dir.join("a"), "one")?;
    fs::hard_link(dir.join("a"), dir.join("b"))?;
    OpenOptions::new().append(true).open(dir.join("b"))?.write_all(b"two")?;
    require(fs::read(dir.join("a"))? == b"onetwo", "the names have different bytes")?;
    require(fs::metadata(dir.join("a"))?.nlink() == 2, "the link count is not 2")
}

fn symbolic_link(dir: &Path) -> Result<()> {
    symlink("target", dir.join("l"))?;
    require(fs::read_link(dir.join("l"))? == Path::new("target"), "another target")
}

fn chmod(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), "")?;
    fs::set_permissions(dir.join("f"), fs::Permissions::from_mode(0o640))?;
    require(fs::metadata(dir.join("f"))?.mode() & 0o777 == 0o640, "the mode did not change")
}

fn modification_time(dir: &Path) -> Result<()> {
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::create(dir.join("f"))?;
    file.set_modified(time)?;
    drop(file);
    require(fs::metadata(dir.join("f"))?.modified()? == time, "the time did not change")
}

fn extended_attributes(dir: &Path) -> Result<()> {
    let path = dir.join("f");
    fs::write(&path, "")?;
    setxattr(&path, "user.tenon", b"value", XattrFlags::empty())?;
    let mut value = [0; 16];
    let len = getxattr(&path, "user.tenon", &mut value)?;
    require(&value[..len] == b"value", "another value")
}

fn read_after_unlink(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), "hello")?;
    let mut file = File::open(dir.join("f"))?;
    fs::remove_file(dir.join("f"))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    require(text == "hello" && !dir.join("f").exists(), "other bytes")
}

fn exclusive_flock(dir: &Path) -> Result<()> {
    let (one, other) = (File::create(dir.join("f"))?, File::open(dir.join("f"))?);
    flock(&one, FlockOperation::NonBlockingLockExclusive)?;
    let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
    require(refused == Err(rustix::io::Errno::WOULDBLOCK), "two owners have the lock")
}

fn record_lock(dir: &Path) -> Result<()> {
    let (one, other) = (File::create(dir.join("f"))?, OpenOptions::new().write(true).open(dir.join("f"))?);
    let lock = |file: &File| file.try_lock();
    lock(&one).map_err(|error| Error::other(error.to_string()))?;
    require(lock(&other).is_err(), "two owners have the lock")
}

fn shared_mmap(dir: &Path) -> Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const LEN: usize = 4096;
    let path = dir.join("f");
    fs::write(&path, [b'a'; LEN])?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    // SAFETY: the mapping is new, has `LEN` bytes, which the file has too, and is not used after `munmap`.
    unsafe {
        let map =
            mmap(std::ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?;
        map.cast::<u8>().write(b'b');
        let synced = msync(map, LEN, MsyncFlags::SYNC);
        munmap(map, LEN)?;
        synced?;
    }
    drop(file);
    require(fs::read(&path)?.first() == Some(&b'b'), "the byte did not change")
}

fn copy_range(dir: &Path) -> Result<()> {
    fs::write(dir.join("a"), [b'a'; 10_000])?;
    let (from, to) = (File::open(dir.join("a"))?, File::create(dir.join("b"))?);
    let count = rustix::fs::copy_file_range(&from, None, &to, None, 10_000)?;
    drop(to);
    require(count == 10_000 && fs::read(dir.join("b"))? == [b'a'; 10_000], "other bytes")
}

fn allocate(dir: &Path) -> Result<()> {
    let file = File::create(dir.join("f"))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 16)?;
    require(file.metadata()?.len() == 1 << 16, "the size did not change")
}

fn punch_hole(dir: &Path) -> Result<()> {
    use rustix::fs::FallocateFlags;
    fs::write(dir.join("f"), [b'a'; 16_384])?;
    let file = OpenOptions::new().write(true).open(dir.join("f"))?;
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 4096)?;
    drop(file);
    let bytes = fs::read(dir.join("f"))?;
    let is_zero = bytes[4096..8192].iter().all(|byte| *byte == 0);
    require(is_zero && bytes[4095] == b'a' && bytes.len() == 16_384, "other bytes")
}

fn long_name(dir: &Path) -> Result<()> {
    let name = "n".repeat(255);
    fs::write(dir.join(&name), "")?;
    let listed = fs::read_dir(dir)?.filter_map(std::result::Result::ok);
    require(listed.map(|entry| entry.file_name()).eq([std::ffi::OsString::from(name)]), "it is not listed")
}

/// Tries whether the owner of a file can be changed. Needs root, as a user may not give files away.
fn change_owner(dir: &Path) -> Result<()> {
    fs::write(dir.join("f"), "")?;
    std::os::unix::fs::chown(dir.join("f"), Some(1234), Some(2345))?;
    let metadata = fs::metadata(dir.join("f"))?;
    require((metadata.uid(), metadata.gid()) == (1234, 2345), "the owner did not change")
}

fn named_pipe(dir: &Path) -> Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let kind = fs::metadata(dir.join("pipe"))?.file_type();
    require(std::os::unix::fs::FileTypeExt::is_fifo(&kind), "it is not a pipe")
}

fn rename_without_replacing(dir: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let rename = |to: &str| renameat_with(CWD, dir.join("a"), CWD, dir.join(to), RenameFlags::NOREPLACE);
    fs::write(dir.join("a"), "one")?;
    fs::write(dir.join("b"), "two")?;
    require(
        rename("b") == Err(rustix::io::Errno::EXIST),
        "an existing file was replaced or the call failed",
    )?;
    rename("c")?;
    require(fs::read(dir.join("c"))? == b"one" && fs::read(dir.join("b"))? == b"two", "other files")
}

fn exchange_names(dir: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    fs::write(dir.join("a"), "one")?;
    fs::write(dir.join("b"), "two")?;
    renameat_with(CWD, dir.join("a"), CWD, dir.join("b"), RenameFlags::EXCHANGE)?;
    require(fs::read(dir.join("a"))? == b"two" && fs::read(dir.join("b"))? == b"one", "other files")
}

/// A file system that does not know its holes reports all bytes as data.
fn seek_holes(dir: &Path) -> Result<()> {
    use rustix::fs::{SeekFrom, seek};
    let file = File::create_new(dir.join("f"))?;
    file.write_all_at(b"end", 8 << 20)?;
    file.sync_all()?;
    require(seek(&file, SeekFrom::Data(0))? > 0, "the hole is reported as data")
}

fn other_characters(dir: &Path) -> Result<()> {
    for name in ["with space", "ümläut", "a+b%20c", "new\nline", "back\\slash", "~#?*:;&'\""] {
        fs::write(dir.join(name), name)?;
        require(fs::read(dir.join(name))? == name.as_bytes(), name)?;
    }
    require(fs::read_dir(dir)?.count() == 6, "other names are listed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{TrialLimits, Verdict};

    #[test]
    fn a_local_file_system_has_every_feature() {
        // The file system of the build has them, which a tmpfs of the test's machine may not.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let limits = TrialLimits { trial: Duration::from_secs(60), package: Duration::from_secs(600) };
        let mut trials = Trials::new(limits, &|_| {});
        probe_files(dir.path(), &mut trials);
        let findings = trials.into_findings();
        assert_eq!(findings.len(), FEATURES.len());
        for finding in findings {
            assert!(matches!(finding.verdict, Verdict::Yes(_)), "{finding:?}");
        }
    }
}
