//! Flags of `tenon mount` as options of volumes that programs open by the library.

use crate::command::flags::StoreFlags;
use crate::command::flags::volume::VolumeFlags;
use clap::Parser;
use std::ffi::OsString;

/// The flags that options of the library can be.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct LibraryFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

impl LibraryFlags {
    /// Parses options: the name of a flag without its hyphens, and `=VALUE` if it has a value. An error is one line.
    pub(crate) fn parse_options(options: &[OsString]) -> Result<Self, String> {
        if options.iter().any(|option| option.is_empty()) {
            return Err("an option is empty".to_owned());
        }
        let flags = options.iter().map(|option| {
            let mut flag = OsString::from("--");
            flag.push(option);
            flag
        });
        Self::try_parse_from(flags).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").replace("'--", "'")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn options_are_flags_of_the_mount() {
        let options = ["endpoint-url=http://127.0.0.1:9", "memory-limit=128MiB", "read-only"];
        let flags = LibraryFlags::parse_options(&options.map(OsString::from)).unwrap();
        assert_eq!((flags.volume.memory_limit, flags.volume.read_only), (128 << 20, true));
        assert_eq!(flags.store.settings().endpoint_url.as_deref(), Some("http://127.0.0.1:9"));
        assert_eq!(LibraryFlags::parse_options(&[]).unwrap().store.retry_timeout, Duration::from_secs(30));
    }

    #[test]
    fn an_unknown_option_or_value_is_named_in_one_line() {
        for (option, problem) in [
            ("memory=1", "unexpected argument 'memory' found"),
            ("memory-limit=1", "the memory limit must be at least 64MiB"),
            ("read-only=yes", "unexpected value 'yes' for 'read-only'"),
            ("", "an option is empty"),
        ] {
            let error = LibraryFlags::parse_options(&[OsString::from(option)]).unwrap_err();
            assert!(error.contains(problem) && !error.contains('\n'), "{option}: {error}");
        }
    }
}
