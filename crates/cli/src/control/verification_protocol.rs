//! Messages about the verification of batches by other servers: on the control socket, and between a verifier and a batch server. Fields are
//! added, never changed.

use serde::{Deserialize, Serialize};

/// A request of a verifier, on the control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerifierRequest {
    /// The name of the verifier's token, which the batch server has checked.
    pub(crate) verifier: String,
    /// The request. Its name differs from the tag of requests on the control socket.
    #[serde(rename = "asked")]
    pub(crate) request: VerificationRequest,
}

/// A request about the verification of batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verification", rename_all = "kebab-case")]
pub(crate) enum VerificationRequest {
    /// Lease a batch that waits to be verified.
    Take,
    /// Extend a lease.
    Renew {
        /// The lease.
        lease: LeaseId,
    },
    /// Read the snapshot of a lease.
    Read {
        /// The lease.
        lease: LeaseId,
        /// The records to read.
        read: SnapshotRead,
    },
    /// Return the places of the files of a lease. Only the batch server asks for this.
    Files {
        /// The lease.
        lease: LeaseId,
    },
    /// End a lease.
    Finish {
        /// The lease.
        lease: LeaseId,
        /// Why there is no verdict; none if the verdict is uploaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
}

/// A lease of a batch: the right to return a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseId {
    /// Id of the batch.
    pub(crate) batch: String,
    /// The number of the lease. Later leases have greater numbers.
    pub(crate) fence: u64,
}

/// A read of the snapshot of a lease. Keys are in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "read", rename_all = "kebab-case")]
pub(crate) enum SnapshotRead {
    /// Read records by their keys.
    Get {
        /// The keys.
        keys_hex: Vec<String>,
    },
    /// Read the first records of a range.
    Scan {
        /// The beginning.
        from: End,
        /// The end.
        to: End,
        /// Maximum number of records.
        limit: usize,
    },
    /// Read the last record of a range.
    Last {
        /// The first key.
        from_hex: String,
        /// The end of the range, exclusive.
        to_hex: String,
    },
}

/// An end of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// The range includes the key.
    Included(String),
    /// The range does not include the key.
    Excluded(String),
    /// The range has no end.
    Unbounded,
}

/// An answer about the verification of batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verification", rename_all = "kebab-case")]
pub(crate) enum VerificationAnswer {
    /// Answer to `Take`: no batch waits.
    Nothing,
    /// Answer to `Take`: the verifier has a lease.
    Taken {
        /// The lease, and what it is for.
        task: Box<Task>,
    },
    /// Answer to `Renew` and `Finish`.
    Done,
    /// Answer to `Read`: records, in the order of the keys; none where there is no record.
    Rows {
        /// The records.
        rows: Vec<Option<Row>>,
        /// Whether more records than these may be in the range, although the limit is not reached.
        has_more: bool,
    },
    /// Answer to `Files`.
    Files {
        /// Directory of the batch's files, in hexadecimal.
        batch_dir_hex: String,
        /// Directory of the files of the verdict, in hexadecimal.
        verdict_dir_hex: String,
        /// Maximum length of a file of the verdict, in bytes.
        upload_bytes_max: u64,
    },
}

/// A batch to verify.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The lease.
    pub(crate) lease: LeaseId,
    /// Time after which the lease ends, unless a request with the lease is made before.
    pub(crate) lease_ms: u64,
    /// The terms of the batch.
    pub(crate) terms: TermsMessage,
    /// Whether to try the proof by the rows first.
    pub(crate) is_reduced: bool,
    /// The files of the batch.
    pub(crate) files: Vec<FileMessage>,
}

/// A file of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMessage {
    /// Its name.
    pub(crate) name: String,
    /// Its length.
    pub(crate) bytes: u64,
}

/// The terms of a batch; see [`batch::Terms`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TermsMessage {
    /// The user.
    pub(crate) uid: u32,
    /// The user's group.
    pub(crate) gid: u32,
    /// The user's supplementary groups.
    pub(crate) groups: Vec<u32>,
    /// The first leased inode number, and the number after the last.
    pub(crate) inos: (u64, u64),
    /// The moment of all ops: the number of the mount, and nanoseconds since its start.
    pub(crate) moment: (u64, u64),
    /// The earliest and the latest time of ops, in nanoseconds since 1970.
    pub(crate) times: (i64, i64),
    /// Prefix of the keys of the batch's objects.
    pub(crate) content_hex: Option<String>,
    /// Prefix of the keys of the batch's packs.
    pub(crate) packs_hex: Option<String>,
    /// Whether refused files keep their bytes under other names.
    pub(crate) keeps_refused: bool,
    /// The time at which the batch was submitted, in nanoseconds since 1970.
    pub(crate) submitted: i64,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Its key, in hexadecimal.
    pub(crate) key_hex: String,
    /// Its value, in hexadecimal.
    pub(crate) value_hex: String,
    /// Its version.
    pub(crate) version: u64,
}
