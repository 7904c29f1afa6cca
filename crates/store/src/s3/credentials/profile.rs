//! `~/.aws/credentials` and `~/.aws/config`: INI files of the AWS tools.

use super::CredentialsError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of one section, by lower-case name.
pub(super) type Settings = BTreeMap<String, String>;

/// What a section of a file is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    /// `[name]` or `[profile name]`.
    Profile(String),
    /// `[sso-session name]`.
    SsoSession(String),
}

/// All sections of the files; what the first file sets wins.
#[derive(Debug)]
pub(super) struct Profiles {
    files: Vec<PathBuf>,
    sections: BTreeMap<Section, Settings>,
}

impl Profiles {
    /// Reads the files; one that cannot be read counts as empty.
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

    /// The named profile, which must exist, or the default one, which need not.
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

    /// The place, for an error's text.
    pub(super) fn describe(&self, name: Option<&str>) -> String {
        format!("profile '{}' in {}", name.unwrap_or("default"), self.file_names())
    }

    fn file_names(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        names.join(" and ")
    }
}

/// A file's text, if it can be read and is not far too long.
fn read_text(file: &Path) -> Option<String> {
    let len = std::fs::metadata(file).ok()?.len();
    if len > FILE_BYTES_MAX {
        return None;
    }
    std::fs::read_to_string(file).ok()
}

/// The settings of every section; where a name comes twice, the last one counts. Nested settings (indented lines) are
/// others' business.
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

/// A comment after a value needs white space before it; a key may hold '#'.
fn without_comment(value: &str) -> &str {
    let mut blanks = value.match_indices([' ', '\t']);
    let comment = blanks.find(|(at, _)| value[at + 1..].starts_with(['#', ';']));
    comment.map_or(value, |(at, _)| &value[..at])
}

/// What a section's heading means; `None` for sections that are others' business (`services x`).
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
