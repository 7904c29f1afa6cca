//! The page of a report in headless Chromium: its bars have the values of the results, and lengths in proportion to them.

use crate::bench_run::BenchRun;
use crate::fake::Fake;
use bench::{Catalog, Clock, Platform, Record, Results, Summary};
use serde_json::json;
use std::collections::BTreeMap;

/// Returns, for each heading, the bars below it: the label, the value and the length on the screen.
const BARS: &str = "
    return [...document.querySelectorAll('.panels > div')]
        .filter(panel => panel.querySelector('rect[data-value]'))
        .map(panel => ({
            job: panel.querySelector('h3').textContent,
            bars: [...panel.querySelectorAll('rect[data-value]')].map(bar => {
                const labels = [...panel.querySelectorAll('text.label')];
                const above = labels.filter(label => label.getBBox().y < bar.getBBox().y).pop();
                return {
                    label: above.textContent,
                    value: Number(bar.dataset.value),
                    length: bar.getBoundingClientRect().width,
                };
            }),
        }));";

/// Returns the medians of the results, by the title of the job and that of the package.
fn medians(records: &[Record]) -> BTreeMap<(String, String), f64> {
    let summary = Summary::of(records, Clock::Durable);
    let mut medians = BTreeMap::new();
    for row in &summary.rows {
        for (job, cell) in summary.jobs.iter().zip(&row.cells) {
            if let Some(spread) = cell.spread() {
                medians.insert((job.title.clone(), row.title.clone()), spread.median);
            }
        }
    }
    medians
}

#[test]
fn the_bars_of_the_page_show_the_results() {
    let mut targets = Catalog::shipped().unwrap().targets("local").unwrap();
    targets.push(Fake::good().target());
    let mut bench_run = BenchRun::new(targets, Platform::directory());
    bench_run.plan.repeats = 3;
    let records = bench_run.run();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    std::fs::write(&page, bench::report::html(&records, Clock::Durable, &Default::default(), &[])).unwrap();
    let browser = servers::Browser::start();
    browser.open(&format!("file://{}", page.display()));
    let panels = browser.run(BARS, &[]);
    let mut shown = BTreeMap::new();
    for panel in panels.as_array().unwrap() {
        let job = panel["job"].as_str().unwrap();
        let bars: Vec<(&str, f64, f64)> = panel["bars"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bar| {
                let number = |name: &str| bar[name].as_f64().unwrap();
                (bar["label"].as_str().unwrap(), number("value"), number("length"))
            })
            .collect();
        let longest = bars.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        for (label, value, length) in bars {
            let expected = value / longest.1 * longest.2;
            assert!((length - expected).abs() < 2.0, "{job}, {label}: {length} px instead of {expected}");
            shown.insert((job.to_owned(), label.to_owned()), value);
        }
    }
    let medians = medians(&Results::read(&bench_run.results_path()).unwrap());
    assert_eq!((shown.len(), medians.len()), (12, 12));
    for (bar, value) in shown {
        // The last digit may differ: the page and the file of results are parsed by different programs.
        assert!((value / medians[&bar] - 1.0).abs() < 1e-12, "{bar:?}: {value} instead of {}", medians[&bar]);
    }
    // Nothing is cut off, and no script is needed.
    assert_eq!(
        browser.run("return document.documentElement.scrollWidth <= window.innerWidth", &[]),
        json!(true)
    );
    assert_eq!(browser.run("return document.scripts.length", &[]), json!(0));
}
