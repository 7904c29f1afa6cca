//! An object: its properties, metadata, tags and versions, and links to it.

use crate::display::{self, encode};
use crate::objects::listing::VersionRow;
use crate::objects::{METADATA_PREFIX, ObjectName, header_text};
use crate::pages::directory::{breadcrumbs, object_location, parent};
use crate::pages::layout::{self, Page, show_page};
use crate::pages::visit::Visit;
use crate::process::Tone;
use crate::reply::{Failure, Reply};
use crate::request::{Fields, PageRequest, decode};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, HeaderMap, HeaderName, LAST_MODIFIED};
use maud::{Markup, html};
use std::time::Duration;

/// Validities of links that the page offers: seconds, and label.
const VALIDITIES: [(u64, &str); 4] =
    [(900, "15 minutes"), (3600, "1 hour"), (86_400, "1 day"), (604_800, "7 days")];

/// Headers that are shown as properties, with their labels; those of user metadata are shown separately.
const PROPERTIES: [(HeaderName, &str); 8] = [
    (CONTENT_TYPE, "Content type"),
    (ETAG, "Etag"),
    (HeaderName::from_static("x-amz-storage-class"), "Storage class"),
    (HeaderName::from_static("x-amz-version-id"), "Version"),
    (http::header::CACHE_CONTROL, "Cache-Control"),
    (http::header::CONTENT_ENCODING, "Content-Encoding"),
    (http::header::CONTENT_LANGUAGE, "Content-Language"),
    (http::header::CONTENT_DISPOSITION, "Content-Disposition"),
];

/// Rights of a user on an object.
#[derive(Debug, Clone, Copy)]
struct Rights {
    /// Whether the user may set the tags of the object, or of the version that the page shows.
    tag: bool,
    delete: bool,
    /// Whether the user may remove versions.
    remove_version: bool,
}

/// Shows an object, or the version that is named.
pub(crate) async fn show(visit: &Visit, request: &PageRequest) -> Result<Reply, Failure> {
    let query = &request.query;
    let (bucket, version) = (query.text("bucket"), query.non_empty("version"));
    let encoded = query.keys("encoded_key").pop();
    let key = encoded.as_deref().unwrap_or(query.text("key"));
    let name = ObjectName { bucket, key, version };
    let objects = visit.objects();
    let headers = objects.head(name).await?;
    let tags = objects.tags(name).await;
    let versions = versions_to_show(objects.versions(bucket, key).await);
    let tagging = if version.is_some() { "s3:PutObjectVersionTagging" } else { "s3:PutObjectTagging" };
    let rights = Rights {
        tag: objects.allows(tagging, bucket, Some(key)).await,
        delete: objects.allows("s3:DeleteObject", bucket, Some(key)).await,
        remove_version: objects.allows("s3:DeleteObjectVersion", bucket, Some(key)).await,
    };
    let short = key.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let content = html! {
        (breadcrumbs(bucket, parent(key)))
        (properties(name, &headers))
        (actions(visit, name, rights))
        (links(visit, request, name))
        (metadata(&headers))
        (tag_section(visit, name, &tags, rights))
        @match &versions {
            Ok(versions) => (version_table(visit, name, versions, rights)),
            Err(failure) => (missing_versions(failure)),
        }
    };
    let title = display::name(if short.is_empty() { key } else { short });
    Ok(show_page(visit, Page { title: &title, entry: "/buckets", refresh_secs: None, content }))
}

fn properties(name: ObjectName<'_>, headers: &HeaderMap) -> Markup {
    let size = header_text(headers, &CONTENT_LENGTH);
    let size = size.parse().map_or(size, |bytes| match bytes {
        0..1024 => display::bytes(bytes),
        _ => format!("{} ({} bytes)", display::bytes(bytes), display::count(bytes)),
    });
    let modified = format!("{} UTC", display::time(&header_text(headers, &LAST_MODIFIED)));
    let own = [("Key", display::name(name.key)), ("Size", size), ("Modified", modified)];
    let known = PROPERTIES.into_iter().filter(|(header, _)| headers.contains_key(header));
    let known = known.map(|(header, label)| (label, display::name(&header_text(headers, &header))));
    layout::facts(own.into_iter().chain(known))
}

fn actions(visit: &Visit, name: ObjectName<'_>, rights: Rights) -> Markup {
    let is_deletable = if name.version.is_some() { rights.remove_version } else { rights.delete };
    html! {
        div.row {
            a.button.primary href=(download_location(name)) download { "Download" }
            @if is_deletable { (delete_form(visit, name, "Delete…")) }
        }
    }
}

fn download_location(name: ObjectName<'_>) -> String {
    let version = name.version.map(|version| format!("&version={}", encode(version))).unwrap_or_default();
    format!("/download?bucket={}&key={}{version}", encode(name.bucket), encode(name.key))
}

/// Returns the button that leads to the deletion of an object, or of the version that is named.
fn delete_form(visit: &Visit, name: ObjectName<'_>, label: &str) -> Markup {
    html! {
        form.inline method="post" action="/delete/confirm" {
            (visit.csrf_field())
            input type="hidden" name="bucket" value=(name.bucket);
            input type="hidden" name="key" value=(encode(name.key));
            input type="hidden" name="back" value=(encode(parent(name.key)));
            @if let Some(version) = name.version { input type="hidden" name="version" value=(version); }
            button.danger type="submit" { (label) }
        }
    }
}

/// Returns the form for a presigned link, and the link if the request asks for it; nothing if the process has no
/// endpoint for clients.
fn links(visit: &Visit, request: &PageRequest, name: ObjectName<'_>) -> Markup {
    let Some(root) = &visit.application.options.endpoint_url else { return html! {} };
    let root = reachable_root(root, request.header(HOST).unwrap_or_default());
    let secs = request.query.text("link").parse::<u64>().ok();
    let secs = secs.filter(|secs| VALIDITIES.iter().any(|(offered, _)| offered == secs));
    let url = secs.and_then(|secs| visit.objects().presign(name, &root, Duration::from_secs(secs)));
    html! {
        section aria-labelledby="link-title" {
            h2 #link-title { "Link for others" }
            form.row method="get" action="/object" {
                input type="hidden" name="bucket" value=(name.bucket);
                // A browser changes line breaks in values of forms.
                input type="hidden" name="encoded_key" value=(encode(name.key));
                @if let Some(version) = name.version { input type="hidden" name="version" value=(version); }
                label for="validity" { "Valid for" }
                select #validity name="link" {
                    @for (offered, label) in VALIDITIES {
                        option value=(offered) selected[secs == Some(offered)] { (label) }
                    }
                }
                button type="submit" { "Make a link" }
            }
            @if let Some(url) = url {
                div.row {
                    label for="link" { "Link" }
                    input.wide #link readonly value=(url);
                    button type="button" data-copy="link" { "Copy" }
                }
                p.hint { "Anyone who has this link can download the object until the link expires." }
            }
        }
    }
}

/// Returns the endpoint's URL. If the endpoint listens at every address of the machine, the URL gets the host by which
/// the user reaches the console.
fn reachable_root(root: &str, host: &str) -> String {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte));
    match is_plain {
        true => root.replace("//0.0.0.0:", &format!("//{name}:")).replace("//[::]:", &format!("//{name}:")),
        false => root.to_owned(),
    }
}

/// Returns the section with the user metadata of an object.
fn metadata(headers: &HeaderMap) -> Markup {
    let rows =
        headers.keys().filter_map(|header| Some((header.as_str().strip_prefix(METADATA_PREFIX)?, header)));
    let rows: Vec<(&str, String)> = rows.map(|(name, header)| (name, header_text(headers, header))).collect();
    html! {
        section aria-labelledby="metadata-title" {
            h2 #metadata-title { "Metadata" }
            @if rows.is_empty() {
                p.empty { "The object has no metadata." }
            } @else {
                div.scroll { table {
                    caption { "In a mount, these are the extended attributes " code { "user.NAME" } " and the attributes of the file." }
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
                    tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td.wrap { (display::name(&value)) } } } }
                } }
            }
        }
    }
}

/// Returns the section with the tags of an object, or the reason why they cannot be shown.
fn tag_section(
    visit: &Visit,
    name: ObjectName<'_>,
    tags: &Result<Vec<(String, String)>, Failure>,
    rights: Rights,
) -> Markup {
    html! {
        section aria-labelledby="tags-title" {
            h2 #tags-title { "Tags" }
            @match tags {
                Err(failure) => p.empty { (failure.message) },
                Ok(tags) => {
                    @if tags.is_empty() { p.empty { "The object has no tags." } }
                    @else { ul.chips { @for (key, value) in tags { li { b { (display::name(key)) } " " (display::name(value)) } } } }
                    @if rights.tag {
                        details {
                            summary { "Change the tags" }
                            form method="post" action="/object/tags" {
                                (visit.csrf_field())
                                input type="hidden" name="bucket" value=(name.bucket);
                                input type="hidden" name="key" value=(encode(name.key));
                                @if let Some(version) = name.version { input type="hidden" name="version" value=(version); }
                                label for="tags" { "One tag per line, as " code { "name=value" } }
                                textarea #tags name="tags" rows="4" spellcheck="false" {
                                    @for (key, value) in tags { (key) "=" (value) "\n" }
                                }
                                button type="submit" { "Save the tags" }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the versions that the page has: none if the user may not list versions, or if the bucket cannot have any.
fn versions_to_show(listed: Result<Vec<VersionRow>, Failure>) -> Result<Vec<VersionRow>, Failure> {
    match listed {
        Err(failure) if [StatusCode::FORBIDDEN, StatusCode::NOT_IMPLEMENTED].contains(&failure.status) => {
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Returns the section that stands for versions that cannot be listed now.
fn missing_versions(failure: &Failure) -> Markup {
    html! {
        section aria-labelledby="versions-title" {
            h2 #versions-title { "Versions" }
            p.notice.failure { "The versions cannot be listed: " (failure.message) }
        }
    }
}

/// Returns the section with the versions of an object; nothing without versioning.
fn version_table(visit: &Visit, name: ObjectName<'_>, versions: &[VersionRow], rights: Rights) -> Markup {
    // Without versioning there is one version, "null", which is the object itself.
    if versions.is_empty() || matches!(versions, [only] if only.id == "null") {
        return html! {};
    }
    let page = object_location(name.bucket, name.key);
    html! {
        section aria-labelledby="versions-title" {
            h2 #versions-title { "Versions" }
            div.scroll { table {
                caption { (display::counted(versions.len() as u64, "version")) }
                thead { tr {
                    th scope="col" { "Modified (UTC)" }
                    th scope="col" { "Version" }
                    th.number scope="col" { "Size" }
                    th scope="col" { span.unseen { "Actions" } }
                } }
                tbody { @for version in versions {
                    @let of = ObjectName { version: Some(&version.id), ..name };
                    tr {
                        td.time { (display::time(&version.modified)) @if version.is_newest { " " span.badge { "newest" } } }
                        th.name scope="row" {
                            @if version.size_bytes.is_some() { a href={ (page) "&version=" (encode(&version.id)) } { code { (version.id) } } }
                            @else { code { (version.id) } }
                        }
                        td.number { @match version.size_bytes { Some(bytes) => (display::bytes(bytes)), None => "deleted" } }
                        td.actions {
                            @if version.size_bytes.is_some() {
                                a.quiet href=(download_location(of)) download aria-label={ "Download version " (version.id) } { "Download" }
                            }
                            @if rights.remove_version { (delete_form(visit, of, "Remove…")) }
                        }
                    }
                } }
            } }
        }
    }
}

/// Replaces the tags of an object by the lines of a form.
pub(crate) async fn set_tags(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let (bucket, key, version) = (form.text("bucket"), decode(form.text("key")), form.non_empty("version"));
    let tags = parse_tags(form.text("tags"))?;
    visit.objects().set_tags(ObjectName { bucket, key: &key, version }, &tags).await?;
    let version = version.map(|version| format!("&version={}", encode(version))).unwrap_or_default();
    let location = format!("{}{version}", object_location(bucket, &key));
    Ok(visit.redirect(&location, Tone::Good, "Saved the tags."))
}

/// Parses lines of the form `name=value`. Fails with the first line that has another form.
fn parse_tags(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let parse = |line: &str| {
        let (name, value) = line.split_once('=').filter(|(name, _)| !name.trim().is_empty())?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines
        .map(|line| {
            parse(line).ok_or_else(|| Failure::bad_request(format!("Write name=value instead of '{line}'.")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_lines() {
        let tags = parse_tags(" a=1 \r\n\nb = x=y\n").unwrap();
        assert_eq!(tags, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x=y".to_owned())]);
        assert!(parse_tags("a").is_err() && parse_tags("=b").is_err());
    }

    #[test]
    fn links_use_the_host_of_the_console_if_the_endpoint_has_none() {
        assert_eq!(reachable_root("http://0.0.0.0:9000", "nas.example:9001"), "http://nas.example:9000");
        assert_eq!(reachable_root("http://[::]:9000", "[::1]:9001"), "http://[::1]:9000");
        assert_eq!(reachable_root("http://127.0.0.1:9000", "nas.example:9001"), "http://127.0.0.1:9000");
        assert_eq!(reachable_root("http://0.0.0.0:9000", "a/b@c:1"), "http://0.0.0.0:9000");
    }
}
