//! The last lines of the log.

use crate::display;
use crate::pages::layout::{Page, show_page};
use crate::pages::visit::Visit;
use crate::reply::{Failure, Reply};
use crate::request::Fields;
use http::StatusCode;
use maud::html;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Numbers of lines that the page offers; the first is that of a request without a choice.
const LINES: [usize; 3] = [100, 500, 2000];
/// Maximum number of bytes that are read from the end of the log.
const TAIL_BYTES_MAX: u64 = 1 << 20;

/// Shows the last lines of the log file.
pub(crate) async fn show(visit: &Visit, query: &Fields) -> Result<Reply, Failure> {
    let wanted = query.text("lines").parse().ok().filter(|lines| LINES.contains(lines)).unwrap_or(LINES[0]);
    let lines = match visit.process().log_file() {
        None => None,
        Some(path) => {
            let read = tokio::task::spawn_blocking(move || tail(&path, wanted)).await;
            let cannot = |error: String| {
                Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("The log cannot be read: {error}"))
            };
            let read = read.map_err(|error| cannot(error.to_string()))?;
            Some(read.map_err(|error| cannot(error.to_string()))?)
        }
    };
    let content = html! {
        @match &lines {
            None => p.empty { "The log goes to standard error. Start the process with --log-file to read it here." },
            Some(lines) => {
                form.row method="get" action="/log" {
                    label for="lines" { "Last lines" }
                    select #lines name="lines" { @for offered in LINES { option value=(offered) selected[offered == wanted] { (offered) } } }
                    button type="submit" { "Show" }
                }
                pre.log tabindex="0" role="region" aria-label="Last lines of the log" { @for line in lines { (display::name(line)) "\n" } }
            }
        }
    };
    Ok(show_page(
        visit,
        Page { title: "Log", entry: "/log", refresh_secs: lines.is_some().then_some(5), content },
    ))
}

/// Returns at most `lines_max` last lines of a file, out of its last [`TAIL_BYTES_MAX`] bytes.
fn tail(path: &Path, lines_max: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line probably began before the bytes that were read.
    let lines: Vec<&str> = text.lines().skip(usize::from(skipped > 0)).collect();
    Ok(lines[lines.len().saturating_sub(lines_max)..].iter().map(|&line| line.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let all: Vec<String> = (0..40_000).map(|number| format!("line {number} of many")).collect();
        std::fs::write(&path, all.join("\n") + "\n").unwrap();
        for wanted in LINES {
            assert_eq!(tail(&path, wanted).unwrap(), all[all.len() - wanted..]);
        }
        std::fs::write(&path, "x".repeat(3 << 20)).unwrap();
        assert_eq!(tail(&path, 100).unwrap(), Vec::<String>::new());
    }
}
