//! `cargo xtask tables`: generates documents from stored results.

use super::document_block::with_block;
use super::event_handler::{self, Records};
use super::{COMPARE, EVENTS, RENAMES, Results, load, testbed};
use crate::bench::plot::Figure;
use analyze::compare::{Comparison, markdown, opening};
use analyze::report::html;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
usage: cargo xtask tables [--from DIR]

  --from    directory of the results of `cargo xtask measure` (default docs/measurements)

Generates docs/comparison.html, figures in docs/figures, and the marked blocks of docs/benchmarks.md, docs/performance.md and README.md.
Leaves blocks without results unchanged.";

const BENCHMARKS: &str = "docs/benchmarks.md";
const README: &str = "README.md";
const PAGE: &str = "docs/comparison.html";

/// Renders all stored results.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let from = match arguments {
        [] => root.join("docs/measurements"),
        [flag, dir] if flag == "--from" => PathBuf::from(dir),
        _ => bail!("{USAGE}"),
    };
    let mut blocks: Vec<(&str, &str, String)> = Vec::new();
    let mut figures: Vec<Figure> = Vec::new();
    let compared: Option<Comparison> = load(&from.join(COMPARE))?;
    if let Some(compared) = &compared {
        write(&root.join(PAGE), &html(&compared.results(), &opening(compared)))?;
        let rendered = markdown(compared);
        blocks.push((BENCHMARKS, "compare", rendered.tables));
        blocks.push((BENCHMARKS, "compare-goals", rendered.goals));
        blocks.push((README, "compare-summary", rendered.summary));
    }
    let measured: Option<Results<Records>> = load(&from.join(EVENTS))?;
    if let Some(results) = &measured {
        blocks.push((BENCHMARKS, "events-rates", event_handler::rates(results)));
        blocks.push((BENCHMARKS, "events-latencies", event_handler::latencies(results)));
        figures.extend(event_handler::figures(results));
    }
    let renames: Option<Results<Vec<Figure>>> = load(&from.join(RENAMES))?;
    if let Some(results) = renames {
        let tables = results.results.iter().map(Figure::table).collect::<Vec<_>>().join("\n");
        let tables = tables.replace("### ", "#### ");
        blocks.push((BENCHMARKS, "renames", format!("{}.\n\n{tables}", results.machine)));
        figures.extend(results.results);
    }
    blocks.extend(testbed::blocks(&from)?.into_iter().map(|(name, text)| (testbed::DOCUMENT, name, text)));
    if blocks.is_empty() {
        bail!("no results in {}: run `cargo xtask measure` first", from.display());
    }
    for (document, name, content) in blocks {
        let path = root.join(document);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {document}"))?;
        let updated = with_block(&text, name, &content).with_context(|| document.to_owned())?;
        write(&path, &updated)?;
        println!("{document}: {name}");
    }
    for figure in figures {
        write(&root.join("docs/figures").join(format!("{}.svg", figure.name)), &figure.svg())?;
        println!("docs/figures/{}.svg", figure.name);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
