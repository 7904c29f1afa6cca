//! Fuzz targets: files and documents with credentials, which errors must not repeat.

use super::profile::{self, Section};
use super::{document, process, sso};
use crate::Search;
use std::collections::BTreeMap;

/// Parses files of the AWS tools, and checks that the sections survive writing and parsing, and that a search ends.
pub(crate) fn files(text: &str) {
    let sections = profile::parse(text);
    let written: String = sections.iter().map(|(section, settings)| written(section, settings)).collect();
    if sections.iter().all(|(section, settings)| is_plain(section, settings)) {
        assert_eq!(profile::parse(&written), sections);
    }
    let dir = std::env::temp_dir().join(format!("tenon-fuzz-aws-{}", std::process::id()));
    let file = dir.join("config");
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&file, text))
        .unwrap_or_else(|e| panic!("{e}"));
    let vars = BTreeMap::from([("AWS_CONFIG_FILE", file.to_string_lossy().into_owned())]);
    let env = |name: &str| vars.get(name).cloned();
    let names = sections.keys().filter_map(|section| match section {
        Section::Profile(name) => Some(name.clone()),
        Section::SsoSession(_) => None,
    });
    for profile in names.take(4).map(Some).chain([None]) {
        if let Err(error) = (Search { explicit: None, profile, region: None, env: &env }).run() {
            drop(error.to_string());
        }
    }
}

fn written(section: &Section, settings: &profile::Settings) -> String {
    let heading = match section {
        Section::Profile(name) => format!("[profile {name}]\n"),
        Section::SsoSession(name) => format!("[sso-session {name}]\n"),
    };
    let lines = settings.iter().map(|(name, value)| format!("{name}={value}\n"));
    heading + &lines.collect::<String>()
}

/// Returns whether a section can be written without quotes, which the format does not allow everywhere.
fn is_plain(section: &Section, settings: &profile::Settings) -> bool {
    let (Section::Profile(heading) | Section::SsoSession(heading)) = section;
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word(heading)
        && settings
            .iter()
            .all(|(name, value)| is_word(name) && value.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Parses a document as each kind of provider does.
pub(crate) fn documents(body: &[u8]) {
    drop((process::read(body), sso::read(body), document::parse_sts(body, "AssumeRole")));
    if let Ok(object) = document::parse_json(body) {
        drop((
            document::parse_credentials(&object, document::METADATA),
            document::parse_credentials(&object, document::SSO),
        ));
    }
}
