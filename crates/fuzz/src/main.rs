//! `fuzz [--seconds N] [--keep] [TARGET...]`: searches for inputs that break a target. Run it as `cargo xtask fuzz`.
//!
//! With `--keep` the corpus is replaced by the shortest inputs that together have all the coverage found.

use anyhow::{Context, Result, bail};
use fuzz::{TARGETS, Target, corpus};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use store::{Clock, Entropy, SystemClock};

/// Default time per target, in seconds.
const SECONDS: u64 = 60;

struct Arguments {
    seconds: u64,
    keep: bool,
    targets: Vec<&'static Target>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no target broke.
fn run() -> Result<bool> {
    let arguments = arguments(std::env::args().skip(1))?;
    let folder = corpus::folder(&std::env::current_dir().context("cannot determine the current directory")?);
    let mut is_clean = true;
    for target in arguments.targets {
        is_clean &= search(target, &folder, arguments.seconds, arguments.keep)?;
    }
    Ok(is_clean)
}

fn search(target: &Target, folder: &Path, seconds: u64, keep: bool) -> Result<bool> {
    let (clock, kept) = (SystemClock, corpus::read(folder, target.name)?);
    let entropy = Entropy::new(clock.now().0 as u64);
    let outcome = fuzz::run(target, &kept, Duration::from_secs(seconds), &entropy, &clock);
    println!(
        "{:<14} {:>9} executions  {:>6} edges  {:>4} inputs  {:>6} KiB peak  {:>5} ms longest",
        target.name,
        outcome.executions,
        outcome.edges,
        outcome.inputs.len(),
        outcome.held_bytes_max >> 10,
        outcome.duration_max.as_millis(),
    );
    if keep && outcome.edges > 0 {
        corpus::write(folder, target.name, &fuzz::minimize(target, &outcome.inputs, &clock))?;
    }
    if let Some((input, failure)) = &outcome.broken {
        println!("{} is broken: {failure}\n  input: {}", target.name, input.escape_ascii());
    }
    Ok(outcome.broken.is_none())
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments { seconds: SECONDS, keep: false, targets: Vec::new() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--keep" => arguments.keep = true,
            "--seconds" => {
                let seconds = words.next().context("--seconds needs a number")?;
                arguments.seconds =
                    seconds.parse().with_context(|| format!("--seconds needs a number, not '{seconds}'"))?;
            }
            name => match TARGETS.iter().find(|target| target.name == name) {
                Some(target) => arguments.targets.push(target),
                None => {
                    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                    bail!("no target '{name}'; there are {}", names.join(", "))
                }
            },
        }
    }
    if arguments.targets.is_empty() {
        arguments.targets = TARGETS.iter().collect();
    }
    Ok(arguments)
}
