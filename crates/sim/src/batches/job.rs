//! One batch of a world: its private namespace, and the terms of its merge.

use super::draw::Draw;
use batch::{JobOptions, PrivateEngine, PrivateNamespace, Terms};
use meta::access::Caller;
use meta::{Batch, Engine, Namespace, Op, OpContext, Reader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Entropy, Timestamp};

/// Memory for changes, in bytes: so little that some changes are in files.
const MEMORY_BYTES_MAX: usize = 8 << 10;

/// A batch that is neither merged nor discarded.
pub(super) struct Job {
    pub(super) record: Batch,
    pub(super) dir: PathBuf,
    pub(super) engine: Arc<PrivateEngine>,
    names: Namespace,
    /// Whether ops of the log could not be applied when the batch was resumed.
    pub(super) is_stale: bool,
    /// Whether `is_stale` has ever been true. The program has then seen a state that is not the effect of its ops.
    pub(super) was_stale: bool,
}

impl Job {
    pub(super) fn begin(dir: &Path, record: Batch, base: Arc<dyn Reader>) -> Result<Self, String> {
        let private = PrivateNamespace::begin(dir, base, record.lease.clone(), options()).map_err(text)?;
        Self::open(dir, record, private, (false, false))
    }

    /// Ends the process of the batch as a kill does, and resumes the batch.
    pub(super) fn kill(self, base: Arc<dyn Reader>) -> Result<Self, String> {
        let Self { record, dir, was_stale, .. } = self;
        let (private, stale) = PrivateNamespace::resume(&dir, base, options()).map_err(text)?;
        Self::open(&dir, record, private, (stale > 0, was_stale || stale > 0))
    }

    fn open(
        dir: &Path,
        record: Batch,
        private: PrivateNamespace,
        (is_stale, was_stale): (bool, bool),
    ) -> Result<Self, String> {
        let engine = Arc::new(private.into_engine(record.at));
        let names = Namespace::new(engine.clone() as Arc<dyn Engine>, &context(&record, record.began));
        Ok(Self { dir: dir.to_owned(), names: names.map_err(text)?, record, engine, is_stale, was_stale })
    }

    /// Carries out a random op. Returns it if it succeeded.
    pub(super) fn act(&self, entropy: &Entropy, now: Timestamp) -> Option<Op> {
        let prefix = self.prefix();
        let draw = Draw { entropy, names: &self.names, prefix: &prefix, has_packs: true, user: 0 };
        let op = draw.op()?;
        self.names.commit(&context(&self.record, now), &op).is_ok().then_some(op)
    }

    /// Returns the prefix of the keys of the batch's objects.
    pub(super) fn prefix(&self) -> Vec<u8> {
        format!(".tenon/batches/{}/", self.record.id()).into_bytes()
    }

    pub(super) fn terms(&self, now: Timestamp) -> Terms {
        let prefix = self.prefix();
        Terms {
            caller: Caller { uid: 0, gid: 0, groups: Box::default() },
            lease: self.record.lease.clone(),
            at: self.record.at,
            times: Timestamp(i64::MIN)..=Timestamp(i64::MAX),
            packs: Some([&prefix[..], b"pack-"].concat().into()),
            content: Some(prefix.into()),
            keeps_refused: true,
            submitted: now,
        }
    }
}

fn options() -> JobOptions {
    JobOptions { memory_bytes_max: MEMORY_BYTES_MAX, ..JobOptions::default() }
}

fn context(record: &Batch, now: Timestamp) -> OpContext {
    OpContext { now, at: record.at, uid: 0, gid: 0, origin: meta::Origin::Other }
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
