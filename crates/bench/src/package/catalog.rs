//! The catalog: packages that are shipped, and files of the user, which replace shipped packages of their name.

use super::definition::DefinitionError;
use super::description::{Package, Target, Version};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The shipped files.
const SHIPPED: [&str; 17] = [
    include_str!("../../packages/gcsfuse.toml"),
    include_str!("../../packages/geesefs.toml"),
    include_str!("../../packages/goofys.toml"),
    include_str!("../../packages/juicefs.toml"),
    include_str!("../../packages/local.toml"),
    include_str!("../../packages/mountpoint-s3.toml"),
    include_str!("../../packages/objectivefs.toml"),
    include_str!("../../packages/raw.toml"),
    include_str!("../../packages/rclone.toml"),
    include_str!("../../packages/s3backer.toml"),
    include_str!("../../packages/s3fs.toml"),
    include_str!("../../packages/s3ql.toml"),
    include_str!("../../packages/tenon-chunked.toml"),
    include_str!("../../packages/tenon-drive.toml"),
    include_str!("../../packages/tenon-inode.toml"),
    include_str!("../../packages/tenon.toml"),
    include_str!("../../packages/zerofs.toml"),
];

/// All known packages, by name.
#[derive(Debug, Clone, Default)]
pub struct Catalog(BTreeMap<String, Package>);

/// Errors of the catalog. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A file is not valid.
    #[error("{path}: {source}")]
    Definition {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: DefinitionError,
    },
    /// A file or the directory cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// No package has this name.
    #[error("unknown package '{0}'; choose from {1}")]
    UnknownPackage(String, String),
    /// The package has no version of this name.
    #[error("package '{0}' has no version '{1}'; choose from {2}")]
    UnknownVersion(String, String, String),
}

impl Catalog {
    /// Returns the shipped packages.
    ///
    /// # Errors
    /// None in a correct build: a test parses every shipped file.
    pub fn shipped() -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for text in SHIPPED {
            catalog.add(Path::new("shipped"), text)?;
        }
        Ok(catalog)
    }

    /// Adds the files `*.toml` of a directory; a missing directory is empty.
    ///
    /// # Errors
    /// If a file cannot be read or is not valid.
    pub fn add_directory(&mut self, dir: &Path) -> Result<(), CatalogError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| CatalogError::File { path, source }
        };
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed(dir))?,
        };
        for entry in entries {
            let path = entry.map_err(failed(dir))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = fs::read_to_string(&path).map_err(failed(&path))?;
                self.add(&path, &text)?;
            }
        }
        Ok(())
    }

    /// Adds the package of a file's text, in place of one of its name. The path is for messages.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn add(&mut self, path: &Path, text: &str) -> Result<(), CatalogError> {
        let package = Package::parse(text)
            .map_err(|source| CatalogError::Definition { path: path.to_owned(), source })?;
        self.0.insert(package.name.clone(), package);
        Ok(())
    }

    /// Returns all packages, by name.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.0.values()
    }

    /// Returns the targets of a name: `geesefs.v2` is one version, `geesefs` all versions.
    ///
    /// # Errors
    /// If there is no such package or version.
    pub fn targets(&self, name: &str) -> Result<Vec<Target>, CatalogError> {
        let (name, version) =
            name.split_once('.').map_or((name, None), |(name, version)| (name, Some(version)));
        let package = self.0.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            CatalogError::UnknownPackage(name.to_owned(), names.join(", "))
        })?;
        let is_wanted = |known: &&Version| version.is_none_or(|wanted| wanted == known.name);
        let targets: Vec<Target> = package
            .versions
            .iter()
            .filter(is_wanted)
            .map(|version| Target { package: package.clone(), version: version.clone() })
            .collect();
        match targets.is_empty() {
            false => Ok(targets),
            true => {
                let names: Vec<&str> = package.versions.iter().map(|known| known.name.as_str()).collect();
                let version = version.unwrap_or_default().to_owned();
                Err(CatalogError::UnknownVersion(name.to_owned(), version, names.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_file_is_valid() {
        let catalog = Catalog::shipped().unwrap();
        assert_eq!(catalog.packages().count(), SHIPPED.len());
    }

    #[test]
    fn targets_are_found_by_package_and_version() {
        let catalog = Catalog::shipped().unwrap();
        let names =
            |name| -> Vec<String> { catalog.targets(name).unwrap().iter().map(Target::to_string).collect() };
        assert_eq!(names("s3fs"), ["s3fs"]);
        assert_eq!(names("tenon.durable"), ["tenon.durable"]);
        assert!(names("tenon").len() > 1);
        assert!(catalog.targets("nothing").unwrap_err().to_string().contains("choose from"));
        assert!(catalog.targets("tenon.nothing").unwrap_err().to_string().contains("durable"));
    }

    #[test]
    fn a_user_file_replaces_a_shipped_package() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            include_str!("../../packages/s3fs.toml").replace("title = \"s3fs\"", "title = \"my s3fs\"");
        std::fs::write(dir.path().join("mine.toml"), text).unwrap();
        let mut catalog = Catalog::shipped().unwrap();
        catalog.add_directory(dir.path()).unwrap();
        catalog.add_directory(&dir.path().join("missing")).unwrap();
        assert_eq!(catalog.targets("s3fs").unwrap()[0].title(), "my s3fs");
        std::fs::write(dir.path().join("bad.toml"), "name = 1").unwrap();
        assert!(catalog.add_directory(dir.path()).unwrap_err().to_string().contains("bad.toml"));
    }
}
