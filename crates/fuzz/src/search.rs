//! The search: inputs with new coverage are mutated further, and an input that breaks a target is reported.

use crate::coverage::{EdgeCoverage, NewCoverage};
use crate::memory;
use crate::mutate::mutate;
use crate::targets::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::{Clock, Entropy};

/// Maximum memory that a target may hold for an input: a constant plus a number of bytes per byte of input.
const HELD_MAX: usize = 16 << 20;
const HELD_MAX_PER_BYTE: usize = 256;

/// Maximum duration of one input: far more than any input needs, even on a slow machine.
const TOOK_MAX: Duration = Duration::from_secs(10);

/// Maximum length of an input in the corpus, in bytes.
const KEPT_LEN_MAX: usize = 1024;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of inputs that were tried.
    pub executions: u64,
    /// The number of edges that inputs took; 0 in a build without instrumentation.
    pub edges: usize,
    /// The peak of bytes held for one input.
    pub held_bytes_max: usize,
    /// The longest time for one input.
    pub duration_max: Duration,
    /// The inputs with new coverage, including those of the corpus.
    pub inputs: Vec<Vec<u8>>,
    /// The first input that broke the target, and the reason.
    pub broken: Option<(Vec<u8>, String)>,
}

/// Tries the inputs of the corpus, and then mutations until the time budget is used up.
pub fn run(
    target: &Target,
    corpus: &[Vec<u8>],
    budget: Duration,
    entropy: &Entropy,
    clock: &dyn Clock,
) -> Outcome {
    capture_panics();
    let mut search =
        Search { target, clock, edges: EdgeCoverage::of_this_process(), outcome: Outcome::default() };
    for input in corpus {
        search.outcome.inputs.push(input.clone());
        search.execute(input);
    }
    let until = clock.now().after(budget);
    while search.outcome.broken.is_none() && clock.now() < until {
        let input = mutate(&search.outcome.inputs, target.dictionary, entropy);
        if search.execute(&input).has_count {
            search.outcome.inputs.push(input);
        }
    }
    Outcome { edges: search.edges.taken(), ..search.outcome }
}

/// Returns the shortest inputs that together have the coverage of all. Inputs too long for the repository are left out.
pub fn minimize(target: &Target, inputs: &[Vec<u8>], clock: &dyn Clock) -> Vec<Vec<u8>> {
    let mut sorted = inputs.to_vec();
    sorted.retain(|input| input.len() <= KEPT_LEN_MAX);
    sorted.sort_by_key(|input| (input.len(), input.clone()));
    let mut search =
        Search { target, clock, edges: EdgeCoverage::of_this_process(), outcome: Outcome::default() };
    sorted.retain(|input| search.execute(input).has_edge);
    sorted
}

struct Search<'a> {
    target: &'a Target,
    clock: &'a dyn Clock,
    edges: EdgeCoverage,
    outcome: Outcome,
}

impl Search<'_> {
    /// Tries an input and returns its new coverage.
    fn execute(&mut self, input: &[u8]) -> NewCoverage {
        self.outcome.executions += 1;
        self.edges.clear();
        let began = self.clock.now();
        let run = || catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        let (done, held) = memory::measure_peak(run);
        let took = self.clock.now().since(began);
        let new_coverage = self.edges.note();
        self.outcome.held_bytes_max = self.outcome.held_bytes_max.max(held);
        self.outcome.duration_max = self.outcome.duration_max.max(took);
        let failure = match done {
            Err(_) => Some(last_panic()),
            Ok(()) if held > HELD_MAX + HELD_MAX_PER_BYTE * input.len() => {
                Some(format!("the target held {held} bytes"))
            }
            Ok(()) if took > TOOK_MAX => Some(format!("the input took {took:?}")),
            Ok(()) => None,
        };
        if let (Some(failure), None) = (failure, &self.outcome.broken) {
            self.outcome.broken = Some((input.to_vec(), failure));
        }
        new_coverage
    }
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn last_panic() -> String {
    LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Installs a panic hook that stores the message instead of printing it.
fn capture_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }));
}
