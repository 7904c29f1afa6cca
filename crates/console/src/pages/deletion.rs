//! Deleting objects and directories: a page that asks, and the deletion.

use crate::display::{self, encode};
use crate::objects::listing::Wanted;
use crate::objects::{ObjectName, Objects};
use crate::pages::directory::{breadcrumbs, location};
use crate::pages::layout::{Page, show_page, show_page_with};
use crate::pages::visit::Visit;
use crate::process::Tone;
use crate::reply::{Failure, Reply};
use crate::request::{Fields, decode};
use futures_util::StreamExt as _;
use http::StatusCode;
use maud::html;

/// Maximum rows of a listing, and the number up to which the objects of a directory are counted before the deletion.
const ROWS: usize = 1000;
/// Maximum number of deletions at a time.
const CONCURRENT: usize = 16;
/// Number of objects that cannot be deleted after which a deletion ends: the user has no right to most of the others.
const KEPT_MAX: usize = 1000;
/// Maximum number of selected objects that the page names. All selected directories are named.
const NAMES_MAX: usize = 100;

/// Objects and directories that a form selects.
struct Selection {
    bucket: String,
    /// Prefix of the directory whose page is shown after the deletion.
    back: String,
    /// Keys of the selected objects.
    keys: Vec<String>,
    /// Prefixes of the selected directories, each with `/` at its end.
    prefixes: Vec<String>,
    /// The version of the object to remove; `None` to delete the selected objects themselves.
    version: Option<String>,
}

impl Selection {
    /// Reads the selection from a form. Fails if nothing is selected.
    fn of(form: &Fields) -> Result<Self, Failure> {
        let selection = Self {
            bucket: form.text("bucket").to_owned(),
            back: decode(form.text("back")),
            keys: form.keys("key"),
            prefixes: form.keys("prefix"),
            version: form.non_empty("version").map(str::to_owned),
        };
        // An empty prefix would be the whole bucket.
        if selection.prefixes.iter().any(|prefix| !prefix.ends_with('/')) {
            return Err(Failure::bad_request("A directory's prefix ends with '/'."));
        }
        if selection.keys.is_empty() && selection.prefixes.is_empty() {
            return Err(Failure::bad_request("Nothing is selected."));
        }
        Ok(selection)
    }
}

/// Shows what would be deleted, and asks.
pub(crate) async fn confirm(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let selection = Selection::of(form)?;
    let mut directories = Vec::new();
    for prefix in &selection.prefixes {
        let wanted = Wanted { prefix, rows_max: ROWS, ..Wanted::default() };
        let listing = visit.objects().list(&selection.bucket, &wanted).await?;
        let count = display::counted(listing.objects.len() as u64, "object");
        let count = if listing.next.is_some() { format!("more than {count}") } else { count };
        directories.push((prefix, count));
    }
    let content = html! {
        (breadcrumbs(&selection.bucket, &selection.back))
        div.card {
            @if let Some(version) = &selection.version {
                p { "The version " code { (version) } " of this object is removed for good:" }
            } @else {
                p { "These are deleted:" }
            }
            ul.names {
                @for (prefix, count) in &directories { li { bdi { (display::name(prefix)) } " with " (count) } }
                @for key in selection.keys.iter().take(NAMES_MAX) { li { bdi { (display::name(key)) } } }
                @if selection.keys.len() > NAMES_MAX { li { "and " (selection.keys.len() - NAMES_MAX) " more" } }
            }
            form.row method="post" action="/delete" {
                (visit.csrf_field())
                input type="hidden" name="bucket" value=(selection.bucket);
                input type="hidden" name="back" value=(encode(&selection.back));
                @for key in &selection.keys { input type="hidden" name="key" value=(encode(key)); }
                @for prefix in &selection.prefixes { input type="hidden" name="prefix" value=(encode(prefix)); }
                @if let Some(version) = &selection.version { input type="hidden" name="version" value=(version); }
                button.danger type="submit" { "Delete" }
                a.button href=(location(&selection.bucket, &selection.back)) { "Cancel" }
            }
        }
    };
    Ok(show_page(visit, Page { title: "Delete?", entry: "/buckets", refresh_secs: None, content }))
}

/// The objects that a deletion has deleted, and those that it could not delete.
#[derive(Debug, Default)]
struct Outcome {
    /// Number of deleted objects.
    deleted: u64,
    /// Keys of objects that were not deleted, with the reasons.
    kept: Vec<(String, Failure)>,
}

impl Outcome {
    /// Counts the outcome of the deletion of an object.
    fn add(&mut self, (key, outcome): (String, Result<(), Failure>)) {
        match outcome {
            Ok(()) => self.deleted += 1,
            Err(failure) => self.kept.push((key, failure)),
        }
    }

    /// Returns whether so many objects were not deleted that the deletion ends.
    fn ends_deletion(&self) -> bool {
        self.kept.len() >= KEPT_MAX
    }

    /// Returns whether a directory contains an object that was not deleted.
    fn has_kept_below(&self, directory: &str) -> bool {
        self.kept.iter().any(|(key, _)| key.starts_with(directory))
    }
}

/// Deletes the selected objects, and the selected directories with everything in them. An object that cannot be deleted
/// does not keep others from being deleted; the page that follows names it.
pub(crate) async fn delete(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let selection = Selection::of(form)?;
    let (objects, bucket) = (visit.objects(), selection.bucket.as_str());
    let mut outcome = Outcome::default();
    delete_all(&objects, bucket, &selection.keys, selection.version.as_deref(), &mut outcome).await;
    for prefix in &selection.prefixes {
        if !outcome.ends_deletion() {
            delete_below(&objects, bucket, prefix, &mut outcome).await?;
        }
    }
    if !outcome.kept.is_empty() {
        return Ok(show_kept(visit, &selection, &outcome));
    }
    let text = format!("Deleted {}.", display::counted(outcome.deleted, "object"));
    Ok(visit.redirect(&location(bucket, &selection.back), Tone::Good, text))
}

/// Returns the page that names the objects that were not deleted, with the status of the first failure.
fn show_kept(visit: &Visit, selection: &Selection, outcome: &Outcome) -> Reply {
    let status = outcome.kept.first().map_or(StatusCode::CONFLICT, |(_, failure)| failure.status);
    let content = html! {
        (breadcrumbs(&selection.bucket, &selection.back))
        p.notice.failure role="alert" {
            "Deleted " (display::counted(outcome.deleted, "object")) ", but not "
            (display::counted(outcome.kept.len() as u64, "object"))
            @if outcome.ends_deletion() { ", after which the deletion ended" }
            ":"
        }
        ul.names {
            @for (key, failure) in outcome.kept.iter().take(NAMES_MAX) {
                li { bdi { (display::name(key)) } ": " (failure.message) }
            }
            @if outcome.kept.len() > NAMES_MAX { li { "and " (outcome.kept.len() - NAMES_MAX) " more" } }
        }
        p { a href=(location(&selection.bucket, &selection.back)) { "Go back to the directory" } }
    };
    let page = Page { title: "Not everything was deleted", entry: "/buckets", refresh_secs: None, content };
    show_page_with(status, visit, page)
}

/// Deletes the objects with a prefix. Those of directories, whose keys end with `/`, come after all others and in
/// descending order, so that a directory is empty when its own object is deleted. Directories in which an object was not
/// deleted are left alone.
///
/// # Errors
/// The objects cannot be listed, and none was deleted so far.
async fn delete_below(
    objects: &Objects<'_>,
    bucket: &str,
    prefix: &str,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let (mut token, mut directories) = (None::<String>, Vec::new());
    loop {
        let wanted = Wanted { prefix, token: token.as_deref(), rows_max: ROWS, ..Wanted::default() };
        let listing = match objects.list(bucket, &wanted).await {
            Err(failure) if outcome.deleted > 0 => {
                outcome.kept.push((prefix.to_owned(), failure));
                return Ok(());
            }
            listed => listed?,
        };
        let keys = listing.objects.into_iter().map(|object| object.key);
        let (own, keys): (Vec<_>, Vec<_>) = keys.partition(|key| key.ends_with('/'));
        directories.extend(own);
        delete_all(objects, bucket, &keys, None, outcome).await;
        if outcome.ends_deletion() {
            return Ok(());
        }
        token = listing.next;
        if token.is_none() {
            break;
        }
    }
    directories.reverse();
    for directory in directories {
        if !outcome.has_kept_below(&directory) {
            outcome.add(delete_one(objects, ObjectName { bucket, key: &directory, version: None }).await);
        }
    }
    Ok(())
}

/// Deletes objects, several at a time. Tries all of them.
async fn delete_all(
    objects: &Objects<'_>,
    bucket: &str,
    keys: &[String],
    version: Option<&str>,
    outcome: &mut Outcome,
) {
    let mut deletions = Vec::with_capacity(keys.len());
    for key in keys {
        deletions.push(delete_one(objects, ObjectName { bucket, key, version }));
    }
    let outcomes: Vec<_> = futures_util::stream::iter(deletions).buffered(CONCURRENT).collect().await;
    outcomes.into_iter().for_each(|one| outcome.add(one));
}

/// Deletes an object. Returns its key with the outcome.
async fn delete_one(objects: &Objects<'_>, name: ObjectName<'_>) -> (String, Result<(), Failure>) {
    (name.key.to_owned(), objects.delete(name).await)
}
