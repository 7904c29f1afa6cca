//! The choice of tables to merge, so that reads look into few of them.

/// Tables of similar size that trigger a merge.
const TABLES_OF_A_SIZE: usize = 4;

/// An older table counts as similar in size if it is at most this many times as long as all newer ones together.
const SIZE_RATIO: u64 = 2;

/// Returns how many of the newest tables to merge; `None` if no merge is due. The lengths are those of the tables, newest first.
pub fn tables_to_merge(lengths: &[u64]) -> Option<usize> {
    let mut sum = 0;
    let similar = lengths.iter().take_while(|&&length| {
        let is_similar = sum == 0 || length <= sum * SIZE_RATIO;
        sum += length;
        is_similar
    });
    let count = similar.count();
    (count >= TABLES_OF_A_SIZE).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::tables_to_merge;

    #[test]
    fn tables_of_about_one_size_are_merged() {
        assert_eq!(tables_to_merge(&[]), None);
        assert_eq!(tables_to_merge(&[10, 12, 9]), None);
        assert_eq!(tables_to_merge(&[10, 12, 9, 11]), Some(4));
        assert_eq!(tables_to_merge(&[10, 12, 9, 400]), None);
        assert_eq!(tables_to_merge(&[10, 12, 9, 11, 40, 900]), Some(5));
    }
}
