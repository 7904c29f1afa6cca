//! The persistent format: golden bytes, round trips, invalid and damaged bytes.

use crate::strategies;
use bytes::Bytes;
use meta::codec::{
    DecodeError, HeadRecord, InodeRecord, decode_batch, decode_dentry, decode_extent, decode_head,
    decode_inode, decode_log_record, decode_number, decode_op, decode_quota, decode_refused_op, encode_batch,
    encode_dentry, encode_extent, encode_head, encode_inode, encode_log_record, encode_number, encode_op,
    encode_quota, encode_refused_op,
};
use meta::{
    Batch, BatchOutcome, Content, Dentry, Effect, Extent, Ino, Inode, Kind, Limits, Merge, Moment, Name, Op,
    OpContext, OpRecord, Origin, Quota, Refreshed, RefusedOp, RenameHow, Seqno, Stored, Usage,
};
use proptest::prelude::*;
use store::{ETag, ObjectKey, Timestamp};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn extent(offset: u64, len: u64, stored: Stored) -> Extent {
    Extent { offset, len, object: stored, object_offset: 0 }
}

/// Returns a typical file: one object, and times close to each other.
fn file() -> Inode {
    let time = Timestamp(1_767_268_800_000_000_000);
    let object = Stored {
        key: None,
        etag: ETag::new("d41d8cd98f00b204e9800998ecf8427e"),
        version: None,
        last_modified: Some(Timestamp(time.0 + 1)),
    };
    Inode {
        ino: Ino(42),
        kind: Kind::File,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        nlink: 1,
        rdev: 0,
        size_bytes: 4096,
        atime: time,
        mtime: time,
        ctime: Timestamp(time.0 + 5),
        btime: Timestamp(time.0 - 1),
        home: Some((Ino(7), Name::new(b"reads.fq").unwrap())),
        content: Content::Inline(vec![extent(0, 4096, object)]),
        target: None,
        exact: true,
        observed_at: Moment::default(),
    }
}

/// Returns a file whose extents have rows.
fn file_with_many_extents() -> Inode {
    let object = |n: u64| Stored {
        key: Some(ObjectKey::try_from("k").unwrap()),
        etag: ETag::new(&format!("{n}")),
        version: None,
        last_modified: None,
    };
    let extents: Vec<_> = (0..5).map(|n| extent(n * 10, 5, object(n))).collect();
    Inode { content: Content::of(&extents, 4096), ..file() }
}

/// Volumes contain records with these bytes. A change of a record's format needs a new version and a new case, and never changes
/// a case.
#[test]
fn records_have_their_golden_bytes() {
    let at = Moment { mount: 2, nanos: 300 };
    let context = OpContext { now: Timestamp(-1), at, uid: 1000, gid: 100, origin: Origin::Other };
    let rename = Op::Rename {
        from: (Ino(1), Name::new(b"a").unwrap()),
        to: (Ino(300), Name::new(b"b").unwrap()),
        how: RenameHow::Exchange,
        keep: true,
    };
    let stored = Stored {
        key: Some(ObjectKey::try_from("k/").unwrap()),
        etag: ETag::new("odd"),
        version: Some("v".into()),
        last_modified: None,
    };
    let create = Op::Create {
        parent: Ino(7),
        name: Name::new(b"a").unwrap(),
        ino: Ino(8),
        kind: Kind::Directory,
        mode: 0o755,
        umask: 0o22,
        uid: 1000,
        gid: 100,
        rdev: 0,
        target: None,
    };
    let orphan =
        Op::CreateOrphan { parent: Ino(7), ino: Ino(8), mode: 0o600, umask: 0o22, uid: 1000, gid: 100 };
    let limits = Limits { bytes: Some(1 << 20), files: None };
    let splice = Op::Splice {
        ino: Ino(9),
        ranges: vec![0..5, 300..310],
        content: vec![extent(300, 10, stored.clone())],
        size_bytes: 310,
        mtime: None,
    };
    let purge = OpRecord { context, op: Op::Purge { ino: Ino(5) }, effect: Effect::default() };
    let unlink = Op::Unlink { parent: Ino(1), name: Name::new(b"a").unwrap(), keep: true };
    let effect = Effect { inode: Some(Ino(9)), other: Some(Ino(300)), refreshed: Refreshed::Nothing };
    let unlink = OpRecord { context: OpContext { origin: Origin::FrontEnd, ..context }, op: unlink, effect };
    let (began, at_beginning) = (Timestamp(5), Moment { mount: 3, nanos: 4 });
    let open = Batch { dir: Ino(7), lease: Ino(300)..Ino(304), began, at: at_beginning, outcome: None };
    let outcome = BatchOutcome { merged: Timestamp(10), accepted: 5, refused: 1 };
    let merged = Batch { outcome: Some(outcome), ..open.clone() };
    let refused = RefusedOp { op: Bytes::from_static(&[1, 16]), why: "why".into(), kept: Some(Ino(300)) };
    let golden = [
        (encode_dentry(Dentry { ino: Ino(300), kind: Kind::Symlink }), "0102ac02"),
        (
            encode_inode(&file()),
            "0118a403e807640100802080808cea86e7cc86310a000100070872656164732e667101008020000001d41d8cd98f00b204e9800998ecf8427e000102",
        ),
        (encode_extent(&extent(9, 300, stored)), "0100ac020001026b2f00036f646401017600"),
        (encode_number(1 << 40), "01808080808020"),
        (encode_head(HeadRecord { head: Seqno(300), cut: Seqno(299), has_runs: false }), "01ac0201"),
        (encode_op(&create), "02030701610801ed03e80764000012"),
        (encode_op(&orphan), "011407088003e8076412"),
        (encode_op(&Op::Accessed { ino: Ino(300), atime: Timestamp(-1) }), "0113ac0201"),
        (encode_op(&Op::SetQuota { dir: Ino(1), limits: Some(limits) }), "011501010180804000"),
        (encode_op(&Op::SetQuota { dir: Ino(1), limits: None }), "01150100"),
        (encode_quota(&Quota { limits, used: Usage { bytes: 300, files: 2 } }), "010180804000ac0202"),
        (encode_op(&Op::AwaitExport { ino: Ino(300) }), "0116ac02"),
        (encode_op(&Op::Exported { ino: Ino(300), change: 2 }), "0117ac0202"),
        (encode_batch(&open), "0107ac02b0020a030400"),
        (
            encode_op(&Op::SetBatch { id: open.id(), record: Some(merged) }),
            "0118ac020107ac02b0020a030401140501",
        ),
        (encode_op(&Op::SetBatch { id: open.id(), record: None }), "0118ac0200"),
        (encode_refused_op(&refused), "010201100377687901ac02"),
        (
            encode_op(&Op::SetRefusedOp { batch: open.id(), index: 9, record: Some(refused.clone()) }),
            "0119ac0209010201100377687901ac02",
        ),
        (encode_op(&rename), "0107010161ac0201620201"),
        (encode_op(&splice), "011109020005ac02b60201ac020a0001026b2f00036f646401017600b60200"),
        (encode_log_record(&purge), "030102ac02e8076400011005"),
        (encode_log_record(&unlink), "030102ac02e807640d09ac02010501016101"),
        (
            encode_inode(&Inode { observed_at: at, ..file() }),
            "0198a403e807640100802080808cea86e7cc86310a000102ac02070872656164732e667101008020000001d41d8cd98f00b204e9800998ecf8427e000102",
        ),
        (
            encode_inode(&file_with_many_extents()),
            "0258a403e807640100802080808cea86e7cc86310a000100070872656164732e667105190001016b00013000002f693b7f0075848377aaf072f867a8d6",
        ),
        (
            encode_op(&Op::Vanish {
                parent: Ino(7),
                name: Name::new(b"a").unwrap(),
                looked_at: at,
                keep: true,
            }),
            "020e07016102ac0201",
        ),
    ];
    for (bytes, expected) in golden {
        assert_eq!(hex(&bytes), expected);
    }
    assert_eq!(decode_inode(Ino(42), &encode_inode(&file())).unwrap().inode, file());
    assert_eq!(decode_batch(&encode_batch(&open)), Ok(open));
    assert_eq!(decode_refused_op(&encode_refused_op(&refused)), Ok(refused));
}

/// `Create` had no umask in version 1, which is read as a umask of 0.
#[test]
fn ops_of_version_1_are_decoded() {
    let bytes = [1, 3, 7, 1, b'a', 8, 1, 0xed, 3, 0xe8, 7, 0x64, 0, 0];
    let Op::Create { mode, umask, uid, .. } = decode_op(&bytes).unwrap() else { panic!("not a create") };
    assert_eq!((mode, umask, uid), (0o755, 0, 1000));
    let OpRecord { context, op, .. } = decode_log_record(&[1, 1, 0xe8, 7, 0x64, 1, 0x10, 5]).unwrap();
    assert_eq!((context.now, context.at, op), (Timestamp(-1), Moment::default(), Op::Purge { ino: Ino(5) }));
}

/// Log records had no origin and no effects in versions 1 and 2.
#[test]
fn log_records_of_version_2_are_decoded() {
    let bytes = [2, 1, 2, 0xac, 2, 0xe8, 7, 0x64, 1, 0x10, 5];
    let OpRecord { context, op, effect } = decode_log_record(&bytes).unwrap();
    assert_eq!((context.origin, effect, op), (Origin::Other, Effect::default(), Op::Purge { ino: Ino(5) }));
    assert_eq!((context.at, context.uid, context.gid), (Moment { mount: 2, nanos: 300 }, 1000, 100));
}

/// Earlier versions ordered observations by wall-clock time. A machine whose clock was ahead for some time has records with
/// observations in the future, which hid all changes of other clients until the clock had caught up. So these times must be
/// ignored.
#[test]
fn wall_clock_times_of_earlier_records_are_ignored() {
    let mut sink = encode_inode(&file());
    let observed = sink.iter().position(|byte| *byte == 0x0a).unwrap() + 3;
    // 2 years later than mtime, as a signed varint.
    sink.splice(observed..=observed, [0x80, 0x80, 0xd0, 0xe7, 0xb5, 0xb7, 0xf3, 0xe0, 0x01]);
    assert_eq!(decode_inode(Ino(42), &sink).unwrap().inode, file());
    let vanish = [1, 0x0e, 7, 1, b'a', 0x80, 0x80, 0xd0, 0xe7, 0xb5, 0xb7, 0xf3, 0xe0, 0x01, 1];
    let Op::Vanish { looked_at, keep, .. } = decode_op(&vanish).unwrap() else { panic!("not a vanish") };
    assert!(keep && looked_at == Moment::default());
}

/// Found by the crate `fuzz`: a damaged row was decoded as an extent whose offset differs from the offset in its key.
#[test]
fn an_extent_that_does_not_match_its_key_is_rejected() {
    let stored = Stored { key: None, etag: ETag::new("e"), version: None, last_modified: None };
    let mut row = encode_extent(&extent(4096, 10, stored));
    decode_extent(4096, &row).unwrap();
    // The second byte is the extent's offset relative to the offset in the key.
    row[1] = 98;
    assert_eq!(decode_extent(4096, &row), Err(DecodeError::Field("an extent that does not match its key")));
}

#[test]
fn newer_versions_are_reported() {
    let newer = |what| DecodeError::Version { what, found: 2, known: 1 };
    assert_eq!(decode_dentry(&[2, 0, 1]), Err(newer("a dentry")));
    assert_eq!(
        decode_inode(Ino(1), &[3]),
        Err(DecodeError::Version { what: "an inode", found: 3, known: 2 })
    );
    assert_eq!(decode_extent(0, &[2]), Err(newer("an extent")));
    assert_eq!(decode_number(&[2]), Err(newer("a number")));
    let newer_head = DecodeError::Version { what: "a metadata engine", found: 3, known: 2 };
    assert_eq!(decode_head(&[3]), Err(newer_head));
    assert_eq!(decode_op(&[3]), Err(DecodeError::Version { what: "an op", found: 3, known: 2 }));
    let newer = DecodeError::Version { what: "a log record", found: 4, known: 3 };
    assert_eq!(decode_log_record(&[4]), Err(newer));
    assert_eq!(decode_op(&[1, 99]), Err(DecodeError::Tag { what: "an op", found: 99 }));
    assert_eq!(decode_op(&[]), Err(DecodeError::Truncated));
    assert!(decode_op(&[0, 1]).is_err() && decode_dentry(&[0]).is_err());
}

#[test]
fn usage_merges_commute_and_never_become_negative() {
    let record = encode_quota(&Quota::default());
    let (one, two) = (Usage { bytes: 5, files: 1 }, Usage { bytes: -5, files: 0 });
    assert_eq!(Merge::Usage(one).then(Merge::Usage(two)), Merge::Usage(two).then(Merge::Usage(one)));
    let merged = Merge::Usage(one).apply(&record).unwrap();
    assert_eq!(decode_quota(&merged).unwrap().used, one);
    assert!(Merge::Usage(two).apply(&record).is_err());
    let limits = Limits { bytes: None, files: Some(7) };
    for op in [Op::SetQuota { dir: Ino(9), limits: Some(limits) }, Op::SetQuota { dir: Ino(9), limits: None }]
    {
        assert_eq!(decode_op(&encode_op(&op)), Ok(op));
    }
}

#[test]
fn merges_commute() {
    let record = encode_inode(&file());
    let one = Merge::Inode { nlink: 1, mtime: Timestamp(9), ctime: Timestamp(i64::MAX) };
    let two = Merge::Inode { nlink: -2, mtime: Timestamp(i64::MAX - 1), ctime: Timestamp(0) };
    assert!(
        one.then(two)
            .apply(&record)
            .is_ok_and(|merged| decode_inode(Ino(42), &merged).unwrap().inode.nlink == 0)
    );
    assert_eq!(one.then(two), two.then(one));
    assert!(two.apply(&record).is_err(), "a link count cannot be negative");
}

prop_compose! {
    fn inode()(
        kind in strategies::kind(),
        numbers in any::<[u32; 5]>(),
        size_bytes in any::<u64>(),
        times in any::<[i64; 5]>(),
        home in prop::option::of((any::<u64>(), prop::collection::vec(1..=b'.' - 1, 1..255))),
        extents in prop::collection::vec((any::<[u64; 3]>(), strategies::stored()), 0..9),
        target in prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
        exact in any::<bool>(),
    ) -> Inode {
        let [atime, mtime, ctime, btime, mount] = times.map(Timestamp);
        let observed_at = Moment { mount: u64::from(numbers[0]), nanos: mount.0 as u64 };
        let content = extents.into_iter().map(|([offset, len, object_offset], object)| {
            Extent { offset, len, object, object_offset }
        });
        Inode {
            ino: Ino(9),
            kind,
            mode: numbers[4] as u16,
            uid: numbers[0],
            gid: numbers[1],
            nlink: numbers[2],
            rdev: numbers[3],
            size_bytes,
            atime,
            mtime,
            ctime,
            btime,
            home: home.map(|(dir, name)| (Ino(dir), Name::new(&name).unwrap())),
            content: Content::of(&content.collect::<Vec<_>>(), size_bytes),
            target: target.map(Into::into),
            exact,
            observed_at,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ops_round_trip(op in strategies::op(), now in any::<i64>(), uid in any::<u32>()) {
        prop_assert_eq!(decode_op(&encode_op(&op)).unwrap(), op.clone());
        let at = Moment { mount: now as u64, nanos: uid.into() };
        let origin = [Origin::Other, Origin::FrontEnd, Origin::Bookkeeping][uid as usize % 3];
        let context = OpContext { now: Timestamp(now), at, uid, gid: !uid, origin };
        let (inode, other) = ((uid & 4 > 0).then_some(Ino(9)), (uid & 8 > 0).then_some(Ino(u64::MAX)));
        let refreshed = [Refreshed::Nothing, Refreshed::Attributes, Refreshed::Content][now.rem_euclid(3) as usize];
        let record = OpRecord { context, op, effect: Effect { inode, other, refreshed } };
        prop_assert_eq!(decode_log_record(&encode_log_record(&record)).unwrap(), record);
    }

    #[test]
    fn inodes_round_trip(inode in inode()) {
        let record = decode_inode(Ino(9), &encode_inode(&inode)).unwrap();
        prop_assert_eq!(record, InodeRecord { inode, unsummed: 0 });
    }

    #[test]
    fn extents_round_trip([offset, len, object_offset] in any::<[u64; 3]>(), object in strategies::stored()) {
        let extent = Extent { offset, len, object, object_offset };
        prop_assert_eq!(decode_extent(offset, &encode_extent(&extent)).unwrap(), extent);
    }

    #[test]
    fn decoding_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut versioned = bytes.clone();
        versioned.insert(0, 1);
        for bytes in [bytes, versioned] {
            let _ = (decode_op(&bytes), decode_log_record(&bytes), decode_number(&bytes), decode_head(&bytes));
            let _ = (decode_dentry(&bytes), decode_inode(Ino(1), &bytes), decode_extent(3, &bytes));
            let _ = Merge::entry(Timestamp(1), 1).apply(&bytes);
        }
    }

    /// Records with one damaged byte, and truncated records, as a disk error or a bug would leave them.
    #[test]
    fn decoding_damaged_records_does_not_panic(op in strategies::op(), inode in inode(), at in any::<usize>(), byte in any::<u8>()) {
        for record in [encode_op(&op), encode_inode(&inode)] {
            let mut damaged = record.clone();
            damaged[at % record.len()] = byte;
            let _ = (decode_op(&damaged), decode_inode(Ino(9), &damaged));
            let _ = (decode_op(&record[..at % record.len()]), decode_inode(Ino(9), &record[..at % record.len()]));
        }
        let whole = encode_op(&op);
        prop_assert!(decode_op(&whole[..whole.len() - 1]).is_err());
        prop_assert!(decode_op(&[&whole[..], &[0]].concat()).is_err());
    }
}
