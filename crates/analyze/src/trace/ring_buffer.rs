//! Parser for the ftrace ring buffer as `trace_pipe_raw` returns it: sub-buffers of binary records.
//!
//! A sub-buffer holds the timestamp of its first record (8 bytes), the number of bytes used (8 bytes, flags in the high bits) and the
//! records. A record begins with a word: 5 bits of record type and 27 bits of nanoseconds since the previous record. Its data follow
//! (`events/header_page` and `events/header_event`; kernel `include/linux/ring_buffer.h`).

/// Bytes of a sub-buffer before its records.
const HEADER_BYTES: usize = 16;

/// Bits of the second word that hold the number of bytes. The bits above them tell that records were lost before this sub-buffer.
const USED_MASK: u64 = (1 << 30) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;

/// Bits of an absolute timestamp record; the higher bits are those of the previous timestamp.
const TIMESTAMP_BITS: u32 = 59;

/// Calls `handle` with the time in ns and the data of each record of a sub-buffer. Stops at the first damaged record.
pub(super) fn for_each_record(page: &[u8], mut handle: impl FnMut(u64, &[u8])) {
    let (Some(timestamp), Some(used)) = (u64_at(page, 0), u64_at(page, 8)) else { return };
    let end = HEADER_BYTES + (used & USED_MASK) as usize;
    let Some(page) = page.get(..end) else { return };
    let mut at_ns = timestamp;
    let mut offset = HEADER_BYTES;
    while let Some(word) = u32_at(page, offset) {
        let (record_type, delta) = (word & 31, u64::from(word >> 5));
        let first = u32_at(page, offset + 4).unwrap_or(0);
        match record_type {
            TYPE_PADDING if delta == 0 => return,
            TYPE_PADDING => {
                at_ns += delta;
                offset += 4 + first as usize;
            }
            TYPE_TIME_EXTEND => {
                at_ns += (u64::from(first) << 27) + delta;
                offset += 8;
            }
            TYPE_TIME_STAMP => {
                let low = (u64::from(first) << 27) + delta;
                at_ns = (at_ns >> TIMESTAMP_BITS << TIMESTAMP_BITS) | low;
                offset += 8;
            }
            _ => {
                at_ns += delta;
                // Type 0 is a long record: its length field includes its own four bytes.
                let (begin, length) = if record_type == 0 {
                    (offset + 8, (first as usize).saturating_sub(4))
                } else {
                    (offset + 4, record_type as usize * 4)
                };
                let Some(bytes) = page.get(begin..begin + length) else { return };
                handle(at_ns, bytes);
                offset = begin + length.next_multiple_of(4);
            }
        }
    }
}

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..offset + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(record_type: u32, delta: u32) -> [u8; 4] {
        (record_type | delta << 5).to_ne_bytes()
    }

    fn page(records: &[&[u8]], flags: u64) -> Vec<u8> {
        let body: Vec<u8> = records.concat();
        [&1000u64.to_ne_bytes()[..], &(body.len() as u64 | flags).to_ne_bytes(), &body, &[0xff; 32]].concat()
    }

    fn read(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut seen = Vec::new();
        for_each_record(page, |at, bytes| seen.push((at, bytes.to_vec())));
        seen
    }

    #[test]
    fn all_record_types_are_parsed() {
        let page = page(
            &[
                &word(1, 5),
                &[1, 2, 3, 4],
                &word(TYPE_TIME_EXTEND, 1),
                &2u32.to_ne_bytes(),
                &word(0, 0),
                &12u32.to_ne_bytes(),
                &[9; 8],
                &word(TYPE_PADDING, 3),
                &8u32.to_ne_bytes(),
                &[0; 4],
                &word(TYPE_TIME_STAMP, 7),
                &1u32.to_ne_bytes(),
                &word(2, 1),
                &[7; 8],
            ],
            1 << 31,
        );
        let extended = 1005 + (2 << 27) + 1;
        assert_eq!(
            read(&page),
            [(1005, vec![1, 2, 3, 4]), (extended, vec![9; 8]), ((1 << 27) + 8, vec![7; 8])]
        );
    }

    #[test]
    fn a_truncated_sub_buffer_yields_its_complete_records() {
        let whole = page(&[&word(1, 5), &[1, 2, 3, 4], &word(1, 5), &[5, 6, 7, 8]], 0);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).len() <= 2);
        }
        let wrong_length = page(&[&word(1, 5), &[1, 2, 3, 4], &word(28, 5), &[5, 6, 7, 8]], 0);
        assert_eq!(read(&wrong_length), [(1005, vec![1, 2, 3, 4])]);
    }
}
