//! The implementation of the console's `Process` for a served volume.

use super::VolumeService;
use crate::control::batch_protocol::{BatchAnswer, BatchInfo, BatchRequest};
use crate::control::protocol::{self, Answer};
use crate::serving::console::{drive_facts, report};
use crate::serving::metrics::MetricsSource as _;
use console::{
    Abilities, Batch, Conflict, Drive, Keep, Process, RefusedChange, ScrubOutcome, Section, Side, View,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[async_trait::async_trait]
impl Process for VolumeService {
    fn name(&self) -> String {
        self.opened.volume.url()
    }

    fn abilities(&self) -> Abilities {
        let drives = self.opened.bucket.local.as_ref().is_some_and(|local| local.has_drives());
        Abilities { files: true, mounted: self.mount_points.has_any(), drives }
    }

    fn report(&self) -> Vec<Section> {
        report::sections(&self.status())
    }

    fn samples(&self) -> BTreeMap<String, f64> {
        self.metrics().samples()
    }

    async fn conflicts(&self) -> Vec<Conflict> {
        let found = self.opened.fs.conflicts().list();
        found.iter().map(|conflict| conflict_facts(protocol::Conflict::from(conflict))).collect()
    }

    async fn resolve_conflict(&self, id: &str, keep: Keep) -> Result<(), String> {
        let keep = match keep {
            Keep::Bucket => protocol::Keep::Bucket,
            Keep::File => protocol::Keep::File,
            Keep::Both => protocol::Keep::Both,
        };
        match self.resolve(id, keep).await {
            Answer::Resolved => Ok(()),
            other => Err(reason(other)),
        }
    }

    async fn batches(&self) -> Result<Vec<Batch>, String> {
        match self.batch(BatchRequest::List).await {
            Answer::Batch(BatchAnswer::Batches { batches }) => {
                Ok(batches.into_iter().map(batch_facts).collect())
            }
            other => Err(reason(other)),
        }
    }

    async fn refused_changes(&self, batch: &str, from: u64) -> Result<Vec<RefusedChange>, String> {
        match self.batch(BatchRequest::Conflicts { id: batch.to_owned(), from }).await {
            Answer::Batch(BatchAnswer::Conflicts { conflicts }) => Ok(conflicts
                .into_iter()
                .map(|conflict| RefusedChange {
                    index: conflict.index,
                    change: conflict.op,
                    reason: conflict.why,
                    kept_as: conflict.kept_as,
                })
                .collect()),
            other => Err(reason(other)),
        }
    }

    async fn discard_batch(&self, id: &str) -> Result<(), String> {
        match self.batch(BatchRequest::Discard { id: id.to_owned() }).await {
            Answer::Batch(BatchAnswer::Discarded) => Ok(()),
            other => Err(reason(other)),
        }
    }

    fn views(&self) -> Vec<View> {
        let mounted_views = self.opened.mounted_views.iter();
        let views = mounted_views.flat_map(|mounted_views| mounted_views.status());
        views
            .map(|view| View {
                name: view.name,
                objects: view.objects,
                problems: view.lost.into_iter().chain(view.unlisted).collect(),
            })
            .collect()
    }

    fn rulesets(&self) -> String {
        self.opened
            .mounted_views
            .as_ref()
            .map(|mounted_views| views::write(mounted_views.rulesets()))
            .unwrap_or_default()
    }

    fn drives(&self) -> Vec<Drive> {
        self.drives().iter().map(drive_facts::of_drive).collect()
    }

    async fn scrub(&self, objects: Arc<AtomicU64>) -> Result<Vec<ScrubOutcome>, String> {
        drive_facts::scrub(self.drives(), &objects).await
    }

    fn log_file(&self) -> Option<PathBuf> {
        self.log.clone()
    }
}

fn conflict_facts(conflict: protocol::Conflict) -> Conflict {
    let side = |side: protocol::Side| Side { key: side.key, etag: side.etag };
    Conflict {
        id: conflict.id,
        path: conflict.path,
        key: conflict.key,
        at: conflict.at,
        policy: conflict.policy,
        file: conflict.file.map(side),
        bucket: conflict.bucket.map(side),
        all_bytes_kept: conflict.all_bytes_kept,
        blocks: conflict.blocks,
    }
}

fn batch_facts(batch: BatchInfo) -> Batch {
    Batch {
        id: batch.id,
        path: batch.path,
        began: batch.began,
        state: batch.state,
        changes: batch.ops,
        refused: batch.refused,
    }
}

/// Returns the reason of a failure.
fn reason(answer: Answer) -> String {
    match answer {
        Answer::Failed { reason } => reason,
        other => format!("the process gave another answer: {other:?}"),
    }
}
