//! The layout of a drive: the use of each byte of the device.

use crate::fixture::{formatted, open};
use drive::Use;
use store::{Buckets, ObjectKey, PutOptions};

/// A trace of a drive counted everything behind its superblocks as object data, because the drive did not tell the use of its bytes.
#[tokio::test]
async fn every_used_byte_has_exactly_one_use() {
    let device = formatted();
    let drive = open(&device).unwrap();
    drive.create("photos").await.unwrap();
    let bucket = Buckets::open(&drive, "photos").await.unwrap();
    for (key, len_bytes) in [("large", 3_000_000), ("small", 4096)] {
        let body = vec![7; len_bytes].into();
        bucket.put(&ObjectKey::new(key).unwrap(), body, PutOptions::default()).await.unwrap();
    }
    drive.close().await.unwrap();
    drop((bucket, drive));
    let areas = open(&device).unwrap().layout().unwrap();
    assert!(areas.windows(2).all(|two| two[0].at + two[0].len_bytes <= two[1].at), "{areas:?}");
    let bytes = |what| areas.iter().filter(|area| area.what == what).map(|area| area.len_bytes).sum::<u64>();
    assert_eq!((bytes(Use::Data), bytes(Use::Sums)), (3_002_368, 4096), "{areas:?}");
    assert!(bytes(Use::Index) > 0 && bytes(Use::Pack) > 0 && bytes(Use::Root) > 0, "{areas:?}");
}
