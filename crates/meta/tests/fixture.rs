//! A namespace in memory, with short forms of common ops.

use crate::strategies;
use meta::{
    Applied, Engine, FsError, Ino, Inode, Kind, MemoryEngine, Name, Namespace, Op, OpContext, Origin,
    RenameHow, invariants,
};
use std::sync::Arc;
use store::Timestamp;

pub(crate) fn context(now: i64) -> OpContext {
    let now = Timestamp(now);
    OpContext { now, at: strategies::at(now), uid: 1000, gid: 100, origin: Origin::Other }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A namespace whose clock advances by one with every op.
pub(crate) struct Fixture {
    pub(crate) engine: Arc<MemoryEngine>,
    pub(crate) namespace: Namespace,
    now: std::cell::Cell<i64>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let engine = Arc::new(MemoryEngine::default());
        let namespace = Namespace::new(engine.clone(), &context(1)).unwrap();
        Self { engine, namespace, now: std::cell::Cell::new(1) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.now.get())
    }

    /// Applies an op and then checks all invariants.
    pub(crate) fn apply(&self, op: Op) -> Result<Applied, FsError> {
        self.now.set(self.now.get() + 1);
        let head = self.engine.head();
        let result = self.namespace.commit(&context(self.now.get()), &op);
        if result.is_err() {
            assert_eq!(self.engine.head(), head, "a failed op changed something: {op:?}");
        }
        invariants::check(&*self.engine).unwrap();
        result
    }

    pub(crate) fn make(&self, parent: Ino, text: &str, kind: Kind, mode: u16) -> Result<Inode, FsError> {
        let ino = self.namespace.allocate(parent, 1)[0];
        let target = (kind == Kind::Symlink).then(|| "target".into());
        let op = Op::Create {
            parent,
            name: name(text),
            ino,
            kind,
            mode,
            uid: 1000,
            gid: 100,
            umask: 0,
            rdev: 0,
            target,
        };
        self.apply(op).map(|applied| applied.inode.unwrap())
    }

    pub(crate) fn dir(&self, parent: Ino, text: &str) -> Ino {
        self.make(parent, text, Kind::Directory, 0o755).unwrap().ino
    }

    pub(crate) fn file(&self, parent: Ino, text: &str) -> Ino {
        self.make(parent, text, Kind::File, 0o644).unwrap().ino
    }

    pub(crate) fn rename(
        &self,
        from: (Ino, &str),
        to: (Ino, &str),
        how: RenameHow,
    ) -> Result<Applied, FsError> {
        self.apply(Op::Rename { from: (from.0, name(from.1)), to: (to.0, name(to.1)), how, keep: false })
    }

    pub(crate) fn unlink(&self, parent: Ino, text: &str, keep: bool) -> Result<Applied, FsError> {
        self.apply(Op::Unlink { parent, name: name(text), keep })
    }

    pub(crate) fn find(&self, parent: Ino, text: &str) -> Option<Inode> {
        self.namespace.lookup(parent, &name(text)).unwrap()
    }

    pub(crate) fn names(&self, dir: Ino) -> Vec<String> {
        let entries = self.namespace.entries(dir, None, usize::MAX).unwrap();
        entries.iter().map(|(name, _)| name.to_string()).collect()
    }
}
