//! A session: one target on one platform with a bucket of its own, from the bucket's creation to the end of its last job.

use super::copies::Copies;
use super::endpoint::Endpoint;
use super::foreign_programs::run_program_job;
use super::meters::{Done, Meters};
use super::mounted::{MountCommands, Mounted};
use super::preparation::{make_directories, surroundings, variables};
use super::program::{Surroundings, first_line};
use super::replay::make_initial_files;
use super::run_plan::{Programs, RunPlan};
use super::second_client::{DurabilityWatch, Expected, compare, count_missing};
use super::transfer::{Transfer, Work};
use crate::outcome::{Clocks, Failure, Measurement, Outcome, Phase, Place};
use crate::package::{Action, Api, Command, Driver, Mapping, Target, Variables};
use crate::plan::{Session, Step};
use crate::probe::{BothSides, Trials, probe_bucket, probe_files};
use crate::raw_client::Bucket;
use crate::workload::{Job, Operation, Task};
use harness::{CleanupAction, CleanupProcess, Stopwatch, drop_caches, file_error};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Share of the bytes of a cold read that must come from the store.
const COLD_SHARE: f64 = 0.95;

/// The state of a session.
pub(super) struct SessionRun<'a> {
    target: &'a Target,
    endpoint: &'a Endpoint,
    plan: &'a RunPlan,
    programs: &'a Programs,
    runtime: &'a Runtime,
    clients: Clients,
    dir: PathBuf,
    commands: Option<MountCommands>,
    drop_caches: Option<Vec<String>>,
    surroundings: Surroundings,
    /// Jobs whose files are in the bucket and right.
    written: Vec<String>,
    // Dropped last: it removes the directory.
    _cleanup: CleanupProcess,
}

/// The clients of a session's bucket.
struct Clients {
    /// Past the proxy: the second client.
    direct: Bucket,
    /// Through the proxy: the raw client.
    proxied: Bucket,
}

/// Returns the version that the target's program prints, if it prints one; fails with the reason why the program cannot be had.
pub(super) fn find_version(target: &Target, programs: &Programs) -> Result<Option<String>, Failure> {
    let package = &target.package;
    if package.api == Api::Gcs {
        let reason = "it needs the API of Google Cloud Storage, which no platform has".to_owned();
        return Err(Failure::Unavailable { reason });
    }
    if let Some(program) = &package.program
        && programs.find(&program.name).is_none()
    {
        let reason = format!("program '{}' not found: {}", program.name, program.how_to_install());
        return Err(Failure::Unavailable { reason });
    }
    let Some(command) = package.commands.get(&Action::Version) else { return Ok(None) };
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
        programs: &'a Programs,
        (dir, bucket): (PathBuf, String),
        runtime: &'a Runtime,
    ) -> Result<Self, Failure> {
        let mut cleanup = CleanupProcess::new().map_err(Failure::testbed)?;
        cleanup.register(&CleanupAction::Remove(&dir)).map_err(Failure::testbed)?;
        cleanup.register(&CleanupAction::UnmountBelow(&dir)).map_err(Failure::testbed)?;
        make_directories(&dir)?;
        let capacity_bytes = plan.workload.capacity_bytes(&plan.scale);
        let places = (dir.as_path(), dir.join("mount"));
        let values = variables(target, endpoint, programs, (places.0, &places.1), (&bucket, capacity_bytes));
        let values = values.map_err(Failure::testbed)?;
        let package = &target.package;
        let surroundings = surroundings(package, endpoint, programs, &values, &dir)?;
        let words = |action| filled(target, action, &values);
        let own = match words(Action::CreateBucket)? {
            Some(words) => {
                surroundings.run_alone(&words, Phase::Format, plan.limits.mount)?;
                runtime.block_on(Bucket::open(endpoint.direct.as_ref(), &bucket))
            }
            None => runtime.block_on(Bucket::create(endpoint.direct.as_ref(), &bucket)),
        };
        let proxied = runtime.block_on(Bucket::open(endpoint.proxied.as_ref(), &bucket));
        if let Some(words) = words(Action::Format)? {
            surroundings.run_alone(&words, Phase::Format, plan.limits.mount)?;
        }
        Ok(Self {
            target,
            endpoint,
            plan,
            programs,
            runtime,
            clients: Clients {
                direct: own.map_err(Failure::testbed)?,
                proxied: proxied.map_err(Failure::testbed)?,
            },
            commands: MountCommands::of(words(Action::Mount)?, words(Action::Unmount)?),
            drop_caches: words(Action::DropCaches)?,
            dir,
            surroundings,
            written: Vec::new(),
            _cleanup: cleanup,
        })
    }

    /// Runs a job.
    pub(super) fn run(&mut self, step: &Step) -> Outcome {
        let job = &step.job;
        if let Some(source) = job.needs().find(|source| !self.written.iter().any(|job| job == source)) {
            return Outcome::Failed(Failure::NoFiles { job: source.to_owned() });
        }
        let measured = match self.target.package.driver {
            Driver::Mount => self.run_on_mount(job),
            Driver::Objects => self.run_on_objects(job),
            Driver::Directory => self.run_on_directory(job),
        };
        if measured.is_ok() && job.operation.leaves_files() {
            self.written.push(job.name.clone());
        }
        measured.map_or_else(Outcome::Failed, Outcome::Measured)
    }

    /// Tries every feature of the package on a mount.
    pub(super) fn probe(&self, trials: &mut Trials<'_>) -> Result<(), Failure> {
        let Some(commands) = &self.commands else {
            probe_files(&self.dir.join("state"), trials);
            return Ok(());
        };
        let mut mounted = self.mount(commands)?;
        probe_files(&self.point(), trials);
        if self.maps_directly() {
            let sides = BothSides {
                root: self.point(),
                bucket: self.clients.direct.clone(),
                proxy: self.endpoint.proxy.clone(),
                visibility_limit: trials.limits.visibility(),
                runtime: self.runtime.handle().clone(),
            };
            probe_bucket(&sides, trials);
        }
        match mounted.has_processes() {
            true => mounted.unmount(&commands.unmount, &self.plan.limits).map(drop),
            false => {
                mounted.kill();
                Ok(())
            }
        }
    }

    /// Measures a job on a mount.
    fn run_on_mount(&self, job: &Job) -> Result<Measurement, Failure> {
        let commands =
            self.commands.as_ref().ok_or_else(|| Failure::testbed("the package has no mount command"))?;
        self.make_initial_files(job, commands)?;
        self.make_cold(job)?;
        let copies = self.copies(job)?;
        let before = Meters::read(self.endpoint);
        let mut mounted = self.mount(commands)?;
        let job_watch = Stopwatch::start();
        let done = self.work(job, &self.point(), copies.clone()).inspect_err(|_| mounted.kill())?;
        self.check_cold(job, &before).inspect_err(|_| mounted.kill())?;
        if let Some(copies) = &copies {
            let compared = copies.compare().map_err(|error| error.into_failure(Place::Mount, Phase::Job));
            compared.inspect_err(|_| mounted.kill())?;
        }
        let watch = self.is_watched(job).then(|| {
            DurabilityWatch::start(&self.clients.direct, self.expected(job), job_watch, self.runtime)
        });
        let clocks = Clocks {
            mount: mounted.mount_span.as_secs_f64(),
            job: done.span.as_secs_f64(),
            ..Clocks::default()
        };
        if !job.kills {
            return self.finish(job, mounted, commands, (job_watch, done, clocks), watch, &before);
        }
        mounted.kill();
        drop(mounted);
        self.check_after_kill(job)?;
        let durable = watch.and_then(|watch| watch.finish(self.runtime)).map(|span| span.as_secs_f64());
        Ok(before.measurement(&done, Clocks { durable, ..clocks }, None, self.endpoint))
    }

    /// Syncs, unmounts, and compares what was written.
    fn finish(
        &self,
        job: &Job,
        mut mounted: Mounted,
        commands: &MountCommands,
        (job_watch, done, clocks): (Stopwatch, Done, Clocks),
        watch: Option<DurabilityWatch>,
        before: &Meters,
    ) -> Result<Measurement, Failure> {
        let is_write = job.column().is_write;
        let sync_span = match is_write {
            true => mounted.sync(self.plan.limits.unmount)?,
            false => Duration::ZERO,
        };
        let is_measured = mounted.is_measured();
        let (unmount_span, usage) = mounted.unmount(&commands.unmount, &self.plan.limits)?;
        let unmounted = job_watch.elapsed();
        let usage = is_measured.then_some(usage);
        let measurement = before.measurement(&done, clocks, usage, self.endpoint);
        let durable = match watch {
            Some(watch) => watch.finish(self.runtime),
            None => is_write.then_some(unmounted),
        };
        if job.operation.changes_files() {
            self.compare(job, commands)?;
        }
        let clocks = Clocks {
            sync: sync_span.as_secs_f64(),
            unmount: unmount_span.as_secs_f64(),
            durable: durable.map(|span| span.as_secs_f64()),
            ..clocks
        };
        Ok(Measurement { clocks, ..measurement })
    }

    /// Compares every byte that was written, by a second client: of the bucket, or, if files are not objects, by a second mount.
    fn compare(&self, job: &Job, commands: &MountCommands) -> Result<(), Failure> {
        let expected = self.expected(job);
        if self.maps_directly() {
            return compare(&self.clients.direct, &expected, self.runtime);
        }
        self.empty_cache()?;
        let mut mounted = self.mount(commands)?;
        let compared = self.compare_files(&expected, &self.point(), Place::SecondMount);
        compared.inspect_err(|_| mounted.kill())?;
        mounted.unmount(&commands.unmount, &self.plan.limits).map(drop)
    }

    /// Compares names and every byte below a directory.
    fn compare_files(&self, expected: &Expected, root: &Path, place: Place) -> Result<(), Failure> {
        expected.check_names(&names(root, &expected.folder), place)?;
        let reading = Transfer { place, phase: Phase::Comparison, ..self.transfer(root, expected.reads()) };
        reading.run().map(drop)
    }

    /// Fails if a file that was closed before the processes were killed is missing or has another size.
    fn check_after_kill(&self, job: &Job) -> Result<(), Failure> {
        let expected = self.expected(job);
        let count = match self.maps_directly() {
            true => count_missing(&self.clients.direct, &expected, self.runtime)?,
            false => {
                let commands = self.commands.as_ref().ok_or_else(|| Failure::testbed("no mount command"))?;
                let mounted = self.mount(commands)?;
                let size = |path: &String| Some(fs::metadata(self.point().join(path)).ok()?.len());
                let paths = expected.files.iter().map(|file| &file.path);
                let sizes = paths.filter_map(|path| Some((path.clone(), size(path)?))).collect();
                let count = expected.missing(&sizes).len() as u64;
                mounted.unmount(&commands.unmount, &self.plan.limits)?;
                count
            }
        };
        match count {
            0 => Ok(()),
            count => Err(Failure::Lost { count, of: expected.files.len() as u64 }),
        }
    }

    /// Measures a job on the objects of a bucket, without a mount.
    fn run_on_objects(&self, job: &Job) -> Result<Measurement, Failure> {
        if matches!(job.operation, Operation::Fio | Operation::Program) {
            return Err(Failure::Unsupported { reason: "the program needs files".to_owned() });
        }
        self.make_cold(job)?;
        let before = Meters::read(self.endpoint);
        let shares = job.tasks(&self.plan.scale, self.plan.seed);
        let limit = self.plan.limits.job;
        let job_watch = Stopwatch::start();
        let ran = async { tokio::time::timeout(limit, self.clients.proxied.run(&shares)).await };
        let ended = self.runtime.block_on(ran);
        let span = job_watch.elapsed();
        let ended = ended.map_err(|_| Failure::Hung { phase: Phase::Job, seconds: limit.as_secs_f64() })?;
        let latency = ended.map_err(|error| error.into_failure(Place::Bucket, Phase::Job))?;
        let done = self.done(job, Work { span, latency });
        let mut clocks = Clocks { job: span.as_secs_f64(), ..Clocks::default() };
        let usage = before.own_usage();
        self.check_cold(job, &before)?;
        if !job.operation.changes_files() {
            return Ok(before.measurement(&done, clocks, usage, self.endpoint));
        }
        let watch = DurabilityWatch::start(&self.clients.direct, self.expected(job), job_watch, self.runtime);
        clocks.durable = watch.finish(self.runtime).map(|span| span.as_secs_f64());
        let measurement = before.measurement(&done, clocks, usage, self.endpoint);
        compare(&self.clients.direct, &self.expected(job), self.runtime)?;
        Ok(measurement)
    }

    /// Measures a job on a directory of this machine.
    fn run_on_directory(&self, job: &Job) -> Result<Measurement, Failure> {
        let root = self.dir.join("state");
        if job.operation == Operation::Trace {
            let made = make_initial_files(&root.join(job.folder()), job.steps());
            made.map_err(|error| error.into_failure(Place::Mount, Phase::Job))?;
        }
        self.make_cold(job)?;
        let copies = self.copies(job)?;
        let before = Meters::read(self.endpoint);
        let job_watch = Stopwatch::start();
        let done = self.work(job, &root, copies.clone())?;
        let mut clocks = Clocks { job: done.span.as_secs_f64(), ..Clocks::default() };
        if job.column().is_write {
            clocks.sync = sync(&root)?.as_secs_f64();
            clocks.durable = Some(job_watch.elapsed().as_secs_f64());
        }
        let usage = before.own_usage();
        let measurement = before.measurement(&done, clocks, usage, self.endpoint);
        if let Some(copies) = &copies {
            copies.compare().map_err(|error| error.into_failure(Place::Mount, Phase::Job))?;
        }
        if job.operation.changes_files() {
            self.compare_files(&self.expected(job), &root, Place::Mount)?;
        }
        Ok(Measurement { traffic: None, server_cpu_seconds: None, ..measurement })
    }

    /// Does the work of a job below a directory.
    fn work(&self, job: &Job, root: &Path, copies: Option<Arc<Copies>>) -> Result<Done, Failure> {
        if matches!(job.operation, Operation::Fio | Operation::Program) {
            let places = (root.join(job.folder()), self.dir.join("config"));
            let (plan, limit) = (self.plan, self.plan.limits.job);
            let ran = run_program_job(job, &plan.scale, self.programs, (&places.0, &places.1), limit)?;
            let (span, operations, bytes) = (ran.span, ran.operations, ran.bytes);
            return Ok(Done { span, operations, bytes, ..Done::default() });
        }
        let shares = job.tasks(&self.plan.scale, self.plan.seed);
        let new_folder = job.operation.makes_files().then(|| job.folder().to_owned());
        let mut transfer = Transfer { copies, ..self.transfer(root, shares) };
        match job.operation {
            Operation::Trace => transfer.root = root.join(job.folder()),
            _ => transfer.new_folder = new_folder,
        }
        Ok(self.done(job, transfer.run()?))
    }

    /// Returns what a job has done.
    fn done(&self, job: &Job, work: Work) -> Done {
        Done {
            span: work.span,
            files: job.files(&self.plan.scale, self.plan.seed).len() as u64,
            operations: job.operations(&self.plan.scale),
            bytes: job.bytes(&self.plan.scale),
            latency: Some(work.latency),
        }
    }

    /// Returns the plan of a job's tasks, each share on a thread.
    fn transfer(&self, root: &Path, shares: Vec<Vec<Task>>) -> Transfer {
        Transfer {
            root: root.to_owned(),
            new_folder: None,
            shares,
            copies: None,
            place: Place::Mount,
            phase: Phase::Job,
            limit: self.plan.limits.job,
        }
    }

    /// Makes what `cp` copies, if the job is to be done as the paper does it.
    fn copies(&self, job: &Job) -> Result<Option<Arc<Copies>>, Failure> {
        if !self.plan.method.as_paper {
            return Ok(None);
        }
        let shares = job.tasks(&self.plan.scale, self.plan.seed);
        let copies = Copies::prepare(&self.dir, &job.name, &shares).map_err(Failure::testbed)?;
        Ok(Some(Arc::new(copies)))
    }

    /// Makes the files that a trace expects, with a mount of their own.
    fn make_initial_files(&self, job: &Job, commands: &MountCommands) -> Result<(), Failure> {
        if job.operation != Operation::Trace {
            return Ok(());
        }
        let mut mounted = self.mount(commands)?;
        let root = self.point().join(job.folder());
        let made = make_initial_files(&root, job.steps());
        let made = made.map_err(|error| error.into_failure(Place::Mount, Phase::Job));
        made.inspect_err(|_| mounted.kill())?;
        mounted.unmount(&commands.unmount, &self.plan.limits).map(drop)
    }

    fn mount(&self, commands: &MountCommands) -> Result<Mounted, Failure> {
        Mounted::mount(&self.point(), &commands.mount, &self.surroundings, self.plan.limits.mount)
    }

    /// Empties the package's cache and drops the kernel's, unless the plan keeps that, before a job that uses files of an earlier job or
    /// replays a trace.
    fn make_cold(&self, job: &Job) -> Result<(), Failure> {
        if job.operation.makes_files() && job.operation != Operation::Trace {
            return Ok(());
        }
        self.empty_cache()?;
        if let Some(words) = &self.drop_caches {
            self.surroundings.run_alone(words, Phase::Format, self.plan.limits.mount)?;
        }
        match self.plan.method.drops_caches {
            true => drop_caches().map_err(Failure::testbed),
            false => Ok(()),
        }
    }

    /// Empties the cache directory of the package.
    fn empty_cache(&self) -> Result<(), Failure> {
        let cache = self.dir.join("cache");
        let emptied = fs::remove_dir_all(&cache).and_then(|()| fs::create_dir(&cache));
        emptied.map_err(file_error(&cache)).map_err(Failure::testbed)
    }

    /// Checks that the bytes of a cold read came from the store.
    fn check_cold(&self, job: &Job, before: &Meters) -> Result<(), Failure> {
        let read_bytes = job.fetched_bytes(&self.plan.scale);
        let has_requests = self.target.package.characteristics.mapping != Mapping::None;
        let Some(traffic) = before.traffic_until_now(self.endpoint).filter(|_| has_requests) else {
            return Ok(());
        };
        match is_cold(traffic.downloaded_bytes, read_bytes) {
            true => Ok(()),
            false => Err(Failure::NotCold { fetched_bytes: traffic.downloaded_bytes, read_bytes }),
        }
    }

    /// Returns the files that must exist after a job.
    fn expected(&self, job: &Job) -> Expected {
        Expected::after(job, &self.plan.scale, self.plan.seed)
    }

    /// Returns whether a listing of the bucket shows that the job's changes are stored.
    fn is_watched(&self, job: &Job) -> bool {
        let changes_names = job.operation.changes_files() && job.operation != Operation::RandomWrite;
        changes_names && self.maps_directly()
    }

    /// Returns whether the package stores each file as one object of the same name.
    fn maps_directly(&self) -> bool {
        self.target.package.characteristics.mapping == Mapping::Direct
    }

    fn point(&self) -> PathBuf {
        self.dir.join("mount")
    }
}

/// Returns the words of an action's command, if the package has it.
fn filled(target: &Target, action: Action, values: &Variables) -> Result<Option<Vec<String>>, Failure> {
    let fill = |command: &Command| command.fill(values).map_err(Failure::testbed);
    target.package.commands.get(&action).map(fill).transpose()
}

/// Returns the paths of the files in a directory below a root.
fn names(root: &Path, folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy())).collect()
}

/// Writes the dirty data of a local directory's file system back.
fn sync(dir: &Path) -> Result<Duration, Failure> {
    let watch = Stopwatch::start();
    let opened = fs::File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    opened.map_err(file_error(dir)).map_err(Failure::testbed)?;
    Ok(watch.elapsed())
}

/// Returns the outcome of every step of a session that could not begin.
pub(super) fn all_failed(session: &Session, failure: &Failure) -> Vec<(Job, Outcome)> {
    let recorded = session.steps.iter().filter(|step| step.is_recorded);
    recorded.map(|step| (step.job.clone(), Outcome::Failed(failure.clone()))).collect()
}

/// Returns whether enough of the bytes that were read came from the store for the read to count as cold.
fn is_cold(fetched_bytes: u64, read_bytes: u64) -> bool {
    fetched_bytes as f64 >= read_bytes as f64 * COLD_SHARE
}
