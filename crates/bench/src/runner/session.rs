//! A session: one target on one platform with a bucket of its own, from the bucket's creation to its removal.

use super::endpoint::Endpoint;
use super::mounted::{MountCommands, Mounted};
use super::program::{Surroundings, first_line};
use super::run_plan::{Programs, RunPlan};
use super::second_client::{DurabilityWatch, compare, count_missing};
use super::transfer::Transfer;
use crate::outcome::{Clocks, Failure, Measurement, Outcome, Phase, Place};
use crate::package::{Command, Driver, Mapping, Target, TemplateError, Variables};
use crate::plan::{Session, Step};
use crate::probe::{Finding, probe_bucket, probe_files};
use crate::raw_client::Bucket;
use crate::workload::{Job, JobFile, Operation};
use harness::{CleanupAction, CleanupProcess, Stopwatch, Traffic, drop_caches, file_error, process_usage};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Share of the bytes of a cold read that must come from the store.
const COLD_SHARE: f64 = 0.95;

/// The state of a session.
pub(super) struct SessionRun<'a> {
    target: &'a Target,
    endpoint: &'a Endpoint,
    plan: &'a RunPlan,
    runtime: &'a Runtime,
    bucket: Bucket,
    /// Client of the bucket through the proxy.
    proxied: Bucket,
    dir: PathBuf,
    commands: Option<MountCommands>,
    surroundings: Surroundings,
    /// Jobs whose files are in the bucket and right.
    written: Vec<String>,
    // Dropped last: it removes the directory.
    _cleanup: CleanupProcess,
}

/// Returns the version that the target's program prints, or why the program cannot be had.
pub(super) fn find_version(target: &Target, programs: &Programs) -> Result<Option<String>, Failure> {
    if let Some(program) = &target.package.program
        && programs.find(&program.name).is_none()
    {
        let reason = format!("program '{}' not found: {}", program.name, program.how_to_install());
        return Err(Failure::Unavailable { reason });
    }
    let Some(command) = &target.package.commands.version else { return Ok(None) };
    let mut values = target.version.parameters.clone();
    values.insert("tenon".to_owned(), programs.tenon.display().to_string());
    let search_path = programs.search_path_text();
    Ok(command.fill(&values).ok().and_then(|words| first_line(&words, &search_path)))
}

impl<'a> SessionRun<'a> {
    /// Creates the directory and the bucket, and formats it if the package wants that.
    pub(super) fn begin(
        target: &'a Target,
        endpoint: &'a Endpoint,
        plan: &'a RunPlan,
        programs: &Programs,
        (dir, bucket): (PathBuf, String),
        runtime: &'a Runtime,
    ) -> Result<Self, Failure> {
        let mut cleanup = CleanupProcess::new().map_err(Failure::testbed)?;
        cleanup.register(&CleanupAction::Remove(&dir)).map_err(Failure::testbed)?;
        for name in ["mount", "state", "cache", "config"] {
            let path = dir.join(name);
            fs::create_dir_all(&path).map_err(file_error(&path)).map_err(Failure::testbed)?;
        }
        let created = runtime.block_on(Bucket::create(endpoint.direct.as_ref(), &bucket));
        let own = created.map_err(Failure::testbed)?;
        let proxied =
            runtime.block_on(Bucket::open(endpoint.proxied.as_ref(), &bucket)).map_err(Failure::testbed)?;
        let values = variables(target, endpoint, programs, &dir, &bucket);
        let surroundings = surroundings(target, endpoint, programs, &values, &dir)?;
        let fill = |command: &Command| command.fill(&values).map_err(Failure::testbed);
        let commands = &target.package.commands;
        let mount_commands = match (&commands.mount, &commands.unmount) {
            (Some(mount), Some(unmount)) => {
                Some(MountCommands { mount: fill(mount)?, unmount: fill(unmount)? })
            }
            _ => None,
        };
        if let Some(format) = &commands.format {
            surroundings.run_alone(&fill(format)?, Phase::Format, plan.limits.mount)?;
        }
        Ok(Self {
            target,
            endpoint,
            plan,
            runtime,
            bucket: own,
            proxied,
            dir,
            commands: mount_commands,
            surroundings,
            written: Vec::new(),
            _cleanup: cleanup,
        })
    }

    /// Runs a job.
    pub(super) fn run(&mut self, step: &Step) -> Outcome {
        let job = &step.job;
        if let Some(source) = &job.reads
            && !self.written.contains(source)
        {
            return Outcome::Failed(Failure::NoFiles { job: source.clone() });
        }
        let measured = match self.target.package.driver {
            Driver::Mount => self.run_on_mount(job),
            Driver::Objects => self.run_on_objects(job),
            Driver::Directory => self.run_on_directory(job),
        };
        if measured.is_ok() && job.operation == Operation::Write {
            self.written.push(job.name.clone());
        }
        measured.map_or_else(Outcome::Failed, Outcome::Measured)
    }

    /// Tries every feature of the package on a mount.
    pub(super) fn probe(&self, limit: Duration) -> Result<Vec<Finding>, Failure> {
        let Some(commands) = &self.commands else {
            return Ok(probe_files(&self.dir.join("state"), limit));
        };
        let mut mounted = self.mount(commands)?;
        let mut findings = probe_files(&self.point(), limit);
        if self.maps_directly() {
            let traffic = || self.endpoint.traffic();
            findings.extend(probe_bucket(&self.point(), &self.bucket, &traffic, limit, self.runtime));
        }
        match mounted.has_processes() {
            true => mounted.unmount(&commands.unmount, &self.plan.limits).map(drop)?,
            false => mounted.kill(),
        }
        Ok(findings)
    }

    /// Removes the bucket.
    pub(super) fn end(self, buckets: &dyn store::Buckets) {
        let removed = self.runtime.block_on(async {
            self.bucket.remove_all().await?;
            buckets.delete(self.bucket.name()).await
        });
        // A server that was started here is removed as a whole, with what is left in it.
        drop(removed);
    }

    fn run_on_mount(&self, job: &Job) -> Result<Measurement, Failure> {
        let commands =
            self.commands.as_ref().ok_or_else(|| Failure::testbed("the package has no mount command"))?;
        self.make_cold(job)?;
        let before = Meters::read(self.endpoint);
        let mut mounted = self.mount(commands)?;
        let mount_span = mounted.mount_span;
        let job_watch = Stopwatch::start();
        let job_span = self.transfer(job, &self.point(), Place::Mount, Phase::Job).run();
        let job_span = job_span.inspect_err(|_| mounted.kill())?;
        if job.operation == Operation::Read {
            self.check_cold(job, &before)?;
        }
        let files = job.files(&self.plan.scale);
        let watch = (job.operation == Operation::Write && self.maps_directly())
            .then(|| DurabilityWatch::start(&self.bucket, &files, job.folder(), job_watch, self.runtime));
        if job.kills {
            mounted.kill();
            drop(mounted);
            self.check_after_kill(job, &files)?;
        } else {
            return self.finish(job, mounted, commands, (job_watch, mount_span, job_span), watch, &before);
        }
        let durable = watch.and_then(|watch| watch.finish(self.runtime)).map(|span| span.as_secs_f64());
        let clocks = Clocks {
            mount: mount_span.as_secs_f64(),
            job: job_span.as_secs_f64(),
            durable,
            ..Clocks::default()
        };
        Ok(self.measurement(job, clocks, None, &before))
    }

    /// Syncs, unmounts, and compares what was written.
    fn finish(
        &self,
        job: &Job,
        mut mounted: Mounted,
        commands: &MountCommands,
        (job_watch, mount_span, job_span): (Stopwatch, Duration, Duration),
        watch: Option<DurabilityWatch>,
        before: &Meters,
    ) -> Result<Measurement, Failure> {
        let sync_span = match job.operation {
            Operation::Write => mounted.sync(self.plan.limits.unmount)?,
            Operation::Read => Duration::ZERO,
        };
        let is_measured = mounted.is_measured();
        let (unmount_span, usage) = mounted.unmount(&commands.unmount, &self.plan.limits)?;
        let unmounted = job_watch.elapsed();
        let clocks = Clocks {
            mount: mount_span.as_secs_f64(),
            job: job_span.as_secs_f64(),
            sync: sync_span.as_secs_f64(),
            unmount: unmount_span.as_secs_f64(),
            durable: None,
        };
        let measurement = self.measurement(job, clocks, is_measured.then_some(usage), before);
        let durable = match (job.operation, watch) {
            (Operation::Read, _) => None,
            (Operation::Write, Some(watch)) => watch.finish(self.runtime),
            (Operation::Write, None) => Some(unmounted),
        };
        if job.operation == Operation::Write {
            self.compare(job, commands)?;
        }
        let clocks = Clocks { durable: durable.map(|span| span.as_secs_f64()), ..clocks };
        Ok(Measurement { clocks, ..measurement })
    }

    /// Compares every byte that was written, by a second client: of the bucket, or, if files are not objects, by a second mount.
    fn compare(&self, job: &Job, commands: &MountCommands) -> Result<(), Failure> {
        if self.maps_directly() {
            let files = job.files(&self.plan.scale);
            return compare(&self.bucket, &files, job.folder(), self.runtime);
        }
        self.empty_cache()?;
        let mut mounted = self.mount(commands)?;
        let mut reading = self.transfer(job, &self.point(), Place::SecondMount, Phase::Comparison);
        reading.operation = Operation::Read;
        reading.run().inspect_err(|_| mounted.kill())?;
        mounted.unmount(&commands.unmount, &self.plan.limits).map(drop)
    }

    fn check_after_kill(&self, job: &Job, files: &[JobFile]) -> Result<(), Failure> {
        let count = match self.maps_directly() {
            true => count_missing(&self.bucket, files, job.folder(), self.runtime)?,
            false => {
                let commands = self.commands.as_ref().ok_or_else(|| Failure::testbed("no mount command"))?;
                let mounted = self.mount(commands)?;
                let is_missing = |file: &&JobFile| {
                    let size = fs::metadata(self.point().join(&file.path)).map(|metadata| metadata.len());
                    size.ok() != Some(file.size_bytes)
                };
                let count = files.iter().filter(is_missing).count() as u64;
                mounted.unmount(&commands.unmount, &self.plan.limits)?;
                count
            }
        };
        match count {
            0 => Ok(()),
            count => Err(Failure::Lost { count, of: files.len() as u64 }),
        }
    }

    fn run_on_objects(&self, job: &Job) -> Result<Measurement, Failure> {
        self.make_cold(job)?;
        let before = Meters::read(self.endpoint);
        let shares = job.shares(&self.plan.scale, self.plan.seed);
        let limit = self.plan.limits.job;
        let job_watch = Stopwatch::start();
        let transfer =
            async { tokio::time::timeout(limit, self.proxied.transfer(job.operation, &shares)).await };
        let ended = self.runtime.block_on(transfer);
        let span = job_watch.elapsed().as_secs_f64();
        let ended = ended.map_err(|_| Failure::Hung { phase: Phase::Job, seconds: limit.as_secs_f64() })?;
        ended.map_err(|error| error.into_failure(Place::Bucket, Phase::Job))?;
        let mut clocks = Clocks { job: span, ..Clocks::default() };
        let usage = before.own_usage();
        if job.operation == Operation::Write {
            let files = job.files(&self.plan.scale);
            let watch = DurabilityWatch::start(&self.bucket, &files, job.folder(), job_watch, self.runtime);
            clocks.durable = watch.finish(self.runtime).map(|span| span.as_secs_f64());
            let measurement = self.measurement(job, clocks, usage, &before);
            compare(&self.bucket, &files, job.folder(), self.runtime)?;
            return Ok(measurement);
        }
        self.check_cold(job, &before)?;
        Ok(self.measurement(job, clocks, usage, &before))
    }

    fn run_on_directory(&self, job: &Job) -> Result<Measurement, Failure> {
        self.make_cold(job)?;
        let before = Meters::read(self.endpoint);
        let job_watch = Stopwatch::start();
        let root = self.dir.join("state");
        let span = self.transfer(job, &root, Place::Mount, Phase::Job).run()?;
        let mut clocks = Clocks { job: span.as_secs_f64(), ..Clocks::default() };
        if job.operation == Operation::Write {
            clocks.sync = sync(&root)?.as_secs_f64();
            clocks.durable = Some(job_watch.elapsed().as_secs_f64());
        }
        let usage = before.own_usage();
        let measurement = self.measurement(job, clocks, usage, &before);
        let mut reading = self.transfer(job, &root, Place::Mount, Phase::Comparison);
        reading.operation = Operation::Read;
        if job.operation == Operation::Write {
            reading.run()?;
        }
        Ok(Measurement { traffic: None, server_cpu_seconds: None, ..measurement })
    }

    fn transfer(&self, job: &Job, root: &Path, place: Place, phase: Phase) -> Transfer {
        Transfer {
            root: root.to_owned(),
            folder: job.folder().to_owned(),
            operation: job.operation,
            shares: job.shares(&self.plan.scale, self.plan.seed),
            place,
            phase,
            limit: self.plan.limits.job,
        }
    }

    fn mount(&self, commands: &MountCommands) -> Result<Mounted, Failure> {
        Mounted::mount(&self.point(), &commands.mount, &self.surroundings, self.plan.limits.mount)
    }

    /// Before a read, empties the package's cache and drops the kernel's.
    fn make_cold(&self, job: &Job) -> Result<(), Failure> {
        if job.operation == Operation::Write {
            return Ok(());
        }
        self.empty_cache()?;
        match self.plan.drops_caches {
            true => drop_caches().map_err(Failure::testbed),
            false => Ok(()),
        }
    }

    fn empty_cache(&self) -> Result<(), Failure> {
        let cache = self.dir.join("cache");
        let emptied = fs::remove_dir_all(&cache).and_then(|()| fs::create_dir(&cache));
        emptied.map_err(file_error(&cache)).map_err(Failure::testbed)
    }

    /// Checks that the bytes of a cold read came from the store.
    fn check_cold(&self, job: &Job, before: &Meters) -> Result<(), Failure> {
        let Some(traffic) = before.traffic_until_now(self.endpoint) else { return Ok(()) };
        let (fetched_bytes, read_bytes) = (traffic.downloaded_bytes, job.bytes(&self.plan.scale));
        match is_cold(fetched_bytes, read_bytes) {
            true => Ok(()),
            false => Err(Failure::NotCold { fetched_bytes, read_bytes }),
        }
    }

    fn measurement(
        &self,
        job: &Job,
        clocks: Clocks,
        usage: Option<harness::Usage>,
        before: &Meters,
    ) -> Measurement {
        let server = self.endpoint.server_cpu_seconds().zip(before.server_cpu_seconds);
        Measurement {
            files: job.files(&self.plan.scale).len() as u64,
            bytes: job.bytes(&self.plan.scale),
            clocks,
            cpu_seconds: usage.map(|usage| usage.cpu.as_secs_f64()),
            server_cpu_seconds: server.map(|(now, before)| now - before),
            memory_peak_bytes: usage.and_then(|usage| usage.memory_peak_bytes),
            traffic: before.traffic_until_now(self.endpoint),
        }
    }

    fn maps_directly(&self) -> bool {
        self.target.package.characteristics.mapping == Mapping::Direct
    }

    fn point(&self) -> PathBuf {
        self.dir.join("mount")
    }
}

/// Counters at the beginning of a job.
struct Meters {
    traffic: Option<Traffic>,
    server_cpu_seconds: Option<f64>,
    own_cpu: Option<Duration>,
}

impl Meters {
    fn read(endpoint: &Endpoint) -> Self {
        Self {
            traffic: endpoint.traffic(),
            server_cpu_seconds: endpoint.server_cpu_seconds(),
            own_cpu: process_usage::cpu_time(std::process::id()).ok(),
        }
    }

    fn traffic_until_now(&self, endpoint: &Endpoint) -> Option<Traffic> {
        Some(endpoint.traffic()?.since(self.traffic.as_ref()?))
    }

    /// Returns the CPU time of this process since the beginning, that of the proxy included.
    fn own_usage(&self) -> Option<harness::Usage> {
        let cpu = process_usage::cpu_time(std::process::id()).ok()?.checked_sub(self.own_cpu?)?;
        Some(harness::Usage { cpu, memory_peak_bytes: None })
    }
}

/// Writes the dirty data of a local directory's file system back.
fn sync(dir: &Path) -> Result<Duration, Failure> {
    let watch = Stopwatch::start();
    let opened = fs::File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    opened.map_err(file_error(dir)).map_err(Failure::testbed)?;
    Ok(watch.elapsed())
}

fn variables(
    target: &Target,
    endpoint: &Endpoint,
    programs: &Programs,
    dir: &Path,
    bucket: &str,
) -> Variables {
    let path = |name: &str| dir.join(name).display().to_string();
    let mut values = target.version.parameters.clone();
    let own = [
        ("bucket", bucket.to_owned()),
        ("endpoint", endpoint.url.clone()),
        ("host", endpoint.host().to_owned()),
        ("region", endpoint.region.clone()),
        ("access_key", endpoint.access_key.clone()),
        ("secret_key", endpoint.secret_key.clone()),
        ("mount", path("mount")),
        ("state", path("state")),
        ("cache", path("cache")),
        ("config", path("config")),
        ("tenon", programs.tenon.display().to_string()),
    ];
    values.extend(own.map(|(name, value)| (name.to_owned(), value)));
    values
}

/// Fills in the environment, and writes the package's files, readable by their owner only.
fn surroundings(
    target: &Target,
    endpoint: &Endpoint,
    programs: &Programs,
    values: &Variables,
    dir: &Path,
) -> Result<Surroundings, Failure> {
    for (name, text) in &target.package.files {
        let path = dir.join("config").join(name);
        let text = text.fill(values).map_err(Failure::testbed)?;
        let file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(file_error(&path)).map_err(Failure::testbed)?;
    }
    let environment =
        target.package.environment.iter().map(|(name, text)| Ok((name.clone(), text.fill(values)?)));
    let environment: Result<BTreeMap<String, String>, TemplateError> = environment.collect();
    let mut environment = environment.map_err(Failure::testbed)?;
    environment.insert("PATH".to_owned(), programs.search_path_text());
    environment.insert("HOME".to_owned(), dir.join("config").display().to_string());
    Ok(Surroundings {
        environment,
        dir: dir.to_owned(),
        log: dir.join("log"),
        secrets: vec![endpoint.secret_key.clone()],
    })
}

/// Returns the outcome of every step of a session that could not begin.
pub(super) fn all_failed(session: &Session, failure: &Failure) -> Vec<(String, Outcome)> {
    let recorded = session.steps.iter().filter(|step| step.is_recorded);
    recorded.map(|step| (step.job.name.clone(), Outcome::Failed(failure.clone()))).collect()
}

/// Whether so many bytes from the store are enough for a read of so many bytes without a cache.
fn is_cold(fetched_bytes: u64, read_bytes: u64) -> bool {
    fetched_bytes as f64 >= read_bytes as f64 * COLD_SHARE
}
