//! A tree is compared with a simple model.

use super::{World, name, object, split};
use proptest::prelude::*;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use views::ObjectName;
use views::tree::TreeError;

/// Model of a view: objects, each with the directory that its property names, and the directories that the client
/// made.
#[derive(Debug, Default)]
struct Model {
    objects: BTreeMap<ObjectName, String>,
    made: BTreeSet<String>,
}

impl Model {
    /// Returns all directories except the top.
    fn directories(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for directory in self.objects.values().chain(&self.made) {
            let names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
            all.extend((1..=names.len()).map(|len| names[..len].join("/")));
        }
        all
    }

    /// Moves a directory, or a file to another directory. Returns whether that is allowed.
    fn rename(&mut self, from: &str, to: &str) -> bool {
        let (above, last) = to.rsplit_once('/').unwrap_or(("", to));
        let (from_above, from_last) = from.rsplit_once('/').unwrap_or(("", from));
        let all = self.directories();
        if let Some(Some(object)) = self.list(from_above).0.remove(from_last) {
            let has_parent = above.is_empty() || all.contains(above);
            let is_taken = self.list(above).0.contains_key(last);
            let can = !to.is_empty() && (from == to || last == from_last && has_parent && !is_taken);
            if can {
                self.objects.insert(object, above.to_owned());
            }
            return can;
        }
        let is_file = matches!(self.list(above).0.get(last), Some(Some(_)));
        let is_free = !all.contains(to) && !is_file;
        let (entries, longer) = self.list(to);
        let is_empty = all.contains(to) && entries.is_empty() && longer == 0;
        let can = !from.is_empty()
            && !to.is_empty()
            && all.contains(from)
            && (from == to
                || !within(to, from) && (above.is_empty() || all.contains(above)) && (is_free || is_empty));
        if can && from != to {
            let moved = |path: &String| match path.strip_prefix(from) {
                Some(rest) if within(path, from) => format!("{to}{rest}"),
                _ => path.clone(),
            };
            self.objects.values_mut().for_each(|at| *at = moved(at));
            self.made = self.made.iter().map(moved).collect();
        }
        can
    }

    /// Returns the plain names in a directory, and the number of objects that have longer names because their plain
    /// name is taken.
    fn list(&self, directory: &str) -> (BTreeMap<String, Option<ObjectName>>, usize) {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let beneath = self.directories().into_iter().filter_map(|path| {
            let rest = path.strip_prefix(&prefix)?;
            (!rest.contains('/')).then(|| (rest.to_owned(), None))
        });
        let mut entries: BTreeMap<String, Option<ObjectName>> = beneath.collect();
        let mut longer = 0;
        for (object, _) in self.objects.iter().filter(|(_, lies)| *lies == directory) {
            let key = String::from_utf8_lossy(object.key.as_bytes()).into_owned();
            let last = key.rsplit('/').next().unwrap().to_owned();
            match entries.entry(last) {
                Entry::Occupied(_) => longer += 1,
                Entry::Vacant(free) => drop(free.insert(Some(object.clone()))),
            }
        }
        (entries, longer)
    }
}

/// Returns whether a path equals another one or lies below it.
fn within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[derive(Debug, Clone)]
enum Step {
    Put(String, String),
    Remove(String),
    MakeDirectory(String),
    RemoveDirectory(String),
    LocalPut(String, String),
    LocalRemove(String),
    HandlerRestarts,
    Rename(String, String),
    HandlerCatchesUp,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || "(a|b|c/a|c/b|d/a|d/b[.]x|e/b[.]x)";
    let directory = || "(|u|v|u/v|u/v/a|a)";
    let step = prop_oneof![
        (key(), directory()).prop_map(|(key, at)| Step::Put(key, at)),
        (key(), directory()).prop_map(|(key, at)| Step::Put(key, at)),
        key().prop_map(Step::Remove),
        directory().prop_map(Step::MakeDirectory),
        directory().prop_map(Step::RemoveDirectory),
        (key(), directory()).prop_map(|(key, at)| Step::LocalPut(key, at)),
        key().prop_map(Step::LocalRemove),
        Just(Step::HandlerRestarts),
        (directory(), directory()).prop_map(|(from, to)| Step::Rename(from, to)),
        (directory(), directory()).prop_map(|(from, to)| Step::Rename(from, to)),
        Just(Step::HandlerCatchesUp),
    ];
    proptest::collection::vec(step, 1..40)
}

async fn apply_step(world: &World, model: &mut Model, step: Step) {
    match step {
        Step::Put(key, at) => {
            let shown = world.bucket.put(&key, &at).await;
            world.handler.put(shown);
            model.objects.insert(name(&key), at);
        }
        // A removal that the handler reports has no time, so the tree takes it for late unless the handler has
        // confirmed this client's changes before.
        Step::Remove(key) => {
            let_handler_catch_up(world, model).await;
            world.bucket.remove(&key).await;
            world.handler.remove(&name(&key));
            model.objects.remove(&name(&key));
        }
        // The handler learns of the change, too, but the tree knew it before.
        Step::LocalPut(key, at) => {
            let shown = world.bucket.put(&key, &at).await;
            world.tree.notify_stored(shown.clone());
            model.objects.insert(name(&key), at.clone());
            compare(world, model).await;
            world.handler.put(shown);
        }
        Step::LocalRemove(key) => {
            world.bucket.remove(&key).await;
            world.tree.notify_removed(&name(&key));
            if let Some(at) = model.objects.remove(&name(&key)).filter(|at| !at.is_empty()) {
                model.made.insert(at);
            }
            compare(world, model).await;
            world.handler.remove(&name(&key));
        }
        Step::MakeDirectory(path) => {
            let made = world.tree.make_directory(&split(&format!("set/{path}"))).await;
            let (above, last) = path.rsplit_once('/').unwrap_or(("", &path));
            let has_parent = above.is_empty() || model.directories().contains(above);
            let is_taken = model.list(above).0.contains_key(last);
            assert_eq!(made.is_ok(), !path.is_empty() && has_parent && !is_taken, "{path}: {made:?}");
            if made.is_ok() {
                model.made.insert(path);
            }
        }
        Step::RemoveDirectory(path) => {
            let removed = world.tree.remove_directory(&split(&format!("set/{path}"))).await;
            let is_there = model.directories().contains(&path);
            let (entries, longer) = model.list(&path);
            let is_empty = is_there && entries.is_empty() && longer == 0;
            assert_eq!(removed.is_ok(), is_empty, "{path}: {removed:?}");
            if is_empty {
                model.made.remove(&path);
            }
        }
        Step::HandlerRestarts => world.handler.restart(),
        Step::Rename(from, to) => {
            let (from_path, to_path) = (format!("set/{from}"), format!("set/{to}"));
            let renamed = world.tree.rename(&split(&from_path), &split(&to_path)).await;
            assert_eq!(renamed.is_ok(), model.rename(&from, &to), "{from} to {to}: {renamed:?}");
        }
        // Events of moved objects arrive late, perhaps not before the next rename.
        Step::HandlerCatchesUp => let_handler_catch_up(world, model).await,
    }
}

async fn let_handler_catch_up(world: &World, model: &Model) {
    world.followed().await;
    for (object, at) in &model.objects {
        let key = String::from_utf8_lossy(object.key.as_bytes());
        assert_eq!(world.bucket.directory(&key).await, *at, "{key}");
        world.handler.put(world.bucket.shown(&key).await);
    }
    world.names("set").await;
}

async fn compare(world: &World, model: &Model) {
    for directory in model.directories().into_iter().chain([String::new()]) {
        let path = format!("set/{directory}");
        let names = world.names(&path).await;
        assert!(names.is_sorted_by(|a, b| a.trim_end_matches('/') < b.trim_end_matches('/')), "{names:?}");
        let (entries, longer) = model.list(&directory);
        assert_eq!(names.len(), entries.len() + longer, "{directory}: {names:?} {entries:?}");
        let mut keys = BTreeSet::new();
        for shown in &names {
            let found = world.key(&format!("{path}/{}", shown.trim_end_matches('/'))).await.unwrap();
            assert_eq!(found == "/", shown.ends_with('/'));
            keys.extend((found != "/").then_some(found));
        }
        for (last, object) in entries {
            let found = world.key(&format!("{path}/{last}")).await.unwrap();
            let wanted = object
                .map_or("/".into(), |object| String::from_utf8_lossy(object.key.as_bytes()).into_owned());
            assert_eq!(found, wanted, "{directory}/{last}");
        }
        let all = model.objects.values().filter(|lies| **lies == directory).count();
        assert_eq!(keys.len(), all, "{directory}: {names:?}");
    }
    assert_eq!(world.tree.status()[0].objects, model.objects.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn s270_s271_s272_a_tree_agrees_with_a_model(steps in steps(), page in 0_usize..4) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let world = World::new("set: {container: bucket}").await;
            world.handler.page.store(page, Ordering::Relaxed);
            let mut model = Model::default();
            for step in steps {
                apply_step(&world, &mut model, step).await;
                compare(&world, &model).await;
            }
            apply_step(&world, &mut model, Step::HandlerCatchesUp).await;
            compare(&world, &model).await;
        });
    }
}

/// A longer name stays valid. If another object has it as its plain name, the first object gets another longer name.
#[tokio::test]
async fn s270_longer_names_of_namesakes_stay_valid() {
    let world = World::new("set: {container: bucket}").await;
    world.handler.put(object("b/x.fq", ""));
    assert_eq!(world.names("set").await, ["x.fq"]);
    world.handler.put(object("c/x.fq", ""));
    let names = world.names("set").await;
    assert_eq!((names.len(), names[0].as_str()), (2, "x.fq"));
    let long = names[1].clone();
    assert!(long.starts_with("x~") && long.ends_with(".fq") && long.len() == 13, "{long}");
    assert_eq!(world.key(&format!("set/{long}")).await.unwrap(), "c/x.fq");
    world.handler.remove(&name("b/x.fq"));
    assert_eq!(world.names("set").await, ["x.fq"]);
    for path in [format!("set/{long}"), "set/x.fq".to_owned()] {
        assert_eq!(world.key(&path).await.unwrap(), "c/x.fq");
    }
    world.handler.put(object(&format!("a/{long}"), ""));
    assert_eq!(world.key(&format!("set/{long}")).await.unwrap(), format!("a/{long}"));
    world.handler.put(object("b/x.fq", ""));
    let names = world.names("set").await;
    assert_eq!(names.len(), 3, "{names:?}");
    let mut keys = Vec::new();
    for shown in names {
        keys.push(world.key(&format!("set/{shown}")).await.unwrap());
    }
    keys.sort();
    assert_eq!(keys, [format!("a/{long}"), "b/x.fq".into(), "c/x.fq".into()]);
}

#[tokio::test]
async fn s271_without_directories_all_objects_lie_in_the_view() {
    let world = World::new("flat: {container: bucket, directories: off}\ndeep: {container: bucket}").await;
    world.handler.put(object("a", "u/v"));
    world.handler.put(object("marker/", ""));
    world.handler.put(object("b", "../v"));
    assert_eq!(world.names("").await, ["deep/", "flat/"]);
    assert_eq!(world.names("flat").await, ["a", "b"]);
    assert_eq!(world.names("deep").await, ["b", "u/"]);
    assert_eq!(world.names("deep/u/v").await, ["a"]);
    let made = world.tree.make_directory(&split("flat/u")).await;
    assert!(matches!(made, Err(TreeError::Invalid(_))), "{made:?}");
    for path in ["other", "flat", ""] {
        assert!(matches!(world.tree.make_directory(&split(path)).await, Err(TreeError::Fixed)));
        assert!(matches!(world.tree.remove_directory(&split(path)).await, Err(TreeError::Fixed)));
    }
}
