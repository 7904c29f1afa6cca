//! XML elements of checksums that `s3s` does not know.
//!
//! Inside `s3s` they are carried by SHA-256's element, with the algorithm's name before the value (see
//! [`Checksum::carrier_text`]).
//!
//! [`Checksum::carrier_text`]: crate::checksums::Checksum::carrier_text

use crate::checksums::Algorithm;

/// The element in which the value of an unknown checksum is passed through `s3s`.
const CARRIER: &str = "ChecksumSHA256";

/// Rewrites a request document: unknown checksum elements become carrier elements.
pub(crate) fn to_carriers(xml: &str) -> String {
    Algorithm::NOT_IN_S3S.iter().fold(xml.to_owned(), |xml, algorithm| {
        let name = algorithm.name();
        xml.replace(&format!("<Checksum{name}>"), &format!("<{CARRIER}>{name}:"))
            .replace(&format!("</Checksum{name}>"), &format!("</{CARRIER}>"))
    })
}

/// Rewrites a response document: carrier elements become the checksum elements that clients expect.
pub(crate) fn from_carriers(xml: &str) -> String {
    let (open, close) = (format!("<{CARRIER}>"), format!("</{CARRIER}>"));
    let mut parts = xml.split(open.as_str());
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (value, rest) = part.split_once(close.as_str()).unwrap_or((part, ""));
        match value.split_once(':') {
            Some((name, value)) => text.push_str(&format!("<Checksum{name}>{value}</Checksum{name}>{rest}")),
            None => text.push_str(&format!("{open}{value}{close}{rest}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_round_trip() {
        let xml = "<a><ChecksumMD5>x==</ChecksumMD5><b/><ChecksumSHA256>y=</ChecksumSHA256><ChecksumXXHASH128>z</ChecksumXXHASH128></a>";
        let inside = to_carriers(xml);
        assert_eq!(inside.matches("<ChecksumSHA256>").count(), 3, "{inside}");
        assert_eq!(from_carriers(&inside), xml);
        assert_eq!(from_carriers("<a/>"), "<a/>");
    }
}
