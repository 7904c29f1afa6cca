//! Planning of a commit that stores an edited file in objects under keys of their own. Pure.
//!
//! While a file stays open, changed ranges go into one object of their own, a delta: an `fsync` costs the bytes written, not
//! the file's size. At close the file is assembled as its mapping says.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use store::{ObjectKey, StoreError};

use super::Local;
use crate::content::pin::Piece;
use crate::content::ranges::{RangeSet, total};
use crate::volume::Mapping;

/// Number of pieces of an open file, besides one per chunk, at which it is assembled although it is open.
const PIECES_MAX: usize = 1024;
/// Shorter holes are stored as zeros: a hole costs a piece.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// Maximum ranges of a file in one object that is being assembled.
const RUNS_MAX: usize = 256;

/// Shorter files are assembled at each close.
const SCATTERED_BYTES_MIN: u64 = 16 << 20;
/// Maximum objects of a longer file that is not assembled at close.
const SCATTERED_OBJECTS_MAX: usize = 64;

/// Occasion of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The file stays open: its bytes must be safe.
    Open,
    /// The file is being closed.
    Closed,
}

/// Objects to store and the ranges that they replace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// For each new object, the ranges of the file that it concatenates.
    pub(crate) objects: Vec<Vec<Range<u64>>>,
    /// Ranges of the file that change; those that no new object holds become zeros.
    pub(crate) replaces: Vec<Range<u64>>,
    /// Whether the plan has one object, which is a delta.
    pub(crate) is_delta: bool,
}

impl Plan {
    /// Returns whether the plan is a delta that leaves a part of the file in the object with this key.
    pub(crate) fn leaves_part_in(&self, local: &Local, key: &ObjectKey) -> Result<bool, StoreError> {
        let replaced = RangeSet::from_iter(self.replaces.iter().cloned());
        let pieces = pieces(local)?;
        let is_left = |range: Range<u64>| {
            let range = range.start..range.end.min(local.size_bytes());
            !range.is_empty() && replaced.cut(range).iter().any(|(_, is_replaced)| !is_replaced)
        };
        let mut in_it = pieces.iter().filter(|piece| piece.object.key == *key);
        Ok(self.is_delta && in_it.any(|piece| is_left(piece.range.clone())))
    }
}

/// Returns the range that stands for a whole file of any size.
pub(crate) fn whole_range() -> Vec<Range<u64>> {
    vec![Range { start: 0, end: u64::MAX }]
}

/// Plans a commit of an edited file.
pub(crate) fn plan(mapping: Mapping, local: &Local, when: When) -> Result<Plan, StoreError> {
    let count = local.base().map_or(0, |base| base.len());
    let (changes, dirty) = (local.changes(), local.dirty_data());
    let is_small = count > 0 && total(&dirty) < delta_bytes_max(mapping, local.size_bytes());
    match (mapping, when) {
        (_, When::Open) if dirty.is_empty() => Ok(Plan { replaces: changes, ..Plan::default() }),
        (_, When::Open) if is_small && count < pieces_max(mapping, local) => Ok(delta(local, changes, dirty)),
        (Mapping::Whole, When::Closed) if dirty.is_empty() && count_objects(&pieces(local)?) <= 1 => {
            Ok(Plan { replaces: changes, ..Plan::default() })
        }
        (Mapping::Whole, _) => whole(local),
        (Mapping::Chunked { bytes }, _) => chunks(local, bytes, &changes),
    }
}

/// Returns whether a stored file may stay in several objects when it is closed: a long file that has three quarters in one
/// object. Assembling it at each close would cost its whole length for any change; this way a close costs at most four times
/// the bytes changed.
pub(crate) fn may_stay_scattered(mapping: Mapping, local: &Local) -> Result<bool, StoreError> {
    if !matches!(mapping, Mapping::Whole) || !local.is_published() || local.size_bytes() < SCATTERED_BYTES_MIN
    {
        return Ok(false);
    }
    let pieces = pieces(local)?;
    let mut bytes_of: HashMap<&ObjectKey, u64> = HashMap::new();
    for piece in pieces.iter() {
        *bytes_of.entry(&piece.object.key).or_default() += piece.range.end - piece.range.start;
    }
    let (all, largest) = (bytes_of.values().sum::<u64>(), bytes_of.values().max().copied().unwrap_or(0));
    Ok(bytes_of.len() <= SCATTERED_OBJECTS_MAX && (all - largest) * 4 <= local.size_bytes())
}

/// Returns all pieces of the content below an edited file.
fn pieces(local: &Local) -> Result<Cow<'_, [Piece]>, StoreError> {
    local.base().map_or(Ok(Cow::default()), |base| base.all())
}

/// Returns the number of changed bytes below which a commit stores a delta.
fn delta_bytes_max(mapping: Mapping, size_bytes: u64) -> u64 {
    match mapping {
        Mapping::Whole => size_bytes / 2,
        Mapping::Chunked { bytes } => bytes.min(size_bytes) / 2,
    }
}

/// Returns the number of pieces at which an open file is assembled.
fn pieces_max(mapping: Mapping, local: &Local) -> usize {
    match mapping {
        Mapping::Whole => PIECES_MAX,
        Mapping::Chunked { bytes } => PIECES_MAX + local.size_bytes().div_ceil(bytes) as usize,
    }
}

/// Returns the objects to store for a range that is to have objects of its own.
pub(crate) fn objects_of(
    mapping: Mapping,
    local: &Local,
    range: Range<u64>,
) -> Result<Vec<Vec<Range<u64>>>, StoreError> {
    let bytes = mapping.object_bytes();
    let chunks = range.start / bytes..range.end.div_ceil(bytes);
    let within =
        |index: u64| range.start.max(index * bytes)..range.end.min((index + 1).saturating_mul(bytes));
    let mut objects = Vec::new();
    for index in chunks {
        objects.extend(non_empty(runs(local.data(within(index))?)));
    }
    Ok(objects)
}

/// Plans one new object for the changed ranges, and for the earlier deltas to merge with them.
fn delta(local: &Local, changes: Vec<Range<u64>>, dirty: Vec<Range<u64>>) -> Plan {
    let merged = local.deltas_to_merge(total(&dirty));
    let object = RangeSet::from_iter(dirty.into_iter().chain(merged.iter().cloned()));
    let replaces = RangeSet::from_iter(changes.into_iter().chain(merged));
    Plan { objects: vec![object.iter().collect()], replaces: replaces.iter().collect(), is_delta: true }
}

/// Plans one object for the whole file.
fn whole(local: &Local) -> Result<Plan, StoreError> {
    let object = runs(local.data(0..local.size_bytes())?);
    Ok(Plan { objects: non_empty(object), replaces: whole_range(), is_delta: false })
}

/// Plans the objects for all chunks that were changed or are partly in deltas.
fn chunks(local: &Local, bytes: u64, changes: &[Range<u64>]) -> Result<Plan, StoreError> {
    let mut indices = scattered_chunks(&pieces(local)?, bytes);
    for range in changes {
        indices.extend(range.start / bytes..range.end.div_ceil(bytes));
    }
    let mut plan = Plan::default();
    for index in indices {
        let chunk = index * bytes..((index + 1) * bytes).min(local.size_bytes());
        if !chunk.is_empty() {
            plan.objects.extend(non_empty(runs(local.data(chunk.clone())?)));
            plan.replaces.push(chunk);
        }
    }
    Ok(plan)
}

/// Returns the chunks that are not in exactly one object, or share an object with other chunks.
fn scattered_chunks(base: &[Piece], bytes: u64) -> BTreeSet<u64> {
    let mut object_of: HashMap<u64, &ObjectKey> = HashMap::new();
    let mut chunk_of: HashMap<&ObjectKey, u64> = HashMap::new();
    let mut scattered = BTreeSet::new();
    for piece in base {
        for chunk in piece.range.start / bytes..piece.range.end.div_ceil(bytes) {
            let key = &piece.object.key;
            let (object, home) =
                (*object_of.entry(chunk).or_insert(key), *chunk_of.entry(key).or_insert(chunk));
            if object != key || home != chunk {
                scattered.extend([chunk, home]);
            }
        }
    }
    scattered
}

/// Returns the number of objects that pieces are in.
fn count_objects(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| &piece.object.key).collect::<BTreeSet<_>>().len()
}

/// Returns the ranges to store in one object. Small gaps are filled, and larger ones if there are more than
/// [`RUNS_MAX`] ranges.
fn runs(mut data: RangeSet) -> Vec<Range<u64>> {
    let mut gap = HOLE_BYTES_MIN;
    loop {
        data.fill_gaps(gap);
        let runs: Vec<_> = data.iter().collect();
        if runs.len() <= RUNS_MAX {
            return runs;
        }
        gap *= 4;
    }
}

/// Returns the object as the only one of a list, or no object if it has no ranges.
fn non_empty(object: Vec<Range<u64>>) -> Vec<Vec<Range<u64>>> {
    if object.is_empty() { Vec::new() } else { vec![object] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::pin::Pin;
    use std::sync::Arc;
    use store::{ETag, ObjectRef};

    const MIB: u64 = 1 << 20;
    const CHUNKED: Mapping = Mapping::Chunked { bytes: MIB };

    fn piece(range: Range<u64>, name: &str) -> Piece {
        let key = ObjectKey::try_from(name).unwrap();
        let object = Arc::new(ObjectRef { key, etag: ETag::new(name), version: None, last_modified: None });
        Piece { range, object, object_offset: 0, if_match: None }
    }

    fn over(pieces: Vec<Piece>) -> Local {
        let size_bytes = pieces.last().map_or(0, |last| last.range.end);
        let dir = tempfile::tempdir().unwrap();
        Local::begin(dir.path(), Some(Arc::new(Pin::new(pieces, size_bytes)))).unwrap()
    }

    #[test]
    fn a_small_edit_of_an_open_file_is_a_delta_whatever_the_mapping() {
        for mapping in [Mapping::Whole, CHUNKED] {
            let mut local = over(vec![piece(0..MIB, "a"), piece(MIB..2 * MIB, "b")]);
            local.write(5000, &[1; 4096]).unwrap();
            let made = plan(mapping, &local, When::Open).unwrap();
            assert!(made.is_delta && made.objects.len() == 1, "{made:?}");
            assert_eq!(made.replaces, [5000..9096]);
            local.write(0, &vec![1; MIB as usize]).unwrap();
            assert!(!plan(mapping, &local, When::Open).unwrap().is_delta, "most of it changed");
        }
    }

    #[test]
    fn a_closed_file_is_one_object_or_one_for_each_chunk() {
        let mut local = over(vec![piece(0..MIB, "a"), piece(MIB..3 * MIB / 2, "b")]);
        local.write(10, b"x").unwrap();
        let whole = plan(Mapping::Whole, &local, When::Closed).unwrap();
        assert_eq!((whole.objects, whole.replaces), (vec![vec![0..3 * MIB / 2]], whole_range()));
        let chunked = plan(CHUNKED, &local, When::Closed).unwrap();
        assert_eq!((chunked.objects, chunked.replaces), (vec![vec![0..MIB]], vec![0..MIB]));
    }

    /// Without this rule each close of a 500 MB file stored all of it again after a change of 1 MiB.
    #[test]
    fn s142_a_long_file_stays_scattered_until_a_quarter_of_it_is() {
        let pieces = |changed: u64, objects: u64| {
            let step = changed / objects;
            let deltas = (0..objects).map(|n| piece(n * step..(n + 1) * step, &format!("delta-{n}")));
            deltas.chain([piece(changed..64 * MIB, "whole")]).collect()
        };
        let may_stay =
            |changed, objects| may_stay_scattered(Mapping::Whole, &over(pieces(changed, objects))).unwrap();
        assert!(may_stay(MIB, 1) && may_stay(16 * MIB, 16) && may_stay(MIB, 63));
        assert!(!may_stay(17 * MIB, 17) && !may_stay(MIB, 64));
        assert!(!may_stay_scattered(CHUNKED, &over(pieces(MIB, 1))).unwrap());
        assert!(
            !may_stay_scattered(Mapping::Whole, &over(vec![piece(0..MIB, "a"), piece(MIB..7 * MIB, "b")]))
                .unwrap()
        );
        let mut written = over(pieces(MIB, 1));
        written.write(0, b"x").unwrap();
        assert!(!may_stay_scattered(Mapping::Whole, &written).unwrap(), "unpublished writes must be stored");
    }

    #[test]
    fn chunks_with_deltas_are_assembled_and_others_left_alone() {
        let pieces = vec![
            piece(0..MIB, "a"),
            piece(MIB..MIB + 9, "delta"),
            piece(MIB + 9..2 * MIB, "b"),
            piece(2 * MIB..3 * MIB, "c"),
            piece(3 * MIB..3 * MIB + 9, "delta"),
        ];
        let made = plan(CHUNKED, &over(pieces), When::Closed).unwrap();
        assert_eq!(made.objects, [[MIB..2 * MIB], [3 * MIB..3 * MIB + 9]]);
    }

    #[test]
    fn holes_and_cuts_store_nothing() {
        let mut local = over(vec![piece(0..MIB, "a")]);
        local.resize(100).unwrap();
        local.resize(1 << 40).unwrap();
        for mapping in [Mapping::Whole, CHUNKED] {
            for when in [When::Open, When::Closed] {
                let made = plan(mapping, &local, when).unwrap();
                let stores_nothing = made.objects.is_empty() || made.objects == [[0..100]];
                assert!(stores_nothing && !made.replaces.is_empty(), "{mapping:?} {when:?}: {made:?}");
            }
        }
        local.write(1 << 39, b"x").unwrap();
        let whole = plan(Mapping::Whole, &local, When::Closed).unwrap();
        assert_eq!(whole.objects[0].len(), 2);
        assert!(total(&whole.objects[0]) <= 100 + (64 << 10));
    }
}
