//! The handler is killed while it takes events, three times; what was not acknowledged comes again; then every view is compared with
//! what plain rules make of the events.
//!
//! What was acknowledged never comes again: it is known from the kept state alone, or it is missing.

use super::message_generator::{Stored, Stream, key, said};
use super::queue::QUEUES;
use super::throughput::{BUCKET, Feeds, Handling, begun, runtime};
use super::{Task, again};
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
/// Messages that are put into a queue at once.
const PUSHED: usize = 32;
/// Bytes of a number in a journal.
const NUMBER_BYTES: usize = 8;

/// Which objects a ruleset wants, said plainly.
#[derive(Debug, Clone, Copy)]
struct Plain {
    above_bytes: Option<u64>,
    color: Option<&'static str>,
}

/// Starts handlers, kills them, and looks at what the last one knows.
pub(super) fn run(task: &Task) -> Result<()> {
    ensure!(task.dialect == Dialect::OpenIo, "objects are removed in OpenIO's dialect only");
    let own = tempfile::tempdir()?;
    let dir = own.path();
    let words = ["killed", "--killed-in", dir.to_str().context("no path of text")?, "--events"];
    let (events, threads) = (task.events.to_string(), task.threads.to_string());
    let words: Vec<String> =
        words.into_iter().chain([&*events, "--threads", &threads]).map(str::to_owned).collect();
    for kill in 1..=KILLS {
        let until = task.total() * kill / (KILLS + 1);
        let mut child = again(&words)?.stdout(Stdio::null()).spawn().context("cannot run this program")?;
        while acknowledged_count(dir)? < until {
            ensure!(child.try_wait()?.is_none(), "the handler ended by itself");
            thread::sleep(Duration::from_micros(100));
        }
        // `kill` of the standard library is SIGKILL.
        child.kill()?;
        child.wait()?;
        println!("killed after {} of {} events were acknowledged", acknowledged_count(dir)?, task.total());
    }
    let handling = go_on(task, dir)?;
    compare(task, &handling)
}

/// Takes whatever is not acknowledged yet.
pub(super) fn go_on(task: &Task, dir: &Path) -> Result<Handling> {
    let runtime = runtime()?;
    let handling = runtime.block_on(Handling::start(Some(&dir.join("state")), &rulesets(task.rulesets)))?;
    let is_done = acknowledged(dir, task.total())?;
    let left: Vec<usize> = (0..task.total()).filter(|number| !is_done[*number]).collect();
    let journal = |number: usize| {
        let path = dir.join(format!("journal-{number}"));
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        // A number that was written in part is none.
        file.set_len(file.metadata()?.len() / NUMBER_BYTES as u64 * NUMBER_BYTES as u64)?;
        Ok(Some(file))
    };
    let feeds = Feeds::start(task, &handling.handler, dir, &runtime, left.len(), journal)?;
    let mut stream = Stream::new(task.dialect, BUCKET, task.objects(), true, begun_once(dir)?);
    for (turn, numbers) in left.chunks(PUSHED).enumerate() {
        let mut messages = numbers.iter().map(|number| (*number, stream.message(*number))).collect();
        feeds.queues[turn % QUEUES].push(&mut messages);
    }
    runtime.block_on(feeds.done());
    feeds.end();
    Ok(handling)
}

/// When the first event happened: after the first handler had listed what was there.
fn begun_once(dir: &Path) -> Result<Timestamp> {
    let path = dir.join("begun");
    if !path.exists() {
        fs::write(&path, begun().0.to_string())?;
    }
    Ok(Timestamp(fs::read_to_string(&path)?.parse()?))
}

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

/// By number, whether an event was acknowledged.
fn acknowledged(dir: &Path, total: usize) -> Result<Vec<bool>> {
    let mut is_done = vec![false; total];
    for mut journal in journals(dir)? {
        let mut numbers = Vec::new();
        std::io::Read::read_to_end(&mut journal, &mut numbers)?;
        for number in numbers.as_chunks::<NUMBER_BYTES>().0 {
            is_done[u64::from_le_bytes(*number) as usize] = true;
        }
    }
    Ok(is_done)
}

/// Every view shows what plain rules say of the last event of each object.
fn compare(task: &Task, handling: &Handling) -> Result<()> {
    let runtime = runtime()?;
    let last = (0..task.total()).map(|number| said(number, task.objects(), true));
    let objects: BTreeMap<usize, Option<Stored>> = last.map(|said| (said.object, said.stored)).collect();
    let mut shown = 0;
    for (number, view) in handling.views.iter().enumerate() {
        let changes = runtime.block_on(handling.handler.changes(*view, None, usize::MAX))?;
        let is: BTreeMap<String, u64> =
            changes.shown.iter().map(|shown| (shown.name.key.to_string(), shown.size_bytes)).collect();
        let wants = |stored: &&Stored| Plain::of(number).wants(stored);
        let expected: BTreeMap<String, u64> = objects
            .iter()
            .filter_map(|(object, stored)| Some((key(*object), stored.as_ref().filter(wants)?.size_bytes)))
            .collect();
        ensure!(is == expected, "view {number} shows {} objects instead of {}", is.len(), expected.len());
        shown += is.len();
    }
    println!(
        "{} views show what they should, {shown} objects in all; {:?}",
        handling.views.len(),
        handling.handler.stats().hints
    );
    Ok(())
}

impl Plain {
    fn of(number: usize) -> Self {
        let color = ["black", "green", "white"][number / 3 % 3];
        Self {
            above_bytes: (number % 3 != 2).then_some(100_000 + number as u64 * 7),
            color: (!number.is_multiple_of(3)).then_some(color),
        }
    }

    fn wants(&self, stored: &Stored) -> bool {
        self.above_bytes.is_none_or(|above| stored.size_bytes > above)
            && self.color.is_none_or(|color| stored.color == color)
    }

    fn text(&self, number: usize) -> String {
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
    let text: String = (0..count).map(|number| Plain::of(number).text(number)).collect();
    views::read(&text).unwrap_or_default()
}
