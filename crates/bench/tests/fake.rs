//! Fake packages: shell scripts over a directory. Mounts are bind mounts or a tmpfs, so the tests need root.
//!
//! Scripts get the bucket's directory as `$1`, the mount point as `$2`, the state directory as `$3`, and a directory of the test as `$4`.

use bench::{Catalog, Target};
use std::path::Path;

/// A fake package.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    mount: String,
    unmount: String,
    mapping: &'static str,
    test_dir: String,
    environment: String,
}

impl Fake {
    /// Returns a package without a defect: the mount shows the bucket's directory.
    pub(crate) fn good() -> Self {
        Self {
            mount: r#"mount --bind "$1" "$2""#.to_owned(),
            unmount: r#"umount "$2""#.to_owned(),
            mapping: "direct",
            test_dir: String::new(),
            environment: String::new(),
        }
    }

    pub(crate) fn mount(mut self, script: &str) -> Self {
        script.clone_into(&mut self.mount);
        self
    }

    pub(crate) fn unmount(mut self, script: &str) -> Self {
        script.clone_into(&mut self.unmount);
        self
    }

    pub(crate) fn chunked(mut self) -> Self {
        self.mapping = "chunked";
        self
    }

    pub(crate) fn test_dir(mut self, dir: &Path) -> Self {
        self.test_dir = dir.display().to_string();
        self
    }

    pub(crate) fn environment(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.environment);
        self
    }

    /// Returns the package's file.
    pub(crate) fn file(&self) -> String {
        let script = |text: &str| text.replace('$', "$$");
        let arguments = r#""fake", "${endpoint}/${bucket}", "${mount}", "${state}", "${test_dir}""#;
        format!(
            r#"
            name = "fake"
            title = "Fake"
            [characteristics]
            open_source = true
            posix = "full"
            mapping = "{}"
            metadata = "in name"
            compression = false
            source = "a test"
            [actions]
            mount = ["/bin/sh", "-ec", '''{}''', {arguments}]
            unmount = ["/bin/sh", "-ec", '''{}''', {arguments}]
            [environment]
            {}
            [[version]]
            name = "v1"
            parameters = {{ test_dir = "{}" }}
            "#,
            self.mapping,
            script(&self.mount),
            script(&self.unmount),
            self.environment,
            self.test_dir
        )
    }

    /// Returns the package as a target.
    pub(crate) fn target(&self) -> Target {
        let mut catalog = Catalog::default();
        catalog.add(Path::new("fake.toml"), &self.file()).unwrap();
        catalog.targets("fake").unwrap().remove(0)
    }
}
