//! Platforms: the object stores over which packages are measured.

use std::fmt;

/// An object store with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// Name in results.
    pub name: String,
    /// Where the store is.
    pub kind: PlatformKind,
}

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformKind {
    /// A MinIO that the testbed starts on a fresh directory.
    Minio,
    /// A local directory whose subdirectories are the buckets; there are no requests to count.
    Directory,
    /// An S3 endpoint on plain HTTP.
    S3(S3Endpoint),
}

/// An S3 endpoint with credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Endpoint {
    /// URL, such as `http://10.0.0.7:9000`.
    pub url: String,
    /// Region that requests are signed for.
    pub region: String,
    /// Access key.
    pub access_key: String,
    /// Secret key. It is in no result and no message.
    pub secret_key: String,
}

impl fmt::Debug for S3Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Endpoint")
            .field("url", &self.url)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Platform {
    /// Returns the MinIO that the testbed starts.
    pub fn minio() -> Self {
        Self { name: "minio".to_owned(), kind: PlatformKind::Minio }
    }

    /// Returns a local directory.
    pub fn directory() -> Self {
        Self { name: "directory".to_owned(), kind: PlatformKind::Directory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_key_is_not_shown() {
        let endpoint = S3Endpoint {
            url: "http://e".into(),
            region: "r".into(),
            access_key: "a".into(),
            secret_key: "hidden".into(),
        };
        assert!(!format!("{endpoint:?}").contains("hidden"));
    }
}
