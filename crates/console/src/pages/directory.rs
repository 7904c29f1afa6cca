//! A directory of a bucket: its subdirectories and objects, page by page.

use crate::display::{self, encode};
use crate::objects::Objects;
use crate::objects::listing::{Listing, Wanted};
use crate::pages::layout::{Page, show_page};
use crate::pages::visit::Visit;
use crate::process::Tone;
use crate::reply::{Failure, Reply};
use crate::request::{Fields, decode};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Maximum number of subdirectories and objects on a page.
const ROWS: usize = 200;

/// Returns the path of a directory's page.
pub(crate) fn location(bucket: &str, prefix: &str) -> String {
    format!("/bucket?name={}&prefix={}", encode(bucket), encode(prefix))
}

/// Returns the path of an object's page.
pub(crate) fn object_location(bucket: &str, key: &str) -> String {
    format!("/object?bucket={}&key={}", encode(bucket), encode(key))
}

/// Returns the prefix of the directory that a key is in; empty for the top of the bucket.
pub(crate) fn parent(key: &str) -> &str {
    let inner = key.strip_suffix('/').unwrap_or(key);
    inner.rfind('/').map_or("", |at| &key[..=at])
}

/// Rights of a user on a page of a directory.
#[derive(Debug)]
struct Rights {
    /// Whether the user may store any object in the directory.
    store: bool,
    /// Keys of the objects that the user may delete, and prefixes of the directories in which the user may delete
    /// everything, as far as bucket policies have no rule for single objects in them.
    deletable: BTreeSet<String>,
}

impl Rights {
    /// Returns the rights on the rows of a listing. Bucket policies decide for each key.
    async fn of(objects: &Objects<'_>, (bucket, prefix): (&str, &str), listing: &Listing) -> Self {
        let mut deletable = BTreeSet::new();
        let keys = listing.objects.iter().map(|object| (&object.key, object.key.clone()));
        let directories = listing.directories.iter().map(|prefix| (prefix, format!("{prefix}*")));
        for (name, resource) in keys.chain(directories) {
            if objects.allows("s3:DeleteObject", bucket, Some(&resource)).await {
                deletable.insert(name.clone());
            }
        }
        let store = objects.allows("s3:PutObject", bucket, Some(&format!("{prefix}*"))).await;
        Self { store, deletable }
    }

    /// Returns whether the user may delete an object, or everything in a directory.
    fn deletes(&self, name: &str) -> bool {
        self.deletable.contains(name)
    }
}

/// Shows a page of a directory.
pub(crate) async fn show(visit: &Visit, query: &Fields) -> Result<Reply, Failure> {
    let (bucket, prefix) = (query.text("name"), query.text("prefix"));
    let objects = visit.objects();
    let wanted = Wanted {
        prefix,
        token: query.non_empty("token"),
        by_directory: true,
        rows_max: ROWS,
        with_metadata: false,
    };
    let listing = objects.list(bucket, &wanted).await?;
    let rights = Rights::of(&objects, (bucket, prefix), &listing).await;
    let content = html! {
        (breadcrumbs(bucket, prefix))
        @if rights.store { (tools(visit, bucket, prefix)) }
        (table(visit, (bucket, prefix), &listing, &rights))
        (paging(bucket, prefix, query, &listing))
    };
    let title = display::name(prefix.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
    let title = if title.is_empty() { display::name(bucket) } else { title };
    Ok(show_page(visit, Page { title: &title, entry: "/buckets", refresh_secs: None, content }))
}

/// Returns links to the bucket and to each directory on the way to a prefix.
pub(crate) fn breadcrumbs(bucket: &str, prefix: &str) -> Markup {
    let ends: Vec<usize> = prefix.match_indices('/').map(|(at, _)| at + 1).collect();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let steps: Vec<(&str, &str)> =
        starts.zip(&ends).map(|(start, end)| (&prefix[start..*end - 1], &prefix[..*end])).collect();
    html! {
        nav.crumbs aria-label="Directories" { ol {
            li { a href="/buckets" { "Buckets" } }
            li { a href=(location(bucket, "")) aria-current=[steps.is_empty().then_some("page")] { bdi { (display::name(bucket)) } } }
            @for (at, (name, prefix)) in steps.iter().enumerate() {
                li {
                    a href=(location(bucket, prefix)) aria-current=[(at + 1 == steps.len()).then_some("page")] {
                        bdi { @if name.is_empty() { "(no name)" } @else { (display::name(name)) } }
                    }
                }
            }
        } }
    }
}

/// Returns the forms for uploads and for a new directory.
fn tools(visit: &Visit, bucket: &str, prefix: &str) -> Markup {
    html! {
        div.tools {
            form.row #upload data-bucket=(bucket) data-prefix=(encode(prefix)) {
                label for="files" { "Upload" }
                input #files type="file" multiple required;
                label.check { input #replace type="checkbox"; " Replace existing objects" }
                button.primary type="submit" { "Upload" }
                noscript { p.hint { "Uploads need JavaScript." } }
            }
            ul #uploads aria-live="polite" {}
            form.row method="post" action="/directories/create" {
                (visit.csrf_field())
                input type="hidden" name="bucket" value=(bucket);
                input type="hidden" name="prefix" value=(encode(prefix));
                label for="directory" { "New directory" }
                input #directory name="name" required spellcheck="false";
                button type="submit" { "Create" }
            }
        }
    }
}

/// Returns the table of subdirectories and objects, with boxes that select them for a deletion.
fn table(visit: &Visit, (bucket, prefix): (&str, &str), listing: &Listing, rights: &Rights) -> Markup {
    // The directory's own object is not one of its entries.
    let objects: Vec<_> = listing.objects.iter().filter(|object| object.key != prefix).collect();
    if objects.is_empty() && listing.directories.is_empty() {
        return html! { p.empty { "This directory is empty." } };
    }
    let short = |key: &str| display::name(key.strip_prefix(prefix).unwrap_or(key));
    let deletes_any = objects.iter().any(|object| rights.deletes(&object.key))
        || listing.directories.iter().any(|directory| rights.deletes(directory));
    let select = |field: &str, name: &str| {
        html! { td.select { @if rights.deletes(name) { (checkbox(field, name, &short(name))) } } }
    };
    html! {
        form method="post" action="/delete/confirm" {
            (visit.csrf_field())
            input type="hidden" name="bucket" value=(bucket);
            input type="hidden" name="back" value=(encode(prefix));
            div.scroll { table.listing {
                caption { (counts(listing.directories.len(), objects.len())) }
                thead { tr {
                    @if deletes_any { th.select scope="col" { span.unseen { "Select" } } }
                    th scope="col" { "Name" }
                    th.number scope="col" { "Size" }
                    th scope="col" { "Modified (UTC)" }
                    th scope="col" { span.unseen { "Download" } }
                } }
                tbody {
                    @for directory in &listing.directories {
                        tr {
                            @if deletes_any { (select("prefix", directory)) }
                            th.name scope="row" { a.directory href=(location(bucket, directory)) { bdi { (short(directory)) } } }
                            td.number {} td.time {} td {}
                        }
                    }
                    @for object in &objects {
                        tr {
                            @if deletes_any { (select("key", &object.key)) }
                            th.name scope="row" { a href=(object_location(bucket, &object.key)) { bdi { (short(&object.key)) } } }
                            td.number title={ (display::count(object.size_bytes)) " bytes" } { (display::bytes(object.size_bytes)) }
                            td.time { (display::time(&object.modified)) }
                            td { a.quiet href={ "/download?bucket=" (encode(bucket)) "&key=" (encode(&object.key)) }
                                download aria-label={ "Download " (short(&object.key)) } { "Download" } }
                        }
                    }
                }
            } }
            @if deletes_any { p { button.danger type="submit" { "Delete the selected…" } } }
        }
    }
}

/// Returns the caption of the table: the numbers of directories and objects on the page.
fn counts(directories: usize, objects: usize) -> String {
    let directories = display::counted_with_plural(directories as u64, "directory", "directories");
    format!("{directories} and {} on this page", display::counted(objects as u64, "object"))
}

fn checkbox(field: &str, value: &str, label: &str) -> Markup {
    html! { input type="checkbox" name=(field) value=(encode(value)) aria-label={ "Select " (label) }; }
}

/// Returns links to the first and the next page of the directory.
fn paging(bucket: &str, prefix: &str, query: &Fields, listing: &Listing) -> Markup {
    let here = location(bucket, prefix);
    html! {
        @if query.non_empty("token").is_some() || listing.next.is_some() {
            nav.paging aria-label="Pages of this directory" {
                @if query.non_empty("token").is_some() { a href=(here) { "First page" } }
                @if let Some(next) = &listing.next { a rel="next" href={ (here) "&token=" (encode(next)) } { "Next page" } }
            }
        }
    }
}

/// Creates a directory: an object whose key ends with `/`.
pub(crate) async fn create(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let (bucket, prefix, name) = (form.text("bucket"), decode(form.text("prefix")), form.text("name"));
    if name.is_empty() || name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(Failure::bad_request(
            "Write a name whose parts, separated by '/', are not empty, '.' or '..'.",
        ));
    }
    let key = format!("{prefix}{name}/");
    visit.objects().create_empty(bucket, &key).await?;
    let text = format!("Created the directory {}.", display::name(name));
    Ok(visit.redirect(&location(bucket, &key), Tone::Good, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_key_is_its_directory() {
        assert_eq!(["a", "a/", "a/b", "a/b/", "/a", "a//"].map(parent), ["", "", "a/", "a/", "/", "a/"]);
    }
}
