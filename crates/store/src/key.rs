//! Object keys and entity tags: exact bytes, never normalised.

use bytes::Bytes;
use std::borrow::Borrow;
use std::fmt;

/// Maximum length of a key in bytes, S3's limit for the UTF-8 form (S3 User Guide, "Creating object key names").
pub const KEY_BYTES_MAX: usize = 1024;

/// The name of an object: 1 to [`KEY_BYTES_MAX`] bytes, kept exactly as they were given.
///
/// S3 asks for UTF-8; Tenon does not, so that a local directory can hold any file name. A server that cannot
/// hold the key answers [`StoreError::InvalidKey`](crate::StoreError::InvalidKey).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Bytes);

/// The reason why bytes are not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Zero bytes.
    #[error("an object key cannot be empty")]
    Empty,
    /// More than [`KEY_BYTES_MAX`] bytes; holds the length found.
    #[error("an object key has at most {KEY_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
}

impl ObjectKey {
    /// Makes a key of the bytes without changing them; fails only if the length is not allowed.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, InvalidKey> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(InvalidKey::Empty),
            n if n > KEY_BYTES_MAX => Err(InvalidKey::TooLong(n)),
            _ => Ok(Self(bytes)),
        }
    }

    /// Returns the key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Allows lookups by bytes in maps of keys: hash, equality and order of a key are those of its bytes.
impl Borrow<[u8]> for ObjectKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&str> for ObjectKey {
    type Error = InvalidKey;
    fn try_from(text: &str) -> Result<Self, InvalidKey> {
        Self::new(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl TryFrom<&[u8]> for ObjectKey {
    type Error = InvalidKey;
    fn try_from(bytes: &[u8]) -> Result<Self, InvalidKey> {
        Self::new(Bytes::copy_from_slice(bytes))
    }
}

/// Shows the key for humans: printable UTF-8 unchanged, all other bytes escaped.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Prefix of the etags of objects that are not in their bucket yet. No store makes etags with this prefix.
const PROVISIONAL: &str = "tenon-waits-";

/// An entity tag without its quotes. Equal tags of one key mean equal bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ETag(Box<str>);

impl ETag {
    /// Parses a tag from a header, with or without quotes; drops the prefix `W/` of weak tags.
    pub fn new(text: &str) -> Self {
        let text = text.strip_prefix("W/").unwrap_or(text);
        Self(text.trim_matches('"').into())
    }

    /// Makes the tag of an object that is not in its bucket yet; `unique` is a random number. The bucket will give the
    /// object another tag.
    pub fn provisional(unique: u64) -> Self {
        Self(format!("{PROVISIONAL}{unique:016x}").into())
    }

    /// Returns whether the tag was made by [`Self::provisional`]. The bucket gives the object another tag when it is
    /// uploaded.
    pub fn is_provisional(&self) -> bool {
        self.0.starts_with(PROVISIONAL)
    }

    /// Returns the tag without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the tag in quotes, as `If-Match` requires.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}
