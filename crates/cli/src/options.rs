//! From an argument vector to the one that `clap` reads.
//!
//! `mount -t fuse.tenon` and fstab speak in `-o key=value,...`; this module turns each into the long flag of the
//! same name, so that every flag of `tenon mount` is an option and nothing is declared twice. It also knows the
//! three ways in which mount(8) calls a helper: as `mount.fuse.tenon`, as `tenon VOLUME DIR`, and plainly.

use anyhow::{Result, bail};
use clap::Command;
use std::ffi::OsString;
use std::path::Path;

/// Options that mount(8), systemd and fstab understand and that change nothing here.
const IGNORED: &[&str] = &[
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "async",
    "diratime",
    "nodiratime",
    "default_permissions",
    "big_writes",
];

/// What mount(8) calls the settings of `--atime`; a plain `atime` is the kernel's default, as it is ours.
const ATIMES: [(&str, &str); 4] =
    [("noatime", "off"), ("relatime", "relatime"), ("strictatime", "strict"), ("atime", "relatime")];

/// Flags that make no sense in `-o`.
const NOT_OPTIONS: &[&str] = &["foreground", "help", "daemon-child"];

/// Rewrites `argv` for `command` (the whole `tenon`); an error is a wrong use.
pub(crate) fn rewrite(argv: Vec<OsString>, command: &Command) -> Result<Vec<OsString>> {
    let argv = if called_as_helper(&argv) {
        from_mount_helper(argv)?
    } else if lacks_subcommand(&argv, command) {
        insert_mount(argv)
    } else {
        argv
    };
    match argv.get(1) {
        Some(word) if word == "mount" => expand(argv, command),
        _ => Ok(argv),
    }
}

fn called_as_helper(argv: &[OsString]) -> bool {
    argv.first()
        .and_then(|program| Path::new(program).file_name())
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."))
}

/// `tenon VOLUME DIR -o ...`, as mount.fuse(8) calls a file system.
fn lacks_subcommand(argv: &[OsString], command: &Command) -> bool {
    let Some(first) = argv.get(1).and_then(|word| word.to_str()) else { return false };
    let known = command.get_subcommands().any(|sub| sub.get_name() == first) || first == "help";
    !known && (first.contains("://") || first.starts_with(['/', '.'])) && argv.len() > 2
}

fn insert_mount(mut argv: Vec<OsString>) -> Vec<OsString> {
    argv.insert(1, "mount".into());
    argv
}

/// `mount.fuse.tenon SPEC DIR [-sfnv] [-N NS] [-t TYPE] [-o OPTIONS]` (mount(8), "External helpers").
fn from_mount_helper(argv: Vec<OsString>) -> Result<Vec<OsString>> {
    let mut rewritten: Vec<OsString> = vec!["tenon".into(), "mount".into()];
    let mut words = argv.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => rewritten.extend(["-o".into(), words.next().unwrap_or_default()]),
            Some("-N" | "-t") => drop(words.next()),
            Some(flags) if flags.starts_with('-') => refuse_fake(flags)?,
            _ => rewritten.push(word),
        }
    }
    Ok(rewritten)
}

fn refuse_fake(flags: &str) -> Result<()> {
    if flags.contains('f') {
        bail!("a fake mount (-f) is not supported; drop the flag");
    }
    Ok(())
}

/// Replaces each `-o a=b,c` by `--a=b --c`.
fn expand(argv: Vec<OsString>, command: &Command) -> Result<Vec<OsString>> {
    let known = option_names(command);
    let mut expanded = Vec::with_capacity(argv.len());
    let mut words = argv.into_iter();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str() else {
            expanded.push(word);
            continue;
        };
        let list = match text.strip_prefix("-o") {
            Some("") => match words.next().map(OsString::into_string) {
                Some(Ok(list)) => list,
                Some(Err(_)) => bail!("the options after -o are not UTF-8"),
                None => bail!("-o needs options after it, like -o ro,allow_other"),
            },
            Some(list) => list.trim_start_matches('=').to_owned(),
            None => {
                expanded.push(word);
                continue;
            }
        };
        for option in split_options(&list) {
            expanded.extend(flag_for(&option, &known)?);
        }
    }
    Ok(expanded)
}

/// Cuts at commas; `\,` is a comma inside a value, as in fstab.
fn split_options(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut characters = list.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' if characters.peek() == Some(&',') => push(&mut options, characters.next()),
            ',' => options.push(String::new()),
            c => push(&mut options, Some(c)),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

fn push(options: &mut [String], c: Option<char>) {
    if let (Some(last), Some(c)) = (options.last_mut(), c) {
        last.push(c);
    }
}

fn flag_for(option: &str, known: &[String]) -> Result<Option<OsString>> {
    let (key, value) = option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value)));
    if IGNORED.contains(&key) || key.starts_with("x-") || key.starts_with("X-") || key == "comment" {
        return Ok(None);
    }
    if let (Some((_, when)), None) = (ATIMES.iter().find(|(name, _)| *name == key), value) {
        return Ok(Some(format!("--atime={when}").into()));
    }
    let name = match key {
        "ro" => "read-only".to_owned(),
        key => key.replace('_', "-"),
    };
    if !known.contains(&name) {
        bail!("unknown option '{key}'; {}", suggestion(&name, known));
    }
    Ok(Some(match value {
        Some(value) => format!("--{name}={value}").into(),
        None => format!("--{name}").into(),
    }))
}

fn option_names(command: &Command) -> Vec<String> {
    let Some(mount) = command.find_subcommand("mount") else { return Vec::new() };
    mount
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .filter(|name| !NOT_OPTIONS.contains(name))
        .map(str::to_owned)
        .collect()
}

fn suggestion(name: &str, known: &[String]) -> String {
    let nearest = known.iter().map(|candidate| (distance(name, candidate), candidate)).min();
    match nearest {
        Some((edits, candidate)) if edits <= name.len() / 2 => {
            format!("did you mean '{}'?", candidate.replace('-', "_"))
        }
        _ => "`tenon mount --help` lists them all".to_owned(),
    }
}

/// Levenshtein's edit distance, by one row of the table.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(words: &[&str]) -> Result<Vec<String>> {
        let argv = words.iter().map(OsString::from).collect();
        let command = <crate::Cli as clap::CommandFactory>::command();
        Ok(rewrite(argv, &command)?.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn options_become_flags() {
        assert_eq!(
            rewritten(&["tenon", "mount", "s3://b", "/mnt", "-o", "ro,metadata_ttl=1s,memory-limit=64M"])
                .unwrap(),
            ["tenon", "mount", "s3://b", "/mnt", "--read-only", "--metadata-ttl=1s", "--memory-limit=64M"]
        );
    }

    #[test]
    fn options_of_mount_and_systemd_are_ignored() {
        let options = "rw,nofail,_netdev,noauto,x-systemd.automount,X-mount.mkdir,comment=a";
        assert_eq!(
            rewritten(&["tenon", "mount", "v", "d", "-o", options]).unwrap(),
            ["tenon", "mount", "v", "d"]
        );
    }

    #[test]
    fn atime_modes_have_the_names_of_mount() {
        for (option, flag) in
            [("noatime", "off"), ("strictatime", "strict"), ("atime=off", "off"), ("atime", "relatime")]
        {
            let words = rewritten(&["tenon", "mount", "v", "d", "-o", option]).unwrap();
            assert_eq!(words.last().unwrap(), &format!("--atime={flag}"));
        }
    }

    #[test]
    fn the_mount_helper_form_is_understood() {
        let words =
            ["/sbin/mount.fuse.tenon", "s3://b/p", "/mnt", "-s", "-n", "-t", "fuse.tenon", "-o", "rw,ro"];
        assert_eq!(rewritten(&words).unwrap(), ["tenon", "mount", "s3://b/p", "/mnt", "--read-only"]);
        let words = ["tenon", "s3://b/p", "/mnt", "-o", "dev,suid,allow_other"];
        assert_eq!(rewritten(&words).unwrap(), ["tenon", "mount", "s3://b/p", "/mnt", "--allow-other"]);
    }

    #[test]
    fn a_comma_can_be_escaped() {
        assert_eq!(split_options(r"a=1\,2,b"), ["a=1,2", "b"]);
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let refused = rewritten(&["tenon", "mount", "v", "d", "-o", "endpont_url=x"]).unwrap_err();
        assert_eq!(refused.to_string(), "unknown option 'endpont_url'; did you mean 'endpoint_url'?");
        let refused = rewritten(&["tenon", "mount", "v", "d", "-o", "zzzzzzzz"]).unwrap_err();
        assert_eq!(refused.to_string(), "unknown option 'zzzzzzzz'; `tenon mount --help` lists them all");
        assert!(rewritten(&["tenon", "mount", "v", "d", "-o", "foreground"]).is_err());
    }

    #[test]
    fn other_commands_keep_their_words() {
        assert_eq!(rewritten(&["tenon", "status", "-o"]).unwrap(), ["tenon", "status", "-o"]);
    }
}
