//! The order of a trace's steps across threads.
//!
//! A replay is faster or slower than the traced run, so a thread could open a file before another one has made it. Therefore a step
//! waits for earlier steps of other threads where names must be there or gone: a step that makes, renames, truncates or removes a file or
//! directory is ordered with all uses of the same path and of paths below it. Other steps, such as reads and writes of one file, are not
//! ordered among each other, and the listing of a directory is not ordered with changes of its entries.
//!
//! Invariant: a step waits only for steps before it in the trace, so threads cannot wait for each other forever.

use super::trace::{TraceCall, TraceStep};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A step, with the steps of other threads that must be complete before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderedStep {
    pub(crate) step: TraceStep,
    /// Indexes of threads, each with the number of its steps that must be complete.
    after: Vec<(usize, usize)>,
}

/// The steps of one thread of a trace, and the progress of all its threads.
#[derive(Debug, Clone)]
pub struct ReplayThread {
    /// Index of the thread.
    index: usize,
    pub(crate) steps: Arc<Vec<OrderedStep>>,
    progress: Arc<Progress>,
}

/// Two threads are equal if their steps are, whatever their progress.
impl PartialEq for ReplayThread {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.steps == other.steps
    }
}

impl Eq for ReplayThread {}

impl ReplayThread {
    /// Waits until the steps before a step are complete. Returns false if the replay was given up before that.
    pub(crate) fn wait_for(&self, step: &OrderedStep) -> bool {
        self.progress.wait_for(&step.after)
    }

    /// Records that this thread has completed one more step.
    pub(crate) fn complete_step(&self) {
        self.progress.done[self.index].fetch_add(1, Ordering::SeqCst);
        self.progress.wake();
    }

    /// Ends the waits of all threads, because a step of this one failed.
    pub(crate) fn give_up(&self) {
        self.progress.is_given_up.store(true, Ordering::SeqCst);
        self.progress.wake();
    }
}

/// The progress of all threads of a replay.
#[derive(Debug)]
struct Progress {
    /// Number of completed steps, by the index of the thread.
    done: Vec<AtomicUsize>,
    /// Whether a step of some thread has failed.
    is_given_up: AtomicBool,
    /// Number of threads that wait.
    waiting: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    fn new(threads: usize) -> Self {
        Self {
            done: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            is_given_up: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    fn wake(&self) {
        // A thread increases `waiting` before it looks at the counters for the last time and waits.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }

    fn wait_for(&self, after: &[(usize, usize)]) -> bool {
        let is_ready =
            || after.iter().all(|&(thread, steps)| self.done[thread].load(Ordering::SeqCst) >= steps);
        if is_ready() {
            return true;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !is_ready() && !self.is_given_up.load(Ordering::SeqCst) {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
        is_ready()
    }
}

/// Returns the threads of a trace with their steps, and with the steps of other threads for which each step waits.
pub(crate) fn order_threads(steps: &[TraceStep]) -> Vec<ReplayThread> {
    let numbers: BTreeSet<u32> = steps.iter().map(|step| step.thread).collect();
    let index: BTreeMap<u32, usize> = numbers.iter().enumerate().map(|(at, number)| (*number, at)).collect();
    let mut threads: Vec<Vec<OrderedStep>> = vec![Vec::new(); numbers.len()];
    let mut uses = Uses::default();
    for step in steps {
        let thread = index[&step.thread];
        let position = (thread, threads[thread].len() + 1);
        let after = uses.add(step, position);
        threads[thread].push(OrderedStep { step: step.clone(), after });
    }
    let progress = Arc::new(Progress::new(threads.len()));
    let thread =
        |(index, steps)| ReplayThread { index, steps: Arc::new(steps), progress: Arc::clone(&progress) };
    threads.into_iter().enumerate().map(thread).collect()
}

/// The index of a step's thread, and the number of steps of the thread that are complete once this step is.
type Position = (usize, usize);

/// The steps so far, by path.
#[derive(Debug, Default)]
struct Uses {
    by_path: BTreeMap<String, PathUses>,
}

/// Steps on one path.
#[derive(Debug, Default)]
struct PathUses {
    /// The last step that made, renamed, truncated or removed the path.
    changed: Option<Position>,
    /// The last step of each thread that has used the path since then.
    used: BTreeMap<usize, usize>,
}

impl Uses {
    /// Adds a step. Returns the steps that must be complete before it, at most one for each other thread.
    fn add(&mut self, step: &TraceStep, position: Position) -> Vec<Position> {
        let mut after: BTreeMap<usize, usize> = BTreeMap::new();
        let mut need = |(thread, steps): Position| {
            if thread != position.0 {
                let latest = after.entry(thread).or_default();
                *latest = steps.max(*latest);
            }
        };
        let changes = changes_names(&step.call);
        for path in step.call.paths() {
            for above in ancestors(path) {
                self.by_path.get(above).and_then(|uses| uses.changed).into_iter().for_each(&mut need);
            }
            if let Some(uses) = self.by_path.get(path) {
                uses.changed.into_iter().for_each(&mut need);
            }
            if changes {
                let below = format!("{path}/");
                let below =
                    self.by_path.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
                let own = self.by_path.get_key_value(path);
                for (_, uses) in own.into_iter().chain(below) {
                    uses.used.iter().map(|(thread, steps)| (*thread, *steps)).for_each(&mut need);
                    uses.changed.into_iter().for_each(&mut need);
                }
            }
        }
        for path in step.call.paths() {
            let uses = self.by_path.entry(path.to_owned()).or_default();
            if changes {
                *uses = PathUses { changed: Some(position), used: BTreeMap::new() };
            } else {
                uses.used.insert(position.0, position.1);
            }
        }
        after.into_iter().collect()
    }
}

/// Returns whether a call makes, renames, truncates or removes a file or directory.
fn changes_names(call: &TraceCall) -> bool {
    matches!(
        call,
        TraceCall::Mkdir { .. }
            | TraceCall::Create { .. }
            | TraceCall::Truncate { .. }
            | TraceCall::Rename { .. }
            | TraceCall::Unlink { .. }
            | TraceCall::Rmdir { .. }
    )
}

/// Returns the directories above a path.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<TraceStep> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn after(text: &str) -> Vec<Vec<Vec<Position>>> {
        let steps = parse(text);
        let steps_of = |thread: ReplayThread| thread.steps.iter().map(|step| step.after.clone()).collect();
        order_threads(&steps).into_iter().map(steps_of).collect()
    }

    #[test]
    fn names_are_made_before_other_threads_use_them() {
        let orders = after(
            r#"{"t_us":0,"thread":4,"op":"mkdir","path":"d"}
{"t_us":1,"thread":7,"op":"create","path":"d/f"}
{"t_us":2,"thread":7,"op":"write","path":"d/f","offset":0,"bytes":1}
{"t_us":3,"thread":4,"op":"read","path":"d/f","offset":0,"bytes":1}
{"t_us":4,"thread":7,"op":"write","path":"d/f","offset":1,"bytes":1}
{"t_us":5,"thread":9,"op":"rename","path":"d","to":"e"}
{"t_us":6,"thread":4,"op":"unlink","path":"e/f"}"#,
        );
        assert_eq!(orders[0], [vec![], vec![(1, 1)], vec![(2, 1)]]);
        assert_eq!(orders[1], [vec![(0, 1)], vec![(0, 1)], vec![(0, 1)]]);
        // The rename waits for all uses of the directory's old name.
        assert_eq!(orders[2], [vec![(0, 2), (1, 3)]]);
    }

    #[test]
    fn threads_wait_until_a_step_is_done_or_the_replay_is_given_up() {
        let steps = parse(
            r#"{"t_us":0,"thread":0,"op":"create","path":"f"}
{"t_us":1,"thread":1,"op":"stat","path":"f"}"#,
        );
        let threads = order_threads(&steps);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| threads[1].wait_for(&threads[1].steps[0]));
            threads[0].complete_step();
            assert!(waiting.join().unwrap());
        });
        let threads = order_threads(&steps);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| threads[1].wait_for(&threads[1].steps[0]));
            threads[0].give_up();
            assert!(!waiting.join().unwrap());
        });
    }
}
