//! Drives: their use, a map of their zones, and scrubs.

use crate::display;
use crate::pages::layout::{Page, facts, show_page};
use crate::pages::visit::Visit;
use crate::process::{Drive, Member, Tone, Zone};
use crate::reply::{Failure, Reply};
use crate::scrub_job::ScrubState;
use maud::{Markup, html};

/// Maximum number of squares in a map. A drive with more zones has several in each square.
const SQUARES_MAX: usize = 2048;
/// Squares in a row of a map.
const COLUMNS: usize = 64;
/// Side of a square with its gap, and without, in units of the map.
const SQUARE: (usize, usize) = (10, 9);
/// Number of steps of fill, each with a shade of its own.
const FILL_STEPS: u64 = 4;

/// Shows the drives and the scrub.
pub(crate) fn show(visit: &Visit) -> Result<Reply, Failure> {
    let drives = visit.process().drives();
    let state = visit.application.scrub.state();
    let is_running = matches!(state, ScrubState::Running);
    let content = html! {
        (scrub_section(visit, &state))
        @if drives.is_empty() { p.empty { "The process has no drive open." } }
        @for drive in &drives { (card(drive)) }
    };
    let refresh_secs = Some(if is_running { 1 } else { 10 });
    Ok(show_page(visit, Page { title: "Drives", entry: "/drives", refresh_secs, content }))
}

/// Starts a scrub of all drives, unless one that was started here is running.
pub(crate) fn scrub(visit: &Visit) -> Result<Reply, Failure> {
    let (tone, text) = match visit.application.scrub.start(visit.application.process.clone()) {
        true => (Tone::Good, "The scrub has begun."),
        false => (Tone::Warning, "A scrub is running already."),
    };
    Ok(visit.redirect("/drives", tone, text))
}

fn scrub_section(visit: &Visit, state: &ScrubState) -> Markup {
    let is_running = matches!(state, ScrubState::Running);
    html! {
        section.card aria-labelledby="scrub-title" {
            h2 #scrub-title { "Scrub" }
            @match state {
                ScrubState::NeverRun => p { "A scrub reads everything on the drives, and repairs what it can. None was started here since the process began." },
                ScrubState::Running => p role="status" { "Running: " (display::counted(visit.application.scrub.objects(), "object")) " read." },
                ScrubState::Ended(Err(reason)) => p.notice.failure { "The scrub failed: " (reason) },
                ScrubState::Ended(Ok(outcomes)) => {
                    @for outcome in outcomes {
                        p { (display::counted(outcome.objects, "object")) " (" (display::bytes(outcome.bytes)) ") read, "
                            (display::counted(outcome.repaired, "block")) " repaired, "
                            (display::count(outcome.damaged.len() as u64)) " damaged beyond repair." }
                        @if !outcome.damaged.is_empty() { ul { @for line in &outcome.damaged { li.failure { (display::name(line)) } } } }
                    }
                }
            }
            @if visit.is_admin() {
                form method="post" action="/drives/scrub" {
                    (visit.csrf_field())
                    button type="submit" disabled[is_running] { "Scrub now" }
                }
            }
        }
    }
}

/// Returns the section of a drive.
fn card(drive: &Drive) -> Markup {
    let used = drive.len_bytes.saturating_sub(drive.available_bytes);
    let percent = used.checked_mul(100).and_then(|used| used.checked_div(drive.len_bytes)).unwrap_or(0);
    html! {
        section.card aria-label={ "Drive " (drive.id) } {
            h2 { "Drive " code { (drive.id) } }
            (facts([
                ("Size", display::bytes(drive.len_bytes)),
                ("Free", format!("{} ({percent} % in use)", display::bytes(drive.available_bytes))),
                ("Log to read after a crash", display::bytes(drive.log_bytes)),
                ("Zones", format!("{} of {}", display::count(drive.zones.len() as u64), display::bytes(drive.zone_bytes))),
            ]))
            @if !drive.members.is_empty() { (members(&drive.members)) }
            (map(drive))
        }
    }
}

/// Returns the table of an array's devices.
fn members(members: &[Member]) -> Markup {
    html! {
        div.scroll { table {
            caption { "Devices" }
            thead { tr { th scope="col" { "Device" } th scope="col" { "State" } } }
            tbody { @for member in members { tr {
                th scope="row" { code { @if member.device.is_empty() { "(missing)" } @else { (member.device) } } }
                td { span.badge.(if member.is_in_sync { "good" } else { "failure" }) { (member.state) } }
            } } }
        } }
    }
}

/// Returns a map of a drive's zones: a square for each zone or for each group of zones, coloured by use and fill.
fn map(drive: &Drive) -> Markup {
    let group = drive.zones.len().div_ceil(SQUARES_MAX).max(1);
    let squares: Vec<(&str, u64)> =
        drive.zones.chunks(group).map(|zones| square(zones, drive.zone_bytes)).collect();
    let (width, rows) = (COLUMNS * SQUARE.0, squares.len().div_ceil(COLUMNS));
    let count =
        |kind: fn(&Zone) -> bool| display::count(drive.zones.iter().filter(|zone| kind(zone)).count() as u64);
    let free = count(|zone| matches!(zone, Zone::Free));
    let runs = count(|zone| matches!(zone, Zone::Runs(_)));
    let packs = count(|zone| matches!(zone, Zone::Pack(_)));
    let each = if group == 1 { "zone".to_owned() } else { format!("{group} zones") };
    html! {
        figure {
            svg.map role="img" aria-label={ "Map of zones: " (free) " free, " (runs) " with runs, " (packs) " with packs" }
                viewBox={ "0 0 " (width) " " (rows * SQUARE.0) } {
                @for (at, (kind, fill)) in squares.iter().enumerate() {
                    rect class={ "zone " (kind) " fill" (fill) } x=(at % COLUMNS * SQUARE.0) y=(at / COLUMNS * SQUARE.0)
                        width=(SQUARE.1) height=(SQUARE.1) {}
                }
            }
            figcaption {
                "Each square is one " (each) ". "
                span.key.free {} " free: " (free) " "
                span.key.runs {} " runs of long objects: " (runs) " "
                span.key.pack {} " packs of small objects: " (packs) ". Fuller is darker."
            }
        }
    }
}

/// Returns the style class of a group of zones, which is that of most zones in use, and the step of the group's fill.
fn square(zones: &[Zone], zone_bytes: u64) -> (&'static str, u64) {
    let (mut runs, mut packs, mut used) = (0, 0, 0);
    for zone in zones {
        match zone {
            Zone::Free => {}
            Zone::Runs(bytes) => (runs, used) = (runs + 1, used + bytes),
            Zone::Pack(bytes) => (packs, used) = (packs + 1, used + bytes),
        }
    }
    let kind = match (runs, packs) {
        (0, 0) => "free",
        (runs, packs) if runs >= packs => "runs",
        _ => "pack",
    };
    let whole = (zone_bytes * zones.len() as u64).max(1);
    (kind, (used * FILL_STEPS / whole).min(FILL_STEPS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_has_the_kind_and_the_fill_of_its_zones() {
        assert_eq!(square(&[Zone::Free], 100), ("free", 0));
        assert_eq!(square(&[Zone::Runs(100)], 100), ("runs", 3));
        assert_eq!(square(&[Zone::Pack(30), Zone::Free], 100), ("pack", 0));
        assert_eq!(square(&[Zone::Pack(100), Zone::Runs(50), Zone::Pack(50)], 100), ("pack", 2));
    }
}
