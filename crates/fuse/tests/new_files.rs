//! New files that are written past the page cache.

use crate::fixture::{Mount, options};
use fuse::Operation;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

fn mount() -> Mount {
    Mount::with_config(&options(), |config| config.bypasses_page_cache_for_new_files = true)
}

/// A regression test: the kernel asked for `security.capability` before the first write to each new file.
#[test]
fn a_new_file_that_is_only_written_causes_no_request_for_an_attribute() {
    let mount = mount();
    let create = |name: &str| OpenOptions::new().write(true).create_new(true).open(mount.path(name)).unwrap();
    // The first request answers for the root's access list.
    drop(create("first"));
    let (asked, written) = (mount.count(Operation::GetXattr), mount.count(Operation::Write));
    let mut file = create("file");
    file.write_all(b"content").unwrap();
    drop(file);
    assert_eq!(mount.count(Operation::GetXattr), asked);
    assert_eq!(mount.count(Operation::Write), written + 1);
    assert_eq!(std::fs::read(mount.path("file")).unwrap(), b"content");
    assert_eq!(mount.object("file"), b"content");
}

/// Reads through other descriptors, before and after each write, never give older bytes than the last write that has returned.
#[test]
fn s613_readers_of_a_file_that_is_written_past_the_page_cache_see_each_write() {
    let mount = mount();
    let path = mount.path("log");
    let mut writer = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    let reader = File::open(&path).unwrap();
    let editor = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut expected = Vec::new();
    for number in 0..300_u32 {
        let line = number.to_le_bytes().repeat(7);
        let before = expected.len() as u64;
        writer.write_all(&line).unwrap();
        expected.extend_from_slice(&line);
        for file in [&reader, &editor] {
            let mut found = vec![0; line.len() + 1];
            let count = file.read_at(&mut found, before).unwrap();
            assert_eq!(found[..count], line, "line {number}");
        }
        if number % 50 == 0 {
            editor.write_all_at(b"edited", before).unwrap();
            expected[before as usize..][..6].copy_from_slice(b"edited");
            let mut found = [0; 6];
            reader.read_exact_at(&mut found, before).unwrap();
            assert_eq!(&found, b"edited");
        }
    }
    drop((writer, reader, editor));
    assert_eq!(std::fs::read(&path).unwrap(), expected);
    assert_eq!(mount.object("log"), expected);
}

/// Maps a file while it is written past the page cache, and reads it through the page cache afterwards.
const PROGRAM: &str = r#"
import mmap, os, sys
path = sys.argv[1]
writer = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
for number in range(1, 100):
    os.pwrite(writer, bytes([number]) * 4096, 0)
    reader = os.open(path, os.O_RDONLY)
    with mmap.mmap(reader, 4096, prot=mmap.PROT_READ) as mapping:
        assert mapping[:] == bytes([number]) * 4096, number
    os.close(reader)
os.close(writer)
reader = os.open(path, os.O_RDONLY)
assert os.pread(reader, 4096, 0) == bytes([99]) * 4096
"#;

#[test]
fn a_mapping_of_a_file_that_is_written_past_the_page_cache_has_its_bytes() {
    let mount = mount();
    let output =
        Command::new("/usr/bin/python3").args(["-c", PROGRAM]).arg(mount.path("file")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
