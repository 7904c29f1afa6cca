//! The format of a package's file, and its checks.

use super::description::{
    Action, Api, Characteristics, Command, Commands, Driver, Links, Package, Program, Version,
};
use super::template::{Template, TemplateError};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Variables of every package, besides the parameters of its versions.
const VARIABLES: [&str; 12] = [
    "bucket",
    "endpoint",
    "host",
    "region",
    "access_key",
    "secret_key",
    "mount",
    "state",
    "cache",
    "config",
    "capacity",
    "tenon",
];
/// The variable that commands and parameters may not use.
const SECRET: &str = "secret_key";

/// Errors of a package's file.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The file is not TOML, or has a missing, unknown or invalid field.
    #[error("{}", first_line(.0))]
    Toml(#[from] toml::de::Error),
    /// A text has an invalid or unknown variable.
    #[error("{place}: {source}")]
    Template {
        /// Field of the file.
        place: String,
        /// Cause.
        source: TemplateError,
    },
    /// A command has the secret key among its words.
    #[error(
        "{0}: other users can read the arguments of a process; pass ${{secret_key}} in [environment] or [files]"
    )]
    SecretInCommand(String),
    /// A package with a mount point has no mount command.
    #[error("actions: there is no mount command")]
    NoMount,
    /// Two versions have one name.
    #[error("version '{0}' exists twice")]
    DuplicateVersion(String),
    /// A name is not usable on the command line.
    #[error("name '{0}': use lower-case letters, digits and -")]
    Name(String),
}

/// A package as its file defines it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    name: String,
    title: String,
    website: Option<String>,
    recommendation: Option<String>,
    #[serde(default)]
    driver: Driver,
    #[serde(default)]
    api: Api,
    #[serde(default, rename = "passes")]
    inherited_variables: Vec<String>,
    characteristics: Characteristics,
    program: Option<Program>,
    #[serde(default)]
    actions: BTreeMap<Action, Vec<String>>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default, rename = "version")]
    versions: Vec<Version>,
}

impl Package {
    /// Parses a package's file and checks it.
    ///
    /// # Errors
    /// The first problem of the file.
    pub fn parse(text: &str) -> Result<Self, DefinitionError> {
        let definition: Definition = toml::from_str(text)?;
        check_name(&definition.name)?;
        let versions = versions(definition.versions)?;
        let mut commands = commands(&definition.actions)?;
        if definition.driver == Driver::Mount {
            if !commands.contains_key(&Action::Mount) {
                return Err(DefinitionError::NoMount);
            }
            let words = vec![template("unmount", "umount")?, template("unmount", "${mount}")?];
            commands.entry(Action::Unmount).or_insert(Command(words));
        }
        let package = Self {
            name: definition.name,
            title: definition.title,
            links: Links { website: definition.website, recommendation: definition.recommendation },
            driver: definition.driver,
            api: definition.api,
            inherited_variables: definition.inherited_variables,
            characteristics: definition.characteristics,
            program: definition.program,
            commands,
            environment: templates("environment", definition.environment)?,
            files: templates("files", definition.files)?,
            versions,
        };
        package.check_variables()?;
        Ok(package)
    }

    fn check_variables(&self) -> Result<(), DefinitionError> {
        for version in &self.versions {
            let known: BTreeSet<&str> =
                VARIABLES.into_iter().chain(version.parameters.keys().map(String::as_str)).collect();
            for (place, text, is_command) in self.texts() {
                for name in text.variables() {
                    if is_command && name == SECRET {
                        return Err(DefinitionError::SecretInCommand(place.to_owned()));
                    }
                    if !known.contains(name) {
                        let source = TemplateError::Unknown(name.to_owned());
                        return Err(DefinitionError::Template { place: place.to_owned(), source });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns every text with its place, and whether it is part of a command.
    fn texts(&self) -> impl Iterator<Item = (&str, &Template, bool)> {
        let words = self
            .commands
            .iter()
            .flat_map(|(action, command)| command.0.iter().map(move |word| (action.name(), word, true)));
        let others = self.environment.iter().chain(&self.files);
        words.chain(others.map(|(name, text)| (name.as_str(), text, false)))
    }
}

fn check_name(name: &str) -> Result<(), DefinitionError> {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !name.is_empty() && name.chars().all(is_valid) {
        true => Ok(()),
        false => Err(DefinitionError::Name(name.to_owned())),
    }
}

/// Returns the versions of a file; a file without any has one, `v1`.
fn versions(given: Vec<Version>) -> Result<Vec<Version>, DefinitionError> {
    if given.is_empty() {
        return Ok(vec![Version { name: "v1".into(), title: String::new(), parameters: BTreeMap::new() }]);
    }
    let mut names = BTreeSet::new();
    for version in &given {
        check_name(&version.name)?;
        check_parameters(version)?;
        if !names.insert(version.name.clone()) {
            return Err(DefinitionError::DuplicateVersion(version.name.clone()));
        }
    }
    Ok(given)
}

/// Checks that the values of a version's parameters use only the variables that every package has, and not the secret key.
fn check_parameters(version: &Version) -> Result<(), DefinitionError> {
    for (name, text) in &version.parameters {
        let place = format!("parameters.{name}");
        for variable in template(&place, text)?.variables() {
            if variable == SECRET {
                return Err(DefinitionError::SecretInCommand(place));
            }
            if !VARIABLES.contains(&variable) {
                let source = TemplateError::Unknown(variable.to_owned());
                return Err(DefinitionError::Template { place, source });
            }
        }
    }
    Ok(())
}

fn commands(actions: &BTreeMap<Action, Vec<String>>) -> Result<Commands, DefinitionError> {
    let given = actions.iter().filter(|(_, words)| !words.is_empty());
    let command = |(action, words): (&Action, &Vec<String>)| {
        let words: Result<Vec<Template>, _> =
            words.iter().map(|word| template(action.name(), word)).collect();
        Ok((*action, Command(words?)))
    };
    given.map(command).collect()
}

fn templates(
    place: &str,
    texts: BTreeMap<String, String>,
) -> Result<BTreeMap<String, Template>, DefinitionError> {
    let parse = |(name, text): (String, String)| {
        let parsed = template(&format!("{place}.{name}"), &text)?;
        Ok((name, parsed))
    };
    texts.into_iter().map(parse).collect()
}

fn template(place: &str, text: &str) -> Result<Template, DefinitionError> {
    Template::parse(text).map_err(|source| DefinitionError::Template { place: place.to_owned(), source })
}

/// Returns an error of TOML on one line.
fn first_line(error: &toml::de::Error) -> String {
    error.message().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::template::Variables;
    use super::*;

    const HEAD: &str = r#"
        name = "fake"
        title = "Fake"
        website = "https://example.com"
        [characteristics]
        open_source = true
        posix = "partial"
        mapping = "direct"
        metadata = "in name"
        compression = false
        source = "invented"
    "#;

    fn parse(rest: &str) -> Result<Package, DefinitionError> {
        Package::parse(&format!("{HEAD}{rest}"))
    }

    #[test]
    fn versions_have_parameters_and_unmount_a_default() {
        let package = parse(
            r#"
            [actions]
            mount = ["fakefs", "-o", "threads=${threads}", "${mount}"]
            [[version]]
            name = "v1"
            parameters = { threads = "1" }
            [[version]]
            name = "v2"
            parameters = { threads = "8" }
            "#,
        )
        .unwrap();
        let mut values = Variables::from([("mount".to_owned(), "/m".to_owned())]);
        values.extend(package.versions[1].parameters.clone());
        let mount = package.commands[&Action::Mount].fill(&values).unwrap();
        assert_eq!(mount, ["fakefs", "-o", "threads=8", "/m"]);
        assert_eq!(package.commands[&Action::Unmount].fill(&values).unwrap(), ["umount", "/m"]);
    }

    #[test]
    fn problems_of_a_file_are_found() {
        for (rest, problem) in [
            ("", "there is no mount command"),
            ("[actions]\nmount = [\"x\", \"${secret_key}\"]", "other users can read"),
            ("[actions]\nmount = [\"${nothing}\"]", "mount: there is no variable 'nothing'"),
            ("[actions]\nmount = [\"$x\"]", "write a variable as"),
            ("[actions]\nmount = [\"x\"]\n[[version]]\nname=\"a\"\n[[version]]\nname=\"a\"", "twice"),
            ("[actions]\nfly = [\"x\"]", "unknown variant"),
            (
                "[actions]\nmount = [\"x\"]\n[[version]]\nname=\"a\"\nparameters={p=\"${secret_key}\"}",
                "other users can read",
            ),
        ] {
            let error = parse(rest).unwrap_err().to_string();
            assert!(error.contains(problem), "{rest}: {error}");
        }
    }
}
