//! Inputs of `tenon top`: keys, signals, and the activity of processes.

use super::terminal::{Key, read_keys};
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::live_messages::Activity;
use crate::control::protocol::{Answer, Request};
use crate::process::signals::StopSignals;
use crate::state::registry::Registry;
use anyhow::Result;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of searches for new processes.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of events that wait to be shown.
const EVENTS_MAX: usize = 64;

/// An event.
pub(super) enum Event {
    Key(Key),
    /// The activity of the process that holds a state directory.
    Activity {
        state: PathBuf,
        activity: Box<Activity>,
    },
    /// The process that holds a state directory has ended, or its connection was lost.
    Ended {
        state: PathBuf,
    },
    /// SIGTERM, SIGINT, or the end of the input.
    Quit,
}

/// The threads that send events, and the channel that receives them.
pub(super) struct Inputs {
    pub(super) events: Receiver<Event>,
    sender: SyncSender<Event>,
    /// The process to show; `None` shows all.
    only: Option<LiveMount>,
    /// Interval at which each process reports.
    interval: Duration,
    /// State directories of the processes that are followed.
    known: HashSet<PathBuf>,
    /// Time of the last search for processes.
    searched: Option<Instant>,
}

impl Inputs {
    /// Starts to read keys and to wait for signals.
    pub(super) fn start(only: Option<LiveMount>, interval: Duration) -> Result<Self> {
        let (sender, events) = sync_channel(EVENTS_MAX);
        let keys = sender.clone();
        thread::spawn(move || {
            while let Some(pressed) = read_keys() {
                for key in pressed {
                    if keys.send(Event::Key(key)).is_err() {
                        return;
                    }
                }
            }
            let _ = keys.send(Event::Quit);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut signals = runtime.block_on(async { StopSignals::new() })?;
        let stops = sender.clone();
        thread::spawn(move || {
            runtime.block_on(signals.wait());
            let _ = stops.send(Event::Quit);
        });
        Ok(Self { events, sender, only, interval, known: HashSet::new(), searched: None })
    }

    /// Follows processes that are new, if it is time to search for them.
    pub(super) fn find_processes(&mut self) {
        if self.searched.is_some_and(|searched| searched.elapsed() < SEARCH_INTERVAL) {
            return;
        }
        self.searched = Some(Instant::now());
        let found = match &self.only {
            Some(only) => vec![only.clone()],
            None => Registry::of_user().mounts(),
        };
        for mount in found {
            if self.known.insert(mount.state.clone()) {
                self.follow(mount);
            }
        }
    }

    /// Forgets a process that has ended. If another one holds its state directory later, that one is followed.
    pub(super) fn remove(&mut self, state: &Path) {
        self.known.remove(state);
    }

    /// Starts a thread that receives the activity of a process until it ends.
    fn follow(&self, mount: LiveMount) {
        let (sender, interval) = (self.sender.clone(), self.interval);
        thread::spawn(move || {
            let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            let observed = Client::connect(&mount).and_then(|mut client| {
                client.observe(&Request::Activity { interval_ms }, |answer| {
                    let Answer::Activity(activity) = answer else { return Ok(false) };
                    let (state, activity) = (mount.state.clone(), Box::new(activity));
                    Ok(sender.send(Event::Activity { state, activity }).is_ok())
                })
            });
            // An error is dropped: the process disappears from the screen, and its log has the reason.
            drop(observed);
            let _ = sender.send(Event::Ended { state: mount.state });
        });
    }
}
