//! Ops: a version byte, a tag, the fields in the order of their declaration.

use super::primitives::{kind_from, kind_number};
use super::quota::{read_limits, write_limits};
use super::stored::{read_etag, read_extent, read_stored, write_etag, write_extent, write_stored};
use super::{DecodeError, Sink, Source};
use crate::{AttrChanges, Extent, Ino, Moment, Name, Observed, Op, RenameHow, XattrHow};
use std::ops::Range;
use store::Timestamp;

/// Of the ops whose form never changed.
const VERSION: u8 = 1;
/// Of `Create`, since it has a umask.
const VERSION_CREATE: u8 = 2;
/// Of the ops with a look at the store, since the look has a moment in place of a wall-clock time.
const VERSION_LOOK: u8 = 2;
/// The highest version of any op.
const VERSION_MAX: u8 = 2;

/// Tags are never reused.
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
}

/// The bytes of an op.
pub fn encode_op(op: &Op) -> Vec<u8> {
    let mut sink = Sink::default();
    write_op(&mut sink, op);
    sink.into_bytes()
}

/// The op of some bytes.
pub fn decode_op(bytes: &[u8]) -> Result<Op, DecodeError> {
    let mut source = Source::new(bytes);
    let op = read_op(&mut source)?;
    source.finish()?;
    Ok(op)
}

pub(super) fn write_op(sink: &mut Sink, op: &Op) {
    sink.byte(match op {
        Op::Create { .. } => VERSION_CREATE,
        Op::Import { .. } | Op::Refresh { .. } | Op::Vanish { .. } => VERSION_LOOK,
        _ => VERSION,
    });
    match op {
        Op::Root { mode, uid, gid } => {
            sink.byte(tag::ROOT);
            write_owner(sink, *mode, *uid, *gid);
        }
        Op::Lease { from, to } => {
            sink.byte(tag::LEASE);
            sink.ino(*from);
            sink.ino(*to);
        }
        Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target } => {
            sink.byte(tag::CREATE);
            write_entry(sink, *parent, name);
            sink.ino(*ino);
            sink.byte(kind_number(*kind));
            write_owner(sink, *mode, *uid, *gid);
            sink.number((*rdev).into());
            sink.option(target.as_ref(), |sink, target| sink.bytes(target));
            sink.number((*umask).into());
        }
        Op::CreateOrphan { parent, ino, mode, umask, uid, gid } => {
            sink.byte(tag::CREATE_ORPHAN);
            sink.ino(*parent);
            sink.ino(*ino);
            write_owner(sink, *mode, *uid, *gid);
            sink.number((*umask).into());
        }
        Op::Link { ino, parent, name } => {
            sink.byte(tag::LINK);
            sink.ino(*ino);
            write_entry(sink, *parent, name);
        }
        Op::Unlink { parent, name, keep } => {
            sink.byte(tag::UNLINK);
            write_entry(sink, *parent, name);
            sink.flag(*keep);
        }
        Op::HandOn { ino, parent, name } => {
            sink.byte(tag::HAND_ON);
            sink.ino(*ino);
            write_entry(sink, *parent, name);
        }
        Op::Rmdir { parent, name } => {
            sink.byte(tag::RMDIR);
            write_entry(sink, *parent, name);
        }
        Op::Rename { from, to, how, keep } => {
            sink.byte(tag::RENAME);
            write_entry(sink, from.0, &from.1);
            write_entry(sink, to.0, &to.1);
            sink.byte(rename_number(*how));
            sink.flag(*keep);
        }
        Op::SetAttr { ino, changes } => {
            sink.byte(tag::SET_ATTR);
            sink.ino(*ino);
            write_changes(sink, changes);
        }
        Op::Accessed { ino, atime } => {
            sink.byte(tag::ACCESSED);
            sink.ino(*ino);
            sink.time(*atime);
        }
        Op::SetXattr { ino, name, value, how } => {
            sink.byte(tag::SET_XATTR);
            sink.ino(*ino);
            sink.bytes(name);
            sink.bytes(value);
            sink.byte(xattr_number(*how));
        }
        Op::RemoveXattr { ino, name } => {
            sink.byte(tag::REMOVE_XATTR);
            sink.ino(*ino);
            sink.bytes(name);
        }
        Op::Publish { ino, base, content, size_bytes, mtime } => {
            sink.byte(tag::PUBLISH);
            sink.ino(*ino);
            sink.option(base.as_ref(), write_etag);
            write_extents(sink, content);
            sink.number(*size_bytes);
            sink.option(*mtime, Sink::time);
        }
        Op::Splice { ino, ranges, content, size_bytes, mtime } => {
            sink.byte(tag::SPLICE);
            sink.ino(*ino);
            write_ranges(sink, ranges);
            write_extents(sink, content);
            sink.number(*size_bytes);
            sink.option(*mtime, Sink::time);
        }
        Op::Import { parent, name, ino, seen } => {
            sink.byte(tag::IMPORT);
            write_entry(sink, *parent, name);
            sink.ino(*ino);
            write_observed(sink, seen);
        }
        Op::Refresh { ino, seen } => {
            sink.byte(tag::REFRESH);
            sink.ino(*ino);
            write_observed(sink, seen);
        }
        Op::Vanish { parent, name, looked_at, keep } => {
            sink.byte(tag::VANISH);
            write_entry(sink, *parent, name);
            sink.moment(*looked_at);
            sink.flag(*keep);
        }
        Op::Evict { parent, name } => {
            sink.byte(tag::EVICT);
            write_entry(sink, *parent, name);
        }
        Op::SetQuota { dir, limits } => {
            sink.byte(tag::SET_QUOTA);
            sink.ino(*dir);
            sink.option(*limits, write_limits);
        }
        Op::AwaitExport { ino } => {
            sink.byte(tag::AWAIT_EXPORT);
            sink.ino(*ino);
        }
        Op::Exported { ino, change } => {
            sink.byte(tag::EXPORTED);
            sink.ino(*ino);
            sink.number(*change);
        }
        Op::Purge { ino } => {
            sink.byte(tag::PURGE);
            sink.ino(*ino);
        }
    }
}

pub(super) fn read_op(source: &mut Source<'_>) -> Result<Op, DecodeError> {
    let version = source.byte()?;
    match version {
        0 => return Err(DecodeError::Tag { what: "an op", found: 0 }),
        found if found > VERSION_MAX => {
            return Err(DecodeError::Version { what: "an op", found, known: VERSION_MAX });
        }
        _ => {}
    }
    match source.byte()? {
        tag::ROOT => {
            let (mode, uid, gid) = read_owner(source)?;
            Ok(Op::Root { mode, uid, gid })
        }
        tag::LEASE => Ok(Op::Lease { from: source.ino()?, to: source.ino()? }),
        tag::CREATE => read_create(source, version),
        tag::CREATE_ORPHAN => {
            let (parent, ino) = (source.ino()?, source.ino()?);
            let (mode, uid, gid) = read_owner(source)?;
            Ok(Op::CreateOrphan { parent, ino, mode, uid, gid, umask: source.number_u16()? })
        }
        tag::LINK => {
            let ino = source.ino()?;
            let (parent, name) = read_entry(source)?;
            Ok(Op::Link { ino, parent, name })
        }
        tag::HAND_ON => {
            let ino = source.ino()?;
            let (parent, name) = read_entry(source)?;
            Ok(Op::HandOn { ino, parent, name })
        }
        tag::UNLINK => {
            let (parent, name) = read_entry(source)?;
            Ok(Op::Unlink { parent, name, keep: source.flag()? })
        }
        tag::RMDIR => {
            let (parent, name) = read_entry(source)?;
            Ok(Op::Rmdir { parent, name })
        }
        tag::RENAME => {
            let (from, to) = (read_entry(source)?, read_entry(source)?);
            Ok(Op::Rename { from, to, how: read_rename(source)?, keep: source.flag()? })
        }
        tag::SET_ATTR => Ok(Op::SetAttr { ino: source.ino()?, changes: read_changes(source)? }),
        tag::ACCESSED => Ok(Op::Accessed { ino: source.ino()?, atime: source.time()? }),
        tag::SET_XATTR => Ok(Op::SetXattr {
            ino: source.ino()?,
            name: source.bytes()?.into(),
            value: source.owned()?,
            how: read_xattr(source)?,
        }),
        tag::REMOVE_XATTR => Ok(Op::RemoveXattr { ino: source.ino()?, name: source.bytes()?.into() }),
        tag::PUBLISH => Ok(Op::Publish {
            ino: source.ino()?,
            base: source.option(read_etag)?,
            content: read_extents(source)?,
            size_bytes: source.number()?,
            mtime: source.option(Source::time)?,
        }),
        tag::SPLICE => Ok(Op::Splice {
            ino: source.ino()?,
            ranges: read_ranges(source)?,
            content: read_extents(source)?,
            size_bytes: source.number()?,
            mtime: source.option(Source::time)?,
        }),
        tag::IMPORT => {
            let (parent, name) = read_entry(source)?;
            Ok(Op::Import { parent, name, ino: source.ino()?, seen: read_observed(source, version)? })
        }
        tag::REFRESH => Ok(Op::Refresh { ino: source.ino()?, seen: read_observed(source, version)? }),
        tag::VANISH => {
            let (parent, name) = read_entry(source)?;
            let looked_at = read_look(source, version, Timestamp(0))?;
            Ok(Op::Vanish { parent, name, looked_at, keep: source.flag()? })
        }
        tag::EVICT => {
            let (parent, name) = read_entry(source)?;
            Ok(Op::Evict { parent, name })
        }
        tag::SET_QUOTA => Ok(Op::SetQuota { dir: source.ino()?, limits: source.option(read_limits)? }),
        tag::AWAIT_EXPORT => Ok(Op::AwaitExport { ino: source.ino()? }),
        tag::EXPORTED => Ok(Op::Exported { ino: source.ino()?, change: source.number()? }),
        tag::PURGE => Ok(Op::Purge { ino: source.ino()? }),
        found => Err(DecodeError::Tag { what: "an op", found }),
    }
}

fn read_create(source: &mut Source<'_>, version: u8) -> Result<Op, DecodeError> {
    let (parent, name) = read_entry(source)?;
    let ino = source.ino()?;
    let kind = kind_from(source.byte()?)?;
    let (mode, uid, gid) = read_owner(source)?;
    let rdev = source.number_u32()?;
    let target = source.option(Source::owned)?;
    let umask = if version < VERSION_CREATE { 0 } else { source.number_u16()? };
    Ok(Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target })
}

fn write_entry(sink: &mut Sink, parent: Ino, name: &Name) {
    sink.ino(parent);
    sink.bytes(name.as_bytes());
}

fn read_entry(source: &mut Source<'_>) -> Result<(Ino, Name), DecodeError> {
    Ok((source.ino()?, source.name()?))
}

fn write_owner(sink: &mut Sink, mode: u16, uid: u32, gid: u32) {
    sink.number(mode.into());
    sink.number(uid.into());
    sink.number(gid.into());
}

fn read_owner(source: &mut Source<'_>) -> Result<(u16, u32, u32), DecodeError> {
    Ok((source.number_u16()?, source.number_u32()?, source.number_u32()?))
}

fn rename_number(how: RenameHow) -> u8 {
    match how {
        RenameHow::Replace => 0,
        RenameHow::NoReplace => 1,
        RenameHow::Exchange => 2,
    }
}

fn read_rename(source: &mut Source<'_>) -> Result<RenameHow, DecodeError> {
    match source.byte()? {
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

fn read_xattr(source: &mut Source<'_>) -> Result<XattrHow, DecodeError> {
    match source.byte()? {
        0 => Ok(XattrHow::Set),
        1 => Ok(XattrHow::Create),
        2 => Ok(XattrHow::Replace),
        found => Err(DecodeError::Tag { what: "a set of an extended attribute", found }),
    }
}

fn write_changes(sink: &mut Sink, changes: &AttrChanges) {
    sink.option(changes.mode, |sink, mode| sink.number(mode.into()));
    sink.option(changes.uid, |sink, uid| sink.number(uid.into()));
    sink.option(changes.gid, |sink, gid| sink.number(gid.into()));
    sink.option(changes.size_bytes, Sink::number);
    sink.option(changes.atime, Sink::time);
    sink.option(changes.mtime, Sink::time);
}

fn read_changes(source: &mut Source<'_>) -> Result<AttrChanges, DecodeError> {
    Ok(AttrChanges {
        mode: source.option(Source::number_u16)?,
        uid: source.option(Source::number_u32)?,
        gid: source.option(Source::number_u32)?,
        size_bytes: source.option(Source::number)?,
        atime: source.option(Source::time)?,
        mtime: source.option(Source::time)?,
    })
}

/// Ops keep extents as they were given, also invalid ones, so offsets are absolute.
fn write_extents(sink: &mut Sink, content: &[Extent]) {
    sink.number(content.len() as u64);
    for extent in content {
        write_extent(sink, extent, 0, Timestamp(0));
    }
}

fn read_extents(source: &mut Source<'_>) -> Result<Vec<Extent>, DecodeError> {
    let count = source.number()?;
    (0..count).map(|_| read_extent(source, 0, Timestamp(0))).collect()
}

fn write_ranges(sink: &mut Sink, ranges: &[Range<u64>]) {
    sink.number(ranges.len() as u64);
    for range in ranges {
        sink.number(range.start);
        sink.number(range.end);
    }
}

fn read_ranges(source: &mut Source<'_>) -> Result<Vec<Range<u64>>, DecodeError> {
    let count = source.number()?;
    (0..count).map(|_| Ok(source.number()?..source.number()?)).collect()
}

fn write_observed(sink: &mut Sink, seen: &Observed) {
    sink.byte(kind_number(seen.kind));
    sink.number(seen.size_bytes);
    sink.time(seen.mtime);
    sink.option(seen.object.as_ref(), |sink, object| write_stored(sink, object, seen.mtime));
    write_owner(sink, seen.mode, seen.uid, seen.gid);
    sink.number(seen.rdev.into());
    for time in [seen.atime, seen.ctime, seen.btime] {
        sink.time_near(time, seen.mtime);
    }
    sink.option(seen.target.as_ref(), |sink, target| sink.bytes(target));
    sink.flag(seen.exact);
    sink.moment(seen.looked_at);
}

/// When a look was made. The wall-clock time of version 1 orders nothing.
fn read_look(source: &mut Source<'_>, version: u8, base: Timestamp) -> Result<Moment, DecodeError> {
    match version {
        1 => source.time_near(base).map(|_| Moment::default()),
        _ => source.moment(),
    }
}

fn read_observed(source: &mut Source<'_>, version: u8) -> Result<Observed, DecodeError> {
    let kind = kind_from(source.byte()?)?;
    let size_bytes = source.number()?;
    let mtime = source.time()?;
    let object = source.option(|source| read_stored(source, mtime))?;
    let (mode, uid, gid) = read_owner(source)?;
    Ok(Observed {
        kind,
        size_bytes,
        object,
        mode,
        uid,
        gid,
        rdev: source.number_u32()?,
        mtime,
        atime: source.time_near(mtime)?,
        ctime: source.time_near(mtime)?,
        btime: source.time_near(mtime)?,
        target: source.option(Source::owned)?,
        exact: source.flag()?,
        looked_at: read_look(source, version, mtime)?,
    })
}
