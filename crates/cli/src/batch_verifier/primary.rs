//! The batch server of a verifier, which passes requests on to the primary.

use crate::batch_server::client::{CallError, ServerClient};
use crate::batch_server::verifiers::{PATH, PIECE_BYTES};
use crate::control::verification_protocol::{
    LeaseId, SnapshotRead, Task, VerificationAnswer, VerificationRequest,
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Method;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Maximum time for the answer to a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts to reach the server during a verification, and the time between them. Together they are shorter than a lease.
const ATTEMPTS: usize = 4;
const ATTEMPT_DELAY: Duration = Duration::from_millis(700);

/// The server of a verifier.
#[derive(Debug)]
pub(super) struct Primary(ServerClient);

impl Primary {
    pub(super) fn new(url: &str, token: &str, ca_bundle: Option<&Path>) -> Result<Self> {
        Ok(Self(ServerClient::new(url, token, ca_bundle)?))
    }

    /// Leases a batch; `None` if none waits.
    pub(super) fn take(&self) -> Result<Option<Task>, CallError> {
        match self.ask_once(&VerificationRequest::Take)? {
            VerificationAnswer::Nothing => Ok(None),
            VerificationAnswer::Taken { task } => Ok(Some(*task)),
            other => Err(unexpected(&other)),
        }
    }

    /// Extends a lease.
    pub(super) fn renew(&self, lease: &LeaseId) -> Result<(), CallError> {
        self.ask(&VerificationRequest::Renew { lease: lease.clone() }).map(drop)
    }

    /// Ends a lease, with the uploaded verdict or with a failure.
    pub(super) fn finish(&self, lease: &LeaseId, failure: Option<String>) -> Result<(), CallError> {
        self.ask(&VerificationRequest::Finish { lease: lease.clone(), failure }).map(drop)
    }

    /// Reads the snapshot of a lease.
    pub(super) fn read(&self, lease: &LeaseId, read: SnapshotRead) -> Result<VerificationAnswer, CallError> {
        self.ask(&VerificationRequest::Read { lease: lease.clone(), read })
    }

    /// Fetches a file of a batch.
    pub(super) fn download(&self, lease: &LeaseId, name: &str, len: u64, to: &Path) -> Result<()> {
        let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
        let mut offset = 0;
        while offset < len {
            let piece = self.send(Method::GET, &path(lease, name, offset), &Bytes::new())?;
            if piece.is_empty() || piece.len() > PIECE_BYTES {
                bail!("the server returned {} bytes of the file '{name}' at {offset}", piece.len());
            }
            file.write_all_at(&piece, offset).with_context(|| format!("cannot write {}", to.display()))?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Stores a file of a verdict.
    pub(super) fn upload(&self, lease: &LeaseId, name: &str, from: &Path) -> Result<()> {
        let file = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
        let len = file.metadata()?.len();
        let mut offset = 0;
        while offset < len {
            let mut piece = vec![0; usize::try_from(len - offset).unwrap_or(usize::MAX).min(PIECE_BYTES)];
            file.read_exact_at(&mut piece, offset)
                .with_context(|| format!("cannot read {}", from.display()))?;
            let end = offset + piece.len() as u64;
            self.send(Method::PUT, &path(lease, name, offset), &Bytes::from(piece))?;
            offset = end;
        }
        Ok(())
    }

    /// Sends a request of a verification, again if the server cannot be reached. All such requests can be repeated.
    fn ask(&self, request: &VerificationRequest) -> Result<VerificationAnswer, CallError> {
        decode(&self.send(Method::POST, PATH, &encode(request)?)?)
    }

    fn ask_once(&self, request: &VerificationRequest) -> Result<VerificationAnswer, CallError> {
        decode(&self.0.send(Method::POST, PATH, encode(request)?, Some(PATIENCE))?)
    }

    fn send(&self, method: Method, path: &str, body: &Bytes) -> Result<Bytes, CallError> {
        let mut attempts = 1;
        loop {
            match self.0.send(method.clone(), path, body.clone(), Some(PATIENCE)) {
                Err(CallError::Unreachable { .. }) if attempts < ATTEMPTS => {
                    attempts += 1;
                    thread::sleep(ATTEMPT_DELAY);
                }
                answered => return answered,
            }
        }
    }
}

/// Returns the path of a piece of a file.
fn path(lease: &LeaseId, name: &str, offset: u64) -> String {
    format!("{PATH}/{}/{}/{name}/{offset}", lease.batch, lease.fence)
}

fn encode(request: &VerificationRequest) -> Result<Bytes, CallError> {
    let encoded = serde_json::to_vec(request).map_err(|error| CallError::Refused(error.to_string()))?;
    Ok(encoded.into())
}

fn decode(body: &[u8]) -> Result<VerificationAnswer, CallError> {
    serde_json::from_slice(body)
        .map_err(|error| CallError::Refused(format!("the answer of the batch server does not fit: {error}")))
}

/// Returns the error for an answer that does not fit its request.
pub(super) fn unexpected(answer: &VerificationAnswer) -> CallError {
    CallError::Refused(format!("the batch server gave an answer that does not fit: {answer:?}"))
}
