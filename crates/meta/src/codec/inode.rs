//! Inode and extent records.
//!
//! An inode record has the fields: version; flags (bits 0 to 2 type, 3 exact attributes, 4 has a primary name, 5 has a link
//! target, 6 extents in rows of their own, 7 see below); mode, uid, gid, nlink, rdev, size, mtime; ctime, atime, btime and time of
//! observation, relative to mtime; primary name; link target; number of extents; without bit 6 the extents.
//!
//! With bit 6, a record of version 2 continues with a summary of the extents: the sum of their lengths, how many of them are in the
//! object at the path key, that object or else the first one, and the fingerprint. Version 1 has no summary. Records without bit
//! 6 are still written as version 1.
//!
//! With bit 7, the time of observation is a [`Moment`]: the number of the mount and the nanoseconds since its start. Without the bit
//! it is a wall-clock time, which is ignored, since wall-clock times do not order observations.

use super::primitives::{kind_from, kind_number};
use super::stored::{read_extent, read_stored, write_extent, write_stored};
use super::{DecodeError, Decoder, Encoder};
use crate::content::INLINE_EXTENTS_MAX;
use crate::record::Value;
use crate::{Content, Extent, Fingerprint, Ino, Inode, Moment, Summary, schema};
use store::Timestamp;

const VERSION: u8 = 1;
const VERSION_WITH_SUMMARY: u8 = 2;
const KIND_MASK: u8 = 0b111;
const EXACT: u8 = 1 << 3;
const HOME: u8 = 1 << 4;
const TARGET: u8 = 1 << 5;
const HAS_ROWS: u8 = 1 << 6;
const MOMENT: u8 = 1 << 7;

/// A decoded inode record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRecord {
    /// The inode. Its content is empty if `unsummed` is not 0.
    pub inode: Inode,
    /// Number of extent rows, if the record has no summary of them; otherwise 0.
    pub unsummed: usize,
}

impl InodeRecord {
    /// Completes the inode of a record without summary, from all its extents.
    pub fn summed(self, extents: &[Extent]) -> Inode {
        let mut content = Content::of(extents, self.inode.size_bytes);
        if let Content::Rows(summary) = &mut content {
            summary.has_counted_uses = false;
        }
        Inode { content, ..self.inode }
    }
}

/// Encodes an inode. The record has the extents, or the summary of more than [`INLINE_EXTENTS_MAX`] extents.
pub fn encode_inode(inode: &Inode) -> Vec<u8> {
    encode(inode, 0)
}

/// Encodes an inode; `unsummed` as in its [`InodeRecord`].
fn encode(inode: &Inode, unsummed: usize) -> Vec<u8> {
    let is_summed = matches!(&inode.content, Content::Rows(summary) if summary.has_counted_uses);
    let mut encoder = Encoder::with_version(if is_summed { VERSION_WITH_SUMMARY } else { VERSION });
    encoder.byte(flags(inode, unsummed > 0 || matches!(inode.content, Content::Rows(_))));
    encoder.number(inode.mode.into());
    for n in [inode.uid, inode.gid, inode.nlink, inode.rdev] {
        encoder.number(n.into());
    }
    encoder.number(inode.size_bytes);
    encoder.time(inode.mtime);
    for time in [inode.ctime, inode.atime, inode.btime] {
        encoder.time_near(time, inode.mtime);
    }
    match has_moment(inode) {
        true => encoder.moment(inode.observed_at),
        false => encoder.time_near(inode.mtime, inode.mtime),
    }
    if let Some((parent, name)) = &inode.home {
        encoder.ino(*parent);
        encoder.bytes(name.as_bytes());
    }
    if let Some(target) = &inode.target {
        encoder.bytes(target);
    }
    match &inode.content {
        _ if unsummed > 0 => encoder.number(unsummed as u64),
        Content::Inline(extents) => write_extents(&mut encoder, extents, inode.mtime),
        Content::Rows(summary) => write_summary(&mut encoder, summary, inode.mtime),
    }
    encoder.into_bytes()
}

fn write_summary(encoder: &mut Encoder, summary: &Summary, base: Timestamp) {
    encoder.number(summary.extents);
    if summary.has_counted_uses {
        encoder.number(summary.data_bytes);
        encoder.number(summary.at_path);
        write_stored(encoder, &summary.object, base);
        encoder.raw(&summary.fingerprint.0);
    }
}

fn read_summary(decoder: &mut Decoder<'_>, base: Timestamp) -> Result<Summary, DecodeError> {
    let (extents, data_bytes, at_path) = (decoder.number()?, decoder.number()?, decoder.number()?);
    let object = read_stored(decoder, base)?;
    let mut fingerprint = [0; Fingerprint::BYTES];
    fingerprint.copy_from_slice(decoder.raw(Fingerprint::BYTES)?);
    if extents <= INLINE_EXTENTS_MAX as u64 || at_path > extents {
        return Err(DecodeError::Field("an inconsistent summary of extents"));
    }
    let fingerprint = Fingerprint(fingerprint);
    Ok(Summary { extents, data_bytes, at_path, object, fingerprint, has_counted_uses: true })
}

fn flags(inode: &Inode, has_rows: bool) -> u8 {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    kind_number(inode.kind)
        | flag(inode.exact, EXACT)
        | flag(inode.home.is_some(), HOME)
        | flag(inode.target.is_some(), TARGET)
        | flag(has_rows, HAS_ROWS)
        | flag(has_moment(inode), MOMENT)
}

/// Returns whether the record has the moment of the last observation, which is not the default one.
fn has_moment(inode: &Inode) -> bool {
    inode.observed_at != Moment::default()
}

fn write_extents(encoder: &mut Encoder, extents: &[Extent], base: Timestamp) {
    encoder.number(extents.len() as u64);
    let mut end = 0;
    for extent in extents {
        write_extent(encoder, extent, end, base);
        end = extent.end();
    }
}

/// Decodes an inode. The caller takes the inode number from the record's key.
pub fn decode_inode(ino: Ino, bytes: &[u8]) -> Result<InodeRecord, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "an inode", VERSION_WITH_SUMMARY)?;
    let has_summary = bytes.first() == Some(&VERSION_WITH_SUMMARY);
    let flags = decoder.byte()?;
    let mut inode = read_attributes(ino, flags, &mut decoder)?;
    if flags & HOME != 0 {
        inode.home = Some((decoder.ino()?, decoder.name()?));
    }
    if flags & TARGET != 0 {
        inode.target = Some(decoder.owned()?);
    }
    let mut unsummed = 0;
    if flags & HAS_ROWS != 0 && has_summary {
        inode.content = Content::Rows(read_summary(&mut decoder, inode.mtime)?);
    } else {
        let count = usize::try_from(decoder.number()?).map_err(|_| DecodeError::Truncated)?;
        match flags & HAS_ROWS {
            0 => inode.content = Content::Inline(read_extents(&mut decoder, count, inode.mtime)?),
            _ => unsummed = count,
        }
    }
    decoder.finish()?;
    Ok(InodeRecord { inode, unsummed })
}

fn read_attributes(ino: Ino, flags: u8, decoder: &mut Decoder<'_>) -> Result<Inode, DecodeError> {
    let kind = kind_from(flags & KIND_MASK)?;
    let mode = decoder.number_u16()?;
    let (uid, gid) = (decoder.number_u32()?, decoder.number_u32()?);
    let (nlink, rdev) = (decoder.number_u32()?, decoder.number_u32()?);
    let size_bytes = decoder.number()?;
    let mtime = decoder.time()?;
    Ok(Inode {
        ino,
        kind,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size_bytes,
        mtime,
        ctime: decoder.time_near(mtime)?,
        atime: decoder.time_near(mtime)?,
        btime: decoder.time_near(mtime)?,
        observed_at: match flags & MOMENT {
            0 => decoder.time_near(mtime).map(|_| Moment::default())?,
            _ => decoder.moment()?,
        },
        home: None,
        content: Content::EMPTY,
        target: None,
        exact: flags & EXACT != 0,
    })
}

fn read_extents(
    decoder: &mut Decoder<'_>,
    count: usize,
    base: Timestamp,
) -> Result<Vec<Extent>, DecodeError> {
    let mut content = Vec::with_capacity(count.min(INLINE_EXTENTS_MAX));
    let mut end = 0;
    for _ in 0..count {
        let extent = read_extent(decoder, end, base)?;
        end = extent.end();
        content.push(extent);
    }
    Ok(content)
}

/// Applies a merge to an inode record: adds `nlink` to the link count, and raises the times to `mtime` and `ctime`.
pub(crate) fn merge_inode(
    bytes: &[u8],
    nlink: i32,
    mtime: Timestamp,
    ctime: Timestamp,
) -> Result<Value, DecodeError> {
    let InodeRecord { mut inode, unsummed } = decode_inode(Ino(0), bytes)?;
    let nlink = i64::from(inode.nlink) + i64::from(nlink);
    inode.nlink = u32::try_from(nlink).map_err(|_| DecodeError::Field("a link count out of range"))?;
    inode.mtime = inode.mtime.max(mtime);
    inode.ctime = inode.ctime.max(ctime);
    Ok(encode(&inode, unsummed).into())
}

/// Encodes an extent as a row. The extent's offset is in the row's key.
pub fn encode_extent(extent: &Extent) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    write_extent(&mut encoder, extent, extent.offset, Timestamp(0));
    encoder.into_bytes()
}

/// Decodes a row of an extent by its key and value.
pub(crate) fn decode_extent_row(key: &[u8], value: &[u8]) -> Result<Extent, DecodeError> {
    decode_extent(schema::offset_of(key)?, value)
}

/// Decodes the row of an extent. The caller takes the offset from the row's key.
pub fn decode_extent(offset: u64, bytes: &[u8]) -> Result<Extent, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "an extent", VERSION)?;
    let extent = read_extent(&mut decoder, offset, Timestamp(0))?;
    decoder.finish()?;
    if extent.offset != offset {
        return Err(DecodeError::Field("an extent that does not match its key"));
    }
    Ok(extent)
}
