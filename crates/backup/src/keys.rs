//! Keys of the parts of a backup.
//!
//! | key below `.tenon/metadata/` | object |
//! |---|---|
//! | `LINEAGE/generation` | the fence |
//! | `LINEAGE/EPOCH/snapshot-SEQNO/table-NUMBER` | a table of records |
//! | `LINEAGE/EPOCH/snapshot-SEQNO/manifest` | the description of a complete snapshot |
//! | `LINEAGE/EPOCH/log-FROM-TO` | a segment of the op log |
//!
//! All numbers are hexadecimal with leading zeros, so that the keys of a family ascend with them.

use meta::Seqno;
use std::fmt;
use store::{ObjectKey, Result};

/// Identifies the backup of one state directory: a random number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(pub u64);

/// Identifies one history of commits in a lineage: the generation that began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// A part of a lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Generation,
    Table { epoch: Epoch, seqno: Seqno, number: u32 },
    Manifest { epoch: Epoch, seqno: Seqno },
    Log { epoch: Epoch, from: Seqno, to: Seqno },
}

/// The keys of the backups of a volume.
#[derive(Debug, Clone)]
pub struct Keys {
    root: Vec<u8>,
}

impl Keys {
    /// Returns the keys below a prefix, which ends in `/`.
    pub fn new(root: Vec<u8>) -> Self {
        Self { root }
    }

    /// Returns the prefix of all keys.
    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    /// Returns the prefix of the keys of a lineage.
    pub(crate) fn lineage(&self, lineage: Lineage) -> Vec<u8> {
        [self.root.as_slice(), format!("{lineage}/").as_bytes()].concat()
    }

    /// Returns the key of a part.
    pub(crate) fn part(&self, lineage: Lineage, part: Part) -> Result<ObjectKey> {
        let name = match part {
            Part::Generation => "generation".to_owned(),
            Part::Table { epoch, seqno, number } => {
                format!("{epoch}/snapshot-{:016x}/table-{number:08x}", seqno.0)
            }
            Part::Manifest { epoch, seqno } => format!("{epoch}/snapshot-{:016x}/manifest", seqno.0),
            Part::Log { epoch, from, to } => format!("{epoch}/log-{:016x}-{:016x}", from.0, to.0),
        };
        Ok(ObjectKey::new([self.lineage(lineage), name.into_bytes()].concat())?)
    }

    /// Returns the lineage whose prefix this is; `None` for other prefixes.
    pub(crate) fn parse_lineage(&self, prefix: &[u8]) -> Option<Lineage> {
        let name = prefix.strip_prefix(self.root.as_slice())?.strip_suffix(b"/")?;
        number(std::str::from_utf8(name).ok()?, 16).map(Lineage)
    }

    /// Returns the part that a key names; `None` for other keys.
    pub(crate) fn parse(&self, lineage: Lineage, key: &ObjectKey) -> Option<Part> {
        let name = key.as_bytes().strip_prefix(self.lineage(lineage).as_slice())?;
        let name = std::str::from_utf8(name).ok()?;
        let Some((epoch, rest)) = name.split_once('/') else {
            return (name == "generation").then_some(Part::Generation);
        };
        let epoch = Epoch(u32::try_from(number(epoch, 8)?).ok()?);
        let seqno = |text| number(text, 16).map(Seqno);
        if let Some(log) = rest.strip_prefix("log-") {
            let (from, to) = log.split_once('-')?;
            return Some(Part::Log { epoch, from: seqno(from)?, to: seqno(to)? });
        }
        let (snapshot, name) = rest.strip_prefix("snapshot-")?.split_once('/')?;
        let snapshot = seqno(snapshot)?;
        match name.strip_prefix("table-") {
            Some(text) => {
                let number = u32::try_from(number(text, 8)?).ok()?;
                Some(Part::Table { epoch, seqno: snapshot, number })
            }
            None => (name == "manifest").then_some(Part::Manifest { epoch, seqno: snapshot }),
        }
    }
}

/// Parses a hexadecimal number of exactly this number of lower-case digits; `None` for any other text.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_plain = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (is_plain && text.len() == digits).then(|| u64::from_str_radix(text, 16).ok())?
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for Lineage {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        number(text, 16).map(Self).ok_or("a lineage has 16 hexadecimal digits")
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_parsed_from_their_keys() {
        let (keys, lineage, epoch) = (Keys::new(b"p/.tenon/metadata/".to_vec()), Lineage(0xab), Epoch(3));
        let (seqno, to) = (Seqno(7), Seqno(u64::MAX));
        let parts = [
            Part::Generation,
            Part::Table { epoch, seqno, number: 12 },
            Part::Manifest { epoch, seqno },
            Part::Log { epoch, from: seqno, to },
        ];
        for part in parts {
            assert_eq!(keys.parse(lineage, &keys.part(lineage, part).unwrap()), Some(part));
            assert_eq!(keys.parse(Lineage(1), &keys.part(lineage, part).unwrap()), None);
        }
        assert_eq!(keys.parse_lineage(&keys.lineage(lineage)), Some(lineage));
        for other in ["00000003/log-7-8", "3/manifest", "generation2", "00000003/snapshot-0000000000000007/x"]
        {
            let key = ObjectKey::new([keys.lineage(lineage), other.into()].concat()).unwrap();
            assert_eq!(keys.parse(lineage, &key), None, "{other}");
        }
    }
}
