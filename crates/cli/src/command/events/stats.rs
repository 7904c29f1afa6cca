//! `tenon events stats`: shows the state of a handler and its sources.

use crate::command::flags::views::HandlerFlags;
use crate::command::output::print_line;
use crate::command::units;
use crate::control::event_reports::{HandlerReport, HintReport};
use crate::event_handler::remote;
use crate::process;
use anyhow::{Context, Result};
use clap::Args;
use std::process::ExitCode;

/// Show the state of an event handler and its sources.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// Print the handler's report as one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    handler: HandlerFlags,
}

impl Stats {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = process::runtime()?;
        for client in remote::clients(&self.handler.settings())? {
            let report = runtime.block_on(client.report())?;
            if self.json {
                print_line(&report)?;
            } else {
                print_report(&serde_json::from_str(&report).context(
                    "the handler runs another version of Tenon; ask it with that version, or with --json",
                )?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_report(report: &HandlerReport) -> Result<()> {
    let memory = units::human_bytes(report.memory_bytes as u64);
    print_line(&format!(
        "{} views of {} objects in {} buckets, {memory}; {} objects wait to be examined",
        report.views.len(),
        report.objects,
        report.buckets,
        report.looks
    ))?;
    for view in &report.views {
        let rules: Vec<&str> = view.rules.lines().map(str::trim).collect();
        print_line(&format!("  {} objects: {}", view.objects, rules.join(", ")))?;
    }
    report.unlisted.iter().try_for_each(|why| print_line(&format!("  {why}")))?;
    let HintReport { applied, repeated, late, unwanted, looked } = &report.hints;
    let count = applied + repeated + late + unwanted + looked;
    let each_ns = report.matching_ns.checked_div(count).unwrap_or(0);
    print_line(&format!("hints: {}; {each_ns} ns each", outcomes(&report.hints)))?;
    if report.feeds.is_empty() {
        print_line("no event sources")?;
    }
    for feed in &report.feeds {
        let state = if feed.connected { "connected" } else { "not connected" };
        let waiting = match feed.waiting {
            Some(count) => format!("{count} messages waiting"),
            None => "number of waiting messages unknown".to_owned(),
        };
        print_line(&format!("{}\n  {state}, {} ms behind; {waiting}", feed.source, feed.lag_ms))?;
        print_line(&format!(
            "  messages {}, hints {}, unreadable {}, lost {}, repeated {}, failures {}",
            feed.messages, feed.hints, feed.unreadable, feed.lost, feed.repeated, feed.failures
        ))?;
        if let Some(hints) = &feed.outcomes {
            print_line(&format!("  hints: {}", outcomes(hints)))?;
        }
        if let Some(error) = &feed.last_error {
            print_line(&format!("  last failure: {error}"))?;
        }
    }
    Ok(())
}

fn outcomes(hints: &HintReport) -> String {
    let HintReport { applied, repeated, late, unwanted, looked } = hints;
    format!("{applied} applied, {repeated} repeated, {late} late, {unwanted} unwanted, {looked} looked at")
}
