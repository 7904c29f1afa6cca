//! References to stored objects inside records.
//!
//! An etag of 32 hex digits, as nearly all are, takes 16 bytes; with `-parts` behind it two more.

use super::{DecodeError, Sink, Source};
use crate::{Extent, Stored};
use store::{ETag, ObjectKey, Timestamp};

const TEXT: u8 = 0;
const HEX: u8 = 1;
const HEX_PARTS: u8 = 2;

/// An extent; `end` is where the one before it ended, `base` a time near which it was stored.
pub(super) fn write_extent(sink: &mut Sink, extent: &Extent, end: u64, base: Timestamp) {
    sink.number(extent.offset.wrapping_sub(end));
    sink.number(extent.len);
    sink.number(extent.object_offset);
    write_stored(sink, &extent.object, base);
}

pub(super) fn read_extent(source: &mut Source<'_>, end: u64, base: Timestamp) -> Result<Extent, DecodeError> {
    Ok(Extent {
        offset: end.wrapping_add(source.number()?),
        len: source.number()?,
        object_offset: source.number()?,
        object: read_stored(source, base)?,
    })
}

pub(super) fn write_stored(sink: &mut Sink, stored: &Stored, base: Timestamp) {
    sink.option(stored.key.as_ref(), |sink, key| sink.bytes(key.as_bytes()));
    write_etag(sink, &stored.etag);
    sink.option(stored.version.as_ref(), |sink, version| sink.bytes(version.as_bytes()));
    sink.option(stored.last_modified, |sink, time| sink.time_near(time, base));
}

pub(super) fn read_stored(source: &mut Source<'_>, base: Timestamp) -> Result<Stored, DecodeError> {
    Ok(Stored {
        key: source.option(read_key)?,
        etag: read_etag(source)?,
        version: source.option(|source| source.text().map(Into::into))?,
        last_modified: source.option(|source| source.time_near(base))?,
    })
}

fn read_key(source: &mut Source<'_>) -> Result<ObjectKey, DecodeError> {
    ObjectKey::try_from(source.bytes()?).map_err(|_| DecodeError::Field("bytes that cannot be a key"))
}

pub(super) fn write_etag(sink: &mut Sink, etag: &ETag) {
    match split_hex(etag.as_str()) {
        Some((hex, None)) => {
            sink.byte(HEX);
            sink.raw(&hex.to_be_bytes());
        }
        Some((hex, Some(parts))) => {
            sink.byte(HEX_PARTS);
            sink.raw(&hex.to_be_bytes());
            sink.number(parts.into());
        }
        None => {
            sink.byte(TEXT);
            sink.bytes(etag.as_str().as_bytes());
        }
    }
}

pub(super) fn read_etag(source: &mut Source<'_>) -> Result<ETag, DecodeError> {
    match source.byte()? {
        TEXT => Ok(ETag::new(source.text()?)),
        HEX => Ok(ETag::new(&format!("{:032x}", read_hex(source)?))),
        HEX_PARTS => Ok(ETag::new(&format!("{:032x}-{}", read_hex(source)?, source.number_u32()?))),
        found => Err(DecodeError::Tag { what: "etag", found }),
    }
}

fn read_hex(source: &mut Source<'_>) -> Result<u128, DecodeError> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(source.raw(16)?);
    Ok(u128::from_be_bytes(bytes))
}

/// The tag as a number, if writing the number down gives the very same tag.
fn split_hex(tag: &str) -> Option<(u128, Option<u32>)> {
    let (hex, parts) = tag.split_at_checked(32)?;
    let lower_hex = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let hex = lower_hex.then(|| u128::from_str_radix(hex, 16).ok())??;
    if parts.is_empty() {
        return Some((hex, None));
    }
    let digits = parts.strip_prefix('-')?;
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then_some((hex, Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_etag_comes_back_as_it_was() {
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        let upper = md5.to_uppercase();
        let tags = [
            md5,
            &format!("{md5}-17"),
            &format!("{md5}-017"),
            &format!("{md5}-"),
            &upper,
            "x",
            "",
            "é",
            "+1",
        ];
        for tag in tags {
            let mut sink = Sink::default();
            write_etag(&mut sink, &ETag::new(tag));
            let bytes = sink.into_bytes();
            let mut source = Source::new(&bytes);
            assert_eq!(read_etag(&mut source).unwrap(), ETag::new(tag));
            source.finish().unwrap();
        }
        let mut sink = Sink::default();
        write_etag(&mut sink, &ETag::new(md5));
        assert_eq!(sink.into_bytes().len(), 17);
    }
}
