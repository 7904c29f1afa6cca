//! Traces of file operations, one JSON object a line. docs/testbed.md describes the format.

use serde::{Deserialize, Serialize};

/// A step of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// Time since the first step, in microseconds.
    #[serde(rename = "t_us")]
    pub at_us: u64,
    /// The thread that made the call, from 0. Steps of a thread are replayed in order by one thread.
    #[serde(default)]
    pub thread: u32,
    /// The call.
    #[serde(flatten)]
    pub call: TraceCall,
}

/// A call of a trace. Paths are relative to the mount point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum TraceCall {
    /// Makes a directory.
    Mkdir {
        /// Path.
        path: String,
    },
    /// Creates a file, or empties it.
    Create {
        /// Path.
        path: String,
    },
    /// Writes at an offset.
    Write {
        /// Path.
        path: String,
        /// Offset.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Reads at an offset.
    Read {
        /// Path.
        path: String,
        /// Offset.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Stores what was written.
    Fsync {
        /// Path.
        path: String,
    },
    /// Closes a file, if it is open.
    Close {
        /// Path.
        path: String,
    },
    /// Changes a file's length.
    Truncate {
        /// Path.
        path: String,
        /// New length.
        bytes: u64,
    },
    /// Asks for attributes.
    Stat {
        /// Path.
        path: String,
    },
    /// Lists a directory.
    List {
        /// Path.
        path: String,
    },
    /// Renames a file or directory.
    Rename {
        /// Path.
        path: String,
        /// New path.
        to: String,
    },
    /// Removes a file.
    Unlink {
        /// Path.
        path: String,
    },
    /// Removes a directory.
    Rmdir {
        /// Path.
        path: String,
    },
}

/// Errors of a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is not a step.
    #[error("line {line}: {source}")]
    Line {
        /// Line, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// A path leaves the mount point.
    #[error("line {line}: '{path}' is not a relative path without '..'")]
    Path {
        /// Line, from 1.
        line: usize,
        /// Path.
        path: String,
    },
    /// There is no step.
    #[error("no step")]
    Empty,
}

/// Parses a trace. Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// The first problem.
pub fn parse_trace(text: &str) -> Result<Vec<TraceStep>, TraceError> {
    let mut steps = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let line_number = at + 1;
        let step: TraceStep =
            serde_json::from_str(line).map_err(|source| TraceError::Line { line: line_number, source })?;
        if let Some(path) = step.call.paths().find(|path| !is_inside(path)) {
            return Err(TraceError::Path { line: line_number, path: path.to_owned() });
        }
        steps.push(step);
    }
    if steps.is_empty() { Err(TraceError::Empty) } else { Ok(steps) }
}

/// Returns whether a path is relative and does not lead out of the directory of the trace.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|name| !name.is_empty() && name != "." && name != "..")
}

impl TraceCall {
    /// Returns its paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let (path, to) = match self {
            Self::Rename { path, to } => (path, Some(to.as_str())),
            Self::Mkdir { path }
            | Self::Create { path }
            | Self::Write { path, .. }
            | Self::Read { path, .. }
            | Self::Fsync { path }
            | Self::Close { path }
            | Self::Truncate { path, .. }
            | Self::Stat { path }
            | Self::List { path }
            | Self::Unlink { path }
            | Self::Rmdir { path } => (path, None),
        };
        std::iter::once(path.as_str()).chain(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_serialization() {
        let text = r#"{"t_us":0,"op":"create","path":"a/f"}
# a comment
{"t_us":12,"thread":1,"op":"write","path":"a/f","offset":0,"bytes":10}

{"t_us":20,"op":"rename","path":"a/f","to":"a/g"}"#;
        let steps = parse_trace(text).unwrap();
        assert_eq!(steps.len(), 3);
        assert_eq!(steps[1].call, TraceCall::Write { path: "a/f".into(), offset: 0, bytes: 10 });
        let again: Vec<String> = steps.iter().map(|step| serde_json::to_string(step).unwrap()).collect();
        assert_eq!(parse_trace(&again.join("\n")).unwrap(), steps);
    }

    #[test]
    fn a_path_cannot_leave_the_mount() {
        for path in ["/etc/passwd", "../x", "a/../../x", "", "a//b"] {
            let line = format!(r#"{{"t_us":0,"op":"unlink","path":"{path}"}}"#);
            assert!(matches!(parse_trace(&line), Err(TraceError::Path { line: 1, .. })), "{path}");
        }
        assert!(matches!(parse_trace("# nothing"), Err(TraceError::Empty)));
        assert!(parse_trace("{}").unwrap_err().to_string().starts_with("line 1"));
    }
}
