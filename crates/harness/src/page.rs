//! The frame of an HTML report: self-contained, without scripts, fonts or images from elsewhere.

use crate::format::escape;

/// The page follows the reader's light or dark mode. The order of the colours keeps neighbours distinguishable with a colour vision
/// deficiency.
const STYLE: &str = "
:root{--paper:#fcfcfb;--ink:#1a1a19;--soft:#5f5e58;--rule:#dedcd3;--field:#f1f0eb;--inside:#fff;
--c0:#2a78d6;--c1:#eb6834;--c2:#1baf7a;--c3:#b98000;--c4:#d55181;--c5:#008300;--c6:#4a3aa7;--c7:#c03a39;--grey:#8d8b82}
@media(prefers-color-scheme:dark){:root{--paper:#1a1a19;--ink:#f2f1ec;--soft:#a9a79d;--rule:#3b3a36;--field:#262624;--inside:#111;
--c0:#5b9de9;--c1:#ee7d4c;--c2:#33c08f;--c3:#d9a021;--c4:#e87ba4;--c5:#45b045;--c6:#9085e9;--c7:#e66767;--grey:#77756d}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:32px 24px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:44px 0 6px}h3{font-size:14px;margin:0 0 6px;font-weight:600}
p{margin:4px 0 12px;color:var(--soft);max-width:85ch}
figure{margin:0}figcaption{margin:10px 0 0;color:var(--soft);font-size:13px;max-width:110ch}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:26px 36px}
.wide{grid-column:1/-1;max-width:780px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:2px 0 14px;padding:0;list-style:none;font-size:13px}
.legend li::before{content:'';display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;background:var(--k)}
svg{width:100%;height:auto;display:block;font:12px system-ui,sans-serif}
svg text{fill:var(--ink)}svg .tick,svg .none{fill:var(--soft);font-size:11px}svg .none{font-style:italic}
svg .value{fill:var(--soft);font-variant-numeric:tabular-nums}svg .inside{fill:var(--inside);font-size:11px}
svg .grid{stroke:var(--rule);stroke-width:1}svg .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}
svg .median{stroke:var(--ink);stroke-width:2}svg .field{fill:var(--field)}svg .line{fill:none;stroke-width:2;stroke-linejoin:round}
.scroll{overflow-x:auto;max-width:100%}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,520px),1fr));gap:18px}
.card{border:1px solid var(--rule);border-radius:8px;padding:14px 16px;min-width:0}
.card h3{font-size:16px;margin:0}.card p{margin:2px 0 10px;font-size:13px}.card h4{margin:0 0 6px;font-size:12px;font-weight:600;color:var(--soft)}
.badge{display:inline-block;margin-left:6px;padding:1px 8px;border-radius:9px;background:var(--field);color:var(--soft);font-size:12px;font-weight:500}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,220px),1fr));gap:12px 22px}
.row{display:grid;grid-template-columns:1fr auto;gap:0 8px;font-size:12.5px;margin:0 0 7px;line-height:1.35}
.row .num{font-variant-numeric:tabular-nums;text-align:right}.row small{color:var(--soft);white-space:nowrap}
.track{grid-column:1/-1;display:flex;height:9px;background:var(--field);border-radius:2px;overflow:hidden}
.track i{display:block;height:100%;min-width:1px}.track .end{opacity:.4;min-width:0}

.source{margin-top:44px}.row.parity{position:relative}.row:not(.parity)+.row.parity{border-top:1px dashed var(--rule);padding-top:7px}
.failed{font-style:italic}.failures{padding-left:20px;font-size:13px}
tbody th{text-align:left;color:var(--ink);white-space:nowrap}
@media(max-width:600px){body{padding:18px 14px}h1{font-size:22px}h2{margin-top:32px}.row{font-size:13.5px}.wide{max-width:100%}}
table{border-collapse:collapse;font-size:13px;margin:6px 0}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}th{color:var(--soft);font-weight:600}
";

/// Wraps the body of a page. The title is escaped, the body is HTML.
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}{}</style></head><body>{body}</body></html>\n",
        escape(title),
        colours()
    )
}

/// Returns CSS rules with a class for each colour, for shapes, lines and legends.
fn colours() -> String {
    let names = (0..8).map(|index| format!("c{index}")).chain(["grey".to_owned()]);
    names
        .map(|name| {
            format!("svg .{name}{{fill:var(--{name})}}svg .line.{name}{{fill:none;stroke:var(--{name})}}li.{name}{{--k:var(--{name})}}")
        })
        .collect()
}
