//! Short texts that keep the sizes and checksums of an object's parts. S3 clients read parts by number long after the
//! upload.

use std::collections::BTreeMap;

use crate::checksums::{Algorithm, Checksum, decode, encode};

/// The maximum length of the sizes' text, out of 2 KB of user metadata.
const TEXT_BYTES_MAX: usize = 512;

/// S3's maximum number of parts (S3 User Guide, "Multipart upload limits").
const PARTS_MAX: usize = 10_000;

/// The maximum length of user metadata for these texts to be added. S3 keeps 2 KB with an object, names included, and a
/// volume named by path needs some of it for file attributes.
const USER_BYTES_MAX: usize = 1_600;

/// Formats the checksums of all parts as `CRC32 digests`, with the digests concatenated in base64. `None` if a part has
/// no checksum or one of another algorithm.
pub(crate) fn checksums_to_text(checksums: &[&Checksum]) -> Option<String> {
    let algorithm = checksums.first()?.algorithm;
    let mut digests = Vec::new();
    for checksum in checksums {
        digests.extend(Some(checksum).filter(|checksum| checksum.algorithm == algorithm)?.digest()?);
    }
    Some(format!("{} {}", algorithm.name(), encode(&digests)))
}

/// Parses the output of [`checksums_to_text`]. `None` unless it has the checksums of exactly `parts` parts.
pub(crate) fn checksums_from_text(text: &str, parts: usize) -> Option<Vec<Checksum>> {
    let (name, digests) = text.split_once(' ')?;
    let (algorithm, digests) = (Algorithm::from_name(name).ok()?, decode(digests)?);
    let is_all = digests.len() == parts.checked_mul(algorithm.digest_bytes())?;
    let each = digests.chunks(algorithm.digest_bytes());
    is_all.then(|| each.map(|digest| Checksum::new(algorithm, encode(digest))).collect())
}

/// Returns whether user metadata has room for another entry.
pub(crate) fn has_room(user: [&BTreeMap<String, String>; 2], name: &str, value: &str) -> bool {
    let taken = user.into_iter().flatten().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    taken + name.len() + value.len() <= USER_BYTES_MAX
}

/// Formats sizes in order, as `8388608x99,1234`. `None` if the text is too long to keep.
pub(crate) fn sizes_to_text(sizes: &[u64]) -> Option<String> {
    let runs = sizes.chunk_by(|a, b| a == b).map(|run| match run {
        [one] => one.to_string(),
        many => format!("{}x{}", many[0], many.len()),
    });
    Some(runs.collect::<Vec<_>>().join(",")).filter(|text| text.len() <= TEXT_BYTES_MAX)
}

/// Parses the output of [`sizes_to_text`]. `None` if the text is anything else.
pub(crate) fn sizes_from_text(text: &str) -> Option<Vec<u64>> {
    let mut sizes = Vec::new();
    for run in text.split(',') {
        let (size, count) = run.split_once('x').unwrap_or((run, "1"));
        let count: usize =
            count.parse().ok().filter(|count| (1..=PARTS_MAX - sizes.len()).contains(count))?;
        sizes.extend(std::iter::repeat_n(size.parse::<u64>().ok()?, count));
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_round_trip() {
        for algorithm in Algorithm::ALL {
            let sums: Vec<Checksum> = (0..20).map(|n: u8| Checksum::compute(algorithm, &[n])).collect();
            let text = checksums_to_text(&sums.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(checksums_from_text(&text, 20).unwrap(), sums);
            assert_eq!(checksums_from_text(&text, 21), None);
        }
        let mixed = [Checksum::compute(Algorithm::Crc32, b"a"), Checksum::compute(Algorithm::Sha1, b"b")];
        assert_eq!(checksums_to_text(&mixed.iter().collect::<Vec<_>>()), None);
        assert_eq!(checksums_to_text(&[]), None);
        for bad in ["", "CRC32", "CRC32 ", "CRC32 ?", "ODD AAAA"] {
            assert_eq!(checksums_from_text(bad, 1), None, "{bad}");
        }
    }

    #[test]
    fn sizes_round_trip() {
        for sizes in [vec![5], vec![8, 8, 8, 3], vec![1, 2, 1], vec![7; 10_000]] {
            assert_eq!(sizes_from_text(&sizes_to_text(&sizes).unwrap()).unwrap(), sizes);
        }
        assert_eq!(sizes_to_text(&[8, 8, 3]).unwrap(), "8x2,3");
        assert_eq!(sizes_to_text(&(0..1000).collect::<Vec<_>>()), None);
        for bad in ["", "x", "3x", "1x0", "1x99999999", "-1"] {
            assert_eq!(sizes_from_text(bad), None, "{bad}");
        }
        // A foreign object's two kilobytes of metadata expanded to 20 MB of sizes in every GET.
        assert_eq!(sizes_from_text(&["1x10000"; 250].join(",")), None);
    }
}
