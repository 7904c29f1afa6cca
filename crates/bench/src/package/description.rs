//! The description of a package: its commands, versions and characteristics. Plain data; `definition` reads it from a file.

use super::template::{Template, TemplateError, Variables};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A package: a file system or client that the testbed measures, with its commands (install, mount, unmount and so on) and its versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// Name on the command line.
    pub name: String,
    /// Name in reports.
    pub title: String,
    /// Pages of the project.
    pub links: Links,
    /// How its files are reached.
    pub driver: Driver,
    /// The API that it needs of the object store.
    pub api: Api,
    /// Names of variables of the testbed's environment that its commands inherit, such as that of a licence. Their values are secrets.
    pub inherited_variables: Vec<String>,
    /// Properties, as in Table 1 of the paper.
    pub characteristics: Characteristics,
    /// The program that must be installed.
    pub program: Option<Program>,
    /// Its commands; [`Driver::Mount`] has at least `mount` and `unmount`.
    pub commands: Commands,
    /// Environment of all commands.
    pub environment: BTreeMap<String, Template>,
    /// Files that are written before the first command, by name below `${config}`, readable by their owner only.
    pub files: BTreeMap<String, Template>,
    /// Versions, at least one.
    pub versions: Vec<Version>,
}

/// Pages of a package's project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    /// Home page.
    pub website: Option<String>,
    /// Page of its developers that recommends the options used here.
    pub recommendation: Option<String>,
}

/// A version of a package: the same commands with other parameters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// Name on the command line, after the package's.
    pub name: String,
    /// Name in reports; empty: the package's title.
    #[serde(default)]
    pub title: String,
    /// Values of additional variables.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// How the files of a package are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// As files below a mount point.
    #[default]
    Mount,
    /// As objects, by Tenon's S3 client in this process.
    Objects,
    /// As files of a local directory: the ceiling that no object store passes.
    Directory,
}

/// The API of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// That of Amazon S3, which every platform has.
    #[default]
    S3,
    /// That of Google Cloud Storage, which no platform has.
    Gcs,
}

/// The properties of Table 1 of the paper.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Characteristics {
    /// Whether the source code is available.
    pub open_source: bool,
    /// Support of POSIX.
    pub posix: Posix,
    /// Mapping of a file to objects.
    pub mapping: Mapping,
    /// Place of the metadata.
    pub metadata: String,
    /// Whether it can compress data.
    pub compression: bool,
    /// Where these properties were taken from.
    pub source: String,
}

/// Support of POSIX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Posix {
    /// Complete, as its developers say.
    Full,
    /// Partial.
    Partial,
    /// Not a file system.
    None,
}

/// Mapping of a file to objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// A file is one object with the file's path as its key.
    Direct,
    /// A file is several objects, or shares an object, or its key is not its path.
    Chunked,
    /// There are no objects.
    None,
}

/// A program that a package needs, and where it can be had.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// File name of the program.
    pub name: String,
    /// Debian packages, separated by spaces.
    pub debian: Option<String>,
    /// PyPI package.
    pub pypi: Option<String>,
    /// Go module with its version.
    pub go: Option<String>,
    /// Package of crates.io.
    pub crates: Option<String>,
    /// How to get the program where no package manager has it.
    pub advice: Option<String>,
}

/// An action of a package. Only `mount` is obligatory, for [`Driver::Mount`]; the others have defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Installs the program; by default with the package managers that [`Program`] names.
    Install,
    /// Removes the program.
    Uninstall,
    /// Prints the version of the program.
    Version,
    /// Creates the bucket; by default with the testbed's client.
    CreateBucket,
    /// Removes all objects of the bucket; by default with the testbed's client.
    CleanBucket,
    /// Removes the bucket; by default with the testbed's client.
    RemoveBucket,
    /// Formats a new bucket; by default nothing is done.
    Format,
    /// Mounts the bucket.
    Mount,
    /// Unmounts it; by default with `umount`.
    Unmount,
    /// Makes the package forget what it has cached, while it is not mounted; by default its directories of caches are removed.
    DropCaches,
}

/// The commands of a package, as lists of words.
pub type Commands = BTreeMap<Action, Command>;

/// A command: the program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command(pub Vec<Template>);

/// A package with one of its versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The package.
    pub package: Package,
    /// The version.
    pub version: Version,
}

impl Action {
    /// Returns the name in a package's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Uninstall => "uninstall",
            Self::Version => "version",
            Self::CreateBucket => "create-bucket",
            Self::CleanBucket => "clean-bucket",
            Self::RemoveBucket => "remove-bucket",
            Self::Format => "format",
            Self::Mount => "mount",
            Self::Unmount => "unmount",
            Self::DropCaches => "drop-caches",
        }
    }
}

impl Package {
    /// Returns whether the testbed can install the program, with a package manager or with the package's own action, and can use it.
    pub fn is_installable(&self) -> bool {
        if self.api != Api::S3 {
            return false;
        }
        let is_managed = |program: &Program| {
            [&program.debian, &program.pypi, &program.go, &program.crates].into_iter().any(Option::is_some)
        };
        self.commands.contains_key(&Action::Install) || self.program.as_ref().is_some_and(is_managed)
    }
}

impl Target {
    /// Returns the title in reports.
    pub fn title(&self) -> &str {
        if self.version.title.is_empty() { &self.package.title } else { &self.version.title }
    }
}

impl Command {
    /// Puts in the values of the variables.
    ///
    /// # Errors
    /// If a variable has no value.
    pub fn fill(&self, values: &Variables) -> Result<Vec<String>, TemplateError> {
        let words: Result<Vec<Vec<String>>, _> = self.0.iter().map(|word| word.words(values)).collect();
        Ok(words?.concat())
    }
}

impl Program {
    /// Returns how to install the program.
    pub fn how_to_install(&self) -> String {
        let managers = [
            ("apt-get install", &self.debian),
            ("pip install", &self.pypi),
            ("go install", &self.go),
            ("cargo install", &self.crates),
        ];
        let command =
            managers.into_iter().find_map(|(manager, name)| Some(format!("{manager} {}", name.as_ref()?)));
        let ways: Vec<String> = command.into_iter().chain(self.advice.clone()).collect();
        if ways.is_empty() { "install it".to_owned() } else { ways.join("; ") }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.package.versions.len() == 1 {
            f.write_str(&self.package.name)
        } else {
            write!(f, "{}.{}", self.package.name, self.version.name)
        }
    }
}
