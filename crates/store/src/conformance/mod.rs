//! One suite for every implementation of the seams: what callers may rely on, one behaviour per case.
//!
//! ```text
//! conformance::run(|| async { Ok(fresh_store()) }, Capabilities::ALL).await.unwrap();
//! ```
//!
//! Each case gets a fresh, empty store from the factory, so cases may use any key. What a server cannot do is
//! told by [`Capabilities`]; then the suite asserts that the store *says* so (`Unsupported` or `InvalidKey`),
//! because a condition that is silently ignored is worse than one that is refused.
//!
//! Decided here, where S3 leaves room: a condition on a key that is not there fails with `PreconditionFailed`,
//! for `put` and `delete` alike; completing an upload of no parts is `Invalid`; a range that begins at the end
//! is `InvalidRange`, also for an empty object.

mod attributes;
mod buckets;
mod copies;
mod keys;
mod listing;
mod multipart;
mod objects;
mod races;
mod uploads;
mod versions;
mod world;
mod writes;

pub use buckets::run_buckets;
pub use uploads::run_uploads;
pub use versions::run_versions;
pub use world::{Failure, Outcome, World};

use crate::{ObjectKey, ObjectStore, Result};
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A case that takes longer has failed: the slowest known server needs a tenth of it.
const CASE_TIMEOUT: Duration = Duration::from_secs(180);

/// What an implementation can do beyond the least.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Keys it answers `InvalidKey` for.
    pub refuses: fn(&ObjectKey) -> bool,
    /// Keys whose names listings get wrong, though the objects are there.
    pub lists_wrongly: fn(&ObjectKey) -> bool,
    /// Keeps an object `a` beside objects `a/...`; a store that does not may refuse or hide one of them.
    pub object_beside_directory: bool,
    /// Stores an object while the last one beside it goes; a server that keeps objects as files and removes a
    /// directory with its last one may fail to.
    pub steady_neighbours: bool,
    /// Pages through listings folded at something else than `/`.
    pub any_delimiter: bool,
    /// Honours `Precondition::Matches` at `put`.
    pub put_matches: bool,
    /// Honours preconditions at `delete`.
    pub conditional_delete: bool,
    /// Honours preconditions at the target of `copy`.
    pub conditional_copy: bool,
    /// Honours preconditions at `Multipart::complete`.
    pub conditional_complete: bool,
    /// Has object tags.
    pub tags: bool,
    /// Has tags that are not ASCII.
    pub unicode_tags: bool,
    /// Keeps tags at `copy`.
    pub copies_tags: bool,
    /// Keeps user metadata that is not ASCII.
    pub unicode_metadata: bool,
    /// The smallest size of every part but the last, in bytes.
    pub part_bytes_min: usize,
}

impl Capabilities {
    /// Everything, and any key; parts of at least 5 MiB.
    pub const ALL: Self = Self {
        refuses: |_| false,
        lists_wrongly: |_| false,
        object_beside_directory: true,
        steady_neighbours: true,
        any_delimiter: true,
        put_matches: true,
        conditional_delete: true,
        conditional_copy: true,
        conditional_complete: true,
        tags: true,
        unicode_tags: true,
        copies_tags: true,
        unicode_metadata: true,
        part_bytes_min: 5 << 20,
    };
}

/// The cases that failed, by name; its `Debug` is one line per case.
pub struct Failures(Vec<(&'static str, Failure)>);

impl Failures {
    /// The names of the cases that failed.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cases failed:", self.0.len())?;
        self.0.iter().try_for_each(|(name, failure)| write!(f, "\n  {name}: {failure}"))
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failures {}

/// Runs every case on a store of its own; the number of cases passed, or all that failed.
pub async fn run<Factory, Making>(factory: Factory, capabilities: Capabilities) -> Result<usize, Failures>
where
    Factory: Fn() -> Making,
    Making: Future<Output = Result<Arc<dyn ObjectStore>>>,
{
    run_each(object_cases(), factory, |store| World { store, capabilities }).await
}

/// Runs every case on a world of its own, made of what the factory makes.
async fn run_each<Made, World, Factory, Making>(
    cases: Vec<Case<World>>,
    factory: Factory,
    world: impl Fn(Made) -> World,
) -> Result<usize, Failures>
where
    Factory: Fn() -> Making,
    Making: Future<Output = Result<Made>>,
{
    let mut results = Vec::new();
    for case in cases {
        let outcome = match factory().await {
            Ok(made) => finish((case.run)(world(made))).await,
            Err(error) => Err(error.into()),
        };
        results.push((case.name, outcome));
    }
    verdict(results)
}

/// A behaviour: its name and the code that checks it.
struct Case<World> {
    name: &'static str,
    run: fn(World) -> BoxFuture<'static, Outcome>,
}

/// Lists async functions as cases under their own names.
macro_rules! cases {
    ($($module:ident :: { $($case:ident),+ $(,)? })+) => {
        vec![$($(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            run: |world| Box::pin($module::$case(world)),
        }),+),+]
    };
}
use cases;

fn object_cases() -> Vec<Case<World>> {
    cases! {
        objects::{
            an_empty_object, a_small_object, a_rope_of_many_pieces, nine_mebibytes, what_is_not_there,
            ranges_inside, ranges_that_end_beyond, ranges_that_begin_beyond, get_if_match,
        }
        attributes::{
            content_headers, user_metadata, unicode_metadata, tags_with_put, tags_counted, tags_replaced,
            overwriting_replaces_attributes,
        }
        writes::{
            overwriting_gives_a_new_etag, an_old_etag_is_gone, put_if_absent, put_if_matches,
            put_if_matches_on_a_missing_key, delete_is_idempotent, delete_if_matches, bytes_as_they_come,
            bytes_that_break_off, bytes_as_they_come_under_a_condition,
        }
        copies::{
            copy_keeps_headers, copy_replaces_headers, copy_of_a_changed_source, copy_of_a_missing_source,
            copy_onto_itself, copy_if_absent, copy_if_matches, copy_keeps_tags, copy_replaces_tags, rename_moves, rename_replaces,
            rename_under_conditions,
        }
        listing::{
            nothing, byte_order, prefixes, folding, objects_and_prefixes_in_one_order, start_after,
            start_after_while_folding, start_after_inside_a_folded_prefix, pages_of_any_size,
            many_keys, entries_describe_objects, another_delimiter, changes_between_pages,
        }
        keys::{
            an_object_beside_a_directory, paths_that_are_not_names, long_keys, special_characters,
            control_characters, unicode, bytes_that_are_not_utf8, names_of_our_own, deep_keys, empty_markers,
        }
        multipart::{
            parts_out_of_order, a_part_sent_twice, parts_of_stored_objects, invisible_until_complete,
            abort_leaves_nothing, complete_if_absent, complete_if_matches,
            a_refused_complete_may_be_repeated, no_parts, attributes_and_tags,
            one_small_part, a_part_of_a_changed_source,
        }
        races::{
            one_creator_wins, one_replacer_wins, writers_of_one_key, readers_see_whole_objects,
            creating_and_deleting_neighbours,
        }
    }
}

/// Lets a case run to its end, its panic or the time limit.
async fn finish(case: BoxFuture<'static, Outcome>) -> Outcome {
    match tokio::time::timeout(CASE_TIMEOUT, tokio::spawn(case)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Failure::new(panic.to_string())),
        Err(_) => Err(Failure::new(format!("not done after {} s", CASE_TIMEOUT.as_secs()))),
    }
}

fn verdict(results: Vec<(&'static str, Outcome)>) -> Result<usize, Failures> {
    let total = results.len();
    let failed: Vec<_> =
        results.into_iter().filter_map(|(name, outcome)| Some((name, outcome.err()?))).collect();
    if failed.is_empty() { Ok(total) } else { Err(Failures(failed)) }
}
