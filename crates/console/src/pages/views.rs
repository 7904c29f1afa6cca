//! Views, and a preview of rules.

use crate::display;
use crate::pages::directory::object_location;
use crate::pages::layout::{Page, show_page};
use crate::pages::rule_preview::{self, ASKED_MAX, Matches, Preview};
use crate::pages::visit::Visit;
use crate::reply::{Failure, Reply};
use crate::request::Fields;
use maud::{Markup, html};

/// Maximum length of rules, in bytes.
const RULES_BYTES_MAX: usize = 256 << 10;

/// Rules that the page begins with if the process has no views.
const EXAMPLE: &str = "recent:\n  container: BUCKET\n  object: \"**\"\n  modified: \"<7 days\"\n";

/// The fields of the form: rules, and the bucket and prefix of the objects that a preview examines.
struct Draft {
    bucket: String,
    prefix: String,
    rules: String,
}

/// Shows the page with the rules of the process's views, and the objects that match them.
pub(crate) async fn show(visit: &Visit, query: &Fields) -> Result<Reply, Failure> {
    let buckets = visit.objects().buckets().await?;
    let bucket = query.non_empty("bucket").map(str::to_owned);
    let bucket = bucket.or_else(|| buckets.first().map(|(name, _)| name.clone())).unwrap_or_default();
    let rules = visit.process().rulesets();
    let rules = if rules.is_empty() { EXAMPLE.replace("BUCKET", &bucket) } else { rules };
    render(visit, &Draft { bucket, prefix: query.text("prefix").to_owned(), rules }).await
}

/// Shows the page with the rules of a form, and the objects that match them.
pub(crate) async fn preview(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let rules = form.text("rules").replace("\r\n", "\n");
    if rules.len() > RULES_BYTES_MAX {
        return Err(Failure::bad_request("The rules are too long."));
    }
    let draft =
        Draft { bucket: form.text("bucket").to_owned(), prefix: form.text("prefix").to_owned(), rules };
    render(visit, &draft).await
}

async fn render(visit: &Visit, draft: &Draft) -> Result<Reply, Failure> {
    let buckets = visit.objects().buckets().await?;
    let content = html! {
        (view_table(visit))
        section aria-labelledby="preview-title" {
            h2 #preview-title { "Try rules" }
            form #rules-form method="post" action="/views/preview" {
                (visit.csrf_field())
                div.row {
                    label for="bucket" { "Bucket" }
                    select #bucket name="bucket" {
                        @for (name, _) in &buckets { option value=(name) selected[*name == draft.bucket] { (name) } }
                    }
                    label for="prefix" { "Prefix" }
                    input #prefix name="prefix" value=(draft.prefix) spellcheck="false";
                }
                label for="rules" { "Rules (YAML)" }
                textarea.code #rules name="rules" rows="12" spellcheck="false" { "\n" (draft.rules) }
                button type="submit" { "Preview" }
                p.hint { "Nothing is changed: the preview only shows which objects match. Rules take effect in the file of " code { "--views" } "." }
            }
            div #preview aria-live="polite" { (results(visit, draft).await) }
        }
    };
    Ok(show_page(visit, Page { title: "Views", entry: "/views", refresh_secs: None, content }))
}

fn view_table(visit: &Visit) -> Markup {
    let views = visit.process().views();
    html! {
        @if views.is_empty() {
            p.empty { "This process has no views. Rules can be tried below." }
        } @else {
            div.scroll { table {
                caption { (display::counted(views.len() as u64, "view")) }
                thead { tr { th scope="col" { "Directory" } th.number scope="col" { "Objects" } th scope="col" { "State" } } }
                tbody { @for view in &views { tr {
                    th scope="row" { bdi { (display::name(&view.name)) } }
                    td.number { (display::count(view.objects)) }
                    td.wrap { @if view.problems.is_empty() { span.badge.good { "current" } }
                        @for problem in &view.problems { p.failure { (display::name(problem)) } } }
                } } }
            } }
        }
    }
}

/// Returns the preview: the objects that match the rules, or the problems of the rules.
async fn results(visit: &Visit, draft: &Draft) -> Markup {
    if draft.bucket.is_empty() {
        return html! { p.empty { "There is no bucket whose objects could match." } };
    }
    let rulesets = match views::read(&draft.rules) {
        Ok(rulesets) => rulesets,
        Err(problems) => {
            return html! { div.notice.failure role="alert" { ul { @for problem in problems { li { (problem) } } } } };
        }
    };
    let target = (draft.bucket.as_str(), draft.prefix.as_str());
    let now = visit.application.clock.now();
    match rule_preview::preview(&visit.objects(), rulesets, target, now).await {
        Ok(preview) => preview_markup(&draft.bucket, &preview),
        Err(failure) => html! { p.notice.failure role="alert" { (failure.message) } },
    }
}

fn preview_markup(bucket: &str, preview: &Preview) -> Markup {
    html! {
        p {
            (display::counted(preview.examined as u64, "object")) " examined"
            @if preview.has_more { ", the first ones of more" }
            "."
            @if preview.is_incomplete { " Metadata and tags were asked for the first " (ASKED_MAX) " candidates only." }
        }
        @for matches in &preview.matches { (matches_markup(bucket, matches)) }
    }
}

fn matches_markup(bucket: &str, matches: &Matches) -> Markup {
    html! {
        section.card {
            h3 { bdi { (display::name(&matches.ruleset.name)) } " " span.badge { (display::counted(matches.count as u64, "object")) } }
            ul.chips { @for rule in &matches.ruleset.rules { li { code { (rule) } } } }
            @if !matches.keys.is_empty() {
                ul.names { @for key in &matches.keys { li { a href=(object_location(bucket, key)) { bdi { (display::name(key)) } } } } }
                @if matches.count > matches.keys.len() { p.hint { "and " (matches.count - matches.keys.len()) " more" } }
            }
        }
    }
}
