//! Requests of verifiers: of their leases and snapshots, which the mount answers, and of the files of batches and verdicts, which this process
//! reads and writes in pieces.
//!
//! | request | |
//! |---|---|
//! | `POST /verifications` | a [`VerificationRequest`] as JSON; the answer is a [`VerificationAnswer`] |
//! | `GET /verifications/BATCH/FENCE/FILE/OFFSET` | returns up to [`PIECE_BYTES`] bytes of a file of the batch; fewer at its end |
//! | `PUT /verifications/BATCH/FENCE/FILE/OFFSET` | writes up to [`PIECE_BYTES`] bytes of a file of the verdict |
//!
//! Invariant: a file is read and written only for a lease that counts, which the mount is asked for each piece.

use super::{Failure, Served};
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::control::verification_protocol::{
    LeaseId, VerificationAnswer, VerificationRequest, VerifierRequest,
};
use crate::state::registry::Registry;
use anyhow::{Context, Result};
use batch::{SEALED_FILES, VERDICT_FILE, VERDICT_ROWS_FILE};
use bytes::Bytes;
use http::Method;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The path of all requests of verifiers.
pub(crate) const PATH: &str = "/verifications";

/// Maximum length of a piece of a file, in bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// A piece of a file that a request names.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    lease: LeaseId,
    file: String,
    offset: u64,
}

impl Served {
    /// Answers a request of the verifier whose token has a name. Returns the body of the answer.
    pub(super) fn answer_verifier(
        &self,
        verifier: &str,
        method: &Method,
        path: &str,
        body: &Bytes,
    ) -> Result<Vec<u8>, Failure> {
        let failed = |error: anyhow::Error| Failure::Failed(format!("{error:#}"));
        if path == PATH && *method == Method::POST {
            let request = serde_json::from_slice::<VerificationRequest>(body)
                .map_err(|error| Failure::Invalid(format!("the request is not one of verifiers: {error}")))?;
            if matches!(request, VerificationRequest::Files { .. }) {
                return Err(Failure::Invalid("the request is not one of verifiers".to_owned()));
            }
            let answer = self.ask_for(verifier, request).map_err(failed)?;
            return serde_json::to_vec(&answer).map_err(|error| failed(error.into()));
        }
        let piece = Piece::parse(path)
            .ok_or_else(|| Failure::Invalid(format!("{method} {path} is not a request of verifiers")))?;
        let request = VerificationRequest::Files { lease: piece.lease.clone() };
        let (batch_dir, verdict_dir, bytes_max) = match self.ask_for(verifier, request).map_err(failed)? {
            VerificationAnswer::Files { batch_dir_hex, verdict_dir_hex, upload_bytes_max } => {
                (dir(&batch_dir_hex)?, dir(&verdict_dir_hex)?, upload_bytes_max)
            }
            other => {
                return Err(Failure::Failed(format!(
                    "the mount gave an answer that does not fit: {other:?}"
                )));
            }
        };
        match *method {
            Method::GET if SEALED_FILES.contains(&piece.file.as_str()) => {
                piece.read(&batch_dir).map_err(failed)
            }
            Method::PUT if [VERDICT_FILE, VERDICT_ROWS_FILE].contains(&piece.file.as_str()) => {
                let end = piece.offset.checked_add(body.len() as u64);
                if body.len() > PIECE_BYTES || end.is_none_or(|end| end > bytes_max) {
                    return Err(Failure::Invalid("the file is too long for a verdict".to_owned()));
                }
                piece.write(&verdict_dir, body).map_err(failed)?;
                Ok(Vec::new())
            }
            _ => Err(Failure::Invalid(format!("there is no file '{}' to {method}", piece.file))),
        }
    }

    /// Asks the mount.
    fn ask_for(&self, verifier: &str, request: VerificationRequest) -> Result<VerificationAnswer> {
        let mount = Registry::of_user().find(&self.of)?;
        let mut client = Client::connect(&mount)?;
        let request = VerifierRequest { verifier: verifier.to_owned(), request };
        match client.ask(&Request::Verification(request), |_| {})? {
            Answer::Verification(answer) => Ok(answer),
            other => client.unexpected(&other),
        }
    }
}

impl Piece {
    /// Returns the piece that the path of a request names.
    fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix(PATH)?.strip_prefix('/')?.split('/');
        let (batch, fence, file, offset) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lease = LeaseId { batch: batch.to_owned(), fence: fence.parse().ok()? };
        let piece = Self { lease, file: file.to_owned(), offset: offset.parse().ok()? };
        parts.next().is_none().then_some(piece)
    }

    /// Reads the piece.
    fn read(&self, dir: &Path) -> Result<Vec<u8>> {
        let path = dir.join(&self.file);
        let read = || -> io::Result<Vec<u8>> {
            let file = File::open(&path)?;
            let left = file.metadata()?.len().saturating_sub(self.offset);
            let mut bytes = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES)];
            file.read_exact_at(&mut bytes, self.offset)?;
            Ok(bytes)
        };
        read().with_context(|| format!("cannot read the file '{}' of the batch", self.file))
    }

    /// Writes the piece. Writing it again changes nothing.
    fn write(&self, dir: &Path, bytes: &[u8]) -> Result<()> {
        let path = dir.join(&self.file);
        let write = || -> io::Result<()> {
            let file = File::options().write(true).create(true).truncate(false).open(&path)?;
            file.write_all_at(bytes, self.offset)
        };
        write().with_context(|| format!("cannot write the file '{}' of the verdict", self.file))
    }
}

fn dir(hex: &str) -> Result<PathBuf, Failure> {
    let bytes = store::unhex(hex).ok_or_else(|| Failure::Failed("a path is not hexadecimal".to_owned()))?;
    Ok(PathBuf::from(OsStr::from_bytes(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_pieces_of_files() {
        let lease = LeaseId { batch: "0000000000000007".into(), fence: 12 };
        let piece = Piece { lease, file: "rows.sst".into(), offset: 1048576 };
        assert_eq!(Piece::parse("/verifications/0000000000000007/12/rows.sst/1048576"), Some(piece));
        for path in ["/verifications", "/verifications/7/12/ops", "/verifications/7/x/ops/0", "/x/7/12/ops/0"]
        {
            assert_eq!(Piece::parse(path), None, "{path}");
        }
        assert_eq!(Piece::parse("/verifications/7/12/../ops/0"), None);
    }
}
