//! The format of references to stored objects within records.
//!
//! An etag of 32 hex digits, the usual form, takes a tag byte and 16 bytes. The suffix `-parts` of a multipart upload takes a
//! number more.

use super::{DecodeError, Decoder, Encoder};
use crate::{Extent, Stored};
use store::{ETag, ObjectKey, Timestamp};

const TEXT: u8 = 0;
const HEX: u8 = 1;
const HEX_PARTS: u8 = 2;

/// Writes an extent. `previous_end` is the end of the previous extent in the file, `base` a time close to the object's modification time.
pub(super) fn write_extent(encoder: &mut Encoder, extent: &Extent, previous_end: u64, base: Timestamp) {
    encoder.number(extent.offset.wrapping_sub(previous_end));
    encoder.number(extent.len);
    encoder.number(extent.object_offset);
    write_stored(encoder, &extent.object, base);
}

pub(super) fn read_extent(
    decoder: &mut Decoder<'_>,
    previous_end: u64,
    base: Timestamp,
) -> Result<Extent, DecodeError> {
    Ok(Extent {
        offset: previous_end.wrapping_add(decoder.number()?),
        len: decoder.number()?,
        object_offset: decoder.number()?,
        object: read_stored(decoder, base)?,
    })
}

pub(super) fn write_stored(encoder: &mut Encoder, stored: &Stored, base: Timestamp) {
    encoder.option(stored.key.as_ref(), |encoder, key| encoder.bytes(key.as_bytes()));
    write_etag(encoder, &stored.etag);
    encoder.option(stored.version.as_ref(), |encoder, version| encoder.bytes(version.as_bytes()));
    encoder.option(stored.last_modified, |encoder, time| encoder.time_near(time, base));
}

pub(super) fn read_stored(decoder: &mut Decoder<'_>, base: Timestamp) -> Result<Stored, DecodeError> {
    Ok(Stored {
        key: decoder.option(read_key)?,
        etag: read_etag(decoder)?,
        version: decoder.option(|decoder| decoder.text().map(Into::into))?,
        last_modified: decoder.option(|decoder| decoder.time_near(base))?,
    })
}

fn read_key(decoder: &mut Decoder<'_>) -> Result<ObjectKey, DecodeError> {
    ObjectKey::try_from(decoder.bytes()?).map_err(|_| DecodeError::Field("an invalid object key"))
}

pub(super) fn write_etag(encoder: &mut Encoder, etag: &ETag) {
    match split_hex(etag.as_str()) {
        Some((hex, None)) => {
            encoder.byte(HEX);
            encoder.raw(&hex.to_be_bytes());
        }
        Some((hex, Some(parts))) => {
            encoder.byte(HEX_PARTS);
            encoder.raw(&hex.to_be_bytes());
            encoder.number(parts.into());
        }
        None => {
            encoder.byte(TEXT);
            encoder.bytes(etag.as_str().as_bytes());
        }
    }
}

pub(super) fn read_etag(decoder: &mut Decoder<'_>) -> Result<ETag, DecodeError> {
    match decoder.byte()? {
        TEXT => Ok(ETag::new(decoder.text()?)),
        HEX => Ok(ETag::new(&format!("{:032x}", read_hex(decoder)?))),
        HEX_PARTS => Ok(ETag::new(&format!("{:032x}-{}", read_hex(decoder)?, decoder.number_u32()?))),
        found => Err(DecodeError::Tag { what: "an etag", found }),
    }
}

fn read_hex(decoder: &mut Decoder<'_>) -> Result<u128, DecodeError> {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(decoder.raw(16)?);
    Ok(u128::from_be_bytes(bytes))
}

/// Returns the etag as a number and the number of parts, if formatting these gives the same etag again.
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
    fn etags_round_trip() {
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
            let mut encoder = Encoder::default();
            write_etag(&mut encoder, &ETag::new(tag));
            let bytes = encoder.into_bytes();
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(read_etag(&mut decoder).unwrap(), ETag::new(tag));
            decoder.finish().unwrap();
        }
        let mut encoder = Encoder::default();
        write_etag(&mut encoder, &ETag::new(md5));
        assert_eq!(encoder.into_bytes().len(), 17);
    }
}
