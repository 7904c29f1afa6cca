//! Flags from the environment and from the configuration file, as arguments.
//!
//! Every long flag of a command can also be given as a variable `TENON_FLAG`, or as a key of a TOML file. The command line
//! wins over the environment, the environment over the file, a section of the file over its beginning, and all over
//! the defaults. Values become arguments before `clap` parses them, so that they are checked alike.

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Arg, ArgAction, Command};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The file that is read if none is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/tenon/tenon.toml";

/// Long name of the flag that names the file.
const FILE_FLAG: &str = "config";

/// Beginning of the names of variables.
const VARIABLE_PREFIX: &str = "TENON_";

/// Reads a variable of the environment.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Adds the flags of environment and file to `argv`, after the name of the command.
pub(crate) fn apply(
    mut argv: Vec<OsString>,
    program: &Command,
    environment: Environment<'_>,
    default_file: &Path,
) -> Result<Vec<OsString>> {
    let (command, at, path) = command_of(&argv, program);
    if at == 1 || command.is_hide_set() {
        return Ok(argv);
    }
    let named = value_of(&argv, FILE_FLAG).map(PathBuf::from);
    let named = named.or_else(|| environment(&variable_of(FILE_FLAG)).map(PathBuf::from));
    let file = File::read(named.as_deref(), default_file, program, environment)?;
    let mut added = Vec::new();
    for arg in command.get_arguments().filter(|arg| is_setting(arg)) {
        let Some(name) = arg.get_long() else { continue };
        if is_given(&argv[at..], arg) {
            continue;
        }
        let variable = variable_of(name);
        let from_environment = environment(&variable).map(Value::String);
        let value = from_environment.clone().or_else(|| file.value(&path, name));
        let source = if from_environment.is_some() { variable } else { file.describe(name) };
        if let Some(value) = value {
            added.extend(arguments(arg, name, &value).with_context(|| source)?);
        }
    }
    argv.splice(at..at, added);
    Ok(argv)
}

/// Returns the innermost command that the words name, the number of words up to it, and its path, such as `object put`.
fn command_of<'c>(argv: &[OsString], program: &'c Command) -> (&'c Command, usize, String) {
    let (mut command, mut at, mut path) = (program, 1, Vec::new());
    while let Some(word) = argv.get(at).and_then(|word| word.to_str())
        && let Some(next) = command.get_subcommands().find(|next| next.get_name() == word)
    {
        (command, at) = (next, at + 1);
        path.push(word.to_owned());
    }
    (command, at, path.join(" "))
}

/// Returns whether environment and file can set an argument.
fn is_setting(arg: &Arg) -> bool {
    let is_special = |name: &str| ["help", "version", FILE_FLAG].contains(&name);
    !arg.is_hide_set() && arg.get_long().is_some_and(|name| !is_special(name))
}

/// Returns the environment variable of a flag.
fn variable_of(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// Returns whether the words contain a flag, by its long or its short name.
fn is_given(words: &[OsString], arg: &Arg) -> bool {
    let long = arg.get_long().map(|name| format!("--{name}")).unwrap_or_default();
    let short = arg.get_short();
    words.iter().take_while(|word| *word != "--").any(|word| {
        let text = word.to_string_lossy();
        let is_long = text.split('=').next() == Some(long.as_str());
        let is_short = !text.starts_with("--")
            && text.starts_with('-')
            && short.is_some_and(|short| text.chars().nth(1) == Some(short));
        is_long || is_short
    })
}

/// Returns the value of a flag on the command line.
fn value_of(words: &[OsString], name: &str) -> Option<OsString> {
    let flag = format!("--{name}");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == *flag {
            return words.next().cloned();
        }
        if let Some(value) = word.as_bytes().strip_prefix(format!("{flag}=").as_bytes()) {
            return Some(std::ffi::OsStr::from_bytes(value).to_owned());
        }
    }
    None
}

/// Returns a value as arguments: none for a switch that is off, several for a list.
fn arguments(arg: &Arg, name: &str, value: &Value) -> Result<Vec<OsString>> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return Ok(if switch(value)? { vec![format!("--{name}").into()] } else { Vec::new() });
    }
    let one = |value: &Value| Ok(OsString::from(format!("--{name}={}", scalar(value)?)));
    match value {
        Value::Array(values) if matches!(arg.get_action(), ArgAction::Append) => {
            values.iter().map(one).collect()
        }
        Value::Array(_) => bail!("'{name}' has one value, not a list"),
        value => Ok(vec![one(value)?]),
    }
}

/// Parses the value of a flag that is on or off.
fn switch(value: &Value) -> Result<bool> {
    match value {
        Value::Boolean(is_on) => Ok(*is_on),
        Value::String(text) => match text.to_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(true),
            "" | "0" | "false" | "no" | "off" => Ok(false),
            _ => bail!("'{text}' is neither true nor false"),
        },
        other => bail!("{other} is neither true nor false"),
    }
}

/// Returns a single value as text.
fn scalar(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => bail!("{other} is neither text nor a number"),
    }
}

/// A configuration file: keys for all commands, and sections for single commands.
#[derive(Debug, Default)]
struct File {
    path: PathBuf,
    /// Values by key, for all commands.
    all: BTreeMap<String, Value>,
    /// Keys by the name of the section, such as `mount` or `object put`.
    sections: BTreeMap<String, BTreeMap<String, Value>>,
}

impl File {
    /// Reads the named file, or the default one if it exists. Refuses keys that no command has.
    fn read(
        named: Option<&Path>,
        default: &Path,
        program: &Command,
        environment: Environment<'_>,
    ) -> Result<Self> {
        let path = named.unwrap_or(default);
        let text = match std::fs::read_to_string(path) {
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let file = Self::parse(path, &text, program, environment);
        file.with_context(|| format!("the configuration file {}", path.display()))
    }

    fn parse(path: &Path, text: &str, program: &Command, environment: Environment<'_>) -> Result<Self> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| anyhow!("{}", error.message()))?;
        let known = settings_by_command(program);
        let mut file = Self { path: path.to_owned(), ..Self::default() };
        for (key, value) in table {
            match value {
                Value::Table(section) => {
                    let settings = known.get(&key).ok_or_else(|| {
                        anyhow!("[{key}]: there is no such command; sections are commands, like [mount]")
                    })?;
                    let mut keys = BTreeMap::new();
                    for (name, value) in section {
                        if !settings.contains(&normal(&name)) {
                            bail!("'{name}' in [{key}]: `tenon {key}` has no such flag");
                        }
                        keys.insert(normal(&name), expand(value, environment)?);
                    }
                    file.sections.insert(key, keys);
                }
                value => {
                    if !known.values().any(|settings| settings.contains(&normal(&key))) {
                        bail!("'{key}': no command has such a flag; docs/flags.md lists them");
                    }
                    file.all.insert(normal(&key), expand(value, environment)?);
                }
            }
        }
        Ok(file)
    }

    /// Returns the value of a key for a command: that of its section, or else that for all commands.
    fn value(&self, command: &str, name: &str) -> Option<Value> {
        let own = self.sections.get(command).and_then(|section| section.get(name));
        own.or_else(|| self.all.get(name)).cloned()
    }

    fn describe(&self, name: &str) -> String {
        format!("'{name}' in {}", self.path.display())
    }
}

/// Returns a key as the flag is written: with `-`.
fn normal(key: &str) -> String {
    key.replace('_', "-")
}

/// Returns the settings of each command, by its path.
fn settings_by_command(program: &Command) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    let mut open: Vec<(String, &Command)> = vec![(String::new(), program)];
    while let Some((path, command)) = open.pop() {
        for next in command.get_subcommands().filter(|next| !next.is_hide_set()) {
            let path = if path.is_empty() {
                next.get_name().to_owned()
            } else {
                format!("{path} {}", next.get_name())
            };
            let settings = next.get_arguments().filter(|arg| is_setting(arg));
            found
                .insert(path.clone(), settings.filter_map(|arg| arg.get_long().map(str::to_owned)).collect());
            open.push((path, next));
        }
    }
    found
}

/// Replaces `${NAME}` in texts by the variable; `$${` is `${`.
fn expand(value: Value, environment: Environment<'_>) -> Result<Value> {
    match value {
        Value::String(text) => Ok(Value::String(expand_text(&text, environment)?)),
        Value::Array(values) => values
            .into_iter()
            .map(|value| expand(value, environment))
            .collect::<Result<_>>()
            .map(Value::Array),
        value => Ok(value),
    }
}

fn expand_text(text: &str, environment: Environment<'_>) -> Result<String> {
    let Some((before, rest)) = text.split_once("${") else { return Ok(text.to_owned()) };
    if let Some(literal) = before.strip_suffix('$') {
        return Ok(format!("{literal}${{{}", expand_text(rest, environment)?));
    }
    let (name, after) = rest.split_once('}').ok_or_else(|| anyhow!("'{text}': ${{ needs a }}"))?;
    let value = environment(name).ok_or_else(|| anyhow!("the variable {name} is not set"))?;
    Ok(format!("{before}{value}{}", expand_text(after, environment)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn applied(words: &[&str], file: &str, variables: &[(&str, &str)]) -> Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenon.toml");
        if !file.is_empty() {
            std::fs::write(&path, file).unwrap();
        }
        let environment = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        };
        let argv = words.iter().map(OsString::from).collect();
        let argv = apply(argv, &crate::Cli::command(), &environment, &path)?;
        Ok(argv.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    const FILE: &str = "region = \"r-file\"\nlog_level = \"debug\"\njson = true\n\
        [mount]\nregion = \"r-mount\"\nread-only = true\nevents = [\"a://1\", \"b://2\"]\n[serve]\nlisten = \"${AT}:1\"\n";

    #[test]
    fn s706_the_command_line_wins_over_environment_and_file() {
        let mount = ["tenon", "mount", "v", "d"];
        let with_file = applied(&mount, FILE, &[("AT", "127.0.0.1")]).unwrap();
        assert_eq!(with_file[..2], ["tenon", "mount"]);
        assert_eq!(with_file[with_file.len() - 2..], ["v", "d"]);
        for word in
            ["--region=r-mount", "--read-only", "--events=a://1", "--events=b://2", "--log-level=debug"]
        {
            assert!(with_file.iter().any(|found| found == word), "{word}: {with_file:?}");
        }
        assert!(!with_file.iter().any(|word| word == "--json"), "`tenon mount` has no --json");
        let variables = [("AT", "x"), ("TENON_REGION", "r-env"), ("TENON_READ_ONLY", "no")];
        let with_environment = applied(&mount, FILE, &variables).unwrap();
        assert!(with_environment.iter().any(|word| word == "--region=r-env"), "{with_environment:?}");
        assert!(!with_environment.iter().any(|word| word == "--read-only"), "{with_environment:?}");
        let given = ["tenon", "mount", "v", "d", "--region", "r-given", "--read-only"];
        let given = applied(&given, FILE, &variables).unwrap();
        assert_eq!(given.iter().filter(|word| word.starts_with("--region")).count(), 1, "{given:?}");
        assert_eq!(given.iter().filter(|word| *word == "--read-only").count(), 1, "{given:?}");
    }

    #[test]
    fn s706_values_of_the_file_are_checked() {
        let refused = |file: &str| format!("{:#}", applied(&["tenon", "status"], file, &[]).unwrap_err());
        assert!(refused("colour = 1\n").contains("'colour'"));
        assert!(refused("[mount]\nlisten = \"x\"\n").contains("has no such flag"));
        assert!(refused("[fly]\nx = 1\n").contains("no such command"));
        assert!(refused("region = \"${MISSING}\"\n").contains("MISSING is not set"));
        assert!(refused("json = \"perhaps\"\n").contains("neither true nor false"));
        assert!(refused("region = [\n").contains("configuration file"));
        let missing = applied(&["tenon", "status", "--config", "/nowhere/x.toml"], "", &[]).unwrap_err();
        assert!(format!("{missing:#}").contains("/nowhere/x.toml"));
        assert_eq!(applied(&["tenon", "status"], "", &[]).unwrap(), ["tenon", "status"]);
    }

    #[test]
    fn short_flags_count_as_given() {
        let variables = [("TENON_FOREGROUND", "1")];
        assert_eq!(applied(&["tenon", "mount", "-f", "v", "d"], "", &variables).unwrap().len(), 5);
        assert_eq!(applied(&["tenon", "mount", "v", "d"], "", &variables).unwrap()[2], "--foreground");
    }

    #[test]
    fn nested_commands_have_sections() {
        let file = "[\"object put\"]\nregion = \"x\"\n";
        assert_eq!(applied(&["tenon", "object", "put", "k"], file, &[]).unwrap()[3], "--region=x");
        assert_eq!(expand_text("a$${b}${C}", &|_| Some("v".to_owned())).unwrap(), "a${b}v");
    }
}
