//! YAML as a tree whose nodes have positions, and whose mappings keep repeated keys, which rulesets use.

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, options};
use std::fmt;

/// Maximum nesting depth; rulesets need four levels. Deeper input is refused, so that it cannot exhaust the stack.
const DEPTH_MAX: usize = 16;

/// A position in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// A problem in a file of rulesets, with its position and a correction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {says}")]
pub struct Problem {
    /// The position of the problem in the file.
    pub place: Place,
    /// The message for the user.
    pub says: String,
}

/// A value of a YAML text, with the position at which it begins.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    /// No value, or `~` or `null` without quotes.
    Null,
    /// Any other scalar, also a number or a boolean.
    Text(String),
    List(Vec<Node>),
    /// Entries in the order of the text; keys may be repeated.
    Map(Vec<(Node, Node)>),
}

/// Parses a text. Returns its documents, without empty ones, or the first problem.
pub(crate) fn documents(text: &str) -> Result<Vec<Node>, Problem> {
    let events = Parser::new_from_str_with_options(text, options! { emit_comments: false });
    let mut reader = NodeReader { events, text };
    let mut documents = Vec::new();
    while let Some((event, span)) = reader.next()? {
        if let Event::DocumentStart(..) | Event::DocumentEnd | Event::StreamStart | Event::StreamEnd = event {
            continue;
        }
        documents.push(reader.node(event, &span, DEPTH_MAX)?);
    }
    documents.retain(|document| !matches!(document.value, Value::Null));
    Ok(documents)
}

struct NodeReader<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
}

impl<'a> NodeReader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Problem> {
        self.events.next().transpose().map_err(|error| {
            let place = place(error.marker());
            let advice = quoting_advice(self.text, place).unwrap_or_default();
            Problem { place, says: format!("invalid YAML: {}{advice}", error.info()) }
        })
    }

    /// Returns the next node of a collection, or `None` at its end.
    fn child(&mut self, depth: usize) -> Result<Option<Node>, Problem> {
        match self.next()? {
            None | Some((Event::SequenceEnd | Event::MappingEnd, _)) => Ok(None),
            Some((event, span)) => self.node(event, &span, depth).map(Some),
        }
    }

    /// Reads the node that begins with an event, nested at most `depth` levels.
    fn node(&mut self, event: Event<'_>, span: &Span, depth: usize) -> Result<Node, Problem> {
        let place = place(&span.start);
        let problem = |says: &str| Problem { place, says: says.to_owned() };
        let Some(depth) = depth.checked_sub(1) else {
            return Err(problem("the file is nested too deeply for rulesets"));
        };
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) if matches!(&*text, "" | "~" | "null") => Value::Null,
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                while let Some(item) = self.child(depth)? {
                    items.push(item);
                }
                Value::List(items)
            }
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                while let Some(key) = self.child(depth)? {
                    let Some(value) = self.child(depth)? else { break };
                    entries.push((key, value));
                }
                Value::Map(entries)
            }
            _ => return Err(problem("aliases (*name) are not supported; write the value out")),
        };
        Ok(Node { place, value })
    }
}

fn place(marker: &granit_parser::Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

/// Returns advice to quote a value, if one near `place` begins with a character that is special in YAML: `>` begins a
/// folded text, `*` an alias, `!` a tag, `[` a list and `%` a directive, and `@` is reserved.
fn quoting_advice(text: &str, place: Place) -> Option<String> {
    let near = text.lines().take(place.line).skip(place.line.saturating_sub(2));
    let value = near.filter_map(|line| line.split_once(": ")).map(|(_, value)| value.trim());
    let special = value.filter(|value| value.starts_with(['>', '*', '!', '[', '%', '@'])).last()?;
    Some(format!("; put the value in quotes: \"{special}\""))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
