//! `tenon flags`: prints `docs/flags.md`, the reference of all commands and flags, from the definitions that parse them.
//!
//! Flags below one help heading, which several commands have, are described once.

use crate::command::output::print_line;
use anyhow::Result;
use clap::{Arg, Args, Command};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

const OPENING: &str = "\
# Commands and flags

This file is generated: `cargo run -p cli -- flags > docs/flags.md` writes it, and a test fails if it is stale.

Every flag of `tenon mount` is also an option for `-o`, fstab and mount(8): `--metadata-ttl 1s` is
`-o metadata_ttl=1s`. Every flag is also a variable (`TENON_METADATA_TTL=1s`) and a key of the [configuration file](operate.md#configuration). Sizes are written like `64MiB`, durations like `500ms`, `5s` or `2m`, and rates like `6/m`.
`tenon COMMAND --help` shows the same descriptions.
";

/// Print the reference of all commands and flags as Markdown.
#[derive(Debug, Args)]
pub(crate) struct Flags {}

impl Flags {
    pub(crate) fn run(self, program: Command) -> Result<ExitCode> {
        print_line(markdown(program).trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A command, with its full name.
struct Described {
    name: String,
    command: Command,
}

/// Flags below one heading, each with the commands that have it.
struct Group {
    heading: String,
    flags: Vec<(Arg, BTreeSet<String>)>,
}

/// Returns the reference of a program.
fn markdown(mut program: Command) -> String {
    program.build();
    let mut commands = Vec::new();
    collect(&program, &mut commands);
    let groups = groups(&commands);
    let mut text = OPENING.to_owned();
    for described in &commands {
        write_command(&mut text, described, &groups);
    }
    for group in &groups {
        write_group(&mut text, group);
    }
    text
}

/// Adds all visible subcommands, each followed by its own.
fn collect(command: &Command, commands: &mut Vec<Described>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let name = sub.get_bin_name().unwrap_or_else(|| sub.get_name()).to_owned();
        commands.push(Described { name, command: sub.clone() });
        collect(sub, commands);
    }
}

/// Returns the headings that several commands have.
fn groups(commands: &[Described]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for Described { name, command } in commands {
        for arg in arguments(command) {
            let Some(heading) = arg.get_help_heading() else { continue };
            let at = groups.iter().position(|group| group.heading == heading).unwrap_or_else(|| {
                groups.push(Group { heading: heading.to_owned(), flags: Vec::new() });
                groups.len() - 1
            });
            let flags = &mut groups[at].flags;
            match flags.iter_mut().find(|(known, _)| known.get_id() == arg.get_id()) {
                Some((_, users)) => drop(users.insert(name.clone())),
                None => flags.push((arg.clone(), [name.clone()].into())),
            }
        }
    }
    groups.retain(|group| group.users().len() > 1);
    groups
}

impl Group {
    /// Returns the commands that have a flag of the group.
    fn users(&self) -> BTreeSet<&str> {
        self.flags.iter().flat_map(|(_, users)| users).map(String::as_str).collect()
    }
}

/// Returns the arguments of a command that users may give, without `--help` and `--version`.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_own = |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    command.get_arguments().filter(is_own)
}

fn write_command(text: &mut String, Described { name, command }: &Described, groups: &[Group]) {
    let level = if name.matches(' ').count() == 1 { "##" } else { "###" };
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "\n{level} {name}\n\n{}\n", sentences(&about));
    if command.has_subcommands() {
        return;
    }
    let usage = command.clone().render_usage().to_string();
    let _ = write!(text, "\n```\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let group_of =
        |arg: &Arg| groups.iter().find(|group| Some(group.heading.as_str()) == arg.get_help_heading());
    let own: Vec<&Arg> = arguments(command).filter(|arg| group_of(arg).is_none()).collect();
    write_table(text, own.into_iter().map(|arg| (arg, String::new())));
    let mut links: Vec<String> = Vec::new();
    for group in arguments(command).filter_map(group_of) {
        let anchor = group.heading.to_lowercase().replace(' ', "-");
        let link = format!("[{}](#{anchor}-flags)", group.heading);
        if !links.contains(&link) {
            links.push(link);
        }
    }
    if !links.is_empty() {
        let _ = write!(text, "\nFlags of several commands: {}.\n", links.join(", "));
    }
}

fn write_group(text: &mut String, group: &Group) {
    let users = group.users();
    let names: Vec<String> = users.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(text, "\n## {} flags\n\nOf {}.\n", group.heading, names.join(", "));
    write_table(
        text,
        group.flags.iter().map(|(arg, of)| {
            let only = of.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            (arg, if of.len() < users.len() { format!(" Only {only}.") } else { String::new() })
        }),
    );
}

/// Writes a table of arguments, each with a remark that follows its description.
fn write_table<'a>(text: &mut String, rows: impl Iterator<Item = (&'a Arg, String)>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
    for (arg, remark) in rows {
        let defaults = arg.get_default_values().iter().filter(|_| arg.get_action().takes_values());
        let defaults: Vec<String> = defaults.map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let cells = [syntax(arg), defaults.join(" "), meaning(arg) + &remark];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
}

/// Returns how an argument is written.
fn syntax(arg: &Arg) -> String {
    let named = arg.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let value = named.map_or_else(|| arg.get_id().as_str().to_uppercase(), |names| names.join(" "));
    if arg.is_positional() {
        return format!("`{value}`");
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    match arg.get_action().takes_values() {
        true => format!("`{} {value}`", names.join("`, `")),
        false => format!("`{}`", names.join("`, `")),
    }
}

/// Returns the description of an argument, with the values that it may have.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = sentences(&help).replace("\n\n", " ").replace('\n', " ");
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && !values.is_empty() {
        let values: Vec<String> = values
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => format!("`{}`: {}", value.get_name(), sentences(&help.to_string())),
                None => format!("`{}`.", value.get_name()),
            })
            .collect();
        meaning = format!("{meaning} {}", values.join(" "));
    }
    meaning
}

/// Ends every paragraph with a full stop.
fn sentences(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let ended = |paragraph: &str| if paragraph.ends_with(['.', ':']) { "" } else { "." };
    paragraphs.map(|paragraph| format!("{paragraph}{}", ended(paragraph))).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use std::path::Path;

    #[test]
    fn the_document_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/flags.md");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        let current = markdown(crate::Cli::command());
        let differs = stored.lines().zip(current.lines()).find(|(stored, current)| stored != current);
        let lengths = (stored.lines().count(), current.lines().count());
        assert_eq!(
            (differs, lengths.0),
            (None, lengths.1),
            "run `cargo run -p cli -- flags > docs/flags.md`"
        );
    }

    #[test]
    fn a_flag_of_several_commands_is_described_once() {
        let flag =
            || Arg::new("region").long("region").value_name("NAME").help("Region").help_heading("Store");
        let sub = |name: &'static str| {
            Command::new(name).about("Do it").arg(flag()).arg(Arg::new("dir").help("A|B"))
        };
        let text = markdown(Command::new("tenon").subcommand(sub("mount")).subcommand(sub("serve")));
        assert_eq!(text.matches("`--region NAME`").count(), 1, "{text}");
        assert_eq!(text.matches("Flags of several commands: [Store](#store-flags).").count(), 2, "{text}");
        assert!(text.contains("| `DIR` |  | A\\|B. |"), "{text}");
    }
}
