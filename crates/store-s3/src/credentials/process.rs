//! A program that prints credentials: `credential_process` of a profile.
//!
//! Its command line and its standard error may contain secrets, so messages repeat neither.

use super::provider_request::{ProviderContext, ProviderError};
use super::{CredentialsError, ExpiringCredentials, document};
use serde_json::Value;
use std::fmt;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Time limit of the program, which may need to ask the user or a server.
const WITHIN: Duration = Duration::from_secs(60);

/// Maximum length of the output, in bytes.
const OUTPUT_BYTES_MAX: u64 = 256 << 10;

/// A command that prints credentials (`credential_process`).
pub(super) struct Process {
    pub(super) profile: String,
    pub(super) command: String,
}

impl Process {
    pub(super) async fn get_credentials(
        &self,
        _: &ProviderContext,
    ) -> Result<ExpiringCredentials, CredentialsError> {
        let late = || ProviderError::transient(format!("not done in {} s", WITHIN.as_secs()));
        let ran = tokio::time::timeout(WITHIN, self.run()).await.unwrap_or_else(|_| Err(late()));
        let found = ran.and_then(|output| Ok(read(&output)?));
        found.map_err(|error| error.for_provider(self))
    }

    /// Runs the command, and returns what it prints.
    async fn run(&self) -> Result<Vec<u8>, ProviderError> {
        let broken = |error: std::io::Error| ProviderError::permanent(format!("cannot be run: {error}"));
        let mut child = tokio::process::Command::new("/bin/sh")
            .args(["-c", &self.command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(broken)?;
        let mut output = Vec::new();
        if let Some(out) = child.stdout.take() {
            out.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await.map_err(broken)?;
        }
        let status = child.wait().await.map_err(broken)?;
        if !status.success() {
            return Err(ProviderError::permanent(format!(
                "it failed ({status}); run the command by hand to see why"
            )));
        }
        Ok(output)
    }
}

/// Reads the credentials in the program's output.
pub(super) fn read(output: &[u8]) -> Result<ExpiringCredentials, String> {
    let object = document::parse_json(output)?;
    if object.get("Version").and_then(Value::as_i64) != Some(1) {
        return Err("its output has no \"Version\": 1".to_owned());
    }
    document::parse_credentials(&object, document::PROCESS)
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the credential_process of profile '{}'", self.profile)
    }
}
