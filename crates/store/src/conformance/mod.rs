//! The conformance tests of [`ObjectStore`] and [`Buckets`](crate::Buckets): the behaviour that callers may rely on, one
//! behaviour per case.
//!
//! ```text
//! conformance::run(|| async { Ok(fresh_store()) }, Capabilities::ALL).await.unwrap();
//! ```
//!
//! Each case gets a new, empty store from the factory, so that cases may use any key. [`Capabilities`] describe what
//! a server supports. If it lacks tags or a condition, or refuses a key, the suite asserts that the store returns an
//! error (`Unsupported` or `InvalidKey`), because silently ignoring a condition is worse than refusing it. For any
//! other missing capability the suite skips or relaxes the checks.
//!
//! The suite decides cases that S3 leaves open: requiring an etag of a missing key fails with `PreconditionFailed`, for
//! `put` and `delete` alike; completing an upload without parts is `Invalid`; a range that begins at the end is
//! `InvalidRange`, also for an empty object.

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

/// Time limit of a case: ten times what the slowest known server needs.
const CASE_TIMEOUT: Duration = Duration::from_secs(180);

/// Optional abilities of an implementation.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Returns whether the store refuses a key with `InvalidKey`.
    pub refuses: fn(&ObjectKey) -> bool,
    /// Returns whether listings contain a key wrongly, although the object exists.
    pub lists_wrongly: fn(&ObjectKey) -> bool,
    /// The store can hold an object `a` and objects `a/...` at the same time. Other stores may refuse or hide one of them.
    pub object_beside_directory: bool,
    /// The store can store an object while the last other object of its directory is removed. A server that keeps objects as
    /// files and removes empty directories may fail.
    pub steady_neighbours: bool,
    /// Pages of listings are correct for delimiters other than `/`.
    pub any_delimiter: bool,
    /// The store honours `Precondition::Matches` of `put`.
    pub put_matches: bool,
    /// The store honours preconditions of `delete`.
    pub conditional_delete: bool,
    /// The store honours preconditions at the target of `copy`.
    pub conditional_copy: bool,
    /// The store honours preconditions of `Multipart::complete`.
    pub conditional_complete: bool,
    /// The store has object tags.
    pub tags: bool,
    /// The store has tags that are not ASCII.
    pub unicode_tags: bool,
    /// The store's `copy` preserves tags.
    pub copies_tags: bool,
    /// The store has user metadata that is not ASCII.
    pub unicode_metadata: bool,
    /// Listings have the attributes of objects if they are asked for.
    pub lists_attributes: bool,
    /// Minimum size of every part but the last, in bytes.
    pub part_bytes_min: usize,
}

impl Capabilities {
    /// All abilities and any key; parts of at least 5 MiB.
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
        lists_attributes: true,
        part_bytes_min: 5 << 20,
    };
}

/// The failed cases, by name. `Debug` prints one line per case.
pub struct Failures(Vec<(&'static str, Failure)>);

impl Failures {
    /// Returns the names of the failed cases.
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

/// Runs every case on a store of its own. Returns the number of passed cases, or all failed cases.
pub async fn run<Factory, Making>(factory: Factory, capabilities: Capabilities) -> Result<usize, Failures>
where
    Factory: Fn() -> Making,
    Making: Future<Output = Result<Arc<dyn ObjectStore>>>,
{
    run_each(object_cases(), factory, |store| World { store, capabilities }).await
}

/// Runs every case on a store of its own from the factory.
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

/// A case: its name and the code that checks it.
struct Case<World> {
    name: &'static str,
    run: fn(World) -> BoxFuture<'static, Outcome>,
}

/// Makes cases of async functions, under the functions' names.
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
            an_empty_object, a_small_object, a_rope_of_many_pieces, nine_mebibytes, missing_objects,
            ranges_inside, ranges_that_end_beyond, ranges_that_begin_beyond, get_if_match,
        }
        attributes::{
            content_headers, user_metadata, unicode_metadata, tags_with_put, tags_counted, tags_replaced,
            overwriting_replaces_attributes, attributes_in_listings,
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
            nothing, byte_order, prefixes, prefixes_inside_characters, folding, objects_and_prefixes_in_one_order, start_after,
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

/// Runs a case until it ends, panics or reaches the time limit.
async fn finish(case: BoxFuture<'static, Outcome>) -> Outcome {
    match tokio::time::timeout(CASE_TIMEOUT, tokio::spawn(case)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Failure::new(panic.to_string())),
        Err(_) => Err(Failure::new(format!("not done after {} s", CASE_TIMEOUT.as_secs()))),
    }
}

/// Returns the number of cases, or those that failed.
fn verdict(results: Vec<(&'static str, Outcome)>) -> Result<usize, Failures> {
    let total = results.len();
    let failed: Vec<_> =
        results.into_iter().filter_map(|(name, outcome)| Some((name, outcome.err()?))).collect();
    if failed.is_empty() { Ok(total) } else { Err(Failures(failed)) }
}
