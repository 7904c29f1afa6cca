//! Object records: the index values that have the metadata of an object, a version or an upload's part, and the place
//! of its bytes.

use super::{Kind, Run, SUMMED_BYTES, blocks_of, run_blocks_of};
use crate::codec::{Decoder, Encoder};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use store::{Attributes, ETag, NULL_VERSION, Tags, Timestamp, VersionId, version_id};

/// Inline data: the bytes of a small object, stored in the frame that committed it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct InlineData {
    /// Position in bytes from the device's beginning.
    pub(crate) at: u64,
    /// Length in bytes.
    pub(crate) len: u32,
    /// The checksums, one for each [`SUMMED_BYTES`].
    pub(crate) sums: Vec<u32>,
}

/// A range of a run's data that belongs to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RunSlice {
    /// The run. Behind its data lie the checksums, one for each [`SUMMED_BYTES`].
    pub(crate) run: Run,
    /// The length of the run's whole data, in bytes.
    pub(crate) data_bytes: u64,
    /// The start of the object's range within the data.
    pub(crate) skip_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl RunSlice {
    /// Returns the range of all data of a run.
    pub(crate) fn whole(run: Run, data_bytes: u64) -> Self {
        // Paired with `decode`, which refuses a slice that its run cannot hold.
        assert!(
            data_bytes > 0 && run_blocks_of(data_bytes) <= run.blocks,
            "{run:?} holds no {data_bytes} bytes"
        );
        Self { run, data_bytes, skip_bytes: 0, len_bytes: data_bytes }
    }

    /// Returns the position of the run's checksums, in bytes from the device's beginning.
    pub(crate) fn sums_at(&self) -> u64 {
        self.run.at() + blocks_of(self.data_bytes) * crate::device::BLOCK_BYTES
    }

    fn encode(&self, to: &mut Encoder) {
        self.run.encode(to);
        to.number(self.data_bytes);
        to.number(self.skip_bytes);
        to.number(self.len_bytes);
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let run = Run::decode(from)?;
        let (data_bytes, skip_bytes, len_bytes) = (from.number()?, from.number()?, from.number()?);
        let fits = data_bytes <= run.len_bytes()
            && run_blocks_of(data_bytes) <= run.blocks
            && len_bytes > 0
            && skip_bytes.checked_add(len_bytes)? <= data_bytes;
        fits.then_some(Self { run, data_bytes, skip_bytes, len_bytes })
    }
}

/// The place of an object's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// In a frame of the log.
    Inline(InlineData),
    /// In runs, in this order. Empty for the empty object.
    Runs(Vec<RunSlice>),
    /// No bytes: the record is a delete marker.
    DeleteMarker,
}

impl Body {
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::Inline(inline) => u64::from(inline.len),
            Self::Runs(slices) => slices.iter().map(|slice| slice.len_bytes).sum(),
            Self::DeleteMarker => 0,
        }
    }

    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Inline(inline) => {
                to.number(inline.at);
                to.number(inline.len.into());
                inline.sums.iter().for_each(|&sum| to.fixed32(sum));
            }
            Self::Runs(slices) => to.list(slices.iter(), |to, slice| slice.encode(to)),
            Self::DeleteMarker => {}
        }
    }

    fn decode(kind: u8, from: &mut Decoder<'_>) -> Option<Self> {
        match kind {
            0 => {
                let (at, len) = (from.number()?, from.number32()?);
                let sums = u64::from(len).div_ceil(SUMMED_BYTES);
                let sums = (0..sums).map(|_| from.fixed32()).collect::<Option<_>>()?;
                at.checked_add(len.into())?.checked_next_multiple_of(SUMMED_BYTES)?;
                Some(Self::Inline(InlineData { at, len, sums }))
            }
            1 => {
                let slices = from.list(RunSlice::decode)?;
                slices.iter().try_fold(0u64, |len, slice| len.checked_add(slice.len_bytes))?;
                Some(Self::Runs(slices))
            }
            2 => Some(Self::DeleteMarker),
            _ => None,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Inline(_) => 0,
            Self::Runs(_) => 1,
            Self::DeleteMarker => 2,
        }
    }
}

/// The form of a version's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// No id: the bucket was not versioned when the object was stored.
    Unnamed,
    /// The id `null`.
    Null,
    /// An id made from the write number and the time.
    Own,
}

/// An object, a delete marker, or a part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    /// The number of the write that stored the object.
    pub(crate) write: u64,
    pub(crate) modified: Timestamp,
    pub(crate) naming: Naming,
    /// The etag given by the writer; without one the etag is derived from the write number.
    pub(crate) etag: Option<ETag>,
    pub(crate) body: Body,
    pub(crate) attributes: Attributes,
    pub(crate) tags: Tags,
}

/// The leading fields of a record, which suffice for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectSummary {
    pub(crate) write: u64,
    pub(crate) modified: Timestamp,
    pub(crate) naming: Naming,
    pub(crate) etag: Option<ETag>,
    pub(crate) len_bytes: u64,
    pub(crate) is_delete_marker: bool,
}

const DESCRIBED: u8 = 1 << 4;
const ETAG_GIVEN: u8 = 1 << 5;

impl ObjectRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let is_described = self.attributes != Attributes::default() || !self.tags.is_empty();
        let flags = [(is_described, DESCRIBED), (self.etag.is_some(), ETAG_GIVEN)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum::<u8>();
        let mut to = Encoder(Vec::with_capacity(64));
        to.byte(flags | self.body.kind() | (self.naming as u8) << 2);
        to.number(self.write);
        to.fixed64(self.modified.0 as u64);
        to.number(self.body.len_bytes());
        if let Some(etag) = &self.etag {
            to.bytes(etag.as_str().as_bytes());
        }
        self.body.encode(&mut to);
        if is_described {
            encode_description(&mut to, &self.attributes, &self.tags);
        }
        to.0
    }

    /// Decodes the record in an entry's value, which in the entry of an upload's part follows the part's note. Returns
    /// `None` if the value is not valid.
    pub(crate) fn of_entry(key: &[u8], value: &[u8]) -> Option<Self> {
        let mut from = Decoder(value);
        if key.first() == Some(&(Kind::Part as u8)) {
            from.optional()?;
        }
        Self::decode(from.0)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let (flags, head) = ObjectSummary::read(&mut from)?;
        let body = Body::decode(flags & 3, &mut from)?;
        if body.len_bytes() != head.len_bytes {
            return None;
        }
        let (attributes, tags) = match flags & DESCRIBED {
            0 => Default::default(),
            _ => decode_description(&mut from)?,
        };
        let ObjectSummary { write, modified, naming, etag, .. } = head;
        from.end(Self { write, modified, naming, etag, body, attributes, tags })
    }
}

/// Decodes the record of an object or version. `key` is the entry's, for the error.
pub(crate) fn decode_record(key: &[u8], value: &[u8]) -> Result<ObjectRecord> {
    ObjectRecord::decode(value).ok_or_else(|| Error::damaged_entry("an object's record", key))
}

impl ObjectSummary {
    /// Decodes the beginning of a record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self::read(&mut Decoder(bytes))?.1)
    }

    fn read(from: &mut Decoder<'_>) -> Option<(u8, Self)> {
        let flags = from.byte()?;
        let naming = match flags >> 2 & 3 {
            0 => Naming::Unnamed,
            1 => Naming::Null,
            2 => Naming::Own,
            _ => return None,
        };
        let (write, modified) = (from.number()?, Timestamp(from.fixed64()? as i64));
        let len_bytes = from.number()?;
        let etag = match flags & ETAG_GIVEN {
            0 => None,
            _ => Some(ETag::new(from.text()?)),
        };
        let is_delete_marker = flags & 3 == 2;
        (flags >> 6 == 0)
            .then_some((flags, Self { write, modified, naming, etag, len_bytes, is_delete_marker }))
    }
}

impl Naming {
    /// Returns the version id; `None` if the version has no id.
    pub(crate) fn id(self, write: u64, modified: Timestamp) -> Option<VersionId> {
        match self {
            Self::Unnamed => None,
            Self::Null => Some(NULL_VERSION.into()),
            Self::Own => Some(version_id::new(write, modified)),
        }
    }
}

pub(crate) fn encode_description(to: &mut Encoder, attributes: &Attributes, tags: &Tags) {
    to.optional(attributes.content_type.as_deref());
    to.optional(attributes.storage_class.as_deref());
    for map in [&attributes.system, &attributes.user, tags] {
        to.list(map.iter(), |to, (name, value)| {
            to.bytes(name.as_bytes());
            to.bytes(value.as_bytes());
        });
    }
}

pub(crate) fn decode_description(from: &mut Decoder<'_>) -> Option<(Attributes, Tags)> {
    let owned = |from: &mut Decoder<'_>| from.optional().map(|text| text.map(str::to_owned));
    let (content_type, storage_class) = (owned(from)?, owned(from)?);
    let (system, user, tags) = (decode_map(from)?, decode_map(from)?, decode_map(from)?);
    Some((Attributes { content_type, system, user, storage_class }, tags))
}

fn decode_map(from: &mut Decoder<'_>) -> Option<BTreeMap<String, String>> {
    let pairs = from.list(|from| Some((from.text()?.to_owned(), from.text()?.to_owned())))?;
    Some(pairs.into_iter().collect())
}
