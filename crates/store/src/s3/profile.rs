//! `~/.aws/credentials` and `~/.aws/config`: INI files of the AWS tools.

use super::credentials::{Credentials, CredentialsError, pair};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings of one profile, by lower-case name.
pub(super) type Profile = BTreeMap<String, String>;

/// All profiles of the files; what the first file sets wins.
#[derive(Debug)]
pub(super) struct Profiles {
    files: Vec<PathBuf>,
    profiles: BTreeMap<String, Profile>,
}

impl Profiles {
    /// Reads the files; one that cannot be read counts as empty.
    pub(super) fn read(files: Vec<PathBuf>) -> Self {
        let mut profiles = BTreeMap::<String, Profile>::new();
        for text in files.iter().filter_map(|file| std::fs::read_to_string(file).ok()) {
            for (section, name, value) in settings(&text) {
                profiles.entry(section).or_default().entry(name).or_insert(value);
            }
        }
        Self { files, profiles }
    }

    /// The named profile, which must exist, or the default one, which need not.
    pub(super) fn get(&self, name: Option<&str>) -> Result<Profile, CredentialsError> {
        match (self.profiles.get(name.unwrap_or("default")), name) {
            (Some(profile), _) => Ok(profile.clone()),
            (None, None) => Ok(Profile::new()),
            (None, Some(name)) => {
                let files = self.file_names();
                Err(CredentialsError::NoSuchProfile { name: name.to_owned(), files })
            }
        }
    }

    pub(super) fn credentials(&self, name: Option<&str>) -> Result<Option<Credentials>, CredentialsError> {
        let profile = self.get(name)?;
        let setting = |key: &str| profile.get(key).cloned();
        let token = setting("aws_session_token");
        pair(&self.describe(name), setting("aws_access_key_id"), setting("aws_secret_access_key"), token)
    }

    /// The place, for an error's text.
    pub(super) fn describe(&self, name: Option<&str>) -> String {
        format!("profile '{}' in {}", name.unwrap_or("default"), self.file_names())
    }

    fn file_names(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        names.join(" and ")
    }
}

/// Profile, name and value of every setting. Nested settings (indented lines) are others' business.
fn settings(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.starts_with([' ', '\t', '#', ';'])) {
        if let Some(header) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let header = header.trim();
            section = header.strip_prefix("profile ").unwrap_or(header).trim().to_owned();
        } else if let Some((name, value)) = line.split_once('=') {
            // A comment after a value needs white space before it; a key may hold '#'.
            let value = value.split(" #").next().unwrap_or_default();
            found.push((section.clone(), name.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    found
}
