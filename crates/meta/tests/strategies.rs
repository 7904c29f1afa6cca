//! Strategies for random ops on few inodes and names, so that ops often affect each other: a dozen inode numbers, four names.

use meta::{
    AttrChanges, Extent, Ino, Kind, Moment, Name, Observed, Op, OpContext, Origin, RenameHow, Stored,
    XattrHow,
};
use proptest::prelude::*;
use store::{ETag, ObjectKey, Timestamp};

/// Highest inode number that ops refer to: the root, the inodes of the prelude, and inodes that `Create` and `Import` may create.
pub(crate) const INO_MAX: u64 = 14;

/// Returns the ops that create the initial files: directories `a` (2), `a/b` (3) and `c` (4), files `d` (5), `a/c` (6) and `c/a` (7).
pub(crate) fn prelude() -> Vec<Op> {
    use Kind::{Directory, File};
    let made = [
        (1, "a", Directory),
        (2, "b", Directory),
        (1, "c", Directory),
        (1, "d", File),
        (2, "c", File),
        (4, "a", File),
    ];
    let create = |(at, (parent, name, kind)): (usize, (u64, &str, Kind))| Op::Create {
        parent: Ino(parent),
        name: Name::new(name.as_bytes()).unwrap(),
        ino: Ino(at as u64 + 2),
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target: None,
    };
    made.into_iter().enumerate().map(create).collect()
}

/// Generates ops with their contexts. Time advances by one with each op, and sometimes goes back.
pub(crate) fn sequence(len: usize) -> impl Strategy<Value = Vec<(OpContext, Op)>> {
    let step = (op(), 0..20i64, 0..3u32);
    prop::collection::vec(step, 1..len).prop_map(|steps| {
        let stamped = steps.into_iter().enumerate().map(|(at, (op, jitter, uid))| {
            let now = Timestamp(1_000 + at as i64 - if jitter == 0 { 5 } else { 0 });
            (OpContext { now, at: self::at(now), uid, gid: uid + 1, origin: Origin::Other }, op)
        });
        stamped.collect()
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => create(),
        4 => import(),
        3 => (ino(), ino(), name()).prop_map(|(ino, parent, name)| Op::Link { ino, parent, name }),
        2 => (ino(), ino(), name()).prop_map(|(ino, parent, name)| Op::HandOn { ino, parent, name }),
        4 => (ino(), name(), any::<bool>()).prop_map(|(parent, name, keep)| Op::Unlink { parent, name, keep }),
        2 => (ino(), name()).prop_map(|(parent, name)| Op::Rmdir { parent, name }),
        8 => rename(),
        4 => (ino(), changes()).prop_map(|(ino, changes)| Op::SetAttr { ino, changes }),
        2 => set_xattr(),
        1 => (ino(), attribute()).prop_map(|(ino, name)| Op::RemoveXattr { ino, name }),
        5 => publish(),
        5 => splice(),
        3 => (ino(), observed()).prop_map(|(ino, seen)| Op::Refresh { ino, seen }),
        2 => (ino(), name(), observation_time().prop_map(at), any::<bool>()).prop_map(|(parent, name, looked_at, keep)| Op::Vanish {
            parent,
            name,
            looked_at,
            keep,
        }),
        2 => (ino(), name()).prop_map(|(parent, name)| Op::Evict { parent, name }),
        2 => ino().prop_map(|ino| Op::Purge { ino }),
        1 => create_orphan(),
        2 => ino().prop_map(|ino| Op::AwaitExport { ino }),
        1 => (ino(), 1..4u64).prop_map(|(ino, change)| Op::Exported { ino, change }),
        1 => (ino(), observation_time()).prop_map(|(ino, atime)| Op::Accessed { ino, atime }),
    ]
}

/// Returns the inode number that an op creates, if it is an op that creates one, and those of existing inodes that it refers to.
pub(crate) fn numbers(op: &mut Op) -> (Option<&mut Ino>, Vec<&mut Ino>) {
    match op {
        Op::Create { parent, ino, .. }
        | Op::Import { parent, ino, .. }
        | Op::CreateOrphan { parent, ino, .. } => (Some(ino), vec![parent]),
        Op::Link { ino, parent, .. } | Op::HandOn { ino, parent, .. } => (None, vec![ino, parent]),
        Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. }
        | Op::Vanish { parent, .. }
        | Op::Evict { parent, .. } => (None, vec![parent]),
        Op::Rename { from, to, .. } => (None, vec![&mut from.0, &mut to.0]),
        Op::SetAttr { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. }
        | Op::Publish { ino, .. }
        | Op::Splice { ino, .. }
        | Op::Refresh { ino, .. }
        | Op::Purge { ino }
        | Op::AwaitExport { ino }
        | Op::Exported { ino, .. }
        | Op::Accessed { ino, .. } => (None, vec![ino]),
        other => panic!("the strategies do not generate {other:?}"),
    }
}

/// Generates inode numbers; low numbers, which exist, more often than high ones.
fn ino() -> impl Strategy<Value = Ino> {
    prop_oneof![4 => Just(Ino::ROOT), 12 => (2..8u64).prop_map(Ino), 3 => (8..=INO_MAX).prop_map(Ino)]
}

fn name() -> impl Strategy<Value = Name> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(|text| Name::new(text.as_bytes()).unwrap())
}

pub(crate) fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![4 => Just(Kind::Directory), 4 => Just(Kind::File), 1 => Just(Kind::Symlink), 1 => Just(Kind::Fifo)]
}

/// Converts a time of the ops to a moment: the test clock is never set back, so both have the same order.
pub(crate) fn at(now: Timestamp) -> Moment {
    Moment { mount: 1, nanos: now.0 as u64 }
}

/// Generates the time of an observation, close to the times of the ops.
fn observation_time() -> impl Strategy<Value = Timestamp> {
    (990..1_060i64).prop_map(Timestamp)
}

fn create() -> impl Strategy<Value = Op> {
    (ino(), name(), 6..=INO_MAX, kind(), 0..0o10000u16, 0..0o1000u16, 0..3u32).prop_map(
        |(parent, name, ino, kind, mode, umask, owner)| Op::Create {
            parent,
            name,
            ino: Ino(ino),
            kind,
            mode,
            uid: owner,
            gid: owner + 5,
            umask,
            rdev: 0,
            target: (kind == Kind::Symlink).then(|| "to/where".into()),
        },
    )
}

fn create_orphan() -> impl Strategy<Value = Op> {
    (ino(), 6..=INO_MAX, 0..0o10000u16, 0..0o1000u16, 0..3u32).prop_map(
        |(parent, ino, mode, umask, owner)| Op::CreateOrphan {
            parent,
            ino: Ino(ino),
            mode,
            umask,
            uid: owner,
            gid: owner + 5,
        },
    )
}

fn import() -> impl Strategy<Value = Op> {
    (ino(), name(), 6..=INO_MAX, observed()).prop_map(|(parent, name, ino, seen)| Op::Import {
        parent,
        name,
        ino: Ino(ino),
        seen,
    })
}

fn rename() -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        4 => Just(RenameHow::Replace),
        1 => Just(RenameHow::NoReplace),
        2 => Just(RenameHow::Exchange)
    ];
    ((ino(), name()), (ino(), name()), how, any::<bool>()).prop_map(|(from, to, how, keep)| Op::Rename {
        from,
        to,
        how,
        keep,
    })
}

fn changes() -> impl Strategy<Value = AttrChanges> {
    let time = || prop::option::of((0..2_000i64).prop_map(Timestamp));
    (
        prop::option::of(0..0o10000u16),
        prop::option::of(0..4u32),
        prop::option::of(0..4u32),
        prop::option::of(0..100u64),
        time(),
        time(),
    )
        .prop_map(|(mode, uid, gid, size_bytes, atime, mtime)| AttrChanges {
            mode,
            uid,
            gid,
            size_bytes,
            atime,
            mtime,
        })
}

fn attribute() -> impl Strategy<Value = Box<[u8]>> {
    prop::sample::select(vec!["user.a", "user.b", ""]).prop_map(|text| text.as_bytes().into())
}

fn set_xattr() -> impl Strategy<Value = Op> {
    let how = prop::sample::select(vec![XattrHow::Set, XattrHow::Set, XattrHow::Create, XattrHow::Replace]);
    (ino(), attribute(), any::<[u8; 3]>(), how).prop_map(|(ino, name, value, how)| Op::SetXattr {
        ino,
        name,
        value: value.to_vec().into(),
        how,
    })
}

fn etag() -> impl Strategy<Value = ETag> {
    prop::sample::select(vec![
        "d41d8cd98f00b204e9800998ecf8427e",
        "d41d8cd98f00b204e9800998ecf8427e-2",
        "odd",
    ])
    .prop_map(ETag::new)
}

fn publish() -> impl Strategy<Value = Op> {
    let time = prop::option::of((0..2_000i64).prop_map(Timestamp));
    (ino(), prop::option::of(etag()), content(), 20..100u64, time).prop_map(
        |(ino, base, content, slack, mtime)| {
            let end = content.iter().map(Extent::end).max().unwrap_or(0);
            let size_bytes = if content.is_empty() { 0 } else { (end + slack).saturating_sub(25) };
            Op::Publish { ino, base, content, size_bytes, mtime }
        },
    )
}

/// Generates splices; mostly the ranges cover the new extents and gaps next to them.
fn splice() -> impl Strategy<Value = Op> {
    let time = prop::option::of((0..2_000i64).prop_map(Timestamp));
    (ino(), content(), prop::collection::vec(0..8u64, 7), 20..100u64, time).prop_map(
        |(ino, content, margins, slack, mtime)| {
            let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
            for (extent, margin) in content.iter().zip(&margins) {
                let free = ranges.last().map_or(0, |last| last.end);
                let start = extent.offset.saturating_sub(*margin).max(free);
                // A margin of 7 makes the range too short.
                let end = if *margin == 7 { extent.end().saturating_sub(1).max(start) } else { extent.end() };
                ranges.push(start..end);
            }
            if let Some(margin) = margins.last().filter(|margin| **margin > 3) {
                let free = ranges.last().map_or(0, |last| last.end);
                ranges.push(free + margin..free + 3 * margin);
            }
            let end = content.iter().map(Extent::end).max().unwrap_or(40);
            Op::Splice { ino, ranges, content, size_bytes: (end + slack).saturating_sub(25), mtime }
        },
    )
}

/// Generates up to seven extents, mostly ascending. More than four extents have rows of their own.
fn content() -> impl Strategy<Value = Vec<Extent>> {
    prop::collection::vec((0..20u64, prop_oneof![9 => 1..30u64, 1 => Just(0)], stored(), 0..9u64), 0..7)
        .prop_map(|pieces| {
            let mut end = 0;
            let mut content = Vec::new();
            for (gap, len, object, object_offset) in pieces {
                // A gap of 13 makes the extents overlap.
                let offset = if gap == 13 { end.max(1) - 1 } else { end + gap };
                content.push(Extent { offset, len, object, object_offset });
                end = offset + len;
            }
            content
        })
}

pub(crate) fn stored() -> impl Strategy<Value = Stored> {
    let key = prop::option::of(prop::sample::select(vec!["k", "dir/", "x\u{1}"]));
    let version = prop::option::of(prop::sample::select(vec!["v1", "v2"]));
    (key, etag(), version, prop::option::of(any::<i64>())).prop_map(|(key, etag, version, time)| Stored {
        key: key.map(|key| ObjectKey::try_from(key).unwrap()),
        etag,
        version: version.map(Into::into),
        last_modified: time.map(Timestamp),
    })
}

fn observed() -> impl Strategy<Value = Observed> {
    let times = [any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>()];
    let look = (any::<bool>(), observation_time().prop_map(at));
    (kind(), 0..50u64, prop::option::of(stored()), 0..0o10000u16, 0..4u32, times, look).prop_map(
        |(kind, size_bytes, object, mode, owner, [atime, mtime, ctime, btime], (exact, looked_at))| {
            Observed {
                kind,
                size_bytes,
                object,
                mode,
                uid: owner,
                gid: owner,
                rdev: 0,
                atime: Timestamp(atime),
                mtime: Timestamp(mtime),
                ctime: Timestamp(ctime),
                btime: Timestamp(btime),
                target: (exact && kind == Kind::Symlink).then(|| "seen".into()),
                exact,
                looked_at,
            }
        },
    )
}
