//! Output of commands: lines on standard output, and progress on standard error: one line that changes on a terminal, plain lines elsewhere.

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Interval at which the spinner moves.
const TICK: Duration = Duration::from_millis(100);

/// The progress of a long operation. The line on a terminal disappears when this value is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// The last line that was printed without a terminal.
    last: RefCell<String>,
    /// Whether nothing is shown without a terminal.
    is_silent: bool,
}

impl Progress {
    /// Starts to show progress on standard error, so that standard output can be piped.
    pub(crate) fn start() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner());
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, last: RefCell::default(), is_silent: false }
    }

    /// Like [`Progress::start`], for commands whose output is of use line by line: shows nothing without a terminal.
    pub(crate) fn start_on_terminal() -> Self {
        let mut progress = Self::start();
        progress.is_silent = progress.bar.is_none();
        progress
    }

    /// Shows the present state. Without a terminal, the same text is not printed twice in a row.
    pub(crate) fn show(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None if !self.is_silent && self.last.borrow().as_str() != text => {
                eprintln!("{text}");
                text.clone_into(&mut self.last.borrow_mut());
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line like `println!`, but returns an error instead of panicking if the reader has gone (`| head`).
pub(crate) fn print_line(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("cannot write the output")
}
