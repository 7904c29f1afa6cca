//! Test of crash recovery: the handler is killed three times while it handles events, unacknowledged events are delivered again, and finally
//! every view is compared with its expected content.
//!
//! Acknowledged events are not delivered again. If the handler did not store their state before the acknowledgement, objects are missing.

use super::message_generator::{MessageGenerator, ObjectState, change, key};
use super::queue::QUEUES;
use super::throughput::{BUCKET, Feeds, RunningHandler, first_event_time, runtime};
use super::{RunOptions, own_command};
use anyhow::{Context, Result, ensure};
use events::Dialect;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use store::Timestamp;
use views::{Ruleset, Views};

const KILLS: usize = 3;
/// Number of messages put into a queue at a time.
const PUSH_BATCH: usize = 32;
/// Size of an event number in a journal.
const NUMBER_BYTES: usize = 8;

/// The criteria of a ruleset, evaluated independently of the handler.
#[derive(Debug, Clone, Copy)]
struct Criteria {
    above_bytes: Option<u64>,
    color: Option<&'static str>,
}

/// Starts and kills handlers, and checks the views of the last one.
pub(super) fn run(options: &RunOptions) -> Result<()> {
    ensure!(options.dialect == Dialect::OpenIo, "messages with deletions exist in the OpenIO dialect only");
    let folder = tempfile::tempdir()?;
    let dir = folder.path();
    let words = ["killed", "--killed-in", dir.to_str().context("the path is not UTF-8")?, "--events"];
    let (events, threads) = (options.events.to_string(), options.threads.to_string());
    let words: Vec<String> =
        words.into_iter().chain([&*events, "--threads", &threads]).map(str::to_owned).collect();
    for kill in 1..=KILLS {
        let target = options.total() * kill / (KILLS + 1);
        let mut child =
            own_command(&words)?.stdout(Stdio::null()).spawn().context("cannot run this program")?;
        while acknowledged_count(dir)? < target {
            ensure!(child.try_wait()?.is_none(), "the handler ended before it was killed");
            thread::sleep(Duration::from_micros(100));
        }
        // Sends SIGKILL.
        child.kill()?;
        child.wait()?;
        println!("killed after {} of {} events were acknowledged", acknowledged_count(dir)?, options.total());
    }
    let running = resume(options, dir)?;
    check_views(options, &running)
}

/// Starts a handler on the stored state, and handles all events that are not acknowledged yet.
pub(super) fn resume(options: &RunOptions, dir: &Path) -> Result<RunningHandler> {
    let runtime = runtime()?;
    let running =
        runtime.block_on(RunningHandler::start(Some(&dir.join("state")), &rulesets(options.rulesets)))?;
    let is_acknowledged = read_acknowledged(dir, options.total())?;
    let remaining: Vec<usize> = (0..options.total()).filter(|number| !is_acknowledged[*number]).collect();
    let journal = |number: usize| {
        let path = dir.join(format!("journal-{number}"));
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        // Remove a partly written number at the end.
        file.set_len(file.metadata()?.len() / NUMBER_BYTES as u64 * NUMBER_BYTES as u64)?;
        Ok(Some(file))
    };
    let feeds = Feeds::start(options, &running.handler, dir, &runtime, remaining.len(), journal)?;
    let mut generator = MessageGenerator::new(
        options.dialect,
        BUCKET,
        options.objects(),
        true,
        stored_first_event_time(dir)?,
    );
    for (turn, numbers) in remaining.chunks(PUSH_BATCH).enumerate() {
        let mut messages = numbers.iter().map(|number| (*number, generator.message(*number))).collect();
        feeds.queues[turn % QUEUES].push(&mut messages);
    }
    runtime.block_on(feeds.wait());
    feeds.stop();
    Ok(running)
}

/// Returns the time of the first event. The first handler stores it, after its initial listing; later ones read it.
fn stored_first_event_time(dir: &Path) -> Result<Timestamp> {
    let path = dir.join("first-event-time");
    if !path.exists() {
        fs::write(&path, first_event_time().0.to_string())?;
    }
    Ok(Timestamp(fs::read_to_string(&path)?.parse()?))
}

/// Opens all journals.
fn journals(dir: &Path) -> Result<Vec<File>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("journal-") {
            journals.push(File::open(entry.path())?);
        }
    }
    Ok(journals)
}

fn acknowledged_count(dir: &Path) -> Result<usize> {
    let lengths =
        journals(dir)?.into_iter().map(|journal| Ok(journal.metadata()?.len() as usize / NUMBER_BYTES));
    lengths.sum()
}

/// Reads the journals; returns for each event number whether it was acknowledged.
fn read_acknowledged(dir: &Path, total: usize) -> Result<Vec<bool>> {
    let mut is_acknowledged = vec![false; total];
    for mut journal in journals(dir)? {
        let mut numbers = Vec::new();
        std::io::Read::read_to_end(&mut journal, &mut numbers)?;
        for number in numbers.as_chunks::<NUMBER_BYTES>().0 {
            is_acknowledged[u64::from_le_bytes(*number) as usize] = true;
        }
    }
    Ok(is_acknowledged)
}

/// Checks that every view shows what its criteria select after the last event of each object.
fn check_views(options: &RunOptions, running: &RunningHandler) -> Result<()> {
    let runtime = runtime()?;
    let changes = (0..options.total()).map(|number| change(number, options.objects(), true));
    let objects: BTreeMap<usize, Option<ObjectState>> =
        changes.map(|change| (change.object, change.stored)).collect();
    let mut total_shown = 0;
    for (number, view) in running.views.iter().enumerate() {
        let changes = runtime.block_on(running.handler.changes(*view, None, usize::MAX))?;
        let actual: BTreeMap<String, u64> =
            changes.shown.iter().map(|shown| (shown.name().key.to_string(), shown.size_bytes())).collect();
        let is_selected = |stored: &&ObjectState| Criteria::of_view(number).is_match(stored);
        let expected: BTreeMap<String, u64> = objects
            .iter()
            .filter_map(|(object, stored)| {
                Some((key(*object), stored.as_ref().filter(is_selected)?.size_bytes))
            })
            .collect();
        ensure!(
            actual == expected,
            "view {number} shows {} objects; expected {}",
            actual.len(),
            expected.len()
        );
        total_shown += actual.len();
    }
    println!(
        "{} views are correct, {total_shown} objects in total; {:?}",
        running.views.len(),
        running.handler.stats().hints
    );
    Ok(())
}

impl Criteria {
    /// Returns the criteria of the view with this number.
    fn of_view(number: usize) -> Self {
        let color = ["black", "green", "white"][number / 3 % 3];
        Self {
            above_bytes: (number % 3 != 2).then_some(100_000 + number as u64 * 7),
            color: (!number.is_multiple_of(3)).then_some(color),
        }
    }

    /// Whether the ruleset shows an object in this state.
    fn is_match(&self, stored: &ObjectState) -> bool {
        self.above_bytes.is_none_or(|above| stored.size_bytes > above)
            && self.color.is_none_or(|color| stored.color == color)
    }

    /// Renders the ruleset.
    fn ruleset_text(&self, number: usize) -> String {
        let size = self.above_bytes.map(|above| format!("  size: \">{above}\"\n"));
        let color = self.color.map(|color| format!("  properties:\n    color: {color}\n"));
        format!(
            "v{number}:\n  container: {BUCKET}\n{}{}",
            size.unwrap_or_default(),
            color.unwrap_or_default()
        )
    }
}

fn rulesets(count: usize) -> Vec<Ruleset> {
    let text: String = (0..count).map(|number| Criteria::of_view(number).ruleset_text(number)).collect();
    views::read(&text).unwrap_or_default()
}
