//! Inode and extent records.
//!
//! Inode: version, flags (bits 0 to 2 kind, 3 exact, 4 has a home, 5 has a target, 6 extents in rows of
//! their own), mode, uid, gid, nlink, rdev, size, mtime; ctime, atime, btime and observed time relative to mtime;
//! home; target; the number of extents and, unless bit 6 is set, the extents. With bit 6 version 2 goes on with a summary of the
//! extents: the bytes that they have, how many of them are in the object at the path, that or the first object, and the fingerprint.
//! Version 1 has no summary; records without bit 6 are still written as version 1.
//!
//! Bit 7 of the flags: in place of the observed time, the number of the mount that observed and the nanoseconds since that
//! mount began. Records without the bit have a wall-clock time there, which is not read: it orders nothing.

use super::primitives::{kind_from, kind_number};
use super::stored::{read_extent, read_stored, write_extent, write_stored};
use super::{DecodeError, Sink, Source};
use crate::engine::Value;
use crate::{Content, Extent, Fingerprint, Ino, Inode, Moment, Summary};
use store::Timestamp;

const VERSION: u8 = 1;
const VERSION_WITH_SUMMARY: u8 = 2;
const KIND_MASK: u8 = 0b111;
const EXACT: u8 = 1 << 3;
const HOME: u8 = 1 << 4;
const TARGET: u8 = 1 << 5;
const SPILLED: u8 = 1 << 6;
const MOMENT: u8 = 1 << 7;

/// So many extents are kept in the inode record; more have rows of their own.
pub const INLINE_EXTENTS_MAX: usize = 4;

/// An inode as its record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRecord {
    /// The inode; its content is empty if `unsummed` is not 0.
    pub inode: Inode,
    /// Number of extents that have rows of which the record has no summary.
    pub unsummed: usize,
}

impl InodeRecord {
    /// Completes an inode whose record has no summary with its extents.
    pub fn summed(self, extents: Vec<Extent>) -> Inode {
        let mut content = Content::of(extents, self.inode.size_bytes);
        if let Content::Rows(summary) = &mut content {
            summary.has_counted_uses = false;
        }
        Inode { content, ..self.inode }
    }
}

/// Encodes an inode. Of more than [`INLINE_EXTENTS_MAX`] extents it has the summary.
pub fn encode_inode(inode: &Inode) -> Vec<u8> {
    encode(inode, 0)
}

/// Encodes an inode; `unsummed` as in its [`InodeRecord`].
fn encode(inode: &Inode, unsummed: usize) -> Vec<u8> {
    let is_summed = matches!(&inode.content, Content::Rows(summary) if summary.has_counted_uses);
    let mut sink = Sink::with_version(if is_summed { VERSION_WITH_SUMMARY } else { VERSION });
    sink.byte(flags(inode, unsummed > 0 || matches!(inode.content, Content::Rows(_))));
    sink.number(inode.mode.into());
    for n in [inode.uid, inode.gid, inode.nlink, inode.rdev] {
        sink.number(n.into());
    }
    sink.number(inode.size_bytes);
    sink.time(inode.mtime);
    for time in [inode.ctime, inode.atime, inode.btime] {
        sink.time_near(time, inode.mtime);
    }
    match has_moment(inode) {
        true => sink.moment(inode.observed_at),
        false => sink.time_near(inode.mtime, inode.mtime),
    }
    if let Some((parent, name)) = &inode.home {
        sink.ino(*parent);
        sink.bytes(name.as_bytes());
    }
    if let Some(target) = &inode.target {
        sink.bytes(target);
    }
    match &inode.content {
        _ if unsummed > 0 => sink.number(unsummed as u64),
        Content::Inline(extents) => write_extents(&mut sink, extents, inode.mtime),
        Content::Rows(summary) => write_summary(&mut sink, summary, inode.mtime),
    }
    sink.into_bytes()
}

fn write_summary(sink: &mut Sink, summary: &Summary, base: Timestamp) {
    sink.number(summary.extents);
    if summary.has_counted_uses {
        sink.number(summary.data_bytes);
        sink.number(summary.at_path);
        write_stored(sink, &summary.object, base);
        sink.raw(&summary.fingerprint.0);
    }
}

fn read_summary(source: &mut Source<'_>, base: Timestamp) -> Result<Summary, DecodeError> {
    let (extents, data_bytes, at_path) = (source.number()?, source.number()?, source.number()?);
    let object = read_stored(source, base)?;
    let mut fingerprint = [0; Fingerprint::BYTES];
    fingerprint.copy_from_slice(source.raw(Fingerprint::BYTES)?);
    if extents <= INLINE_EXTENTS_MAX as u64 || at_path > extents {
        return Err(DecodeError::Field("a summary of extents that contradicts itself"));
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
        | flag(has_rows, SPILLED)
        | flag(has_moment(inode), MOMENT)
}

fn has_moment(inode: &Inode) -> bool {
    inode.observed_at != Moment::default()
}

fn write_extents(sink: &mut Sink, extents: &[Extent], base: Timestamp) {
    sink.number(extents.len() as u64);
    let mut end = 0;
    for extent in extents {
        write_extent(sink, extent, end, base);
        end = extent.end();
    }
}

/// The inode of a record; the number comes from its key.
pub fn decode_inode(ino: Ino, bytes: &[u8]) -> Result<InodeRecord, DecodeError> {
    let mut source = Source::with_version(bytes, "an inode", VERSION_WITH_SUMMARY)?;
    let has_summary = bytes.first() == Some(&VERSION_WITH_SUMMARY);
    let flags = source.byte()?;
    let mut inode = read_attributes(ino, flags, &mut source)?;
    if flags & HOME != 0 {
        inode.home = Some((source.ino()?, source.name()?));
    }
    if flags & TARGET != 0 {
        inode.target = Some(source.owned()?);
    }
    let mut unsummed = 0;
    if flags & SPILLED != 0 && has_summary {
        inode.content = Content::Rows(read_summary(&mut source, inode.mtime)?);
    } else {
        let count = usize::try_from(source.number()?).map_err(|_| DecodeError::Truncated)?;
        match flags & SPILLED {
            0 => inode.content = Content::Inline(read_extents(&mut source, count, inode.mtime)?),
            _ => unsummed = count,
        }
    }
    source.finish()?;
    Ok(InodeRecord { inode, unsummed })
}

fn read_attributes(ino: Ino, flags: u8, source: &mut Source<'_>) -> Result<Inode, DecodeError> {
    let kind = kind_from(flags & KIND_MASK)?;
    let mode = source.number_u16()?;
    let (uid, gid) = (source.number_u32()?, source.number_u32()?);
    let (nlink, rdev) = (source.number_u32()?, source.number_u32()?);
    let size_bytes = source.number()?;
    let mtime = source.time()?;
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
        ctime: source.time_near(mtime)?,
        atime: source.time_near(mtime)?,
        btime: source.time_near(mtime)?,
        observed_at: match flags & MOMENT {
            0 => source.time_near(mtime).map(|_| Moment::default())?,
            _ => source.moment()?,
        },
        home: None,
        content: Content::EMPTY,
        target: None,
        exact: flags & EXACT != 0,
    })
}

fn read_extents(source: &mut Source<'_>, count: usize, base: Timestamp) -> Result<Vec<Extent>, DecodeError> {
    let mut content = Vec::with_capacity(count.min(INLINE_EXTENTS_MAX));
    let mut end = 0;
    for _ in 0..count {
        let extent = read_extent(source, end, base)?;
        end = extent.end();
        content.push(extent);
    }
    Ok(content)
}

/// An inode record after a merge.
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

/// The row of an extent; its offset is in the key.
pub fn encode_extent(extent: &Extent) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    write_extent(&mut sink, extent, extent.offset, Timestamp(0));
    sink.into_bytes()
}

/// The extent of a row; the offset comes from its key.
pub fn decode_extent(offset: u64, bytes: &[u8]) -> Result<Extent, DecodeError> {
    let mut source = Source::with_version(bytes, "an extent", VERSION)?;
    let extent = read_extent(&mut source, offset, Timestamp(0))?;
    source.finish()?;
    if extent.offset != offset {
        return Err(DecodeError::Field("an extent of another row"));
    }
    Ok(extent)
}
