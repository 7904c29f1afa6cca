//! A handler goes on where one ended.
//!
//! What cannot be read is set aside, said, and found out anew: the store has it all.

use super::change_log::{Mark, Page, Record};
use super::container::{Container, View};
use super::frames::{Frames, Name, Next};
use super::matcher::Needs;
use super::object_record::{Rest, key_of};
use super::shard::Shard;
use super::state_dir::Keeper;
use super::verify::Looks;
use super::{Handler, HandlerError, HandlerParts, Registry, SHARDS, hash};
use crate::Rule;
use hashbrown::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::Timestamp;

/// Every life of a handler numbers its changes from here on, so that what no log knows has no number of the next life.
const LIFE_BITS: u32 = 40;

/// Says which start of the machine this is (proc(5)); where there is none, every start counts as another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the files say but the objects.
#[derive(Debug, Default)]
struct Survey {
    files: Vec<Name>,
    epoch: Option<u64>,
    life: u32,
    boot: Vec<u8>,
    /// By number; `None` where one was forgotten.
    views: Vec<Option<(u32, Vec<Rule>)>>,
    containers: Vec<Option<String>>,
    /// By container: what was listed, and whether that is to be done again.
    listed: HashMap<u32, (Vec<(String, Needs)>, bool)>,
    /// For which moment clients were told last, by container.
    times: HashMap<u32, Timestamp>,
    /// The last log ended in what is no frame.
    is_cut: bool,
}

/// Objects to look at, by container and key.
type Looked = HashSet<(u32, Box<[u8]>)>;

impl HandlerError {
    pub(super) fn new(dir: &Path, what: String) -> Self {
        Self { dir: dir.display().to_string(), what }
    }
}

/// A handler with what is kept, and what it has to do first.
pub(super) fn restore(parts: HandlerParts) -> Result<(Arc<Handler>, Looked), HandlerError> {
    let Some(dir) = parts.dir.clone() else {
        let epoch = parts.entropy.next_u64();
        return Ok((Handler::new(parts, epoch, 1, None), Looked::new()));
    };
    let wrong = |error: io::Error| HandlerError::new(&dir, error.to_string());
    let only = lock(&dir)?;
    let survey = match survey(&dir).map_err(wrong)? {
        Ok(survey) => survey,
        Err(broken) => {
            set_aside(&dir, &broken).map_err(wrong)?;
            Survey::default()
        }
    };
    let boot = std::fs::read(BOOT_ID).unwrap_or_default();
    let is_doubtful = survey.is_cut || boot.is_empty() || survey.boot != boot;
    // Clients may have been told what is not known any more.
    let epoch = survey.epoch.filter(|_| !is_doubtful).unwrap_or_else(|| parts.entropy.next_u64());
    let next = survey.files.iter().map(|name| name.number()).max().unwrap_or(0) + 1;
    let keeper = Keeper::new(dir.clone(), epoch, next, only).map_err(wrong)?;
    let handler = Handler::new(parts, epoch, survey.life + 1, Some((keeper, boot)));
    handler.register(&survey, is_doubtful);
    let looks = handler.read_objects(&dir, &survey).map_err(wrong)?;
    handler.note(handler.life());
    handler.keep().map_err(wrong)?;
    Ok((handler, looks))
}

/// Makes sure that there is no other handler.
fn lock(dir: &Path) -> Result<File, HandlerError> {
    let wrong = |error: io::Error| HandlerError::new(dir, error.to_string());
    std::fs::create_dir_all(dir).map_err(wrong)?;
    let path = dir.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(wrong)?;
    match store::hold(&file) {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(HandlerError::new(
            dir,
            "another event handler uses it; end that one, or give this one a directory of its own".to_owned(),
        )),
        Err(error) => Err(wrong(error)),
    }
}

/// Reads everything but the objects, or says what is broken.
fn survey(dir: &Path) -> io::Result<Result<Survey, String>> {
    let names = Name::all(dir)?;
    let snapshot = names.iter().rev().find(|name| matches!(name, Name::Snapshot(_))).copied();
    let first = snapshot.map_or(0, Name::number);
    let logs = names.into_iter().filter(|name| matches!(name, Name::Log(number) if *number >= first));
    let files: Vec<Name> = snapshot.into_iter().chain(logs).collect();
    let mut survey = Survey { files: files.clone(), ..Survey::default() };
    for name in &files {
        let is_last = Some(name) == files.last();
        if let Err(broken) = survey.read(dir, *name, is_last)? {
            return Ok(Err(broken));
        }
    }
    Ok(Ok(survey))
}

/// Reads everything but the objects, for the fuzz target.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz_survey(dir: &Path) -> io::Result<()> {
    survey(dir).map(drop)
}

impl Survey {
    fn read(&mut self, dir: &Path, name: Name, is_last: bool) -> io::Result<Result<(), String>> {
        let path = name.path(dir);
        let broken = |what: &str| Ok(Err(format!("{} {what}", path.display())));
        let Some(mut frames) = Frames::open(&path)? else {
            // A log whose beginning was not written holds nothing.
            return if is_last && matches!(name, Name::Log(_)) {
                Ok(Ok(()))
            } else {
                broken("is of no format that is known")
            };
        };
        self.epoch = Some(frames.epoch);
        let mut is_whole = matches!(name, Name::Log(_));
        let is_torn = loop {
            match frames.next()? {
                Next::End => break false,
                Next::Broken => break true,
                Next::Frame(frame) => {
                    let Some(records) = Record::all(frame) else {
                        return broken("holds records that are none");
                    };
                    for record in records {
                        is_whole |= record.mark == Mark::End;
                        if self.note(&record).is_none() {
                            return broken("holds a record that nobody can read");
                        }
                    }
                }
            }
        };
        if !is_whole || (is_torn && !is_last) {
            return broken("is damaged");
        }
        if is_torn {
            self.is_cut = true;
            OpenOptions::new().write(true).open(&path)?.set_len(frames.good_bytes)?;
        }
        Ok(Ok(()))
    }

    fn note(&mut self, record: &Record<'_>) -> Option<()> {
        match record.mark {
            Mark::View if record.number as usize == self.views.len() => {
                let rules = crate::read(std::str::from_utf8(record.body).ok()?).ok()?.pop()?.rules;
                self.views.push(Some((record.version as u32, rules)));
            }
            Mark::Container if record.number as usize == self.containers.len() => {
                self.containers.push(Some(String::from_utf8(record.body.to_vec()).ok()?));
            }
            // A log repeats what a snapshot of the same moment has.
            Mark::View if record.number as usize > self.views.len() => return None,
            Mark::Container if record.number as usize > self.containers.len() => return None,
            Mark::View | Mark::Container => {}
            Mark::ViewForgotten => *place(&mut self.views, record.number)? = None,
            Mark::ContainerForgotten => *place(&mut self.containers, record.number)? = None,
            Mark::Listed => drop(self.listed.insert(record.number, (read_covered(record.body)?, false))),
            Mark::Stale => self.listed.entry(record.number).or_default().1 = true,
            Mark::Life => {
                self.life = record.number;
                self.boot = record.body.to_vec();
            }
            Mark::Time => drop(self.times.insert(record.number, Timestamp(record.version as i64))),
            Mark::Object | Mark::Look | Mark::Looked | Mark::Shard | Mark::End => {}
        }
        Some(())
    }
}

/// The place of a number, which may be the next one.
fn place<T>(all: &mut Vec<Option<T>>, number: u32) -> Option<&mut Option<T>> {
    if number as usize == all.len() {
        all.push(None);
    }
    all.get_mut(number as usize)
}

fn read_covered(body: &[u8]) -> Option<Vec<(String, Needs)>> {
    let mut rest = Rest(body);
    let mut covered = Vec::new();
    while !rest.0.is_empty() {
        let needs = Needs::from_bits(rest.take(1)?[0]);
        let bytes = u32::from_le_bytes(rest.array()?);
        covered.push((String::from_utf8(rest.take(bytes as usize)?.to_vec()).ok()?, needs));
    }
    Some(covered)
}

/// Keeps broken files for who wants to see them, and begins anew.
fn set_aside(dir: &Path, broken: &str) -> io::Result<()> {
    tracing::warn!("{broken}: set aside as *.broken, and the containers are listed again");
    for name in Name::all(dir)? {
        let path = name.path(dir);
        std::fs::rename(&path, path.with_extension("broken"))?;
    }
    Ok(())
}

impl Handler {
    fn new(parts: HandlerParts, epoch: u64, life: u32, kept: Option<(Keeper, Vec<u8>)>) -> Arc<Self> {
        let HandlerParts { buckets, clock, config, .. } = parts;
        let first = u64::from(life) << LIFE_BITS;
        let page = |shard| kept.as_ref().map(|(keeper, _)| Page::new(shard, &keeper.unkept));
        let shards = (0..SHARDS).map(|shard| Mutex::new(Shard::new(first, page(shard)))).collect();
        let (keeper, boot) = kept.map_or((None, Vec::new()), |(keeper, boot)| (Some(keeper), boot));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            buckets,
            clock,
            config,
            epoch,
            life,
            boot,
            shards,
            registry: Mutex::new(Registry::default()),
            looks: Looks::default(),
            keeper,
            counts: Default::default(),
            news: Default::default(),
        })
    }

    /// Views and containers as they were.
    fn register(&self, survey: &Survey, is_doubtful: bool) {
        let mut registry = self.registry();
        for (number, view) in (0..).zip(&survey.views) {
            match view {
                Some((life, rules)) => {
                    registry.add(&Arc::new(View::new(number, *life, rules.clone(), self.clock.now())));
                }
                None => registry.views.push(None),
            }
        }
        let mut containers = HashMap::new();
        registry.container_count = survey.containers.len() as u32;
        for (number, name) in (0..).zip(&survey.containers) {
            let Some(name) = name else { continue };
            let time = survey.times.get(&number).copied();
            let now = time.unwrap_or_else(|| self.clock.now());
            let container = Arc::new(Container::new(number, name.as_str().into(), now));
            container.rules().noted = time;
            registry.views_of(name).for_each(|view| container.add(view));
            self.put_in_force_at(&container, now);
            let (covered, is_stale) = survey.listed.get(&number).cloned().unwrap_or_default();
            let mut listing = container.listing();
            listing.is_stale = !covered.is_empty() && (is_stale || is_doubtful);
            listing.covered = covered;
            drop(listing);
            containers.insert(Arc::clone(&container.name), container);
        }
        registry.containers = Arc::new(containers);
    }

    fn read_objects(&self, dir: &Path, survey: &Survey) -> io::Result<Looked> {
        let mut looks = Looked::new();
        let mut floors = [0; SHARDS];
        for name in &survey.files {
            let Some(mut frames) = Frames::open(&name.path(dir))? else { continue };
            while let Next::Frame(frame) = frames.next()? {
                for record in Record::all(frame).unwrap_or_default() {
                    let is_log = matches!(name, Name::Log(_));
                    self.read_object(&record, is_log, &mut floors, &mut looks);
                }
            }
        }
        Ok(looks)
    }

    fn read_object(&self, record: &Record<'_>, is_log: bool, floors: &mut [u64; SHARDS], looks: &mut Looked) {
        let key = key_of(record.body);
        let hash = hash(record.number, key);
        let number = super::shard_of(hash);
        match record.mark {
            Mark::Shard if (record.number as usize) < SHARDS => {
                floors[record.number as usize] = record.version;
                self.shard_at(record.number as usize).forget_until(record.version);
            }
            Mark::Look => drop(looks.insert((record.number, key.into()))),
            Mark::Looked => drop(looks.remove(&(record.number, key.into()))),
            Mark::Object => {
                if (!is_log || record.version > floors[number])
                    && let Some((table, _)) = self.shard_at(number).table(record.number)
                {
                    table.put_back(hash, record.body, record.version, is_log);
                }
            }
            _ => {}
        }
    }

    /// What could not be known while nobody looked.
    pub(super) async fn resume(&self, looks: Looked) {
        let containers = self.containers();
        let by_number: HashMap<u32, &Arc<Container>> =
            containers.values().map(|container| (container.number, container)).collect();
        let looks = looks
            .into_iter()
            .filter_map(|(number, key)| Some((Arc::clone(by_number.get(&number)?), key, None)));
        self.look_later(looks.collect()).await;
        for container in containers.values() {
            let is_stale = container.listing().is_stale;
            if is_stale {
                self.list_again(container);
            }
        }
    }
}
