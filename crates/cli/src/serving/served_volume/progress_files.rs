//! The progress of batches as read-only files of the mount: `.tenon/batches/ID/progress` and `directories`, for each batch that is open, or ended and not forgotten.
//!
//! A text is made when it is read. Another one is made only after [`IDLE_FACTOR`] times as long as that took, so that this takes at most 0.5 % of a processor,
//! however often programs read.

use super::VolumeService;
use crate::control::batch_protocol::{BatchProgress, path_text};
use crate::metadata;
use crate::serving::batches::report::BatchReports;
use bytes::Bytes;
use fuse::{VirtualEntry, VirtualFiles};
use meta::BatchId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Directory of the batches below `.tenon`, as in the bucket.
const BATCHES: &str = "batches";

/// A text is shown for this many times the time that it took to make it.
const IDLE_FACTOR: u32 = 199;

/// The files of all batches of a volume. There are none until a volume is attached.
#[derive(Debug, Default)]
pub(crate) struct ProgressFiles {
    service: OnceLock<Weak<VolumeService>>,
    texts: Mutex<BTreeMap<(BatchId, ProgressFile), Text>>,
}

/// The files of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProgressFile {
    /// State and counters, which all users may read.
    Progress,
    /// Counts and sizes of each directory. They show names of directories that other users may not be able to list.
    Directories,
}

/// The content of a file as it was made last.
#[derive(Debug)]
struct Text {
    content: Bytes,
    made: Instant,
    took: Duration,
}

/// A path below `.tenon`.
enum Place {
    Top,
    Batches,
    Batch(BatchId),
    File(BatchId, ProgressFile),
}

impl ProgressFiles {
    /// Shows the batches of a volume from now on.
    pub(super) fn attach(&self, service: &Arc<VolumeService>) {
        self.service.get_or_init(|| Arc::downgrade(service));
    }

    fn service(&self) -> Option<Arc<VolumeService>> {
        self.service.get()?.upgrade()
    }

    /// Returns the content of a file, which is made again if it is old enough. Readers wait for each other, so that they share the content.
    fn text(&self, service: &VolumeService, id: BatchId, file: ProgressFile) -> Option<Bytes> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = texts.get(&(id, file)).filter(|text| text.is_recent()) {
            return Some(text.content.clone());
        }
        let begun = Instant::now();
        let content = file.make(service, id);
        let Some(content) = content.map(Bytes::from) else {
            // A batch that was forgotten.
            texts.retain(|(other, _), _| *other != id);
            return None;
        };
        let text = Text { content: content.clone(), made: Instant::now(), took: begun.elapsed() };
        texts.insert((id, file), text);
        Some(content)
    }
}

impl VirtualFiles for ProgressFiles {
    fn find(&self, path: &[String]) -> Option<VirtualEntry> {
        let service = self.service()?;
        let ids = service.reports().ids();
        let place = Place::of(path)?;
        let is_there = match place {
            Place::Top | Place::Batches => !ids.is_empty(),
            Place::Batch(id) | Place::File(id, _) => ids.contains(&id),
        };
        is_there.then(|| place.entry(&service))
    }

    fn list(&self, path: &[String]) -> Vec<(String, VirtualEntry)> {
        let (Some(service), Some(place)) = (self.service(), Place::of(path)) else { return Vec::new() };
        let inside: Vec<(String, Place)> = match place {
            Place::Top => vec![(BATCHES.to_owned(), Place::Batches)],
            Place::Batches => {
                let ids = service.reports().ids();
                ids.into_iter().map(|id| (id.to_string(), Place::Batch(id))).collect()
            }
            Place::Batch(id) => ProgressFile::ALL
                .iter()
                .map(|(file, name)| ((*name).to_owned(), Place::File(id, *file)))
                .collect(),
            Place::File(..) => Vec::new(),
        };
        inside.into_iter().map(|(name, place)| (name, place.entry(&service))).collect()
    }

    fn read(&self, path: &[String]) -> Option<Bytes> {
        match Place::of(path)? {
            Place::File(id, file) => self.text(&*self.service()?, id, file),
            _ => None,
        }
    }
}

impl VolumeService {
    fn reports(&self) -> BatchReports<'_> {
        self.batches.reports(&self.opened)
    }
}

impl Place {
    /// Returns the place of a path; `None` if no batch can have it.
    fn of(path: &[String]) -> Option<Self> {
        let id = |text: &String| text.parse::<BatchId>().ok().filter(|id| id.to_string() == *text);
        match path {
            [] => Some(Self::Top),
            [batches] if batches == BATCHES => Some(Self::Batches),
            [batches, batch] if batches == BATCHES => Some(Self::Batch(id(batch)?)),
            [batches, batch, name] if batches == BATCHES => {
                let (file, _) = ProgressFile::ALL.iter().find(|(_, file_name)| file_name == name)?;
                Some(Self::File(id(batch)?, *file))
            }
            _ => None,
        }
    }

    fn entry(&self, service: &VolumeService) -> VirtualEntry {
        let (is_directory, mode) = match self {
            Self::File(_, ProgressFile::Progress) => (false, 0o444),
            Self::File(_, ProgressFile::Directories) => (false, 0o400),
            _ => (true, 0o555),
        };
        let modified = match self {
            Self::Batch(id) | Self::File(id, _) => service.reports().last_change(*id),
            _ => None,
        };
        VirtualEntry { is_directory, mode, modified: modified.unwrap_or_else(metadata::now) }
    }
}

impl ProgressFile {
    /// All files of a batch with their names.
    const ALL: [(Self, &str); 2] = [(Self::Progress, "progress"), (Self::Directories, "directories")];

    /// Returns the content of the file now; `None` if the batch or its numbers are not known.
    fn make(self, service: &VolumeService, id: BatchId) -> Option<String> {
        let directories = match self {
            Self::Progress => 0,
            Self::Directories => usize::MAX,
        };
        let progress = service.reports().progress_now(id, directories)?;
        Some(match self {
            Self::Progress => counters(&progress),
            Self::Directories => directory_lines(&progress),
        })
    }
}

impl Text {
    fn is_recent(&self) -> bool {
        self.made.elapsed() < self.took * IDLE_FACTOR
    }
}

/// Returns a line with a name and a value for each counter.
fn counters(progress: &BatchProgress) -> String {
    let (batch, mut text) = (&progress.batch, String::new());
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {value}");
    };
    add("batch", &batch.id);
    add("state", &batch.state);
    add("began", &batch.began);
    add("files", &progress.files);
    add("directories", &progress.directories);
    add("removed", &progress.removed);
    add("renames", &progress.renames);
    add("writes", &progress.writes);
    add("bytes", &progress.bytes);
    text
}

/// Returns a line for each directory with changes, those with the most bytes first, below a line with the names of the columns.
fn directory_lines(progress: &BatchProgress) -> String {
    let mut text = "bytes\tadded\tremoved\tpath\n".to_owned();
    for dir in &progress.largest {
        let path = path_text(dir.path.as_deref());
        // Control characters in names are escaped already.
        let _ = writeln!(text, "{}\t{}\t{}\t{path}", dir.bytes, dir.added, dir.removed);
    }
    if progress.other_directories > 0 {
        let _ = writeln!(text, "# {} other directories", progress.other_directories);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::batch_protocol::{BatchDirectory, BatchInfo};

    #[test]
    fn a_path_is_a_batch_only_by_its_whole_id() {
        let place =
            |path: &[&str]| Place::of(&path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert!(matches!(place(&[]), Some(Place::Top)));
        let id = "0000010000000002";
        assert!(matches!(place(&["batches", id]), Some(Place::Batch(BatchId(0x100_0000_0002)))));
        assert!(matches!(place(&["batches", id, "progress"]), Some(Place::File(_, ProgressFile::Progress))));
        for path in [
            &["metadata"][..],
            &["batches", "10000000002"],
            &["batches", id, "x"],
            &["batches", "x", "progress"],
        ] {
            assert!(place(path).is_none(), "{path:?}");
        }
    }

    #[test]
    fn texts_have_one_value_or_directory_on_each_line() {
        let info = r#"{"id":"1","path":"job","began":"2026-11-26T21:14:07Z","state":"mounted","ops":7}"#;
        let batch: BatchInfo = serde_json::from_str(info).unwrap();
        let dir = BatchDirectory { path: Some("job/a b".to_owned()), added: 3, removed: 2, bytes: 4096 };
        let progress = BatchProgress {
            files: 3,
            bytes: 4096,
            largest: vec![dir],
            other_directories: 1,
            ..BatchProgress::unknown(batch)
        };
        let text = counters(&progress);
        assert!(text.lines().all(|line| line.split(' ').count() == 2), "{text}");
        assert!(text.contains("\nfiles 3\n") && text.ends_with("\nbytes 4096\n"), "{text}");
        let text = directory_lines(&progress);
        assert_eq!(text, "bytes\tadded\tremoved\tpath\n4096\t3\t2\t/job/a b\n# 1 other directories\n");
    }
}
