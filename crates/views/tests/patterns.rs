//! Wildcards in patterns.

use proptest::prelude::*;
use views::Pattern;

#[test]
fn stars_of_keys_stay_within_a_directory() {
    for (pattern, key, matches) in [
        ("*.fasta", &b"a.fasta"[..], true),
        ("*.fasta", b"dir/a.fasta", false),
        ("**/*.fasta", b"dir/deep/a.fasta", true),
        ("**/*.fasta", b"a.fasta", true),
        ("dir/**", b"dir/a/b", true),
        ("dir/**", b"dir", false),
        ("a/**/b", b"a/b", true),
        ("a/**/b", b"a/x/y/b", true),
        ("reads_?.fq", b"reads_1.fq", true),
        ("reads_?.fq", b"reads_/.fq", false),
        ("reads_[12].fq", b"reads_2.fq", true),
        ("reads_[!12].fq", b"reads_2.fq", false),
        ("*.{fa,fasta}", b"x.fa", true),
        ("a//b", b"a//b", true),
        ("a//b", b"a/b", false),
        ("a/", b"a/", true),
        ("*", b"\xff\n\x00", true),
        ("\\*", b"*", true),
        ("\\*", b"a", false),
        ("", b"", true),
    ] {
        assert_eq!(Pattern::of_key(pattern).unwrap().matches(key), matches, "{pattern} {key:?}");
    }
    assert!(Pattern::of_value("a*").unwrap().matches(b"a/b"));
    for wrong in ["[", "[z-a]", "a{b", "\\"] {
        assert!(
            Pattern::of_key(wrong).unwrap_err().starts_with(&format!("'{wrong}' is not a pattern")),
            "{wrong}"
        );
    }
}

/// A reference implementation of `*` and `?`, as simple as possible.
fn reference_matches(pattern: &[u8], text: &[u8], is_path: bool) -> bool {
    let may = |byte: &u8| !(is_path && *byte == b'/');
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), next) => {
            reference_matches(rest, text, is_path)
                || next.is_some_and(|(byte, later)| may(byte) && reference_matches(pattern, later, is_path))
        }
        (Some((b'?', rest)), Some((byte, later))) => may(byte) && reference_matches(rest, later, is_path),
        (Some((wanted, rest)), Some((byte, later))) => {
            wanted == byte && reference_matches(rest, later, is_path)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn patterns_match_like_the_reference(pattern in "[ab/?*.]{0,6}", text in "[ab/.]{0,6}", is_path: bool) {
        prop_assume!(!pattern.contains("**"));
        let built = if is_path { Pattern::of_key(&pattern) } else { Pattern::of_value(&pattern) };
        let expected = reference_matches(pattern.as_bytes(), text.as_bytes(), is_path);
        prop_assert_eq!(built.unwrap().matches(text.as_bytes()), expected);
    }
}
