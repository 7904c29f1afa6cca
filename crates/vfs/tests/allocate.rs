//! `fallocate` in every write state of a file.

use crate::world::{Bucket, MIB, errno, pattern};

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;

#[tokio::test]
async fn s146_ranges_are_zeroed_and_reservations_extend_files() {
    for bucket in [Bucket::in_memory()].into_iter().chain(Bucket::by_inode_each().await) {
        let world = bucket.mount(|config| config.part_size_bytes = MIB as u64).await;
        for size in [0, 10_000, 3 * MIB] {
            for is_clean in [true, false] {
                let mut model = pattern(size);
                let handle = world.create("file").await.unwrap();
                world.write_all(handle, &model).await.unwrap();
                if is_clean {
                    world.fs.fsync(handle).await.unwrap();
                }
                let steps = [
                    (PUNCH, 100, 5_000),
                    (ZERO | KEEP, 9_000, 5_000),
                    (0, 9_000, 3_000),
                    (ZERO, 500, 20_000),
                    (KEEP, 0, 4 * MIB),
                    (PUNCH, 2 * MIB, 2 * MIB),
                    (0, 3 * MIB, MIB / 2),
                ];
                for (mode, start, len) in steps {
                    world.fs.fallocate(handle, mode, start as u64, len as u64).await.unwrap();
                    let end = start + len;
                    if mode & KEEP == 0 {
                        model.resize(model.len().max(end), 0);
                    }
                    if mode & (libc::FALLOC_FL_PUNCH_HOLE | ZERO) != 0 {
                        let end = end.min(model.len());
                        model[start.min(end)..end].fill(0);
                    }
                    assert!(world.read_all(handle).await.unwrap() == model, "{mode} {start} {len} of {size}");
                }
                world.close(handle).await.unwrap();
                assert!(world.read_file("file").await.unwrap() == model);
                world.unlink("file").await.unwrap();
            }
        }
        let handle = world.create("file").await.unwrap();
        let shift = libc::FALLOC_FL_COLLAPSE_RANGE;
        assert_eq!(errno(world.fs.fallocate(handle, shift, 0, 4096).await), libc::EOPNOTSUPP);
        assert_eq!(errno(world.fs.fallocate(handle, 0, i64::MAX as u64, 2).await), libc::EFBIG);
        world.close(handle).await.unwrap();
        world.assert_healthy().await;
    }
}
