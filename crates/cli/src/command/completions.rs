//! `tenon completions` and `tenon man`: shell completions and manual pages, from the definitions that parse the flags.

use anyhow::{Context as _, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the completions for a shell
///
/// For bash: tenon completions bash > /etc/bash_completion.d/tenon
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Write the manual pages into a directory: one for each command.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory
    dir: PathBuf,
}

impl Completions {
    pub(crate) fn run(self, mut program: Command) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "tenon", &mut script);
        std::io::stdout().write_all(&script).context("cannot write the output")?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Man {
    pub(crate) fn run(self, program: Command) -> Result<ExitCode> {
        let written = clap_mangen::generate_to(program, &self.dir);
        written.with_context(|| format!("cannot write manual pages into {}", self.dir.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
