//! Names of directory entries: the components of a path.

use crate::FsError;
use std::fmt;
use std::sync::Arc;
use store::names::NAME_BYTES_MAX;

/// The name of a directory entry: 1 to [`NAME_BYTES_MAX`] bytes without `/` and NUL, and neither `.` nor `..`.
/// Names are ordered by bytes, as in listings. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Creates a name from bytes, which are not normalised.
    ///
    /// Fails with [`FsError::NameTooLong`], or with [`FsError::Invalid`] if the bytes are not a valid name.
    pub fn new(bytes: &[u8]) -> Result<Self, FsError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        match bytes {
            b"" => Err(FsError::Invalid("the name is empty")),
            b"." | b".." => Err(FsError::Invalid("the names '.' and '..' are reserved")),
            _ if bytes.contains(&b'/') => Err(FsError::Invalid("the name contains '/'")),
            _ if bytes.contains(&0) => Err(FsError::Invalid("the name contains a NUL byte")),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// Returns the bytes of the name, which need not be UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&str> for Name {
    type Error = FsError;
    fn try_from(text: &str) -> Result<Self, FsError> {
        Self::new(text.as_bytes())
    }
}

/// Formats the name for people: printable UTF-8 as it is, all other bytes escaped.
impl fmt::Display for Name {
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

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_rejected() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert!(matches!(Name::new(bad), Err(FsError::Invalid(_))), "{bad:?}");
        }
        assert!(matches!(Name::new(&[b'a'; 256]), Err(FsError::NameTooLong)));
        assert_eq!(Name::new(&[b'a'; 255]).unwrap().as_bytes().len(), 255);
        assert_eq!(Name::new(b"...").unwrap().to_string(), "...");
        assert_eq!(Name::new(b"a\n\xff").unwrap().to_string(), "a\\n\\xff");
    }
}
