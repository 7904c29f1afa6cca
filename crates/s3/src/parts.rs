//! The sizes of the parts an object was uploaded in, as a short text: S3 reads parts by number long after.

/// At most so many bytes are spent on it among the 2 KB of user metadata.
const TEXT_BYTES_MAX: usize = 512;

/// What an upload may have (S3 User Guide, "Multipart upload limits").
const PARTS_MAX: usize = 10_000;

/// Sizes in order as `8388608x99,1234`; `None` if that is too long to keep.
pub(crate) fn to_text(sizes: &[u64]) -> Option<String> {
    let runs = sizes.chunk_by(|a, b| a == b).map(|run| match run {
        [one] => one.to_string(),
        many => format!("{}x{}", many[0], many.len()),
    });
    Some(runs.collect::<Vec<_>>().join(",")).filter(|text| text.len() <= TEXT_BYTES_MAX)
}

/// What [`to_text`] wrote.
pub(crate) fn from_text(text: &str) -> Option<Vec<u64>> {
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
    fn sizes_come_back() {
        for sizes in [vec![5], vec![8, 8, 8, 3], vec![1, 2, 1], vec![7; 10_000]] {
            assert_eq!(from_text(&to_text(&sizes).unwrap()).unwrap(), sizes);
        }
        assert_eq!(to_text(&[8, 8, 3]).unwrap(), "8x2,3");
        assert_eq!(to_text(&(0..1000).collect::<Vec<_>>()), None);
        for bad in ["", "x", "3x", "1x0", "1x99999999", "-1"] {
            assert_eq!(from_text(bad), None, "{bad}");
        }
        // Two kilobytes of metadata that somebody else wrote were 20 MB of sizes in every GET.
        assert_eq!(from_text(&["1x10000"; 250].join(",")), None);
    }
}
