//! Invariant 10: every directory is below the root.

use super::findings::Findings;
use crate::Ino;

/// All directories, each with the directory of its primary name. Takes 17 bytes of memory for each.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// In the order of their numbers. A directory without a primary name has the parent 0, which is not the number of an inode.
    parents: Vec<(u64, u64)>,
}

/// The state of a directory in the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    /// It is on the path that is being followed.
    OnPath,
    BelowRoot,
    Lost,
}

impl Directories {
    /// Adds a directory, whose number must be greater than that of the one before.
    pub(super) fn add(&mut self, ino: Ino, parent: Option<Ino>) {
        debug_assert!(self.parents.last().is_none_or(|last| last.0 < ino.0), "in the order of numbers");
        self.parents.push((ino.0, parent.map_or(0, |parent| parent.0)));
    }

    fn index_of(&self, ino: u64) -> Option<usize> {
        self.parents.binary_search_by_key(&ino, |(ino, _)| *ino).ok()
    }

    /// Reports the directories that are not below the root.
    pub(super) fn check(&self, findings: &mut Findings) {
        let mut states = vec![State::Unknown; self.parents.len()];
        for first in 0..self.parents.len() {
            let mut path = Vec::new();
            let mut at = Some(first);
            let outcome = loop {
                let Some(index) = at else { break State::Lost };
                match states[index] {
                    State::OnPath => break State::Lost,
                    State::Unknown if self.parents[index].0 == Ino::ROOT.0 => break State::BelowRoot,
                    State::Unknown => {
                        states[index] = State::OnPath;
                        path.push(index);
                        at = self.index_of(self.parents[index].1);
                    }
                    known => break known,
                }
            };
            path.into_iter().for_each(|index| states[index] = outcome);
            if states[first] == State::Lost {
                let ino = Ino(self.parents[first].0);
                findings.report(10, format!("directory {ino} is not reachable from the root"));
            }
        }
    }
}
