//! Inode and extent records.
//!
//! Inode, version 1: version, flags (bits 0 to 2 kind, 3 exact, 4 has a home, 5 has a target, 6 extents in rows of
//! their own), mode, uid, gid, nlink, rdev, size, mtime; ctime, atime, btime and observed time relative to mtime;
//! home; target; the number of extents and, unless bit 6 is set, the extents.
//!
//! Bit 7 of the flags: in place of the observed time, the number of the mount that observed and the nanoseconds since that
//! mount began. Records without the bit have a wall-clock time there, which is not read: it orders nothing.

use super::stored::{read_extent, write_extent};
use super::wire::{kind_from, kind_number};
use super::{DecodeError, Sink, Source};
use crate::engine::Value;
use crate::{Extent, Ino, Inode, Moment};
use store::Timestamp;

const VERSION: u8 = 1;
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
    /// The inode; its content is empty if the extents are elsewhere.
    pub inode: Inode,
    /// How many extents have rows of their own; 0: the content is complete.
    pub spilled: usize,
}

/// The record of an inode. More than [`INLINE_EXTENTS_MAX`] extents are left out and only counted.
pub fn encode_inode(inode: &Inode) -> Vec<u8> {
    let spilled = if inode.content.len() > INLINE_EXTENTS_MAX { inode.content.len() } else { 0 };
    encode(inode, spilled)
}

fn encode(inode: &Inode, spilled: usize) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    sink.byte(flags(inode, spilled));
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
    if spilled > 0 {
        sink.number(spilled as u64);
    } else {
        write_content(&mut sink, inode);
    }
    sink.into_bytes()
}

fn flags(inode: &Inode, spilled: usize) -> u8 {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    kind_number(inode.kind)
        | flag(inode.exact, EXACT)
        | flag(inode.home.is_some(), HOME)
        | flag(inode.target.is_some(), TARGET)
        | flag(spilled > 0, SPILLED)
        | flag(has_moment(inode), MOMENT)
}

fn has_moment(inode: &Inode) -> bool {
    inode.observed_at != Moment::default()
}

fn write_content(sink: &mut Sink, inode: &Inode) {
    sink.number(inode.content.len() as u64);
    let mut end = 0;
    for extent in &inode.content {
        write_extent(sink, extent, end, inode.mtime);
        end = extent.end();
    }
}

/// The inode of a record; the number comes from its key.
pub fn decode_inode(ino: Ino, bytes: &[u8]) -> Result<InodeRecord, DecodeError> {
    let mut source = Source::with_version(bytes, "an inode", VERSION)?;
    let flags = source.byte()?;
    let mut inode = read_attributes(ino, flags, &mut source)?;
    if flags & HOME != 0 {
        inode.home = Some((source.ino()?, source.name()?));
    }
    if flags & TARGET != 0 {
        inode.target = Some(source.owned()?);
    }
    let count = usize::try_from(source.number()?).map_err(|_| DecodeError::Truncated)?;
    let spilled = if flags & SPILLED != 0 { count } else { 0 };
    if spilled == 0 {
        inode.content = read_content(&mut source, count, inode.mtime)?;
    }
    source.finish()?;
    Ok(InodeRecord { inode, spilled })
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
        content: Vec::new(),
        target: None,
        exact: flags & EXACT != 0,
    })
}

fn read_content(source: &mut Source<'_>, count: usize, base: Timestamp) -> Result<Vec<Extent>, DecodeError> {
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
    let InodeRecord { mut inode, spilled } = decode_inode(Ino(0), bytes)?;
    let nlink = i64::from(inode.nlink) + i64::from(nlink);
    inode.nlink = u32::try_from(nlink).map_err(|_| DecodeError::Field("a link count out of range"))?;
    inode.mtime = inode.mtime.max(mtime);
    inode.ctime = inode.ctime.max(ctime);
    Ok(encode(&inode, spilled).into())
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
