//! Rewrites the argument vector into the form that `clap` parses.
//!
//! `mount -t fuse.tenon` and fstab pass options as `-o key=value,...`. This module turns each option into the long
//! flag of the same name, so that every flag of `tenon mount` is also an option and nothing is declared twice. It
//! also handles the three ways in which mount(8) calls a helper (as `mount.fuse.tenon`, as `tenon VOLUME DIR`, and as
//! `tenon mount`), `-o remount`, and `umount.fuse.tenon`, the helper of umount(8).

use anyhow::{Result, bail};
use clap::Command;
use std::ffi::OsString;
use std::path::Path;

/// Options of mount(8), systemd and fstab that are accepted and become no flag. Some cancel an earlier flag ([`CANCELED_FLAGS`]).
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

/// Options, each with the earlier flag that it cancels: of two contradicting options the last counts, as in mount(8).
const CANCELED_FLAGS: [(&str, &str); 4] =
    [("nosuid", "--allow-suid"), ("nodev", "--allow-dev"), ("exec", "--noexec"), ("rw", "--read-only")];

/// Settings of `--atime` by the names of mount(8). A plain `atime` is the kernel's default, which is also Tenon's.
const ATIMES: [(&str, &str); 4] =
    [("noatime", "off"), ("relatime", "relatime"), ("strictatime", "strict"), ("atime", "relatime")];

/// Flags that are refused in `-o`.
const NOT_OPTIONS: &[&str] = &["foreground", "help", "daemon-child"];

/// Rewrites `argv` for `command`, the whole `tenon` program. An error is a usage error.
pub(crate) fn rewrite(argv: Vec<OsString>, command: &Command) -> Result<Vec<OsString>> {
    let argv = if is_called_as(&argv, b"umount.") {
        from_umount_helper(argv)
    } else if is_called_as(&argv, b"mount.") {
        from_mount_helper(argv)?
    } else if is_mount_without_subcommand(&argv, command) {
        insert_mount(argv)
    } else {
        argv
    };
    match argv.get(1) {
        Some(word) if word == "mount" => match remount(&argv) {
            Some(remount) => Ok(remount),
            None => expand(argv, command),
        },
        _ => Ok(argv),
    }
}

fn is_called_as(argv: &[OsString], prefix: &[u8]) -> bool {
    argv.first()
        .and_then(|program| Path::new(program).file_name())
        .is_some_and(|name| name.as_encoded_bytes().starts_with(prefix))
}

/// Returns whether this is `tenon VOLUME DIR -o ...`, as mount.fuse(8) calls a file system.
fn is_mount_without_subcommand(argv: &[OsString], command: &Command) -> bool {
    let Some(first) = argv.get(1).and_then(|word| word.to_str()) else { return false };
    let known = command.get_subcommands().any(|sub| sub.get_name() == first) || first == "help";
    !known && (first.contains("://") || first.starts_with(['/', '.'])) && argv.len() > 2
}

fn insert_mount(mut argv: Vec<OsString>) -> Vec<OsString> {
    argv.insert(1, "mount".into());
    argv
}

/// Rewrites `mount.fuse.tenon SPEC DIR [-sfnv] [-N NS] [-t TYPE] [-o OPTIONS]` (mount(8), "External helpers").
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

/// Rewrites `umount.fuse.tenon DIR [-flnrv] [-N NS] [-t TYPE]` (umount(8), "External helpers").
fn from_umount_helper(argv: Vec<OsString>) -> Vec<OsString> {
    let mut rewritten: Vec<OsString> = vec!["tenon".into(), "umount".into()];
    let mut words = argv.into_iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-N" | "-t") => drop(words.next()),
            Some(flags) if flags.starts_with('-') && !flags.contains('l') => {}
            Some(flags) if flags.starts_with('-') => rewritten.push("--lazy".into()),
            _ => rewritten.push(word),
        }
    }
    rewritten
}

/// Rewrites `mount -o remount,...` into the `remount` subcommand. Returns `None` for any other mount, and for words that are not a complete
/// command, which `clap` then refuses.
fn remount(argv: &[OsString]) -> Option<Vec<OsString>> {
    let (mut lists, mut places) = (Vec::new(), Vec::new());
    let mut words = argv.iter().skip(2);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => lists.push(words.next()?.to_str()?),
            Some(text) if text.starts_with("-o") => lists.push(text[2..].trim_start_matches('=')),
            Some(text) if text.starts_with('-') => {}
            _ => places.push(word),
        }
    }
    let options = lists.join(",");
    if !split_options(&options).iter().any(|option| option == "remount") {
        return None;
    }
    let place = (*places.last()?).clone();
    Some(vec!["tenon".into(), "remount".into(), place, "--options".into(), options.into()])
}

/// Fails if the flags of mount(8) have `-f`, a fake mount.
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
            if let Some((_, flag)) = CANCELED_FLAGS.iter().find(|(name, _)| *name == option) {
                expanded.retain(|word| word != flag);
            }
            let Some(flag) = flag_for(&option, &known)? else { continue };
            if !flag.as_encoded_bytes().contains(&b'=') {
                // Keep one of two equal flags: mount(8) joins the options of fstab and of its command line.
                expanded.retain(|word| *word != flag);
            }
            expanded.push(flag);
        }
    }
    Ok(expanded)
}

/// Splits options at commas; `\,` is a comma inside a value, as in fstab.
pub(crate) fn split_options(list: &str) -> Vec<String> {
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

/// Returns the flag of an option; `None` if the option is ignored.
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

/// Returns the Levenshtein distance, computed with one row of the table.
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

    /// Regression: `-o allow_suid,nosuid` honored set-user-id bits, as `nosuid` was ignored.
    #[test]
    fn s505_the_last_of_contradicting_options_counts() {
        let flags = |options| rewritten(&["tenon", "mount", "v", "d", "-o", options]).unwrap()[4..].join(" ");
        assert_eq!(flags("allow_suid,allow_dev,nosuid,nodev"), "");
        assert_eq!(flags("nosuid,allow_suid,nodev,allow_dev"), "--allow-suid --allow-dev");
        assert_eq!(flags("noexec,exec,ro,rw,allow_suid"), "--allow-suid");
        assert_eq!(flags("rw,ro,ro,exec,noexec,noexec"), "--read-only --noexec");
    }

    #[test]
    fn a_remount_and_the_umount_helper_become_subcommands() {
        let remount = ["tenon", "remount", "/mnt", "--options", "rw,remount,ro"];
        let words = ["/sbin/mount.fuse.tenon", "s3://b", "/mnt", "-n", "-o", "rw,remount,ro"];
        assert_eq!(rewritten(&words).unwrap(), remount);
        assert_eq!(rewritten(&["tenon", "mount", "/mnt", "-o", "rw,remount,ro"]).unwrap(), remount);
        let words = ["/sbin/umount.fuse.tenon", "/mnt", "-n", "-l", "-t", "fuse.tenon"];
        assert_eq!(rewritten(&words).unwrap(), ["tenon", "umount", "/mnt", "--lazy"]);
        assert_eq!(rewritten(&words[..3]).unwrap(), ["tenon", "umount", "/mnt"]);
    }

    #[test]
    fn a_comma_can_be_escaped() {
        assert_eq!(split_options(r"a=1\,2,b"), ["a=1,2", "b"]);
    }

    #[test]
    fn an_unknown_option_suggests_the_nearest() {
        let refused = rewritten(&["tenon", "mount", "v", "d", "-o", "endpont_url=x"]).unwrap_err();
        assert_eq!(refused.to_string(), "unknown option 'endpont_url'; did you mean 'endpoint_url'?");
        let refused = rewritten(&["tenon", "mount", "v", "d", "-o", "zzzzzzzz"]).unwrap_err();
        assert_eq!(refused.to_string(), "unknown option 'zzzzzzzz'; `tenon mount --help` lists them all");
        assert!(rewritten(&["tenon", "mount", "v", "d", "-o", "foreground"]).is_err());
    }

    #[test]
    fn other_commands_are_unchanged() {
        assert_eq!(rewritten(&["tenon", "status", "-o"]).unwrap(), ["tenon", "status", "-o"]);
    }
}
