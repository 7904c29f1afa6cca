//! Events that must not affect the programs: an upload that takes an hour, changes that the bucket refuses for good, and objects that
//! others store in a volume named by inode and that are imported while unused objects are deleted.
//!
//! Checked: while an upload of the first program takes an hour, no op of another program takes as long; while the bucket refuses the
//! first program's changes, it gets all others; each imported file has the bytes of its object.

use super::machine::{Machine, Mount, require_ok};
use super::oracle::describe;
use super::scenario::Scenario;
use super::walk::walk_tree;
use crate::Report;
use bytes::Bytes;
use futures_util::future::join;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{
    Entropy, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore, Pages, Payload, PutOptions,
};

/// Distinguishes the entropy of these events, so that worlds are otherwise the same without them.
const SALT: u64 = 0x6279_7374_616e_6400;
/// One in this many worlds has one of these events.
const ONE_IN_WORLDS: u64 = 3;
/// Time in which the bucket gets all changes that it does not refuse.
const UPLOADED_WITHIN: Duration = Duration::from_secs(120);
/// The directory of imported objects.
const IMPORTED: &str = "imported";

/// The kind of the events in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Stall,
    Refusal,
    Import,
}

/// The events of a world.
pub(super) struct Bystanders {
    event: Option<Event>,
    entropy: Entropy,
    /// The contents of the imported objects, by name.
    imported: BTreeMap<String, Bytes>,
}

impl Bystanders {
    pub(super) fn draw(seed: u64, scenario: Scenario) -> Self {
        let entropy = Entropy::new(seed ^ SALT);
        let has_others = scenario.programs > 1;
        let event = match entropy.below(ONE_IN_WORLDS) > 0 {
            true => None,
            false if !scenario.by_path() => Some(Event::Import),
            false if has_others && scenario.write_back => Some(Event::Refusal),
            false if has_others => Some(Event::Stall),
            false => None,
        };
        Self { event, entropy, imported: BTreeMap::new() }
    }

    /// Begins the events of a session.
    pub(super) fn begin(&self, mount: &Mount, report: &mut Report) {
        match self.event {
            Some(Event::Stall) => {
                mount.injector.stall_first_program();
                report.count("sessions with an upload of an hour");
            }
            Some(Event::Refusal) => {
                mount.injector.refuse_first_program(true);
                report.count("sessions with refused changes");
            }
            Some(Event::Import) | None => {}
        }
    }

    /// Ends the events of a session that ends with a clean shutdown, and checks the bystanders. Faults must be paused.
    pub(super) async fn end(
        &mut self,
        machine: &Machine,
        mount: &Mount,
        report: &mut Report,
    ) -> Result<(), String> {
        match self.event {
            Some(Event::Refusal) => {
                tokio::time::sleep(UPLOADED_WITHIN).await;
                check_uploaded(machine, mount).await?;
                mount.injector.refuse_first_program(false);
                Ok(())
            }
            Some(Event::Import) => {
                report.count("imports beside garbage collections");
                self.import(machine, mount).await
            }
            Some(Event::Stall) | None => Ok(()),
        }
    }

    /// Stores objects as another client, and imports them while unused objects are deleted.
    async fn import(&mut self, machine: &Machine, mount: &Mount) -> Result<(), String> {
        for _ in 0..1 + self.entropy.below(4) {
            let number = self.imported.len();
            let content = Bytes::from(vec![number as u8 + 1; 1 + self.entropy.below(3000) as usize]);
            let name = format!("i{number}");
            let key = format!("{IMPORTED}/{name}");
            let key = ObjectKey::try_from(key.as_str()).map_err(|error| error.to_string())?;
            let put = machine.bucket.put(&key, Payload::from(content.clone()), PutOptions::default()).await;
            put.map_err(|error| format!("direct access to the bucket: {error}"))?;
            self.imported.insert(name, content);
        }
        let collection = async {
            for _ in 0..1 + self.entropy.below(4) {
                tokio::time::sleep(Duration::from_millis(self.entropy.below(20))).await;
                require_ok("garbage collection", mount.fs.admin().collect_garbage(false).await)?;
            }
            Ok::<(), String>(())
        };
        let admin = mount.fs.admin();
        let (imported, collected) = join(admin.import_foreign(), collection).await;
        require_ok("import", imported)?;
        collected?;
        self.check_imported(mount).await
    }

    /// Checks that each imported file has the bytes of its object.
    pub(super) async fn check_imported(&self, mount: &Mount) -> Result<(), String> {
        if self.imported.is_empty() {
            return Ok(());
        }
        let tree = require_ok("read of imported files", walk_tree(&mount.fs, IMPORTED).await)?;
        for (name, content) in &self.imported {
            match tree.get(name).map(|seen| &seen.content) {
                Some(seen) if seen == content => {}
                seen => {
                    let seen = seen.map_or("missing".into(), describe);
                    return Err(format!("the imported '{name}' is {seen} and must be {}", describe(content)));
                }
            }
        }
        Ok(())
    }
}

/// Checks that the bucket has everything that the mount shows, except for the changes of the first program.
async fn check_uploaded(machine: &Machine, mount: &Mount) -> Result<(), String> {
    for number in 1..machine.scenario.programs {
        let prefix = format!("p{number}/");
        let shown = lengths(mount.store.as_ref(), &prefix).await?;
        let stored = lengths(&machine.bucket, &prefix).await?;
        if shown != stored {
            return Err(format!(
                "others' changes wait behind refused ones: the bucket has {stored:?} and must have {shown:?}"
            ));
        }
    }
    Ok(())
}

/// Returns the lengths of objects by key.
async fn lengths(store: &dyn ObjectStore, prefix: &str) -> Result<BTreeMap<ObjectKey, u64>, String> {
    let request = ListRequest { prefix: prefix.to_owned().into(), limit: 100, ..ListRequest::default() };
    let entries =
        Pages::new(store, request).collect().await.map_err(|error| format!("cannot list: {error}"))?;
    let objects = entries.into_iter().filter_map(|entry| match entry {
        ListEntry::Object(ListedObject { object, size_bytes, .. }) => Some((object.key, size_bytes)),
        ListEntry::Prefix(_) => None,
    });
    Ok(objects.collect())
}
