//! Runs seeded worlds: `sim [WORLD] [--seed N] [--worlds N]`.

use sim::{Report, WORLDS, World};
use std::process::ExitCode;

const USAGE: &str = "usage: sim [WORLD] [--seed N] [--worlds N]";

/// So many worlds of each kind, beginning with the seed, unless told otherwise.
const WORLDS_DEFAULT: u64 = 1000;

struct Plan {
    worlds: Vec<&'static World>,
    first: u64,
    count: u64,
}

fn main() -> ExitCode {
    match plan(std::env::args().skip(1)) {
        Ok(plan) => run(&plan),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let (mut worlds, mut first, mut count) = (WORLDS.iter().collect(), 0, WORLDS_DEFAULT);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{argument} wants a number"))?;
            text.parse().map_err(|_| format!("'{text}' is no number"))
        };
        match argument.as_str() {
            "--seed" => (first, count) = (number()?, 1),
            "--worlds" => count = number()?,
            name => {
                let world = WORLDS.iter().find(|(known, _)| *known == name);
                worlds = vec![world.ok_or_else(|| format!("no world '{name}'"))?];
            }
        }
    }
    Ok(Plan { worlds, first, count })
}

fn run(plan: &Plan) -> ExitCode {
    for (name, world) in &plan.worlds {
        let mut report = Report::default();
        for seed in plan.first..plan.first.saturating_add(plan.count) {
            match world(seed) {
                Ok(one) => report.add(&one),
                Err(failure) => {
                    eprintln!("{failure}");
                    return ExitCode::FAILURE;
                }
            }
        }
        println!("{} {name} worlds from seed {}: {report}", plan.count, plan.first);
    }
    ExitCode::SUCCESS
}
