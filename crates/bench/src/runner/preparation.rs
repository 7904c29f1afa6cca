//! Preparation of a target's commands: the values of their variables, their environment and their files.

use super::endpoint::Endpoint;
use super::program::Surroundings;
use super::run_plan::Programs;
use crate::outcome::Failure;
use crate::package::{Package, Target};
use crate::package::{Template, TemplateError, Variables};
use harness::file_error;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Directories of a target: the mount point, the state that a new mount keeps, the caches that it does not, and the package's files.
pub(crate) const DIRECTORIES: [&str; 4] = ["mount", "state", "cache", "config"];

/// Makes the directories of a target.
pub(crate) fn make_directories(dir: &Path) -> Result<(), Failure> {
    for name in DIRECTORIES {
        let path = dir.join(name);
        fs::create_dir_all(&path).map_err(file_error(&path)).map_err(Failure::testbed)?;
    }
    Ok(())
}

/// Returns the values of a target's variables.
pub(crate) fn variables(
    target: &Target,
    endpoint: &Endpoint,
    programs: &Programs,
    (dir, mount): (&Path, &Path),
    (bucket, capacity_bytes): (&str, u64),
) -> Result<Variables, TemplateError> {
    let path = |name: &str| dir.join(name).display().to_string();
    let own = [
        ("bucket", bucket.to_owned()),
        ("endpoint", endpoint.url.clone()),
        ("host", endpoint.host().to_owned()),
        ("region", endpoint.region.clone()),
        ("access_key", endpoint.access_key.clone()),
        ("secret_key", endpoint.secret_key.clone()),
        ("mount", mount.display().to_string()),
        ("state", path("state")),
        ("cache", path("cache")),
        ("config", path("config")),
        ("capacity", capacity_bytes.to_string()),
        ("tenon", programs.tenon.display().to_string()),
    ];
    let mut values: Variables = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let fill = |(name, text): (&String, &String)| Ok((name.clone(), Template::parse(text)?.fill(&values)?));
    let parameters: Result<Variables, TemplateError> = target.version.parameters.iter().map(fill).collect();
    values.extend(parameters?);
    Ok(values)
}

/// Fills in the environment, and writes the package's files, readable by their owner only.
pub(crate) fn surroundings(
    package: &Package,
    endpoint: &Endpoint,
    programs: &Programs,
    values: &Variables,
    dir: &Path,
) -> Result<Surroundings, Failure> {
    for (name, text) in &package.files {
        let path = dir.join("config").join(name);
        let text = text.fill(values).map_err(Failure::testbed)?;
        // An earlier mount may have left the file.
        let _ = fs::remove_file(&path);
        let file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(file_error(&path)).map_err(Failure::testbed)?;
    }
    let filled = package.environment.iter().map(|(name, text)| Ok((name.clone(), text.fill(values)?)));
    let filled: Result<BTreeMap<String, String>, TemplateError> = filled.collect();
    let passed =
        package.inherited_variables.iter().filter_map(|name| Some((name, programs.inherited.get(name)?)));
    let passed: BTreeMap<String, String> =
        passed.map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut secrets: Vec<String> = passed.values().cloned().collect();
    secrets.push(endpoint.secret_key.clone());
    let mut environment = filled.map_err(Failure::testbed)?;
    environment.extend(passed);
    environment.insert("PATH".to_owned(), programs.search_path_text());
    environment.insert("HOME".to_owned(), dir.join("config").display().to_string());
    Ok(Surroundings { environment, dir: dir.to_owned(), log: dir.join("log"), secrets })
}
