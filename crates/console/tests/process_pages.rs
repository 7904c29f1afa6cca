//! The pages of the process's state: conflicts, batches, views, drives, metrics, the log.

use crate::fake_process::HOSTILE;
use crate::fixture::{ADMIN, TestConsole};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_are_resolved_by_a_button() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/conflicts", console.url()));
    assert!(browser.visible_text().contains("blocks writes"), "{}", browser.visible_text());
    browser.follow("button[value=file]");
    browser.wait_until("return document.body.innerText.includes('There are no conflicts.')", &[]);
    assert!(browser.visible_text().contains("Resolved: keep the file."), "{}", browser.visible_text());
    assert_eq!(console.process.done(), ["resolve c-1 File"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_discarded_and_their_refused_changes_are_shown() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/batches", console.url()));
    browser.follow("a[href='/batch?id=b-2']");
    let change = browser.run("return document.querySelector('tbody th').textContent", &[]);
    let shown = HOSTILE.replace('\n', "⟨LF⟩").replace('\u{202e}', "⟨U+202E⟩");
    assert_eq!(change, format!("create {shown} of b-2"));
    browser.open(&format!("{}/batches", console.url()));
    browser.click("tbody summary");
    browser.follow("tbody button");
    browser.wait_until("return document.querySelectorAll('tbody tr').length === 1", &[]);
    assert_eq!(console.process.done(), ["discard b-1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s752_rules_are_previewed_while_they_are_typed() {
    let console = TestConsole::start().await;
    for key in ["docs/a.txt", "docs/<i>.txt", "docs/b.bin"] {
        console.put(key, "x").await;
    }
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/views", console.url()));
    let names =
        "return [...document.querySelectorAll('#preview .names li')].map(li => li.textContent).join()";
    assert_eq!(browser.run(names, &[]), "docs/<i>.txt,docs/a.txt");
    browser.clear("#rules");
    browser.type_into("#rules", "binaries:\n  container: bucket\n  object: \"**/*.bin\"\n");
    browser
        .wait_until("return document.querySelector('#preview h3')?.textContent.startsWith('binaries')", &[]);
    assert_eq!(browser.run(names, &[]), "docs/b.bin");
    // An error is shown with its line, and the page stays usable.
    browser.clear("#rules");
    browser.type_into("#rules", "binaries:\n  colour: red\n");
    browser.wait_until("return document.querySelector('#preview [role=alert]') !== null", &[]);
    let problem = browser.run("return document.querySelector('#preview [role=alert]').innerText", &[]);
    assert!(problem.as_str().unwrap().contains("colour"), "{problem}");
    // The button does so without the script.
    browser.clear("#rules");
    browser.type_into("#rules", "all:\n  container: bucket\n  object: \"**\"\n  size: \">0\"\n");
    browser.click("#rules-form button");
    browser.wait_until("return document.querySelectorAll('#preview .names li').length === 3", &[]);
    assert!(browser.visible_text().contains("3 objects examined"), "{}", browser.visible_text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drives_have_maps_and_are_scrubbed() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/drives", console.url()));
    assert_eq!(browser.run("return document.querySelectorAll('.map rect').length", &[]), 500);
    let label = browser.run("return document.querySelector('.map').getAttribute('aria-label')", &[]);
    assert_eq!(label, "Map of zones: 100 free, 200 with runs, 200 with packs");
    let members = browser.run("return [...document.querySelectorAll('main table tbody tr')].map(row => row.innerText.replace(/\\s+/g, ' ').trim()).join('|')", &[]);
    assert_eq!(members, "/dev/sdb in sync|/dev/sdc stale|(missing) missing");
    browser.follow("form[action='/drives/scrub'] button");
    browser.wait_until(
        "return document.body.innerText.includes('99 objects (1.0 GiB) read, 3 blocks repaired')",
        &[],
    );
    assert_eq!(console.process.done(), ["scrub"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s749_metrics_are_plotted_and_the_page_updates_itself() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/metrics", console.url()));
    browser.wait_until("return document.querySelectorAll('.plot').length >= 4", &[]);
    let points = "return document.querySelector('.plot polyline').getAttribute('points').split(' ').length > Number(arguments[0])";
    let before = browser
        .run("return document.querySelector('.plot polyline').getAttribute('points').split(' ').length", &[]);
    browser.wait_until(points, &[&before.to_string()]);
    let legend = browser.run("return document.querySelector('.plot .legend').innerText", &[]);
    assert!(legend.as_str().unwrap().contains("<b>x</b>"), "{legend}");
    browser.click("summary");
    assert!(browser.visible_text().contains("process_resident_memory_bytes"), "{}", browser.visible_text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_shows_its_last_lines() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/log", console.url()));
    let lines = browser.run("return document.querySelector('pre').textContent", &[]);
    let lines = lines.as_str().unwrap();
    assert!(lines.starts_with("first line\n<script>") && lines.ends_with("last line\n"), "{lines}");
}
