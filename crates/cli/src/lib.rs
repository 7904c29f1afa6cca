//! The `tenon` program ([`main`]), and volumes inside other programs ([`library`]).
//!
//! Owns the command-line flags, the environment, the terminal and the exit code, and connects the other crates. No other crate reads flags
//! or environment variables. Refuses secrets on the command line. Prints every error as one line.
//!
//! Commands ([`command`]) are on top: they alone read flags, which become settings of the other modules. Dependencies
//! point down only, in this order: command, trees and serving, mounted_views, event_handler and endpoint, metadata and bucket, state, control,
//! volume, process.
//!
//! Exit codes: 0 success, 1 failure (of `fsck`: all problems were repaired, or it failed), 2 usage error. `fsck` and
//! `drive` add 4: problems or damage were left. `trace` returns the code of the command that it runs.

mod batch_server;
mod batch_verifier;
mod bucket;
mod command;
mod control;
mod endpoint;
mod event_handler;
pub mod library;
mod metadata;
mod mounted_views;
mod process;
mod serving;
mod state;
mod trees;
mod volume;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use command::configuration;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
    /// TOML file of flags (default: /etc/tenon/tenon.toml, if it exists)
    #[arg(long, value_name = "FILE", global = true, help_heading = "Configuration")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(Box<command::mount::Mount>),
    Umount(command::umount::Umount),
    Batch(command::batch::Batch),
    Bench(command::bench::Bench),
    Completions(command::completions::Completions),
    Cp(command::cp::Cp),
    Csi(command::csi::Csi),
    Doctor(command::doctor::Doctor),
    Drive(command::drive::Drive),
    Du(command::du::Du),
    Dump(command::dump::Dump),
    Find(command::find::Find),
    Format(command::format::Format),
    Status(command::status::Status),
    Events(command::events::Events),
    #[command(hide = true)]
    Flags(command::flags_document::Flags),
    Fsck(command::fsck::Fsck),
    Gc(command::gc::Gc),
    Import(command::import::Import),
    Info(command::info::Info),
    Quota(command::quota::Quota),
    Analyze(command::analyze::Analyze),
    Conflicts(command::conflicts::Conflicts),
    Load(command::load::Load),
    Locate(command::locate::Locate),
    #[command(hide = true)]
    Man(command::completions::Man),
    Object(command::object::Object),
    Profile(command::profile::Profile),
    Rebuild(command::rebuild::Rebuild),
    #[command(hide = true)]
    Remount(command::remount::Remount),
    Restore(command::restore::Restore),
    Rm(command::rm::Rm),
    Serve(Box<command::serve::Serve>),
    Stats(command::stats::Stats),
    Sync(command::sync::Sync),
    Top(command::top::Top),
    Trace(command::trace::Trace),
    UpgradeCheck(command::upgrade_check::UpgradeCheck),
    Version(command::version::Version),
    Views(command::views::Views),
    Warmup(command::warmup::Warmup),
}

/// Runs the command that the arguments of the process name. Returns the exit code.
pub fn main() -> ExitCode {
    process::allocator::configure();
    let program = Cli::command();
    let argv = command::arguments::rewrite(std::env::args_os().collect(), &program).and_then(|argv| {
        let default_file = Path::new(configuration::DEFAULT_FILE);
        configuration::apply(argv, &program, &process::environment::variable, default_file)
    });
    let argv = match argv {
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
        Command::Batch(batch) => batch.run(),
        Command::Bench(bench) => bench.run(),
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Cp(cp) => cp.run(),
        Command::Csi(csi) => csi.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Drive(drive) => drive.run(),
        Command::Du(du) => du.run(),
        Command::Dump(dump) => dump.run(),
        Command::Find(find) => find.run(),
        Command::Format(format) => format.run(),
        Command::Status(status) => status.run(),
        Command::Events(events) => events.run(),
        Command::Flags(flags) => flags.run(Cli::command()),
        Command::Fsck(fsck) => fsck.run(),
        Command::Gc(gc) => gc.run(),
        Command::Import(import) => import.run(),
        Command::Info(info) => info.run(),
        Command::Quota(quota) => quota.run(),
        Command::Analyze(analyze) => analyze.run(),
        Command::Conflicts(conflicts) => conflicts.run(),
        Command::Load(load) => load.run(),
        Command::Locate(locate) => locate.run(),
        Command::Man(man) => man.run(Cli::command()),
        Command::Object(object) => object.run(),
        Command::Profile(profile) => profile.run(),
        Command::Rebuild(rebuild) => rebuild.run(),
        Command::Remount(remount) => remount.run(),
        Command::Restore(restore) => restore.run(),
        Command::Rm(rm) => rm.run(),
        Command::Serve(serve) => serve.run(),
        Command::Stats(stats) => stats.run(),
        Command::Sync(sync) => sync.run(),
        Command::Top(top) => top.run(),
        Command::Trace(trace) => trace.run(),
        Command::UpgradeCheck(check) => check.run(),
        Command::Version(version) => version.run(),
        Command::Views(views) => views.run(),
        Command::Warmup(warmup) => warmup.run(),
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

/// Returns a usage error as one line, with the tip of `clap` if there is one.
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
