//! The `tenon` program.
//!
//! Owns the command-line flags, the environment, configuration files, the terminal and the exit code, and connects
//! the other crates. No other crate reads any of these. Refuses secrets on the command line. Prints every error as one
//! line.
//!
//! Commands ([`command`]) are on top: they alone read flags, which become settings of the parts below. Dependencies
//! point down only: command, serving, mounted_views, event_handler and endpoint, metadata and bucket, state, control,
//! volume, process.
//!
//! Exit codes: 0 success, 1 failure (of `fsck`: all problems were repaired, or it failed), 2 usage error. `fsck` and
//! `drive` add 4: problems or damage were left.

mod bucket;
mod command;
mod control;
mod endpoint;
mod event_handler;
mod metadata;
mod mounted_views;
mod process;
mod serving;
mod state;
mod volume;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code of a usage error.
const EXIT_USAGE: u8 = 2;
/// Maximum wait at exit for threads that still have a metadata engine open. Such a thread may hang in a system call.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A file system and S3 endpoint over object stores
#[derive(Debug, Parser)]
#[command(name = "tenon", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(Box<command::mount::Mount>),
    Umount(command::umount::Umount),
    Bench(command::bench::Bench),
    Drive(command::drive::Drive),
    Dump(command::dump::Dump),
    Format(command::format::Format),
    Status(command::status::Status),
    Events(command::events::Events),
    #[command(hide = true)]
    Flags(command::flags_document::Flags),
    Fsck(command::fsck::Fsck),
    Gc(command::gc::Gc),
    Import(command::import::Import),
    Quota(command::quota::Quota),
    Analyze(command::analyze::Analyze),
    Conflicts(command::conflicts::Conflicts),
    Load(command::load::Load),
    Locate(command::locate::Locate),
    Object(command::object::Object),
    Rebuild(command::rebuild::Rebuild),
    #[command(hide = true)]
    Remount(command::remount::Remount),
    Restore(command::restore::Restore),
    Serve(command::serve::Serve),
    Version(command::version::Version),
    Views(command::views::Views),
}

fn main() -> ExitCode {
    process::allocator::configure();
    let argv = match command::arguments::rewrite(std::env::args_os().collect(), &Cli::command()) {
        Ok(argv) => argv,
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    match parse(argv.clone()) {
        Ok(cli) => {
            let code = run(cli.command, &argv).unwrap_or_else(|error| fail(&error, 1));
            // The threads of a failed mount end by themselves. Until then they have the metadata engine open.
            meta_disk::all_are_closed_within(CLOSE_TIMEOUT);
            code
        }
        Err(code) => code,
    }
}

fn run(command: Command, argv: &[OsString]) -> anyhow::Result<ExitCode> {
    match command {
        Command::Mount(mount) => mount.run(argv),
        Command::Umount(umount) => umount.run(),
        Command::Bench(bench) => bench.run(),
        Command::Drive(drive) => drive.run(),
        Command::Dump(dump) => dump.run(),
        Command::Format(format) => format.run(),
        Command::Status(status) => status.run(),
        Command::Events(events) => events.run(),
        Command::Flags(flags) => flags.run(Cli::command()),
        Command::Fsck(fsck) => fsck.run(),
        Command::Gc(gc) => gc.run(),
        Command::Import(import) => import.run(),
        Command::Quota(quota) => quota.run(),
        Command::Analyze(analyze) => analyze.run(),
        Command::Conflicts(conflicts) => conflicts.run(),
        Command::Load(load) => load.run(),
        Command::Locate(locate) => locate.run(),
        Command::Object(object) => object.run(),
        Command::Rebuild(rebuild) => rebuild.run(),
        Command::Remount(remount) => remount.run(),
        Command::Restore(restore) => restore.run(),
        Command::Serve(serve) => serve.run(),
        Command::Version(version) => version.run(),
        Command::Views(views) => views.run(),
    }
}

/// Parses the arguments. Prints help as `clap` formats it, and a usage error as one line.
fn parse(argv: Vec<OsString>) -> Result<Cli, ExitCode> {
    let parsed =
        Cli::command().try_get_matches_from(argv).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        if !error.use_stderr() {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        fail(&anyhow::anyhow!("{}", usage_line(&error)), EXIT_USAGE)
    })
}

fn usage_line(error: &clap::Error) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command given; see `tenon --help`".to_owned();
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let problem: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let problem = problem.join(" ").trim_start_matches("error: ").to_owned();
    // Leave out the tip to pass an unknown flag as a value: it is hardly meant as one.
    let mut tips = lines.filter_map(|line| line.strip_prefix("tip: "));
    match tips.find(|tip| !tip.contains("as a value")) {
        Some(tip) => format!("{problem}; {tip}"),
        None => format!("{problem}; see `tenon --help`"),
    }
}

/// Prints an error and its causes as one line. Returns the exit code.
fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    let line = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("tenon: {line}");
    ExitCode::from(code)
}
