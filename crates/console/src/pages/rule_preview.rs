//! Preview of rulesets: the objects of a bucket that match them.

use crate::objects::listing::{ObjectRow, Wanted};
use crate::objects::{METADATA_PREFIX, ObjectName, Objects};
use crate::reply::Failure;
use std::collections::BTreeMap;
use store::{Tags, Timestamp};
use views::{ObjectState, Rule, Ruleset};

/// Maximum number of objects that a preview examines.
pub(crate) const OBJECTS_MAX: usize = 2000;
/// Maximum rows of one listing.
const ROWS: usize = 1000;
/// Maximum number of times that a preview asks for the headers or tags of one object, over all its rulesets.
pub(crate) const ASKED_MAX: usize = 200;
/// Maximum number of matching objects that are named for each ruleset.
const SHOWN_MAX: usize = 50;

/// The objects that match some rulesets.
#[derive(Debug)]
pub(crate) struct Preview {
    /// Number of objects examined.
    pub(crate) examined: usize,
    /// Whether there are more objects, which were not examined.
    pub(crate) has_more: bool,
    /// Whether matching objects may be missing, because [`ASKED_MAX`] was reached before their headers or tags were asked
    /// for.
    pub(crate) is_incomplete: bool,
    /// The matching objects, for each ruleset.
    pub(crate) matches: Vec<Matches>,
}

/// The objects that match a ruleset.
#[derive(Debug)]
pub(crate) struct Matches {
    pub(crate) ruleset: Ruleset,
    /// Number of matching objects among those examined.
    pub(crate) count: usize,
    /// The first keys of matching objects, at most [`SHOWN_MAX`].
    pub(crate) keys: Vec<String>,
}

/// Properties of an object that come from its headers and tags, as far as they are known.
#[derive(Debug, Default)]
struct Known {
    content_type: Option<String>,
    /// User metadata, by name.
    properties: BTreeMap<String, String>,
    tags: Tags,
}

/// Finds the objects that match each ruleset, among the first objects of a bucket whose keys begin with `prefix`.
pub(crate) async fn preview(
    objects: &Objects<'_>,
    rulesets: Vec<Ruleset>,
    (bucket, prefix): (&str, &str),
    now: Timestamp,
) -> Result<Preview, Failure> {
    let (rows, has_more) = list(objects, bucket, prefix).await?;
    let mut search = Search { objects, bucket, rows: &rows, now, asked: 0, is_incomplete: false };
    let mut matches = Vec::with_capacity(rulesets.len());
    for ruleset in rulesets {
        matches.push(search.matches(ruleset).await);
    }
    Ok(Preview { examined: rows.len(), has_more, is_incomplete: search.is_incomplete, matches })
}

/// A search for the listed objects that match rulesets.
struct Search<'a> {
    objects: &'a Objects<'a>,
    bucket: &'a str,
    rows: &'a [ObjectRow],
    now: Timestamp,
    /// Number of objects that were asked for their headers or tags.
    asked: usize,
    is_incomplete: bool,
}

impl Search<'_> {
    /// Returns the objects that match a ruleset.
    async fn matches(&mut self, ruleset: Ruleset) -> Matches {
        let on_listing = rules_on_listing(&ruleset);
        let mut matches = Matches { ruleset, count: 0, keys: Vec::new() };
        for row in self.rows {
            let mut known = row.headers.as_ref().map(known_of_headers).unwrap_or_default();
            let is_candidate = on_listing.matches(&state(self.bucket, row, &known), self.now);
            if is_candidate
                && self.complete(&matches.ruleset, row, &mut known).await
                && matches.ruleset.matches(&state(self.bucket, row, &known), self.now)
            {
                matches.add(&row.key);
            }
        }
        matches
    }

    /// Asks for the headers and tags that a ruleset needs and a listing lacks, and adds them to `known`. Returns false once [`ASKED_MAX`] is
    /// reached.
    async fn complete(&mut self, ruleset: &Ruleset, row: &ObjectRow, known: &mut Known) -> bool {
        let needs_headers = row.headers.is_none() && ruleset.rules.iter().any(is_on_headers);
        let needs_tags = ruleset.rules.iter().any(is_on_tags);
        if !needs_headers && !needs_tags {
            return true;
        }
        if self.asked == ASKED_MAX {
            self.is_incomplete = true;
            return false;
        }
        self.asked += 1;
        let name = ObjectName { bucket: self.bucket, key: &row.key, version: None };
        ask(self.objects, name, (needs_headers, needs_tags), known).await;
        true
    }
}

impl Matches {
    fn add(&mut self, key: &str) {
        self.count += 1;
        if self.keys.len() < SHOWN_MAX {
            self.keys.push(key.to_owned());
        }
    }
}

/// Returns a ruleset with only those rules that a listing can decide.
fn rules_on_listing(ruleset: &Ruleset) -> Ruleset {
    let mut rules = ruleset.rules.clone();
    rules.retain(|rule| !is_on_headers(rule) && !is_on_tags(rule));
    Ruleset { rules, ..ruleset.clone() }
}

/// Returns the first objects with a prefix, and whether there are more.
async fn list(objects: &Objects<'_>, bucket: &str, prefix: &str) -> Result<(Vec<ObjectRow>, bool), Failure> {
    let (mut rows, mut token) = (Vec::new(), None::<String>);
    while rows.len() < OBJECTS_MAX {
        let wanted = Wanted {
            prefix,
            token: token.as_deref(),
            by_directory: false,
            rows_max: ROWS,
            with_metadata: true,
        };
        let page = objects.list(bucket, &wanted).await?;
        rows.extend(page.objects);
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    Ok((rows, token.is_some()))
}

/// Asks for the headers, the tags or both of an object, and adds them to `known`. A failure leaves them unknown.
async fn ask(objects: &Objects<'_>, name: ObjectName<'_>, (headers, tags): (bool, bool), known: &mut Known) {
    if headers && let Ok(found) = objects.head(name).await {
        let texts = found.iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        *known = known_of_headers(&texts.collect());
    }
    if tags && let Ok(found) = objects.tags(name).await {
        known.tags = found.into_iter().collect();
    }
}

fn known_of_headers(headers: &BTreeMap<String, String>) -> Known {
    let property = |(name, value): (&String, &String)| {
        Some((name.strip_prefix(METADATA_PREFIX)?.to_owned(), value.clone()))
    };
    Known {
        content_type: headers.get("content-type").cloned(),
        properties: headers.iter().filter_map(property).collect(),
        tags: Tags::default(),
    }
}

/// Returns an object as rules see it.
fn state<'a>(bucket: &'a str, row: &'a ObjectRow, known: &'a Known) -> ObjectState<'a> {
    let modified = row.modified.parse::<jiff::Timestamp>().unwrap_or_default();
    ObjectState {
        container: bucket,
        key: row.key.as_bytes(),
        size_bytes: row.size_bytes,
        modified: Timestamp::from_secs(modified.as_second(), 0),
        accessed: None,
        content_type: known.content_type.as_deref(),
        properties: &known.properties,
        tags: &known.tags,
    }
}

/// Returns whether a rule depends on headers, which a listing may lack.
fn is_on_headers(rule: &Rule) -> bool {
    matches!(rule, Rule::Property(..) | Rule::ContentType(_))
}

/// Returns whether a rule depends on tags, which a listing never has.
fn is_on_tags(rule: &Rule) -> bool {
    matches!(rule, Rule::Tag(..))
}
