//! Parsing of `~/.aws/credentials` and `~/.aws/config`, the INI files of the AWS tools.

use super::CredentialsError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum length of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of one section, by lower-case name.
pub(super) type Settings = BTreeMap<String, String>;

/// The heading of a section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    /// `[name]` or `[profile name]`.
    Profile(String),
    /// `[sso-session name]`.
    SsoSession(String),
}

/// All sections of the files. If both files have a setting, the first file wins.
#[derive(Debug)]
pub(super) struct Profiles {
    files: Vec<PathBuf>,
    sections: BTreeMap<Section, Settings>,
}

impl Profiles {
    /// Reads the files; an unreadable file counts as empty.
    pub(super) fn read(files: Vec<PathBuf>) -> Self {
        let mut sections = BTreeMap::<Section, Settings>::new();
        for text in files.iter().filter_map(|file| read_text(file)) {
            for (section, settings) in parse(&text) {
                let known = sections.entry(section).or_default();
                for (name, value) in settings {
                    known.entry(name).or_insert(value);
                }
            }
        }
        Self { files, sections }
    }

    /// Returns the named profile, which must exist, or the default profile, which may be missing.
    pub(super) fn get(&self, name: Option<&str>) -> Result<Settings, CredentialsError> {
        let section = Section::Profile(name.unwrap_or("default").to_owned());
        match (self.sections.get(&section), name) {
            (Some(profile), _) => Ok(profile.clone()),
            (None, None) => Ok(Settings::new()),
            (None, Some(name)) => {
                Err(CredentialsError::NoSuchProfile { name: name.to_owned(), files: self.file_names() })
            }
        }
    }

    pub(super) fn sso_session(&self, name: &str) -> Option<&Settings> {
        self.sections.get(&Section::SsoSession(name.to_owned()))
    }

    /// Describes the location of a profile, for messages.
    pub(super) fn describe(&self, name: Option<&str>) -> String {
        format!("profile '{}' in {}", name.unwrap_or("default"), self.file_names())
    }

    fn file_names(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        names.join(" and ")
    }
}

/// Reads a file, unless it is unreadable or too long.
fn read_text(file: &Path) -> Option<String> {
    let len = std::fs::metadata(file).ok()?.len();
    if len > FILE_BYTES_MAX {
        return None;
    }
    std::fs::read_to_string(file).ok()
}

/// Parses the settings of every section; for a repeated name, the last value counts. Nested settings (indented lines) are
/// ignored.
pub(super) fn parse(text: &str) -> BTreeMap<Section, Settings> {
    let mut sections = BTreeMap::<Section, Settings>::new();
    let mut section = None;
    for line in text.lines().filter(|line| !line.starts_with([' ', '\t', '#', ';'])) {
        if let Some(header) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = heading(header);
            if let Some(section) = &section {
                sections.entry(section.clone()).or_default();
            }
        } else if let (Some(section), Some((name, value))) = (&section, line.split_once('=')) {
            let settings = sections.entry(section.clone()).or_default();
            settings.insert(name.trim().to_lowercase(), without_comment(value).trim().to_owned());
        }
    }
    sections
}

/// Removes a comment after a value. The comment must follow white space, because keys may contain '#'.
fn without_comment(value: &str) -> &str {
    let mut blanks = value.match_indices([' ', '\t']);
    let comment = blanks.find(|(at, _)| value[at + 1..].starts_with(['#', ';']));
    comment.map_or(value, |(at, _)| &value[..at])
}

/// Parses a section's heading; `None` for other kinds of sections (`services x`).
fn heading(text: &str) -> Option<Section> {
    let text = text.trim();
    let unquoted = |name: &str| name.trim().trim_matches(['"', '\'']).to_owned();
    match text.split_once([' ', '\t']) {
        None => Some(Section::Profile(unquoted(text))),
        Some(("profile", name)) => Some(Section::Profile(unquoted(name))),
        Some(("sso-session", name)) => Some(Section::SsoSession(unquoted(name))),
        Some(("services" | "plugins", _)) => None,
        Some(_) => Some(Section::Profile(unquoted(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_every_kind_are_read() {
        let text = "; mine\nlost = 1\n[default]\nRegion = eu-west-1 # here\nkey=a#b\nkey = c\n[profile \"my own\"]\ns3 =\n  endpoint_url = x\n[sso-session corp]\nsso_region=r\n[services local]\nkey=hidden\n[empty]\n";
        let sections = parse(text);
        let of = |section: Section| sections[&section].clone();
        let default = of(Section::Profile("default".to_owned()));
        assert_eq!((default["region"].as_str(), default["key"].as_str()), ("eu-west-1", "c"));
        assert_eq!(of(Section::Profile("my own".to_owned()))["s3"], "");
        assert_eq!(of(Section::SsoSession("corp".to_owned()))["sso_region"], "r");
        assert!(of(Section::Profile("empty".to_owned())).is_empty());
        assert_eq!(sections.len(), 4);
    }
}
