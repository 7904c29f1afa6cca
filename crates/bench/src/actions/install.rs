//! Installation of packages' programs with the package managers that have them.

use super::{ActionError, Workbench};
use crate::package::{Action, Package, Program, Variables};
use crate::runner::{kill_group, wait_within};
use harness::minio::MODULE;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Makes a virtual environment, and installs a package of PyPI in it. Debian's Python makes virtual environments only with a further package.
const PIP_INSTALL: &str = r#"
[ -x "$1/bin/pip" ] || python3 -m venv --clear "$1" || {
  apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 python3-venv
  python3 -m venv --clear "$1"
}
"$1/bin/pip" install --quiet "$2""#;

/// A command of a package manager, with the variables that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ManagerCommand {
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

/// Returns the directories of installed programs, for the search path.
pub fn program_directories(state: &Path) -> Vec<PathBuf> {
    vec![state.join("programs/bin"), state.join("programs/pypi/bin")]
}

impl Workbench<'_> {
    /// Installs the program of a package. Returns the path of the program; `None` if the package needs none, or if the search path does not
    /// have it after the installation.
    ///
    /// # Errors
    /// If no package manager has it, or the manager fails or does not end in time.
    pub fn install(&self, package: &Package, limit: Duration) -> Result<Option<PathBuf>, ActionError> {
        let dir = self.state.join("programs");
        fs::create_dir_all(&dir).map_err(ActionError::file(&dir))?;
        let commands = match package.commands.get(&Action::Install) {
            Some(command) => {
                let values = Variables::from([("state".to_owned(), dir.display().to_string())]);
                let words = command.fill(&values).map_err(crate::outcome::Failure::testbed)?;
                vec![ManagerCommand { words, environment: Vec::new() }]
            }
            None => package.program.as_ref().map(|program| managers(program, &dir)).unwrap_or_default(),
        };
        let program = package.program.as_ref();
        if !commands.is_empty() {
            run_first(&commands, &dir.join(format!("install-{}.log", package.name)), limit)?;
        } else if let Some(program) = program {
            return Err(ActionError::NotInstallable(package.name.clone(), program.how_to_install()));
        }
        Ok(program.and_then(|program| self.programs.find(&program.name)))
    }

    /// Builds MinIO, the server of a platform. Needs Go.
    ///
    /// # Errors
    /// If Go is missing or old, or does not end in time.
    pub fn install_minio(&self, limit: Duration) -> Result<(), ActionError> {
        let dir = self.state.join("programs");
        fs::create_dir_all(&dir).map_err(ActionError::file(&dir))?;
        let program = Program { name: "minio".to_owned(), go: Some(MODULE.to_owned()), ..Program::default() };
        run_first(&managers(&program, &dir), &dir.join("install-minio.log"), limit)
    }
}

/// Runs commands until one succeeds. If none does, the error is that of the first one, which is preferred.
fn run_first(commands: &[ManagerCommand], log: &Path, limit: Duration) -> Result<(), ActionError> {
    let mut failure = None;
    for command in commands {
        match command.run(log, limit) {
            Ok(()) => return Ok(()),
            Err(error) => failure = Some(failure.unwrap_or(error)),
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Returns the commands that install a program, the preferred first.
fn managers(program: &Program, dir: &Path) -> Vec<ManagerCommand> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    let path = |name: &str| dir.join(name).display().to_string();
    let variable = |name: &str, value: String| vec![(name.to_owned(), value)];
    let debian = program.debian.as_ref().map(|packages| ManagerCommand {
        words: [
            words(&[
                "apt-get",
                "install",
                "--yes",
                "--no-install-recommends",
                "-o",
                "DPkg::Lock::Timeout=120",
            ]),
            packages.split_whitespace().map(str::to_owned).collect(),
        ]
        .concat(),
        environment: variable("DEBIAN_FRONTEND", "noninteractive".to_owned()),
    });
    let pypi = program.pypi.as_ref().map(|package| ManagerCommand {
        words: words(&["/bin/sh", "-ec", PIP_INSTALL, "pip", &path("pypi"), package]),
        environment: variable("DEBIAN_FRONTEND", "noninteractive".to_owned()),
    });
    let go = program.go.as_ref().map(|module| ManagerCommand {
        words: words(&["go", "install", module]),
        environment: variable("GOBIN", path("bin")),
    });
    let crates = program.crates.as_ref().map(|package| ManagerCommand {
        words: words(&["cargo", "install", "--root", &dir.display().to_string(), package]),
        environment: Vec::new(),
    });
    [debian, pypi, go, crates].into_iter().flatten().collect()
}

impl ManagerCommand {
    /// Runs the command with this process's environment, as package managers are set up by it.
    fn run(&self, log: &Path, limit: Duration) -> Result<(), ActionError> {
        let shown = self.words.join(" ");
        let failed = |reason: String| ActionError::Install { command: shown.clone(), reason };
        let output = File::create(log).map_err(ActionError::file(log))?;
        let errors = output.try_clone().map_err(ActionError::file(log))?;
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        match wait_within(&mut child, limit) {
            Some(status) if status.success() => Ok(()),
            Some(_) => {
                let text = fs::read_to_string(log).unwrap_or_default();
                let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output");
                Err(failed(format!("{last} (log: {})", log.display())))
            }
            None => {
                kill_group(&mut child);
                Err(failed(format!("it did not end within {} s", limit.as_secs())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manager_has_its_command() {
        let program = Program {
            name: "fakefs".into(),
            debian: Some("fakefs fakefs-tools".into()),
            pypi: Some("fakefs-bin".into()),
            go: Some("example.com/fakefs@latest".into()),
            crates: Some("fakefs".into()),
            advice: None,
        };
        let commands = managers(&program, Path::new("/d"));
        let lines: Vec<String> = commands.iter().map(|command| command.words.join(" ")).collect();
        assert!(lines[0].ends_with("fakefs fakefs-tools") && lines[0].starts_with("apt-get install"));
        assert!(lines[1].ends_with("pip /d/pypi fakefs-bin"));
        assert_eq!(commands[2].environment, [("GOBIN".to_owned(), "/d/bin".to_owned())]);
        assert_eq!(lines[3], "cargo install --root /d fakefs");
    }

    #[test]
    fn an_installation_that_hangs_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let run = |script: &str, limit| {
            let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
            ManagerCommand { words, environment: Vec::new() }.run(&log, limit)
        };
        assert!(run("sleep 60", Duration::from_millis(100)).unwrap_err().to_string().contains("did not end"));
        let failed = run("echo no such package; exit 1", Duration::from_secs(9)).unwrap_err().to_string();
        assert!(failed.contains("no such package"));
    }
}
