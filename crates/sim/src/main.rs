//! Runs seeded worlds on all cores: `sim [WORLD] [--seed N] [--worlds N] [--tale]`.

use sim::{Failure, Report, WORLDS, World};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const USAGE: &str = "usage: sim [WORLD] [--seed N] [--worlds N] [--all] [--tale]
  --seed N    first seed; without --worlds the only one
  --worlds N  number of seeds of each kind
  --all       continue after a failure
  --tale      print the trace of a files, dual, sessions, drive, array or pool world, line by line";

/// Number of worlds of each kind without `--worlds` and `--seed`.
const WORLDS_DEFAULT: u64 = 1000;

struct Plan {
    worlds: Vec<&'static World>,
    first: u64,
    count: u64,
    keeps_going: bool,
    prints_traces: bool,
}

fn main() -> ExitCode {
    match plan(std::env::args().skip(1)) {
        Ok(plan) if plan.prints_traces => print_traces(&plan),
        Ok(plan) => run(&plan),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let (mut first, mut count) = (None, None);
    let mut plan = Plan {
        worlds: WORLDS.iter().collect(),
        first: 0,
        count: 0,
        keeps_going: false,
        prints_traces: false,
    };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse().map_err(|_| format!("{argument} needs a number, not '{text}'"))
        };
        match argument.as_str() {
            "--seed" => first = Some(number()?),
            "--worlds" => count = Some(number()?),
            "--all" => plan.keeps_going = true,
            "--tale" => plan.prints_traces = true,
            name => {
                let world = WORLDS.iter().find(|(known, _)| *known == name);
                plan.worlds = vec![world.ok_or_else(|| format!("unknown world '{name}'"))?];
            }
        }
    }
    plan.first = first.unwrap_or(0);
    plan.count = count.unwrap_or(if first.is_some() { 1 } else { WORLDS_DEFAULT });
    Ok(plan)
}

fn print_traces(plan: &Plan) -> ExitCode {
    let trace = match plan.worlds.as_slice() {
        [("dual", _)] => sim::dual::trace,
        [("sessions", _)] => sim::sessions::trace,
        [("drive", _)] => sim::drive::trace,
        [("array", _)] => sim::drive::trace_of_arrays,
        [("pool", _)] => sim::drive::trace_of_pools,
        _ => sim::files::trace,
    };
    for seed in plan.first..plan.first.saturating_add(plan.count) {
        trace(seed).iter().for_each(|line| println!("{line}"));
    }
    ExitCode::SUCCESS
}

fn run(plan: &Plan) -> ExitCode {
    let mut outcome = ExitCode::SUCCESS;
    for (name, world) in &plan.worlds {
        let (report, mut failures) = run_worlds(plan, *world);
        failures.sort_by_key(|failure| failure.seed);
        for failure in &failures {
            eprintln!("{failure}");
            outcome = ExitCode::FAILURE;
        }
        println!(
            "{} {name} worlds from seed {}, {} failed: {report}",
            plan.count,
            plan.first,
            failures.len()
        );
    }
    outcome
}

/// Runs the worlds of one kind on all cores, and returns the sum of their reports and all failures.
fn run_worlds(plan: &Plan, world: fn(u64) -> Result<Report, Failure>) -> (Report, Vec<Failure>) {
    let end = plan.first.saturating_add(plan.count);
    let (next, is_over) = (AtomicU64::new(plan.first), AtomicBool::new(false));
    let work = || {
        let (mut report, mut failures) = (Report::default(), Vec::new());
        while !is_over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            match world(seed) {
                Ok(one) => report.add(&one),
                Err(failure) => {
                    failures.push(failure);
                    is_over.store(!plan.keeps_going, Ordering::Relaxed);
                }
            }
        }
        (report, failures)
    };
    let (mut report, mut failures) = (Report::default(), Vec::new());
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let Ok((one, failed)) = thread.join() else { std::process::exit(101) };
            report.add(&one);
            failures.extend(failed);
        }
    });
    (report, failures)
}
