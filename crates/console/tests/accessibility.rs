//! Checks of a page's accessibility, by rules of WCAG 2.2 that a program can decide.

use crate::fixture::{ADMIN, TestConsole};
use servers::Browser;

/// Returns the violations of a page: names of controls, headings, tables, ids, and the contrast of all visible text.
const RULES: &str = r#"
const found = [];
const report = (rule, element) => found.push(`${rule}: ${element.outerHTML.slice(0, 160)}`);
const all = selector => [...document.querySelectorAll(selector)];
const isVisible = element => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
const textOf = element => (element?.textContent ?? "").trim();

if (!document.documentElement.lang) report("no language", document.documentElement);
if (!document.title.trim()) found.push("no title");
if (all("h1").length !== 1) found.push(`${all("h1").length} headings h1`);
if (all("main").length !== 1) found.push("not exactly one main");

let level = 0;
for (const heading of all("h1, h2, h3, h4, h5, h6")) {
  const own = Number(heading.tagName[1]);
  if (own > level + 1) report(`heading skips from ${level}`, heading);
  if (!textOf(heading)) report("empty heading", heading);
  level = own;
}

const ids = new Set();
for (const element of all("[id]")) {
  if (ids.has(element.id)) report("id used twice", element);
  ids.add(element.id);
}

const nameOf = element => {
  const label = element.getAttribute("aria-label");
  if (label?.trim()) return label.trim();
  const by = element.getAttribute("aria-labelledby");
  if (by) return by.split(" ").map(id => textOf(document.getElementById(id))).join(" ").trim();
  if (element.labels?.length) return [...element.labels].map(textOf).join(" ").trim();
  if (["BUTTON", "A", "SUMMARY"].includes(element.tagName)) {
    return textOf(element) || [...element.querySelectorAll("img")].map(image => image.alt).join(" ").trim();
  }
  return "";
};
for (const element of all("a[href], button, summary, select, textarea, input:not([type=hidden])")) {
  if (!nameOf(element)) report("control without a name", element);
}
for (const image of all("img")) if (!image.hasAttribute("alt")) report("image without alt", image);
for (const image of all("svg")) {
  if (image.getAttribute("role") !== "img" || !nameOf(image)) report("drawing without a name", image);
}
for (const section of all("section")) if (!nameOf(section) && !section.querySelector("h2, h3")) report("section without a name", section);
const landmarks = new Set();
for (const landmark of all("nav")) {
  const name = nameOf(landmark);
  if (!name || landmarks.has(name)) report("navigation without a name of its own", landmark);
  landmarks.add(name);
}
for (const table of all("table")) {
  if (!textOf(table.caption)) report("table without a caption", table);
  for (const cell of table.querySelectorAll("th")) {
    if (!cell.scope) report("header cell without a scope", cell);
    if (!textOf(cell)) report("empty header cell", cell);
  }
}
for (const list of all("ul, ol")) {
  for (const child of list.children) if (child.tagName !== "LI") report("not an item of a list", child);
}
for (const element of all("[tabindex]")) if (element.tabIndex > 0) report("tab order is changed", element);
for (const element of all("[role]")) {
  if (!["img", "status", "alert", "region"].includes(element.getAttribute("role"))) report("unknown role", element);
}
for (const element of all("button, select, input:not([type=checkbox]):not([type=hidden])")) {
  const box = element.getBoundingClientRect();
  if (isVisible(element) && (box.height < 24 || box.width < 24)) report(`target of ${box.width} x ${box.height}`, element);
}

// Contrast (WCAG 2.2, success criterion 1.4.3): the colour of each text against the first opaque background below it.
const channels = colour => {
  const [red, green, blue, alpha] = colour.match(/[\d.]+/g).map(Number);
  return { rgb: [red, green, blue], alpha: alpha ?? 1 };
};
const luminance = rgb => {
  const [red, green, blue] = rgb.map(value => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const backgroundOf = element => {
  for (let at = element; at; at = at.parentElement) {
    const { rgb, alpha } = channels(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return rgb;
  }
  return [255, 255, 255];
};
const contrast = (one, other) => {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !isVisible(element) || element.closest(".unseen, script, noscript, :disabled")) continue;
  const style = getComputedStyle(element);
  const size = parseFloat(style.fontSize);
  const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  const colour = element.closest("svg") ? style.fill : style.color;
  const ratio = contrast(channels(colour).rgb, backgroundOf(element));
  if (ratio < least) report(`contrast ${ratio.toFixed(2)}`, element);
}
// A phone's width: nothing but tables and logs scrolls sideways.
if (document.documentElement.scrollWidth > window.innerWidth) {
  found.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${window.innerWidth}`);
}
return found.join("\n");
"#;

/// Checks the present page on a desktop and on a phone, with light and dark colours.
#[track_caller]
pub(crate) fn check(browser: &Browser) {
    for (width, height, is_dark) in
        [(1400, 1000, false), (1400, 1000, true), (360, 740, false), (360, 740, true)]
    {
        browser.set_screen(width, height, is_dark);
        let found = browser.run(RULES, &[]);
        assert_eq!(found, "", "{} at {width} x {height}, dark: {is_dark}", browser.url());
    }
    browser.set_screen(1400, 1000, false);
}

/// The rules would be worthless if they found nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_a_page_are_found() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    check(&browser);
    for (spoil, finding) in [
        ("document.querySelector('h1').remove()", "0 headings h1"),
        ("document.querySelector('main').insertAdjacentHTML('beforeend', '<h4>x</h4>')", "heading skips"),
        ("document.querySelector('caption').remove()", "table without a caption"),
        (
            "document.querySelector('main').insertAdjacentHTML('beforeend', '<input>')",
            "control without a name",
        ),
        (
            "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=x>')",
            "image without alt",
        ),
        ("document.querySelector('h1').style.color = '#999'", "contrast"),
        ("document.querySelector('main').style.minWidth = '3000px'", "wide in a window"),
    ] {
        browser.open(&console.url());
        browser.run(spoil, &[]);
        let found = browser.run(RULES, &[]);
        assert!(found.as_str().unwrap().contains(finding), "{spoil}: {found}");
    }
}

/// Everything can be reached and used by the keyboard: the first stop is the link to the content, and each stop is
/// marked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keyboard_is_enough() {
    const TAB: &str = "\u{e004}";
    const ENTER: &str = "\u{e007}";
    let console = TestConsole::start().await;
    console.put("a.txt", "a").await;
    let browser = console.browser(ADMIN);
    let focused = || browser.run("return document.activeElement.innerText.trim()", &[]);
    browser.press(TAB);
    assert_eq!(focused(), "Skip to the content");
    let left = browser.run("return document.activeElement.getBoundingClientRect().left", &[]);
    assert_eq!(left.as_f64(), Some(0.0), "the link is visible once it is focused");
    let outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle", &[]);
    assert_eq!(outline, "solid");
    browser.press(ENTER);
    browser.press(TAB);
    assert_eq!(focused(), "bucket");
    browser.press(ENTER);
    browser.wait_until("return document.title === 'bucket – Tenon'", &[]);
}
