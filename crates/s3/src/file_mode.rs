//! File modes in user metadata, in the dialects that a mount reads: which kind of file an object is.

use http::HeaderMap;

const PREFIX: &str = "x-amz-meta-";
/// Names of user metadata that make an object a symbolic link.
const LINKS: [&str; 3] = ["goog-reserved-file-is-symlink", "gcsfuse_symlink_target", "--symlink-target"];

const SET_ID_BITS: u32 = 0o6000;
const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// Returns whether the headers make an object a set-user-id or set-group-id file, or anything but a regular file or
/// directory.
pub(crate) fn is_special(headers: &HeaderMap) -> bool {
    let text =
        |name: &str| headers.get(format!("{PREFIX}{name}")).map(|value| value.to_str().unwrap_or("7777"));
    let octal = |text: &str| u32::from_str_radix(text.trim_start_matches("0o"), 8).ok();
    let mut modes =
        text("file-permissions").and_then(octal).into_iter().chain(text("mode").and_then(parse_mode));
    LINKS.iter().any(|name| text(name).is_some())
        || modes.any(|mode| mode & SET_ID_BITS != 0 || ![0, FILE, DIRECTORY].contains(&(mode & TYPE)))
}

/// Parses a `mode`, which is decimal or octal. If both readings are numbers, only one of them is a valid mode.
fn parse_mode(text: &str) -> Option<u32> {
    let octal = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok();
    let is_mode = |mode: &u32| *mode <= 0o177_777 && (mode & TYPE == 0 || is_type(mode & TYPE));
    if text.len() > 1 && text.starts_with('0') {
        return octal;
    }
    text.parse().ok().filter(is_mode).or_else(|| octal.filter(is_mode))
}

fn is_type(bits: u32) -> bool {
    [0o010_000, 0o020_000, DIRECTORY, 0o060_000, FILE, 0o120_000, 0o140_000].contains(&bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_found_in_all_dialects() {
        for (name, value, is) in [
            ("file-permissions", "0100644", false),
            ("file-permissions", "0755", false),
            ("file-permissions", "0104755", true),
            ("file-permissions", "0102755", true),
            ("file-permissions", "0120777", true),
            ("file-permissions", "0020666", true),
            ("mode", "33188", false),
            ("mode", "35309", true),
            ("mode", "100755", false),
            ("mode", "104755", true),
            ("--symlink-target", "/etc/passwd", true),
            ("color", "0104755", false),
        ] {
            let mut headers = HeaderMap::new();
            let name: http::HeaderName = format!("{PREFIX}{name}").parse().unwrap();
            headers.insert(name.clone(), value.parse().unwrap());
            assert_eq!(is_special(&headers), is, "{name}: {value}");
        }
    }
}
