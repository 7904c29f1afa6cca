//! The frames of segments.
//!
//! A frame is: magic (4 bytes), CRC-32C of the lengths, header and body (4), header length (4), body length (8),
//! CRC-32C of the frame's position and of everything before (4), header, body; numbers are little-endian. Frames of
//! older versions, and the first frame of each segment, have another magic and no checksum of the position. The header
//! is a record of the log's owner; the body is bytes to which records refer.
//!
//! The first frame of a segment has a header of the log's own: the byte [`SEGMENT_START`], the number of the segment
//! before and where that ended then, 8 bytes each. No header of an owner begins with that byte.

use crate::Crc;

/// First byte of the header with which a segment begins.
pub const SEGMENT_START: u8 = 6;
/// Magic of frames with a checksum of their position.
pub(super) const MAGIC_V2: [u8; 4] = *b"TWB2";
/// Magic of frames without one.
const MAGIC_V1: [u8; 4] = *b"TWB1";
/// Length of a head without the checksum of its position, in bytes. A head with one has the checksum at this offset.
pub(super) const HEAD_V1_BYTES: usize = 20;
/// Length of a head with a checksum of its position, in bytes.
pub(super) const HEAD_V2_BYTES: usize = 24;
/// Maximum length of a frame's header in bytes.
const HEADER_BYTES_MAX: usize = 64 << 20;

/// Length of the first frame of a segment of version 2, and of the magic behind it: what [`version_of_segment`] needs.
pub(super) const VERSION_BYTES: u64 = HEAD_V1_BYTES as u64 + 17 + 4;

/// Returns the version of a segment with these first bytes; `None` if they are not those of a frame of any version. A segment of version 2
/// begins with a frame that looks like one of version 1.
pub(super) fn version_of_segment(head: &[u8]) -> Option<u32> {
    let version_of = |magic: &[u8]| match magic.strip_prefix(b"TWB") {
        Some([digit @ b'1'..=b'9']) => Some(u32::from(digit - b'0')),
        _ => None,
    };
    let first = version_of(head.get(..4)?)?;
    if first != 1 || head.get(HEAD_V1_BYTES) != Some(&SEGMENT_START) {
        return Some(first);
    }
    let second = head.get(HEAD_V1_BYTES + 17..).and_then(version_of);
    Some(second.unwrap_or(2).max(2))
}

/// Encodes the head and header of a frame with a body. [`set_position`] completes the frame.
pub(super) fn encode(header: &[u8], body: &[&[u8]]) -> Vec<u8> {
    let body_bytes: u64 = body.iter().map(|piece| piece.len() as u64).sum();
    let mut frame = Vec::with_capacity(HEAD_V2_BYTES + header.len());
    frame.extend(MAGIC_V2);
    frame.extend([0; 4]);
    frame.extend((header.len() as u32).to_le_bytes());
    frame.extend(body_bytes.to_le_bytes());
    frame.extend([0; 4]);
    let mut crc = Crc::default();
    crc.add(&frame[8..HEAD_V1_BYTES]);
    crc.add(header);
    body.iter().for_each(|piece| crc.add(piece));
    frame[4..8].copy_from_slice(&crc.sum().to_le_bytes());
    frame.extend(header);
    frame
}

/// Writes the checksum of its position into an encoded frame.
pub(super) fn set_position(frame: &mut [u8], segment: u64, at: u64) {
    let check = position_check(&frame[..HEAD_V1_BYTES], segment, at);
    frame[HEAD_V1_BYTES..HEAD_V2_BYTES].copy_from_slice(&check);
}

/// Encodes the first frame of a segment. Versions before this format refuse the unknown record as one of a newer
/// version.
pub(super) fn encode_segment_start(previous: u64, end: u64) -> Vec<u8> {
    let header = [&[SEGMENT_START][..], &previous.to_le_bytes(), &end.to_le_bytes()].concat();
    let mut frame = encode(&header, &[]);
    frame[..4].copy_from_slice(&MAGIC_V1);
    frame.drain(HEAD_V1_BYTES..HEAD_V2_BYTES);
    frame
}

/// Decodes the header of the first frame of a segment: the number of the segment before, and where that ended. `None`
/// if it is another frame's header.
pub(super) fn decode_segment_start(header: &[u8]) -> Option<(u64, u64)> {
    let (previous, rest) = header.strip_prefix(&[SEGMENT_START])?.split_first_chunk()?;
    Some((u64::from_le_bytes(*previous), u64::from_le_bytes(rest.try_into().ok()?)))
}

fn position_check(head: &[u8], segment: u64, at: u64) -> [u8; 4] {
    let mut crc = Crc::default();
    crc.add(&segment.to_le_bytes());
    crc.add(&at.to_le_bytes());
    crc.add(head);
    crc.sum().to_le_bytes()
}

/// A decoded head of a frame.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) head_bytes: usize,
    pub(super) header_bytes: usize,
    body_bytes: u64,
    pub(super) checksum: u32,
    /// The lengths of header and body as they are encoded in the head.
    pub(super) lengths: [u8; 12],
    /// The head is undamaged and was written for this position.
    pub(super) is_position_valid: bool,
}

impl Head {
    /// Returns the end of a frame that begins at an offset; `None` on overflow.
    pub(super) fn end(&self, at: u64) -> Option<u64> {
        at.checked_add((self.head_bytes + self.header_bytes) as u64)?.checked_add(self.body_bytes)
    }
}

/// Decodes a head, the likeliest form first: a damaged magic leaves both forms possible. Returns nothing if the bytes
/// are too few or the header would be too long.
pub(super) fn parse_heads(bytes: &[u8], segment: u64, at: u64) -> Vec<Head> {
    let is_position_valid = bytes.get(HEAD_V1_BYTES..HEAD_V2_BYTES).is_some_and(|check| {
        bytes.starts_with(&MAGIC_V2) && *check == position_check(&bytes[..HEAD_V1_BYTES], segment, at)
    });
    let forms: &[usize] = match bytes {
        [b'T', b'W', b'B', b'2', ..] => &[HEAD_V2_BYTES],
        [b'T', b'W', b'B', b'1', ..] => &[HEAD_V1_BYTES],
        _ => &[HEAD_V2_BYTES, HEAD_V1_BYTES],
    };
    let head = |head_bytes: &usize| {
        let lengths: [u8; 12] = bytes.get(8..HEAD_V1_BYTES)?.try_into().ok()?;
        let header_bytes = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        let body_bytes = u64::from_le_bytes(bytes.get(12..HEAD_V1_BYTES)?.try_into().ok()?);
        let checksum = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let head =
            Head { head_bytes: *head_bytes, header_bytes, body_bytes, checksum, lengths, is_position_valid };
        (header_bytes <= HEADER_BYTES_MAX).then_some(head)
    };
    forms.iter().filter_map(head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_segment_is_in_its_first_frames() {
        let start = encode_segment_start(4, 100);
        assert_eq!(start.len() as u64 + 4, VERSION_BYTES);
        assert_eq!(version_of_segment(&start), Some(2));
        let with = |magic: &[u8]| [&start[..], magic].concat();
        assert_eq!(version_of_segment(&with(&MAGIC_V2)), Some(2));
        assert_eq!(version_of_segment(&with(b"TWB3")), Some(3));
        assert_eq!(version_of_segment(&with(&[0; 4])), Some(2));
        let mut old = start.clone();
        old[HEAD_V1_BYTES] = 1;
        assert_eq!((version_of_segment(&old), version_of_segment(b"TWB4")), (Some(1), Some(4)));
        assert_eq!((version_of_segment(b"other"), version_of_segment(b"")), (None, None));
    }

    #[test]
    fn a_head_counts_at_its_position_only() {
        let mut frame = encode(b"header", &[b"bo", b"dy"]);
        set_position(&mut frame, 5, 60);
        assert!(!parse_heads(&frame, 5, 61)[0].is_position_valid);
        assert!(!parse_heads(&frame, 6, 60)[0].is_position_valid);
        let [head] = &parse_heads(&frame, 5, 60)[..] else { panic!() };
        assert!(head.is_position_valid && head.header_bytes == 6);
        assert_eq!(head.end(60), Some(60 + frame.len() as u64 + 4));
        let mut crc = Crc::default();
        [&head.lengths[..], b"header", b"body"].into_iter().for_each(|piece| crc.add(piece));
        assert_eq!(head.checksum, crc.sum());
    }

    #[test]
    fn the_start_of_a_segment_is_decoded() {
        let frame = encode_segment_start(4, 77);
        assert_eq!(decode_segment_start(&frame[HEAD_V1_BYTES..]), Some((4, 77)));
        assert_eq!(decode_segment_start(&frame[HEAD_V1_BYTES..frame.len() - 1]), None);
        assert_eq!(decode_segment_start(b"other"), None);
    }
}
