//! The default user of a volume's S3 endpoint. It is created once, and kept in the volume's state directory as a file of users.

use crate::process::context::{ProcessContext, random_id};
use crate::process::files;
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the file in the state directory.
const FILE: &str = "s3-users.toml";

/// A file of users, of which only the keys are read here.
#[derive(Serialize, Deserialize)]
struct UsersFile {
    user: Vec<User>,
}

#[derive(Serialize, Deserialize)]
struct User {
    access_key: String,
    secret_key: String,
}

/// Returns the access key and the secret key of the first user.
pub(crate) fn keys(state_root: &Path) -> Result<(String, String)> {
    let path = state_root.join(FILE);
    let text = files::read_secret(&path)?;
    // The parser's message may show a secret.
    let file: UsersFile = toml::from_str(&text).map_err(|_| {
        anyhow!(
            "{} is not a file of users; repair it, or remove it, and the next start creates one",
            path.display()
        )
    })?;
    let user = file.user.into_iter().next().with_context(|| {
        format!("{} has no user; remove the file, and the next start creates one", path.display())
    })?;
    Ok((user.access_key, user.secret_key))
}

/// Returns the path of the file of users. Creates the file, with one user, if it is missing.
pub(crate) fn users_file(state_root: &Path, context: &ProcessContext) -> Result<PathBuf> {
    let path = state_root.join(FILE);
    if !path.exists() {
        let access_key = format!("tenon-{:08x}", context.entropy.next_u64() >> 32);
        let file = UsersFile { user: vec![User { access_key, secret_key: random_secret()? }] };
        files::write_secret(&path, &toml::to_string(&file)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    tracing::info!("the access key and its secret are in {}", path.display());
    Ok(path)
}

/// Returns 256 random bits of the system in hexadecimal.
fn random_secret() -> Result<String> {
    let words = [(); 4].map(|()| random_id());
    words.into_iter().map(|word| Ok(format!("{:016x}", word?))).collect()
}
