//! Restoration: fills an empty engine from a backup.
//!
//! The newest undamaged snapshot is loaded, and then the log after it up to the first gap or damage. On request it is the newest undamaged
//! snapshot before some time, without the log. Everything that is damaged or missing is reported, never skipped silently.

use crate::fill::{Fill, Replay};
use crate::keys::{Keys, Lineage, Part};
use crate::listing::{Complete, Listing, newest_lineage};
use crate::manifest::Manifest;
use crate::snapshot::{read, read_manifest, read_table};
use crate::{About, Error, Result, segment};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use meta::{Engine, EngineError, Seqno};
use std::ops::Bound;
use std::sync::Arc;
use store::{ObjectStore, Timestamp};

/// Tables and segments that are read ahead.
const READ_AHEAD: usize = 4;

/// The backup to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Choice {
    /// The lineage; `None` for the one with the newest snapshot, among those stored before `before`.
    pub lineage: Option<Lineage>,
    /// Restore the newest snapshot that was stored at or before this time, without the log; `None` for the newest state.
    pub before: Option<Timestamp>,
}

/// Progress of a restoration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Records of the snapshot restored so far, and their total number.
    Records(u64, u64),
    /// Ops of the log applied so far.
    Ops(u64),
}

/// The outcome of a restoration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The lineage.
    pub lineage: Lineage,
    /// The volume that was backed up.
    pub about: About,
    /// The moment whose state was restored, by the clock of the machine that made the backup.
    pub moment: Timestamp,
    /// The commit whose state was restored.
    pub seqno: Seqno,
    /// Number of records in the snapshot.
    pub records: u64,
    /// Number of ops applied after it.
    pub ops: u64,
    /// Damage that was met, one line each. The state is older than the newest backup because of it.
    pub problems: Vec<String>,
}

/// Creates an empty engine, in place of the previous one if there was one.
pub type MakeEngine<'a> = dyn FnMut() -> Result<Arc<dyn Engine>, EngineError> + 'a;

/// Restores a volume's metadata to an engine that `make_engine` creates, once for each snapshot that is tried. The engine is durable when
/// this returns.
///
/// # Errors
/// [`Error::NoBackup`] if no wanted snapshot is complete and undamaged.
pub async fn restore(
    store: &dyn ObjectStore,
    keys: &Keys,
    choice: Choice,
    make_engine: &mut MakeEngine<'_>,
    mut on_progress: impl FnMut(Progress),
) -> Result<(Restored, Arc<dyn Engine>)> {
    let wanted = |lineage| choice.lineage.is_none_or(|wanted| wanted == lineage);
    let newest = newest_lineage(store, keys, wanted, choice.before).await?;
    let (lineage, listing) = newest.ok_or_else(|| Error::NoBackup(reason(&[], choice.before)))?;
    let backup = Backup { store, keys, lineage, listing };
    let complete = backup.listing.complete();
    let is_wanted = |one: &&Complete| choice.before.is_none_or(|before| one.at <= before);
    let mut problems = Vec::new();
    for snapshot in complete.iter().rev().filter(is_wanted) {
        let engine = make_engine()?;
        let outcome = backup.load_snapshot(*snapshot, engine.as_ref(), &mut on_progress).await;
        let manifest = match outcome {
            Ok(manifest) => manifest,
            Err(error @ (Error::Damaged { .. } | Error::Store(store::StoreError::NotFound(_)))) => {
                problems
                    .push(format!("the snapshot of commit {} was passed over: {error}", snapshot.seqno.0));
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut restored = Restored {
            lineage,
            seqno: snapshot.seqno,
            moment: Timestamp(manifest.made_at),
            records: manifest.records(),
            about: manifest.about,
            ops: 0,
            problems,
        };
        if choice.before.is_none() {
            backup.replay(*snapshot, engine.as_ref(), &mut restored, &mut on_progress).await?;
        }
        engine.sync()?;
        return Ok((restored, engine));
    }
    Err(Error::NoBackup(reason(&problems, choice.before)))
}

/// Says what the backup lacks, as the end of a message.
fn reason(problems: &[String], before: Option<Timestamp>) -> String {
    match (problems, before) {
        ([], None) => String::new(),
        ([], Some(_)) => " that was stored before the given time".to_owned(),
        _ => format!(" without damage: {}", problems.join("; ")),
    }
}

/// A lineage in a bucket.
struct Backup<'b> {
    store: &'b dyn ObjectStore,
    keys: &'b Keys,
    lineage: Lineage,
    listing: Listing,
}

impl Backup<'_> {
    async fn load_snapshot(
        &self,
        snapshot: Complete,
        engine: &dyn Engine,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Manifest> {
        let Complete { epoch, seqno, .. } = snapshot;
        let (store, keys, lineage) = (self.store, self.keys, self.lineage);
        let manifest = read_manifest(store, keys, lineage, (epoch, seqno)).await?;
        let total = manifest.records();
        let read = |(number, entry): (usize, _)| {
            let part = Part::Table { epoch, seqno, number: number as u32 };
            read_table(store, keys, lineage, part, entry)
        };
        let entries = manifest.tables.clone().into_iter().enumerate();
        let mut tables = std::pin::pin!(stream::iter(entries).map(read).buffered(READ_AHEAD));
        let mut fill = Fill::begin(engine)?;
        while let Some(table) = tables.try_next().await? {
            add_table(&mut fill, &table)?;
            on_progress(Progress::Records(fill.records, total));
        }
        fill.finish()?;
        Ok(manifest)
    }

    /// Applies the log after a snapshot, up to the first gap or damage.
    async fn replay(
        &self,
        snapshot: Complete,
        engine: &dyn Engine,
        restored: &mut Restored,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let Complete { epoch, seqno, .. } = snapshot;
        let read_segment = |(from, to): (Seqno, Seqno)| async move {
            let part = Part::Log { epoch, from, to };
            let key = self.keys.part(self.lineage, part)?;
            segment::open(self.lineage, part, &key, &read(self.store, &key).await?)
        };
        let chain = self.listing.chain(epoch, seqno);
        let mut segments = std::pin::pin!(stream::iter(chain).map(read_segment).buffered(READ_AHEAD));
        let mut replay = Replay::after(engine, seqno);
        while let Some(opened) = segments.next().await {
            let applied = opened.and_then(|opened| replay.apply(&opened.ops).map(|()| opened.read_at));
            match applied {
                Ok(read_at) => restored.moment = read_at,
                Err(
                    error @ (Error::Damaged { .. }
                    | Error::Inconsistent(_)
                    | Error::Store(store::StoreError::NotFound(_))),
                ) => {
                    restored
                        .problems
                        .push(format!("the log after commit {} was passed over: {error}", replay.at.0));
                    break;
                }
                Err(error) => return Err(error),
            }
            on_progress(Progress::Ops(replay.ops));
        }
        (restored.seqno, restored.ops) = (replay.at, replay.ops);
        Ok(())
    }
}

fn add_table(fill: &mut Fill<'_>, table: &Arc<sst::Table<bytes::Bytes>>) -> Result<()> {
    let mut cursor = table.scan(Bound::Unbounded);
    while cursor.advance()? {
        fill.put(cursor.key(), cursor.value())?;
    }
    Ok(())
}
