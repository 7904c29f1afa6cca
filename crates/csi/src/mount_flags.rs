//! Flags of `tenon mount` that the mount options of a volume may set. Flags that name files of the node, programs or other users' secrets
//! are not among them: some volumes are described by the author of a pod.

use tonic::Status;

/// Flags with a value.
const VALUES: [&str; 20] = [
    "atime",
    "attributes",
    "cache",
    "coherence",
    "conflict",
    "dir-mode",
    "drain-timeout",
    "file-mode",
    "gid",
    "list-budget",
    "log-format",
    "log-level",
    "memory-limit",
    "metadata-backup",
    "metadata-ttl",
    "part-size",
    "publish-interval",
    "retry-timeout",
    "uid",
    "writeback-limit",
];

/// Flags without a value.
const SWITCHES: [&str; 6] =
    ["force-path-style", "noexec", "read-only", "shared", "virtual-host-style", "writeback"];

/// Accepted options of mount(8), each with its flag. An option without a flag asks for what is the default.
const MOUNT8: [(&str, Option<&str>); 9] = [
    ("ro", Some("--read-only")),
    ("noatime", Some("--atime=off")),
    ("relatime", Some("--atime=relatime")),
    ("strictatime", Some("--atime=strict")),
    ("rw", None),
    ("defaults", None),
    ("nosuid", None),
    ("nodev", None),
    ("_netdev", None),
];

/// Returns the names of all flags that volumes may set.
pub fn accepted_names() -> impl Iterator<Item = &'static str> {
    VALUES.into_iter().chain(SWITCHES)
}

/// Flags of one mount. A later flag replaces an earlier one of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MountFlags(Vec<String>);

impl MountFlags {
    /// Adds a flag of the driver.
    pub(crate) fn set(&mut self, flag: impl Into<String>) {
        let flag = flag.into();
        let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
        self.0.retain(|other| name(other) != name(&flag));
        self.0.push(flag);
    }

    /// Adds an option of a volume: a flag of `tenon mount`, or an option of mount(8).
    pub(crate) fn add_option(&mut self, option: &str) -> Result<(), Status> {
        if let Some((_, flag)) = MOUNT8.iter().find(|(name, _)| *name == option) {
            flag.iter().for_each(|flag| self.set(*flag));
            return Ok(());
        }
        let plain = option.trim_start_matches("--");
        let (name, value) = plain.split_once('=').map_or((plain, None), |(name, value)| (name, Some(value)));
        let name = name.replace('_', "-");
        let flag = match value {
            Some(value) if VALUES.contains(&name.as_str()) => format!("--{name}={value}"),
            None if SWITCHES.contains(&name.as_str()) => format!("--{name}"),
            _ => {
                return Err(Status::invalid_argument(format!(
                    "'{}' is not a mount option that volumes may set; see docs/kubernetes.md",
                    option.escape_debug()
                )));
            }
        };
        self.set(flag);
        Ok(())
    }

    /// Returns the flags as arguments.
    pub(crate) fn into_arguments(self) -> Vec<String> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_flags_counts() {
        let mut flags = MountFlags::default();
        flags.set("--gid=5");
        for option in ["gid=7", "--metadata_ttl=1s", "ro", "nodev", "noatime"] {
            flags.add_option(option).unwrap();
        }
        assert_eq!(flags.into_arguments(), ["--gid=7", "--metadata-ttl=1s", "--read-only", "--atime=off"]);
    }

    #[test]
    fn flags_that_reach_the_node_are_refused() {
        for bad in [
            "log-file=/etc/passwd",
            "state-dir=/etc",
            "handler=http://x",
            "--views=/x",
            "shared=1",
            "gid",
            "",
        ] {
            MountFlags::default().add_option(bad).unwrap_err();
        }
    }
}
