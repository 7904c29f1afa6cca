//! The search: inputs that take new ways are changed further; one that breaks a target is told.

use crate::coverage::{Edges, News};
use crate::memory;
use crate::mutate::mutated;
use crate::targets::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::{Clock, Entropy};

/// An input may make a target hold so many bytes, and so many more for each of its own.
const HELD_MAX: usize = 16 << 20;
const HELD_MAX_PER_BYTE: usize = 256;

/// An input may take so long: far more than any needs, however slow the machine is.
const TOOK_MAX: Duration = Duration::from_secs(10);

/// The longest input that is kept in the corpus, in bytes.
const KEPT_LEN_MAX: usize = 1024;

/// What a search came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many inputs were tried.
    pub executions: u64,
    /// How many edges of instrumented code were taken; 0 in a build that does not count.
    pub edges: usize,
    /// The most bytes held for one input.
    pub held_most: usize,
    /// The longest time for one input.
    pub took_most: Duration,
    /// The inputs that took new ways, the first ones included.
    pub inputs: Vec<Vec<u8>>,
    /// An input that breaks the target, and how.
    pub broken: Option<(Vec<u8>, String)>,
}

/// Tries the first inputs and changes of them for so long.
pub fn run(
    target: &Target,
    first: &[Vec<u8>],
    budget: Duration,
    entropy: &Entropy,
    clock: &dyn Clock,
) -> Outcome {
    quiet_panics();
    let mut search = Search { target, clock, edges: Edges::of_process(), outcome: Outcome::default() };
    for input in first {
        search.outcome.inputs.push(input.clone());
        search.execute(input);
    }
    let until = clock.now().after(budget);
    while search.outcome.broken.is_none() && clock.now() < until {
        let input = mutated(&search.outcome.inputs, target.words, entropy);
        if search.execute(&input).has_count {
            search.outcome.inputs.push(input);
        }
    }
    Outcome { edges: search.edges.taken(), ..search.outcome }
}

/// The shortest of these inputs that take all their edges together, without the long ones that a repository is no place for.
pub fn minimal(target: &Target, inputs: &[Vec<u8>], clock: &dyn Clock) -> Vec<Vec<u8>> {
    let mut sorted = inputs.to_vec();
    sorted.retain(|input| input.len() <= KEPT_LEN_MAX);
    sorted.sort_by_key(|input| (input.len(), input.clone()));
    let mut search = Search { target, clock, edges: Edges::of_process(), outcome: Outcome::default() };
    sorted.retain(|input| search.execute(input).has_edge);
    sorted
}

struct Search<'a> {
    target: &'a Target,
    clock: &'a dyn Clock,
    edges: Edges,
    outcome: Outcome,
}

impl Search<'_> {
    /// Tries an input; which new ways it took.
    fn execute(&mut self, input: &[u8]) -> News {
        self.outcome.executions += 1;
        self.edges.clear();
        let began = self.clock.now();
        let run = || catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        let (done, held) = memory::most_held(run);
        let took = self.clock.now().since(began);
        let news = self.edges.note();
        self.outcome.held_most = self.outcome.held_most.max(held);
        self.outcome.took_most = self.outcome.took_most.max(took);
        let wrong = match done {
            Err(_) => Some(last_panic()),
            Ok(()) if held > HELD_MAX + HELD_MAX_PER_BYTE * input.len() => {
                Some(format!("{held} bytes were held"))
            }
            Ok(()) if took > TOOK_MAX => Some(format!("it took {took:?}")),
            Ok(()) => None,
        };
        if let (Some(wrong), None) = (wrong, &self.outcome.broken) {
            self.outcome.broken = Some((input.to_vec(), wrong));
        }
        news
    }
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn last_panic() -> String {
    LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps what a panic says instead of printing it.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }));
}
