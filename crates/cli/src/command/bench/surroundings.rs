//! Parts that the commands of `tenon bench` share: the catalog, programs, platforms, and the signal that stops them.

use crate::process::environment;
use anyhow::{Context, Result, ensure};
use bench::{Catalog, Package, Platform, Programs, Target};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Where packages, programs and the testbed's own files are.
#[derive(Debug, Clone, Args)]
pub(super) struct Places {
    /// Directory with package files; each replaces the shipped package of its name (default: tenon/packages in the user's configuration)
    #[arg(long, value_name = "DIR")]
    pub(super) packages_dir: Option<PathBuf>,
    /// Directory of installed programs, mounts, and the journal of buckets (default: tenon/bench in the user's state)
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// A package's program that is not in PATH (repeatable); its file must have the program's name
    #[arg(long, value_name = "FILE")]
    pub(super) program: Vec<PathBuf>,
    /// The minio program (default: the one in PATH)
    #[arg(long, value_name = "FILE")]
    pub(super) minio: Option<PathBuf>,
}

impl Places {
    /// Returns the packages that are shipped, and those of the packages directory.
    pub(super) fn catalog(&self) -> Result<Catalog> {
        let mut catalog = Catalog::shipped()?;
        let dir = self.packages_dir.clone().unwrap_or_else(|| environment::config_dir().join("packages"));
        catalog.add_directory(&dir)?;
        Ok(catalog)
    }

    /// Returns the targets of these names, each once; without names, all.
    pub(super) fn targets(&self, names: &[String]) -> Result<Vec<Target>> {
        let catalog = self.catalog()?;
        let all = || catalog.packages().map(|package| package.name.clone()).collect();
        let names: Vec<String> = if names.is_empty() { all() } else { names.to_vec() };
        let mut targets: Vec<Target> = Vec::new();
        let mut known = BTreeSet::new();
        for name in names {
            let found = catalog.targets(&name)?.into_iter();
            targets.extend(found.filter(|target| known.insert(target.to_string())));
        }
        Ok(targets)
    }

    /// Returns the target of a name; of a package with several versions, the first.
    pub(super) fn target(&self, name: &str) -> Result<Target> {
        let mut targets = self.catalog()?.targets(name)?;
        Ok(targets.remove(0))
    }

    /// Returns the directory with the testbed's state.
    pub(super) fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| environment::states_dir().join("bench"))
    }

    /// Returns where the testbed's programs are, where those of packages are searched, and the environment variables that the packages'
    /// programs inherit.
    pub(super) fn programs<'p>(&self, packages: impl Iterator<Item = &'p Package>) -> Result<Programs> {
        let servers = environment::variable("TENON_SERVERS_DIR").map(|dir| Path::new(&dir).join("minio"));
        let own = bench::program_directories(&self.state());
        let built = own.iter().map(|dir| dir.join("minio")).find(|file| file.is_file());
        let installed =
            || servers.filter(|file| file.is_file()).or_else(|| environment::program("minio")).or(built);
        let given = self.program.iter().map(|file| {
            ensure!(file.is_file(), "there is no program {}", file.display());
            let file = std::path::absolute(file).context("cannot find the current directory")?;
            Ok(file.parent().map(Path::to_owned).unwrap_or_default())
        });
        let given: Vec<PathBuf> = given.collect::<Result<_>>()?;
        let names = packages.flat_map(|package| package.inherited_variables.iter());
        let inherited = names.filter_map(|name| Some((name.clone(), environment::variable(name)?)));
        Ok(Programs {
            tenon: std::env::current_exe().context("cannot find this program's own file")?,
            minio: self.minio.clone().or_else(installed),
            search_path: [given, own, environment::search_path()].concat(),
            inherited: inherited.collect(),
        })
    }
}

/// Parses platforms as users give them; without any, the MinIO that the testbed starts.
pub(super) fn platforms(specs: &[String]) -> Result<Vec<Platform>> {
    let default = ["minio".to_owned()];
    let specs = if specs.is_empty() { &default[..] } else { specs };
    let platforms: Result<Vec<Platform>, _> =
        specs.iter().map(|spec| Platform::parse(spec, &environment::variable)).collect();
    let platforms = platforms?;
    let names: BTreeSet<&str> = platforms.iter().map(|platform| platform.name.as_str()).collect();
    ensure!(names.len() == platforms.len(), "two platforms have one name: name one differently, as NAME=URL");
    Ok(platforms)
}

/// Returns a flag that SIGINT or SIGTERM sets, after `message` was printed unless it is empty.
pub(super) fn stop_at_signal(message: &'static str) -> Result<Arc<AtomicBool>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let is_stopped_by_thread = is_stopped.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start watching for signals")?;
    let watched = {
        let _guard = runtime.enter();
        signal(SignalKind::terminate())
            .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)))
    };
    let (mut terminate, mut interrupt) = watched.context("cannot watch for signals")?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if !message.is_empty() {
                eprintln!("{message}");
            }
            is_stopped_by_thread.store(true, Ordering::Relaxed);
        });
    });
    Ok(is_stopped)
}
