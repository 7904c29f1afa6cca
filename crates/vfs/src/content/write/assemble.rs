//! Assembly: ranges of an edited file become one object; unchanged ranges are copied inside the store.

use futures_util::{StreamExt as _, TryStreamExt as _};
use std::ops::Range;
use std::sync::Arc;
use store::{GetOptions, Multipart, ObjectKey, ObjectRef, Payload, Precondition, PutOptions, StoreError};

use super::Local;
use super::local::Source;
use crate::bucket::metadata::Described;
use crate::config::{Config, PART_BYTES_MIN};
use crate::content::pin::{Cut, Pin};
use crate::content::ranges::{push_zeros, total};
use crate::content::read::readahead::WHOLE_BYTES_MAX;
use crate::content::write::uploader::Uploader;
use crate::fail_fast::Share;

/// S3's maximum number of parts.
const PARTS_MAX: u64 = 10_000;
/// Memory of one permit to assemble. Small enough that many small files are stored at once, and about what a request takes besides
/// its body.
const PERMIT_BYTES: u64 = 64 << 10;
/// Parts of one file in flight.
const IN_FLIGHT_MAX: usize = 4;

/// Ranges of an edited file that are concatenated into one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assembly<'l> {
    /// The edited file.
    pub(super) local: &'l Local,
    /// The ranges of the file, in the order in which the object has them.
    pub(super) runs: &'l [Range<u64>],
    /// The file's share of the memory of assemblies.
    pub(super) share: &'l Share,
}

impl Assembly<'_> {
    /// Returns the ranges of the file that a range of the object holds.
    fn of_object(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let mut at = 0;
        for run in self.runs {
            let len = run.end - run.start;
            let (from, to) = (range.start.max(at), range.end.min(at + len));
            if from < to {
                found.push(run.start + (from - at)..run.start + (to - at));
            }
            at += len;
        }
        found
    }

    /// Returns the object, and the range in it, that holds an unwritten range of the file, if it is a single one. The caller's
    /// part copy is conditional on the object's tag.
    fn copied_from(&self, range: &Range<u64>) -> Option<(Arc<ObjectRef>, Range<u64>)> {
        let sources = self.local.sources(range.clone());
        let ([Source::Base(_)], Some(base)) = (sources.as_slice(), self.local.base()) else { return None };
        // An error is reported by the read that follows.
        match base.cut(range.clone()).ok()?.as_slice() {
            [Cut::Stored(within, piece)] => Some((piece.object.clone(), piece.within(within))),
            _ => None,
        }
    }

    /// Returns whether a range of the object needs no memory of this process: it is copied in the store or consists of zeros.
    fn takes_no_memory(&self, range: &Range<u64>) -> bool {
        let runs = self.of_object(range);
        let is_copied = matches!(runs.as_slice(), [run] if self.copied_from(run).is_some());
        let mut sources = runs.into_iter().flat_map(|run| self.local.sources(run));
        is_copied || sources.all(|source| matches!(source, Source::Zeros(_)))
    }
}

impl Uploader {
    /// Stores the ranges of an assembly as one object under `key`, in one request if they are short.
    pub(super) async fn assemble(
        &self,
        assembly: Assembly<'_>,
        key: &ObjectKey,
        described: &Described,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        let Described { attributes, tags } = described.clone();
        let size = total(assembly.runs);
        if size <= self.mount.config.assembled_part_bytes() {
            let stored = async {
                let body = self.read_merged(assembly, &(0..size)).await?;
                let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
                self.mount.store.put(key, body, options).await
            };
            let permits = self.assembling_permits(assembly, &(0..size));
            return self.assembling.run_with_permits(permits, assembly.share, Box::pin(stored)).await;
        }
        let upload = self.mount.store.multipart(key, attributes, tags).await?;
        self.send_and_complete(assembly, upload.as_ref(), precondition).await
    }

    /// Sends the parts of a multipart upload and completes it, or aborts it on an error.
    pub(super) async fn send_and_complete(
        &self,
        assembly: Assembly<'_>,
        upload: &dyn Multipart,
        precondition: Precondition,
    ) -> Result<ObjectRef, StoreError> {
        let outcome = match self.send_parts(assembly, upload).await {
            Ok(()) => upload.complete(precondition).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            upload.abort().await.ok();
        }
        outcome
    }

    /// Sends the assembled bytes as the parts of an upload.
    async fn send_parts(&self, assembly: Assembly<'_>, upload: &dyn Multipart) -> Result<(), StoreError> {
        let part_bytes = self.mount.config.assembled_part_bytes();
        let parts = parts(total(assembly.runs), part_bytes, |range| assembly.takes_no_memory(range));
        let sent = (1..).zip(parts).map(|(number, range)| self.send_part(assembly, upload, number, range));
        futures_util::stream::iter(sent).buffer_unordered(IN_FLIGHT_MAX).try_collect().await
    }

    /// Sends a part: as a copy inside the store if it is an unchanged range of one object, otherwise its bytes.
    async fn send_part(
        &self,
        assembly: Assembly<'_>,
        upload: &dyn Multipart,
        number: u32,
        range: Range<u64>,
    ) -> Result<(), StoreError> {
        let is_worth_a_copy = range.end - range.start >= PART_BYTES_MIN || range.end == total(assembly.runs);
        if let [run] = assembly.of_object(&range).as_slice()
            && let Some((object, within)) = assembly.copied_from(run).filter(|_| is_worth_a_copy)
        {
            return match object.etag.is_provisional() {
                true => {
                    upload.copy_part(number, &self.mount.store.head(&object.key).await?.object, within).await
                }
                false => upload.copy_part(number, &object, within).await,
            };
        }
        let sent = async { upload.put_part(number, self.read_merged(assembly, &range).await?).await };
        let permits = self.assembling_permits(assembly, &range);
        self.assembling.run_with_permits(permits, assembly.share, Box::pin(sent)).await
    }

    /// Returns a new share for the assemblies of one file: half of the permits.
    pub(super) fn file_share(&self) -> Share {
        Share::of(assembling_permits_max(&self.mount.config) / 2)
    }

    /// Returns how many permits a range of the object takes, by the memory of its bytes; zeros take none. A range larger than all
    /// permits takes all of them.
    fn assembling_permits(&self, assembly: Assembly<'_>, range: &Range<u64>) -> u32 {
        let is_data = |source: &Source| !matches!(source, Source::Zeros(_));
        let sources = assembly.of_object(range).into_iter().flat_map(|run| assembly.local.sources(run));
        let bytes: u64 = sources.filter(is_data).map(|source| source.len()).sum();
        bytes.div_ceil(PERMIT_BYTES).clamp(1, assembling_permits_max(&self.mount.config).into()) as u32
    }

    /// Returns the bytes of a range of the object to be assembled, from the local file and the objects below.
    pub(super) async fn read_merged(
        &self,
        assembly: Assembly<'_>,
        range: &Range<u64>,
    ) -> Result<Payload, StoreError> {
        let mut payload = Payload::default();
        let runs = assembly.of_object(range);
        for source in runs.into_iter().flat_map(|run| assembly.local.sources(run)) {
            match (source, assembly.local.base()) {
                (Source::Local(range), _) => assembly.local.read_into(range, &mut payload)?,
                (Source::Base(range), Some(base)) => self.read_base(base, range, &mut payload).await?,
                (Source::Zeros(range) | Source::Base(range), _) => push_zeros(&mut payload, &range),
            }
        }
        Ok(payload)
    }

    /// Appends a range of the content below the edits to `into`.
    async fn read_base(&self, base: &Pin, range: Range<u64>, into: &mut Payload) -> Result<(), StoreError> {
        for cut in base.cut(range)? {
            let (range, piece) = match cut {
                Cut::Stored(range, piece) => (range, piece),
                Cut::Hole(hole) => {
                    push_zeros(into, &hole);
                    continue;
                }
            };
            let within = piece.within(&range);
            // A whole object is read whole, because the server has a checksum of it: bytes corrupted in transit must not be
            // stored as the file's.
            let is_whole = base.object().is_some() && base.size_bytes <= WHOLE_BYTES_MAX;
            let options = GetOptions {
                range: (!is_whole).then(|| within.clone()),
                if_match: piece.if_match.clone(),
                version: piece.object.version.clone(),
            };
            let mut body = self.mount.store.get(&piece.object.key, options).await?.body;
            let mut at = if is_whole { 0 } else { within.start };
            while let Some(bytes) = body.try_next().await? {
                let here = at..at + bytes.len() as u64;
                let (from, to) = (within.start.max(here.start), within.end.min(here.end));
                if from < to {
                    into.push(bytes.slice((from - at) as usize..(to - at) as usize));
                }
                at = here.end;
            }
        }
        Ok(())
    }
}

/// Returns the number of permits to assemble.
pub(super) fn assembling_permits_max(config: &Config) -> u32 {
    u32::try_from(config.assembled_bytes_max() / PERMIT_BYTES).unwrap_or(u32::MAX)
}

/// Splits an object of `size` bytes into parts of the configured size. If these are too many, parts that take no memory are
/// joined; if there still are too many, all parts are larger.
fn parts(size: u64, configured: u64, takes_no_memory: impl Fn(&Range<u64>) -> bool) -> Vec<Range<u64>> {
    let is_allowed = |parts: &[Range<u64>]| parts.len() as u64 <= PARTS_MAX;
    let equal = equal_parts(size, configured);
    if is_allowed(&equal) {
        return equal;
    }
    // Joined parts use at most half of the allowed number, so that the rest is left for bytes that were written.
    let joined = join(equal, size.div_ceil(PARTS_MAX / 2), takes_no_memory);
    if is_allowed(&joined) {
        return joined;
    }
    equal_parts(size, size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20))
}

/// Divides a length into ranges of `part_bytes`, of which the last may be shorter.
fn equal_parts(size: u64, part_bytes: u64) -> Vec<Range<u64>> {
    (0..size.div_ceil(part_bytes))
        .map(|index| index * part_bytes..((index + 1) * part_bytes).min(size))
        .collect()
}

/// Joins adjacent parts that take no memory into parts of at most `bytes_max`.
fn join(
    parts: Vec<Range<u64>>,
    bytes_max: u64,
    takes_no_memory: impl Fn(&Range<u64>) -> bool,
) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if part.end - last.start <= bytes_max && takes_no_memory(&(last.start..part.end)) => {
                last.end = part.end;
            }
            _ => joined.push(part),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::{PARTS_MAX, parts};
    use std::ops::Range;

    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;

    fn longest(parts: &[Range<u64>]) -> u64 {
        parts.iter().map(|part| part.end - part.start).max().unwrap()
    }

    #[test]
    fn a_file_of_few_parts_has_parts_of_the_configured_size() {
        assert_eq!(parts(20 * MIB, 8 * MIB, |_| true), [0..8 * MIB, 8 * MIB..16 * MIB, 16 * MIB..20 * MIB]);
    }

    /// Changing a byte of a 5 TiB object must cost a part of the configured size, not one of 525 MB.
    #[test]
    fn written_ranges_of_a_long_file_go_up_in_parts_of_the_configured_size() {
        let changed = 3 * TIB..3 * TIB + 1;
        let is_unchanged = |range: &Range<u64>| range.end <= changed.start || changed.end <= range.start;
        let parts = parts(5 * TIB, 8 * MIB, is_unchanged);
        assert!(parts.len() as u64 <= PARTS_MAX, "{}", parts.len());
        assert!(
            parts.is_sorted_by_key(|part| part.start)
                && parts.windows(2).all(|two| two[0].end == two[1].start)
        );
        assert_eq!((parts[0].start, parts.last().unwrap().end), (0, 5 * TIB));
        let written: Vec<_> = parts.iter().filter(|part| !is_unchanged(part)).cloned().collect();
        assert_eq!(longest(&written), 8 * MIB, "{written:?}");
    }

    #[test]
    fn a_long_file_that_was_written_as_a_whole_has_larger_parts() {
        let parts = parts(5 * TIB, 8 * MIB, |_| false);
        assert!(parts.len() as u64 <= PARTS_MAX, "{}", parts.len());
        assert_eq!(longest(&parts), 525 * MIB);
    }
}
