//! Conformance and cancellation of rings, on files and block devices.

use super::*;
use crate::device::loopback::LoopDevice;
use crate::device::{BLOCK_BYTES, Io, conformance};
use futures_util::future::join_all;
use futures_util::poll;
use std::path::Path;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Adapts an [`Io`] to [`BlockDevice`]: each call blocks its thread.
#[derive(Debug)]
struct Awaited(Io);

impl Awaited {
    fn run<T>(&self, call: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(call)
    }
}

impl BlockDevice for Awaited {
    fn len_bytes(&self) -> u64 {
        self.0.device().len_bytes()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.run(self.0.read(at, Buffer::zeroed(into.len())))?;
        into.copy_from_slice(&read);
        Ok(())
    }

    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        assert!(from.len().is_multiple_of(BLOCK), "the length is whole blocks");
        self.run(self.0.write(at, &[Bytes::copy_from_slice(from)]))
    }

    fn flush(&self) -> io::Result<()> {
        self.run(self.0.flush())
    }
}

fn file(folder: &Path) -> Arc<FileDevice> {
    Arc::new(FileDevice::create(&folder.join("drive"), conformance::LEN_BYTES_MIN).unwrap())
}

fn block_of(byte: u8) -> Buffer {
    let mut block = Buffer::zeroed(BLOCK);
    block.fill(byte);
    block
}

#[test]
fn a_file_by_ring_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let ring = Ring::start(file(folder.path())).unwrap();
    conformance::run(&Awaited(Io::Ring(Arc::new(ring))));
}

#[test]
fn a_block_device_by_ring_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let block = LoopDevice::new(&folder.path().join("below"), conformance::LEN_BYTES_MIN);
    let io = Io::open(FileDevice::open(block.path()).unwrap());
    assert!(matches!(io, Io::Ring(_)));
    conformance::run(&Awaited(io));
}

#[test]
fn a_file_by_threads_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conformance::run(&Awaited(Io::Blocking(file(folder.path()))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_each_get_their_own_block() {
    let folder = tempfile::tempdir().unwrap();
    let ring = Arc::new(Ring::start(file(folder.path())).unwrap());
    // More than fit into the slots and the queue.
    let blocks = 1000;
    join_all((0..blocks).map(|block| {
        let ring = ring.clone();
        async move { ring.write(block * BLOCK_BYTES, block_of(block as u8).into()).await.unwrap() }
    }))
    .await;
    ring.flush().await.unwrap();
    let readers = (0..8).map(|reader| {
        let ring = ring.clone();
        tokio::spawn(async move {
            for round in 0..4 {
                let reads = (0..blocks).map(|block| ring.read(block * BLOCK_BYTES, Buffer::zeroed(BLOCK)));
                for (block, read) in join_all(reads).await.into_iter().enumerate() {
                    assert!(*read.unwrap() == *block_of(block as u8), "reader {reader}, round {round}");
                }
            }
        })
    });
    for reader in join_all(readers).await {
        reader.unwrap();
    }
}

/// An entry of the ring moves at most 1 MiB. Longer requests take several entries.
#[tokio::test]
async fn requests_longer_than_an_entry_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let ring = Ring::start(file(folder.path())).unwrap();
    for blocks in [255, 256, 257, 512, 800] {
        let mut written = Buffer::zeroed(blocks * BLOCK);
        for (block, bytes) in written.chunks_mut(BLOCK).enumerate() {
            bytes.fill((block % 251) as u8);
        }
        let written = Bytes::from(written);
        ring.write(BLOCK_BYTES, written.clone()).await.unwrap();
        let read = ring.read(BLOCK_BYTES, Buffer::zeroed(written.len())).await.unwrap();
        assert!(*read == *written, "{blocks} blocks");
    }
}

/// A client that disconnects drops its request. The memory belongs to the kernel until the read is done.
#[tokio::test]
async fn a_cancelled_read_keeps_its_memory_until_completion() {
    let folder = tempfile::tempdir().unwrap();
    let ring = Ring::start(file(folder.path())).unwrap();
    ring.write(0, block_of(7).into()).await.unwrap();
    for _ in 0..1000 {
        let mut read = Box::pin(ring.read(0, Buffer::zeroed(BLOCK)));
        let _ = poll!(read.as_mut());
        drop(read);
        let fresh = block_of(1);
        assert!(fresh.iter().all(|byte| *byte == 1), "a read wrote into memory that was freed");
    }
    assert!(*ring.read(0, Buffer::zeroed(BLOCK)).await.unwrap() == *block_of(7));
}

/// Cancelled writes are completed when the ring is dropped, and the device can be opened again.
#[tokio::test]
async fn dropping_a_ring_completes_its_requests() {
    let folder = tempfile::tempdir().unwrap();
    let ring = Ring::start(file(folder.path())).unwrap();
    for block in 0..64 {
        let mut write = Box::pin(ring.write(block * BLOCK_BYTES, block_of(block as u8 + 1).into()));
        let _ = poll!(write.as_mut());
    }
    drop(ring);
    let device = FileDevice::open(&folder.path().join("drive")).unwrap();
    for block in 0..64 {
        let mut seen = Buffer::zeroed(BLOCK);
        device.read_at(block * BLOCK_BYTES, &mut seen).unwrap();
        assert!(*seen == *block_of(block as u8 + 1), "block {block}");
    }
}

#[tokio::test]
async fn reading_a_truncated_file_is_an_unexpected_end() {
    let folder = tempfile::tempdir().unwrap();
    let ring = Ring::start(file(folder.path())).unwrap();
    let path = folder.path().join("drive");
    std::fs::File::options().write(true).open(path).unwrap().set_len(3 * BLOCK_BYTES).unwrap();
    ring.read(0, Buffer::zeroed(3 * BLOCK)).await.unwrap();
    let error = ring.read(2 * BLOCK_BYTES, Buffer::zeroed(2 * BLOCK)).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn errors_of_the_kernel_are_returned() {
    let folder = tempfile::tempdir().unwrap();
    drop(file(folder.path()));
    let device = FileDevice::open_read_only(&folder.path().join("drive")).unwrap();
    let ring = Ring::start(Arc::new(device)).unwrap();
    let error = ring.write(0, block_of(1).into()).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

#[tokio::test]
async fn slices_are_joined_and_padded() {
    let folder = tempfile::tempdir().unwrap();
    let io = Io::Blocking(file(folder.path()));
    let slices = [Bytes::from_static(b"ab"), Bytes::from(block_of(3)), Bytes::new()];
    io.write(0, &slices).await.unwrap();
    let seen = io.read(0, Buffer::zeroed(2 * BLOCK)).await.unwrap();
    assert_eq!(seen[..3], *b"ab\x03");
    assert_eq!((seen[BLOCK + 1], seen[BLOCK + 2]), (3, 0));
}
