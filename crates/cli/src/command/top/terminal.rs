//! The terminal of a full-screen command: raw mode, the alternate screen, keys and frames, by the control sequences that all terminals
//! of today know (ECMA-48, xterm).

use anyhow::{Context, Result, bail};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use unicode_width::UnicodeWidthChar as _;

/// Alternate screen, no cursor, no line wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes [`ENTER`].
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Columns and rows of a terminal that does not report its size.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
}

/// The terminal in raw mode. Its state is restored when this value is dropped.
pub(super) struct Terminal {
    /// Settings of the terminal before raw mode.
    before: Termios,
}

impl Terminal {
    /// Enters raw mode and the alternate screen.
    ///
    /// # Errors
    /// Standard input or output is not a terminal.
    pub(super) fn enter() -> Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            bail!("standard input or output is not a terminal; `tenon stats` and `tenon status` print lines");
        }
        let before = tcgetattr(io::stdin()).context("cannot use the terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw).context("cannot use the terminal")?;
        let terminal = Self { before };
        terminal.write(ENTER)?;
        Ok(terminal)
    }

    /// Returns the number of columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => DEFAULT_SIZE,
        }
    }

    /// Shows lines from the top of the screen.
    pub(super) fn show(&self, lines: &[String]) -> Result<()> {
        // Terminals that know mode 2026 show the frame at once; others ignore it.
        let mut frame = String::from("\x1b[?2026h\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\r\n" };
            // Writing to a string cannot fail.
            // Erased first: after a line that fills its row, the erasure would remove the last character.
            let _ = write!(frame, "{separator}\x1b[K{line}");
        }
        frame.push_str("\x1b[J\x1b[?2026l");
        self.write(&frame)
    }

    fn write(&self, text: &str) -> Result<()> {
        let mut output = io::stdout();
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush())
            .context("cannot write to the terminal")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Waits for keys, and returns them; `None` at the end of the input, or if it cannot be read.
pub(super) fn read_keys() -> Option<Vec<Key>> {
    let mut bytes = [0; 256];
    match io::stdin().read(&mut bytes) {
        Ok(0) | Err(_) => None,
        Ok(count) => Some(parse_keys(&bytes[..count])),
    }
}

/// Parses the bytes that a terminal sends for keys.
fn parse_keys(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let (mut rest, mut keys) = (text.as_ref(), Vec::new());
    while let Some(first) = rest.chars().next() {
        let (key, len) = match first {
            '\x1b' => parse_escape(rest),
            '\r' | '\n' => (Some(Key::Enter), 1),
            '\t' => (Some(Key::Tab), 1),
            '\x7f' | '\x08' => (Some(Key::Backspace), 1),
            '\x03' => (Some(Key::Interrupt), 1),
            _ if first.is_control() => (None, 1),
            _ => (Some(Key::Char(first)), first.len_utf8()),
        };
        keys.extend(key);
        rest = &rest[len..];
    }
    keys
}

/// Parses a control sequence at the beginning of a text. Returns its key, if it is one that is used, and its length in bytes.
fn parse_escape(text: &str) -> (Option<Key>, usize) {
    let Some(sequence) = text.strip_prefix("\x1b[").or_else(|| text.strip_prefix("\x1bO")) else {
        return (Some(Key::Escape), 1);
    };
    let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic() || c == '~') else {
        return (None, text.len());
    };
    let key = match &sequence[..=end] {
        "A" => Some(Key::Up),
        "B" => Some(Key::Down),
        "C" => Some(Key::Right),
        "D" => Some(Key::Left),
        "H" | "1~" | "7~" => Some(Key::Home),
        "F" | "4~" | "8~" => Some(Key::End),
        "Z" => Some(Key::BackTab),
        "5~" => Some(Key::PageUp),
        "6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, 2 + end + 1)
}

/// Returns a text with control characters replaced by `?`, cut or filled to a width in columns, at the right if `is_right`.
pub(super) fn fit(text: &str, width: usize, is_right: bool) -> String {
    let (mut fitted, mut used) = (String::new(), 0);
    for c in text.chars() {
        let c = if c.is_control() { '?' } else { c };
        let columns = c.width().unwrap_or(0);
        if used + columns > width {
            break;
        }
        fitted.push(c);
        used += columns;
    }
    let filler = " ".repeat(width - used);
    if is_right { filler + &fitted } else { fitted + &filler }
}

/// Returns a path cut at its beginning, so that the name of the file is seen, or filled to a width in columns.
pub(super) fn fit_path(path: &str, width: usize) -> String {
    let columns = |text: &str| text.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>();
    if columns(path) <= width || width < 4 {
        return fit(path, width, false);
    }
    let mut tail = path;
    while columns(tail) + 1 > width {
        let mut chars = tail.chars();
        chars.next();
        tail = chars.as_str();
    }
    fit(&format!("…{tail}"), width, false)
}

/// Returns a text in bold.
pub(super) fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// Returns a text in reverse video.
pub(super) fn reverse(text: &str) -> String {
    format!("\x1b[7m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_recognized() {
        let keys = parse_keys("q\x1b[A\x1bOB\x1b[6~\x1b[Z\t\r\x7f\x03é\x1b[200~".as_bytes());
        let expected = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::PageDown,
            Key::BackTab,
            Key::Tab,
            Key::Enter,
            Key::Backspace,
            Key::Interrupt,
            Key::Char('é'),
        ];
        assert_eq!(keys, expected);
        assert_eq!(parse_keys(b"\x1b"), [Key::Escape]);
        assert_eq!(parse_keys(b"\x1b["), []);
    }

    #[test]
    fn texts_have_their_width_in_columns() {
        assert_eq!(fit("abc", 5, false), "abc  ");
        assert_eq!(fit("abc", 5, true), "  abc");
        assert_eq!(fit("日本語", 5, false), "日本 ");
        assert_eq!(fit("a\x1b[2Jb", 9, false), "a?[2Jb   ");
        assert_eq!(fit_path("directory/file", 6), "…/file");
        assert_eq!(fit_path("file", 6), "file  ");
    }
}
