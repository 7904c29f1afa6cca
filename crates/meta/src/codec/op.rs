//! The format of ops: a version byte, a tag, and the fields in the order of their declaration. Fields added in a later version are
//! at the end.

use super::batch::{read_batch, read_refused_op, write_batch, write_refused_op};
use super::primitives::{kind_from, kind_number};
use super::quota::{read_limits, write_limits};
use super::stored::{read_etag, read_extent, read_stored, write_etag, write_extent, write_stored};
use super::{DecodeError, Decoder, Encoder};
use crate::{AttrChanges, BatchId, Extent, Ino, Moment, Name, Observed, Op, RenameHow, XattrHow};
use std::ops::Range;
use store::Timestamp;

/// Version of ops whose format has never changed.
const VERSION: u8 = 1;
/// Version of `Create`: version 2 added the umask.
const VERSION_CREATE: u8 = 2;
/// Version of ops with an observation of the store: version 2 replaced its wall-clock time by a moment.
const VERSION_OBSERVATION: u8 = 2;
/// Highest version of any op.
const VERSION_MAX: u8 = 2;

/// The tags that identify ops in their encoding. A tag is never reused for another op.
mod tag {
    pub(super) const ROOT: u8 = 1;
    pub(super) const LEASE: u8 = 2;
    pub(super) const CREATE: u8 = 3;
    pub(super) const LINK: u8 = 4;
    pub(super) const UNLINK: u8 = 5;
    pub(super) const RMDIR: u8 = 6;
    pub(super) const RENAME: u8 = 7;
    pub(super) const SET_ATTR: u8 = 8;
    pub(super) const SET_XATTR: u8 = 9;
    pub(super) const REMOVE_XATTR: u8 = 10;
    pub(super) const PUBLISH: u8 = 11;
    pub(super) const IMPORT: u8 = 12;
    pub(super) const REFRESH: u8 = 13;
    pub(super) const VANISH: u8 = 14;
    pub(super) const EVICT: u8 = 15;
    pub(super) const PURGE: u8 = 16;
    pub(super) const SPLICE: u8 = 17;
    pub(super) const HAND_ON: u8 = 18;
    pub(super) const ACCESSED: u8 = 19;
    pub(super) const CREATE_ORPHAN: u8 = 20;
    pub(super) const SET_QUOTA: u8 = 21;
    pub(super) const AWAIT_EXPORT: u8 = 22;
    pub(super) const EXPORTED: u8 = 23;
    pub(super) const SET_BATCH: u8 = 24;
    pub(super) const SET_REFUSED_OP: u8 = 25;
}

/// Encodes an op.
pub fn encode_op(op: &Op) -> Vec<u8> {
    let mut encoder = Encoder::default();
    write_op(&mut encoder, op);
    encoder.into_bytes()
}

/// Decodes an op.
pub fn decode_op(bytes: &[u8]) -> Result<Op, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let op = read_op(&mut decoder)?;
    decoder.finish()?;
    Ok(op)
}

pub(super) fn write_op(encoder: &mut Encoder, op: &Op) {
    encoder.byte(match op {
        Op::Create { .. } => VERSION_CREATE,
        Op::Import { .. } | Op::Refresh { .. } | Op::Vanish { .. } => VERSION_OBSERVATION,
        _ => VERSION,
    });
    match op {
        Op::Root { mode, uid, gid } => {
            encoder.byte(tag::ROOT);
            write_owner(encoder, *mode, *uid, *gid);
        }
        Op::Lease { from, to } => {
            encoder.byte(tag::LEASE);
            encoder.ino(*from);
            encoder.ino(*to);
        }
        Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target } => {
            encoder.byte(tag::CREATE);
            write_entry(encoder, *parent, name);
            encoder.ino(*ino);
            encoder.byte(kind_number(*kind));
            write_owner(encoder, *mode, *uid, *gid);
            encoder.number((*rdev).into());
            encoder.option(target.as_ref(), |encoder, target| encoder.bytes(target));
            encoder.number((*umask).into());
        }
        Op::CreateOrphan { parent, ino, mode, umask, uid, gid } => {
            encoder.byte(tag::CREATE_ORPHAN);
            encoder.ino(*parent);
            encoder.ino(*ino);
            write_owner(encoder, *mode, *uid, *gid);
            encoder.number((*umask).into());
        }
        Op::Link { ino, parent, name } => {
            encoder.byte(tag::LINK);
            encoder.ino(*ino);
            write_entry(encoder, *parent, name);
        }
        Op::Unlink { parent, name, keep } => {
            encoder.byte(tag::UNLINK);
            write_entry(encoder, *parent, name);
            encoder.flag(*keep);
        }
        Op::HandOn { ino, parent, name } => {
            encoder.byte(tag::HAND_ON);
            encoder.ino(*ino);
            write_entry(encoder, *parent, name);
        }
        Op::Rmdir { parent, name } => {
            encoder.byte(tag::RMDIR);
            write_entry(encoder, *parent, name);
        }
        Op::Rename { from, to, how, keep } => {
            encoder.byte(tag::RENAME);
            write_entry(encoder, from.0, &from.1);
            write_entry(encoder, to.0, &to.1);
            encoder.byte(rename_number(*how));
            encoder.flag(*keep);
        }
        Op::SetAttr { ino, changes } => {
            encoder.byte(tag::SET_ATTR);
            encoder.ino(*ino);
            write_changes(encoder, changes);
        }
        Op::Accessed { ino, atime } => {
            encoder.byte(tag::ACCESSED);
            encoder.ino(*ino);
            encoder.time(*atime);
        }
        Op::SetXattr { ino, name, value, how } => {
            encoder.byte(tag::SET_XATTR);
            encoder.ino(*ino);
            encoder.bytes(name);
            encoder.bytes(value);
            encoder.byte(xattr_number(*how));
        }
        Op::RemoveXattr { ino, name } => {
            encoder.byte(tag::REMOVE_XATTR);
            encoder.ino(*ino);
            encoder.bytes(name);
        }
        Op::Publish { ino, base, content, size_bytes, mtime } => {
            encoder.byte(tag::PUBLISH);
            encoder.ino(*ino);
            encoder.option(base.as_ref(), write_etag);
            write_extents(encoder, content);
            encoder.number(*size_bytes);
            encoder.option(*mtime, Encoder::time);
        }
        Op::Splice { ino, ranges, content, size_bytes, mtime } => {
            encoder.byte(tag::SPLICE);
            encoder.ino(*ino);
            write_ranges(encoder, ranges);
            write_extents(encoder, content);
            encoder.number(*size_bytes);
            encoder.option(*mtime, Encoder::time);
        }
        Op::Import { parent, name, ino, seen } => {
            encoder.byte(tag::IMPORT);
            write_entry(encoder, *parent, name);
            encoder.ino(*ino);
            write_observed(encoder, seen);
        }
        Op::Refresh { ino, seen } => {
            encoder.byte(tag::REFRESH);
            encoder.ino(*ino);
            write_observed(encoder, seen);
        }
        Op::Vanish { parent, name, looked_at, keep } => {
            encoder.byte(tag::VANISH);
            write_entry(encoder, *parent, name);
            encoder.moment(*looked_at);
            encoder.flag(*keep);
        }
        Op::Evict { parent, name } => {
            encoder.byte(tag::EVICT);
            write_entry(encoder, *parent, name);
        }
        Op::SetQuota { dir, limits } => {
            encoder.byte(tag::SET_QUOTA);
            encoder.ino(*dir);
            encoder.option(*limits, write_limits);
        }
        Op::AwaitExport { ino } => {
            encoder.byte(tag::AWAIT_EXPORT);
            encoder.ino(*ino);
        }
        Op::Exported { ino, change } => {
            encoder.byte(tag::EXPORTED);
            encoder.ino(*ino);
            encoder.number(*change);
        }
        Op::Purge { ino } => {
            encoder.byte(tag::PURGE);
            encoder.ino(*ino);
        }
        Op::SetBatch { id, record } => {
            encoder.byte(tag::SET_BATCH);
            encoder.number(id.0);
            encoder.option(record.as_ref(), write_batch);
        }
        Op::SetRefusedOp { batch, index, record } => {
            encoder.byte(tag::SET_REFUSED_OP);
            encoder.number(batch.0);
            encoder.number(*index);
            encoder.option(record.as_ref(), write_refused_op);
        }
    }
}

pub(super) fn read_op(decoder: &mut Decoder<'_>) -> Result<Op, DecodeError> {
    let version = decoder.byte()?;
    match version {
        0 => return Err(DecodeError::Tag { what: "an op", found: 0 }),
        found if found > VERSION_MAX => {
            return Err(DecodeError::Version { what: "an op", found, known: VERSION_MAX });
        }
        _ => {}
    }
    match decoder.byte()? {
        tag::ROOT => {
            let (mode, uid, gid) = read_owner(decoder)?;
            Ok(Op::Root { mode, uid, gid })
        }
        tag::LEASE => Ok(Op::Lease { from: decoder.ino()?, to: decoder.ino()? }),
        tag::CREATE => read_create(decoder, version),
        tag::CREATE_ORPHAN => {
            let (parent, ino) = (decoder.ino()?, decoder.ino()?);
            let (mode, uid, gid) = read_owner(decoder)?;
            Ok(Op::CreateOrphan { parent, ino, mode, uid, gid, umask: decoder.number_u16()? })
        }
        tag::LINK => {
            let ino = decoder.ino()?;
            let (parent, name) = read_entry(decoder)?;
            Ok(Op::Link { ino, parent, name })
        }
        tag::HAND_ON => {
            let ino = decoder.ino()?;
            let (parent, name) = read_entry(decoder)?;
            Ok(Op::HandOn { ino, parent, name })
        }
        tag::UNLINK => {
            let (parent, name) = read_entry(decoder)?;
            Ok(Op::Unlink { parent, name, keep: decoder.flag()? })
        }
        tag::RMDIR => {
            let (parent, name) = read_entry(decoder)?;
            Ok(Op::Rmdir { parent, name })
        }
        tag::RENAME => {
            let (from, to) = (read_entry(decoder)?, read_entry(decoder)?);
            Ok(Op::Rename { from, to, how: read_rename(decoder)?, keep: decoder.flag()? })
        }
        tag::SET_ATTR => Ok(Op::SetAttr { ino: decoder.ino()?, changes: read_changes(decoder)? }),
        tag::ACCESSED => Ok(Op::Accessed { ino: decoder.ino()?, atime: decoder.time()? }),
        tag::SET_XATTR => Ok(Op::SetXattr {
            ino: decoder.ino()?,
            name: decoder.bytes()?.into(),
            value: decoder.owned()?,
            how: read_xattr(decoder)?,
        }),
        tag::REMOVE_XATTR => Ok(Op::RemoveXattr { ino: decoder.ino()?, name: decoder.bytes()?.into() }),
        tag::PUBLISH => Ok(Op::Publish {
            ino: decoder.ino()?,
            base: decoder.option(read_etag)?,
            content: read_extents(decoder)?,
            size_bytes: decoder.number()?,
            mtime: decoder.option(Decoder::time)?,
        }),
        tag::SPLICE => Ok(Op::Splice {
            ino: decoder.ino()?,
            ranges: read_ranges(decoder)?,
            content: read_extents(decoder)?,
            size_bytes: decoder.number()?,
            mtime: decoder.option(Decoder::time)?,
        }),
        tag::IMPORT => {
            let (parent, name) = read_entry(decoder)?;
            Ok(Op::Import { parent, name, ino: decoder.ino()?, seen: read_observed(decoder, version)? })
        }
        tag::REFRESH => Ok(Op::Refresh { ino: decoder.ino()?, seen: read_observed(decoder, version)? }),
        tag::VANISH => {
            let (parent, name) = read_entry(decoder)?;
            let looked_at = read_observation_moment(decoder, version, Timestamp(0))?;
            Ok(Op::Vanish { parent, name, looked_at, keep: decoder.flag()? })
        }
        tag::EVICT => {
            let (parent, name) = read_entry(decoder)?;
            Ok(Op::Evict { parent, name })
        }
        tag::SET_QUOTA => Ok(Op::SetQuota { dir: decoder.ino()?, limits: decoder.option(read_limits)? }),
        tag::AWAIT_EXPORT => Ok(Op::AwaitExport { ino: decoder.ino()? }),
        tag::EXPORTED => Ok(Op::Exported { ino: decoder.ino()?, change: decoder.number()? }),
        tag::PURGE => Ok(Op::Purge { ino: decoder.ino()? }),
        tag::SET_BATCH => {
            Ok(Op::SetBatch { id: BatchId(decoder.number()?), record: decoder.option(read_batch)? })
        }
        tag::SET_REFUSED_OP => Ok(Op::SetRefusedOp {
            batch: BatchId(decoder.number()?),
            index: decoder.number()?,
            record: decoder.option(read_refused_op)?,
        }),
        found => Err(DecodeError::Tag { what: "an op", found }),
    }
}

fn read_create(decoder: &mut Decoder<'_>, version: u8) -> Result<Op, DecodeError> {
    let (parent, name) = read_entry(decoder)?;
    let ino = decoder.ino()?;
    let kind = kind_from(decoder.byte()?)?;
    let (mode, uid, gid) = read_owner(decoder)?;
    let rdev = decoder.number_u32()?;
    let target = decoder.option(Decoder::owned)?;
    let umask = if version < VERSION_CREATE { 0 } else { decoder.number_u16()? };
    Ok(Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target })
}

fn write_entry(encoder: &mut Encoder, parent: Ino, name: &Name) {
    encoder.ino(parent);
    encoder.bytes(name.as_bytes());
}

fn read_entry(decoder: &mut Decoder<'_>) -> Result<(Ino, Name), DecodeError> {
    Ok((decoder.ino()?, decoder.name()?))
}

fn write_owner(encoder: &mut Encoder, mode: u16, uid: u32, gid: u32) {
    encoder.number(mode.into());
    encoder.number(uid.into());
    encoder.number(gid.into());
}

fn read_owner(decoder: &mut Decoder<'_>) -> Result<(u16, u32, u32), DecodeError> {
    Ok((decoder.number_u16()?, decoder.number_u32()?, decoder.number_u32()?))
}

fn rename_number(how: RenameHow) -> u8 {
    match how {
        RenameHow::Replace => 0,
        RenameHow::NoReplace => 1,
        RenameHow::Exchange => 2,
    }
}

fn read_rename(decoder: &mut Decoder<'_>) -> Result<RenameHow, DecodeError> {
    match decoder.byte()? {
        0 => Ok(RenameHow::Replace),
        1 => Ok(RenameHow::NoReplace),
        2 => Ok(RenameHow::Exchange),
        found => Err(DecodeError::Tag { what: "a rename", found }),
    }
}

fn xattr_number(how: XattrHow) -> u8 {
    match how {
        XattrHow::Set => 0,
        XattrHow::Create => 1,
        XattrHow::Replace => 2,
    }
}

fn read_xattr(decoder: &mut Decoder<'_>) -> Result<XattrHow, DecodeError> {
    match decoder.byte()? {
        0 => Ok(XattrHow::Set),
        1 => Ok(XattrHow::Create),
        2 => Ok(XattrHow::Replace),
        found => Err(DecodeError::Tag { what: "a change of an extended attribute", found }),
    }
}

fn write_changes(encoder: &mut Encoder, changes: &AttrChanges) {
    encoder.option(changes.mode, |encoder, mode| encoder.number(mode.into()));
    encoder.option(changes.uid, |encoder, uid| encoder.number(uid.into()));
    encoder.option(changes.gid, |encoder, gid| encoder.number(gid.into()));
    encoder.option(changes.size_bytes, Encoder::number);
    encoder.option(changes.atime, Encoder::time);
    encoder.option(changes.mtime, Encoder::time);
}

fn read_changes(decoder: &mut Decoder<'_>) -> Result<AttrChanges, DecodeError> {
    Ok(AttrChanges {
        mode: decoder.option(Decoder::number_u16)?,
        uid: decoder.option(Decoder::number_u32)?,
        gid: decoder.option(Decoder::number_u32)?,
        size_bytes: decoder.option(Decoder::number)?,
        atime: decoder.option(Decoder::time)?,
        mtime: decoder.option(Decoder::time)?,
    })
}

/// Writes extents with absolute offsets, since ops keep extents as they were given, also invalid ones.
fn write_extents(encoder: &mut Encoder, content: &[Extent]) {
    encoder.number(content.len() as u64);
    for extent in content {
        write_extent(encoder, extent, 0, Timestamp(0));
    }
}

fn read_extents(decoder: &mut Decoder<'_>) -> Result<Vec<Extent>, DecodeError> {
    let count = decoder.number()?;
    (0..count).map(|_| read_extent(decoder, 0, Timestamp(0))).collect()
}

fn write_ranges(encoder: &mut Encoder, ranges: &[Range<u64>]) {
    encoder.number(ranges.len() as u64);
    for range in ranges {
        encoder.number(range.start);
        encoder.number(range.end);
    }
}

fn read_ranges(decoder: &mut Decoder<'_>) -> Result<Vec<Range<u64>>, DecodeError> {
    let count = decoder.number()?;
    (0..count).map(|_| Ok(decoder.number()?..decoder.number()?)).collect()
}

fn write_observed(encoder: &mut Encoder, seen: &Observed) {
    encoder.byte(kind_number(seen.kind));
    encoder.number(seen.size_bytes);
    encoder.time(seen.mtime);
    encoder.option(seen.object.as_ref(), |encoder, object| write_stored(encoder, object, seen.mtime));
    write_owner(encoder, seen.mode, seen.uid, seen.gid);
    encoder.number(seen.rdev.into());
    for time in [seen.atime, seen.ctime, seen.btime] {
        encoder.time_near(time, seen.mtime);
    }
    encoder.option(seen.target.as_ref(), |encoder, target| encoder.bytes(target));
    encoder.flag(seen.exact);
    encoder.moment(seen.looked_at);
}

/// Reads the moment of an observation. The wall-clock time of version 1 is ignored, since it does not order observations.
fn read_observation_moment(
    decoder: &mut Decoder<'_>,
    version: u8,
    base: Timestamp,
) -> Result<Moment, DecodeError> {
    match version {
        1 => decoder.time_near(base).map(|_| Moment::default()),
        _ => decoder.moment(),
    }
}

fn read_observed(decoder: &mut Decoder<'_>, version: u8) -> Result<Observed, DecodeError> {
    let kind = kind_from(decoder.byte()?)?;
    let size_bytes = decoder.number()?;
    let mtime = decoder.time()?;
    let object = decoder.option(|decoder| read_stored(decoder, mtime))?;
    let (mode, uid, gid) = read_owner(decoder)?;
    Ok(Observed {
        kind,
        size_bytes,
        object,
        mode,
        uid,
        gid,
        rdev: decoder.number_u32()?,
        mtime,
        atime: decoder.time_near(mtime)?,
        ctime: decoder.time_near(mtime)?,
        btime: decoder.time_near(mtime)?,
        target: decoder.option(Decoder::owned)?,
        exact: decoder.flag()?,
        looked_at: read_observation_moment(decoder, version, mtime)?,
    })
}
