//! Direct writes, which bypass the page cache.

use crate::fixture::{Mount, noise};
use std::fs;
use std::process::Command;

/// Writes by `io_submit` with O_DIRECT, and reads the same range through the page cache after the write has returned. A second
/// thread keeps the page in the cache.
const PROGRAM: &str = r#"
import ctypes, mmap, os, sys, threading, struct
path, rounds = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
SETUP, SUBMIT, EVENTS = 206, 209, 208
context = ctypes.c_ulong(0)
assert libc.syscall(SETUP, 8, ctypes.byref(context)) == 0, ctypes.get_errno()
direct = os.open(path, os.O_RDWR | os.O_DIRECT)
buffered = os.open(path, os.O_RDONLY)
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
over = False
def read():
    fd = os.open(path, os.O_RDONLY)
    while not over:
        os.pread(fd, 4096, 0)
reader = threading.Thread(target=read)
reader.start()
stale = 0
for number in range(1, rounds + 1):
    page[:] = struct.pack('<I', number) * 1024
    # data, key, rw_flags, opcode (PWRITE), priority, fd, buffer, length, offset
    block = ctypes.create_string_buffer(struct.pack('<QIIHhIQQqQII', 0, 0, 0, 1, 0, direct, address, 4096, 0, 0, 0, 0))
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    assert libc.syscall(SUBMIT, context, 1, blocks) == 1, ctypes.get_errno()
    event = ctypes.create_string_buffer(32)
    assert libc.syscall(EVENTS, context, 1, 1, event, None) == 1
    assert struct.unpack('<QQqq', event.raw)[2] == 4096, struct.unpack('<QQqq', event.raw)
    stale += os.pread(buffered, 4, 0) != struct.pack('<I', number)
over = True
reader.join()
assert stale == 0, f'{stale} of {rounds} reads gave older bytes'
"#;

/// A buffered read that began after an asynchronous direct write had returned got the bytes from before the write: the kernel does not
/// drop the pages of such a write.
#[test]
fn s435_a_buffered_read_sees_an_asynchronous_direct_write_that_has_returned() {
    let mount = Mount::new();
    let path = mount.path("file");
    fs::write(&path, noise(64 << 10)).unwrap();
    let output =
        Command::new("/usr/bin/python3").args(["-c", PROGRAM]).arg(&path).arg("300").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
