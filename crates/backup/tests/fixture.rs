//! A volume with records of every family, and comparisons of engines.

use meta::{
    AttrChanges, Batch, BatchOutcome, Engine, Extent, Ino, Kind, Limits, MemoryEngine, Moment, Name,
    Namespace, Op, OpContext, Origin, Reader, RefusedOp, Stored, XattrHow,
};
use std::ops::Bound;
use std::sync::Arc;
use store::{ETag, ObjectKey, Timestamp};

pub(crate) fn context(second: i64) -> OpContext {
    let now = Timestamp::from_secs(1_790_000_000 + second, 5);
    OpContext { now, at: Moment { mount: 1, nanos: second as u64 }, uid: 1, gid: 2, origin: Origin::FrontEnd }
}

/// An engine, and the namespace on it.
pub(crate) struct Volume {
    pub(crate) engine: Arc<MemoryEngine>,
    pub(crate) names: Namespace,
}

impl Volume {
    pub(crate) fn new() -> Self {
        let engine = Arc::new(MemoryEngine::default());
        let names = Namespace::new(engine.clone() as Arc<dyn Engine>, &context(0)).unwrap();
        Self { engine, names }
    }

    pub(crate) fn create(&self, parent: Ino, name: &[u8], kind: Kind) -> Ino {
        let ino = self.names.allocate(parent, 1)[0];
        let target = (kind == Kind::Symlink).then(|| b"to/\xff".to_vec().into());
        let name = Name::new(name).unwrap();
        self.commit(Op::Create {
            parent,
            name,
            ino,
            kind,
            mode: 0o2755,
            umask: 0o22,
            uid: 3,
            gid: 4,
            rdev: 0,
            target,
        });
        ino
    }

    pub(crate) fn commit(&self, op: Op) {
        self.names.commit(&context(2), &op).unwrap();
    }

    /// Makes records of every family.
    pub(crate) fn fill(&self) {
        let dir = self.create(Ino::ROOT, b"dir", Kind::Directory);
        let file = self.create(dir, b"not \xff utf8 \"\n", Kind::File);
        self.create(dir, b"link", Kind::Symlink);
        self.create(dir, b"pipe", Kind::Fifo);
        self.commit(Op::Link { ino: file, parent: Ino::ROOT, name: Name::new(b"other").unwrap() });
        let value = b"blue \xfe".to_vec().into();
        self.commit(Op::SetXattr { ino: file, name: (*b"user.color").into(), value, how: XattrHow::Set });
        self.publish(file, 9);
        let small = self.create(dir, b"small", Kind::File);
        self.publish(small, 2);
        let orphan = self.create(dir, b"gone", Kind::File);
        self.commit(Op::Unlink { parent: dir, name: Name::new(b"gone").unwrap(), keep: true });
        self.commit(Op::AwaitExport { ino: orphan });
        let changes = AttrChanges { mode: Some(0o2770), ..AttrChanges::default() };
        self.commit(Op::SetAttr { ino: dir, changes });
        let batch = Batch {
            dir,
            lease: Ino(1 << 50)..Ino((1 << 50) + 9),
            began: Timestamp(3),
            at: Moment { mount: 1, nanos: 2 },
            outcome: None,
        };
        let (id, outcome) = (batch.id(), BatchOutcome { merged: Timestamp(4), accepted: 5, refused: 1 });
        self.commit(Op::SetBatch { id, record: Some(batch.clone()) });
        self.commit(Op::SetBatch { id, record: Some(Batch { outcome: Some(outcome), ..batch }) });
        let refused = RefusedOp { op: vec![1, 255].into(), why: "exists".into(), kept: Some(file) };
        self.commit(Op::SetRefusedOp { batch: id, index: 7, record: Some(refused) });
        let limits = Some(Limits { bytes: Some(u64::MAX), files: None });
        self.names.set_quota(&context(3), small_quota_dir(self), limits).unwrap();
    }

    fn publish(&self, ino: Ino, extents: u64) {
        let stored = |number: u64| Stored {
            key: Some(ObjectKey::new(format!("c/{ino}-{number}")).unwrap()),
            etag: ETag::new(if number.is_multiple_of(2) {
                "0123456789abcdef0123456789abcdef-7"
            } else {
                "odd"
            }),
            version: (number == 1).then(|| "v1".into()),
            last_modified: (number != 2).then_some(Timestamp(number as i64)),
        };
        let extent = |number: u64| Extent {
            offset: number * 10,
            len: 5,
            object: stored(number),
            object_offset: number,
        };
        self.commit(Op::Publish {
            ino,
            base: None,
            content: (0..extents).map(extent).collect(),
            size_bytes: extents * 10,
            mtime: Some(Timestamp(1)),
        });
    }
}

/// Makes a directory for a quota, with a file in it.
fn small_quota_dir(volume: &Volume) -> Ino {
    let dir = volume.create(Ino::ROOT, b"limited", Kind::Directory);
    let below = volume.create(dir, b"below", Kind::Directory);
    volume.create(below, b"counted", Kind::File);
    dir
}

/// Returns all records of an engine.
pub(crate) fn rows(engine: &dyn Reader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    rows.into_iter().map(|(key, found)| (key, found.value.to_vec())).collect()
}
