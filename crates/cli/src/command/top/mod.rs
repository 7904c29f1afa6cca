//! `tenon top`: a full screen that shows the activity of all mounts and servers, or of one, and what they do in the background.
//!
//! One thread for each process receives its activity once per interval; one reads keys, and one waits for signals. The main thread owns the state
//! ([`screen::Screen`]) and draws a frame after each event. There are no colors: bold and reverse video are legible on every terminal.

mod background;
mod inputs;
mod screen;
mod table;
mod tables;
mod terminal;

use crate::command::top::inputs::{Event, Inputs};
use crate::command::top::screen::Screen;
use crate::command::top::terminal::Terminal;
use crate::command::units;
use crate::state::registry::Registry;
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Interval of checks whether the size of the terminal has changed.
const SIZE_INTERVAL: Duration = Duration::from_millis(200);

/// Show the activity of mounts and servers, full screen
///
/// Shows operations, latencies, files, processes, store requests, background work and open batches, with the busiest first. Keys: arrows select,
/// Enter shows a mount, Esc goes back, Tab or 1 to 6 choose what is shown, s sorts by the next column, r reverses the order, Space
/// pauses, h shows help, q quits.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Mount point or volume; without it, all mounts and servers of the user
    #[arg(value_name = "DIR|VOLUME")]
    of: Option<String>,
    /// Time between two updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
}

impl Top {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.interval < Duration::from_millis(100) || self.interval > Duration::from_secs(60) {
            bail!("--interval must be between 100ms and 1m");
        }
        let only = self.of.as_ref().map(|of| Registry::of_user().find(of)).transpose()?;
        let mut screen = Screen::new(only.is_some());
        let terminal = Terminal::enter()?;
        let mut inputs = Inputs::start(only, self.interval)?;
        let mut size = terminal.size();
        loop {
            inputs.find_processes();
            terminal.show(&screen.lines(size.0, size.1))?;
            loop {
                match inputs.events.recv_timeout(SIZE_INTERVAL) {
                    Ok(Event::Quit) => return Ok(ExitCode::SUCCESS),
                    Ok(Event::Key(key)) if !screen.handle(key) => return Ok(ExitCode::SUCCESS),
                    Ok(Event::Key(_)) => break,
                    Ok(Event::Activity { state, activity }) => {
                        screen.add(state, *activity);
                        break;
                    }
                    Ok(Event::Ended { state }) => {
                        inputs.remove(&state);
                        screen.remove(&state);
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) if terminal.size() == size => inputs.find_processes(),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(ExitCode::SUCCESS),
                }
            }
            size = terminal.size();
        }
    }
}
