//! Translates operations of the kernel to steps of a trace that `tenon bench` replays.
//!
//! A step is a call that makes the same requests again: LOOKUP and GETATTR are a `stat`, FLUSH is a `close`. OPEN needs no step,
//! because the replay opens a file before its first use. Operations that failed, and some kinds of operations, have no steps.

use crate::control::live_messages::TracedCall;
use bench::{TraceCall, TraceStep};
use std::collections::HashMap;
use std::path::Path;

/// The state of the translation.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Time of the first operation with a step, in microseconds since the beginning of the trace.
    began_us: Option<u64>,
    /// The number in the steps of each thread of this machine.
    numbers: HashMap<u32, u32>,
    /// The thread that has each number now, 0 for the kernel.
    threads: Vec<u32>,
    /// Files that were used since they were last closed, with the number of the thread that used them.
    in_use: HashMap<String, u32>,
}

impl Steps {
    /// Returns the steps of an operation, none if it is not replayed.
    pub(super) fn of(&mut self, call: &TracedCall) -> Vec<TraceStep> {
        let is_replayable =
            |path: &str| !path.is_empty() && !path.starts_with('#') && !path.contains('\u{fffd}');
        let paths_are_replayable = is_replayable(&call.path) && call.to.as_deref().is_none_or(is_replayable);
        if call.error.is_some() || !paths_are_replayable {
            return Vec::new();
        }
        let thread = self.thread_of(call);
        let calls = self.calls_of(call, thread);
        let began = *self.began_us.get_or_insert(call.at_us);
        let at_us = call.at_us.saturating_sub(began);
        calls.into_iter().map(|call| TraceStep { at_us, thread, call }).collect()
    }

    fn calls_of(&mut self, call: &TracedCall, thread: u32) -> Vec<TraceCall> {
        let path = call.path.clone();
        let (offset, bytes) = (call.offset.unwrap_or(0), call.bytes.unwrap_or(0));
        match call.operation.as_ref() {
            "MKDIR" => vec![TraceCall::Mkdir { path }],
            "CREATE" => {
                self.in_use.insert(path.clone(), thread);
                vec![TraceCall::Create { path }]
            }
            "MKNOD" => vec![TraceCall::Create { path: path.clone() }, TraceCall::Close { path }],
            "WRITE" => {
                self.in_use.insert(path.clone(), thread);
                vec![TraceCall::Write { path, offset, bytes }]
            }
            "READ" if bytes > 0 => {
                self.in_use.insert(path.clone(), thread);
                vec![TraceCall::Read { path, offset, bytes }]
            }
            "FSYNC" => vec![TraceCall::Fsync { path }],
            "FLUSH" | "RELEASE" => {
                let was_used = self.in_use.remove(&path).is_some();
                was_used.then_some(TraceCall::Close { path }).into_iter().collect()
            }
            "SETATTR" => {
                let length = call.bytes;
                length.map(|bytes| TraceCall::Truncate { path, bytes }).into_iter().collect()
            }
            "LOOKUP" | "GETATTR" => vec![TraceCall::Stat { path }],
            // One listing makes several requests.
            "READDIR" | "READDIRPLUS" if offset == 0 => vec![TraceCall::List { path }],
            "RENAME" => self.rename(path, call.to.clone()),
            "UNLINK" => {
                self.in_use.remove(&path);
                vec![TraceCall::Unlink { path }]
            }
            "RMDIR" => vec![TraceCall::Rmdir { path }],
            _ => Vec::new(),
        }
    }

    fn rename(&mut self, path: String, to: Option<String>) -> Vec<TraceCall> {
        let Some(to) = to else { return Vec::new() };
        if let Some(thread) = self.in_use.remove(&path) {
            self.in_use.insert(to.clone(), thread);
        }
        vec![TraceCall::Rename { path, to }]
    }

    /// Returns the number of the thread that made a call. A close, which the kernel may send some time later, belongs to the thread that
    /// used the file last; so does each call on that file without a thread.
    fn thread_of(&mut self, call: &TracedCall) -> u32 {
        let is_close = matches!(call.operation.as_ref(), "FLUSH" | "RELEASE");
        if let Some(thread) = self.in_use.get(&call.path).filter(|_| is_close || call.process.thread == 0) {
            return *thread;
        }
        if let Some(number) = self.numbers.get(&call.process.thread) {
            return *number;
        }
        let number = self.free_number().unwrap_or(self.threads.len() as u32);
        match self.threads.get_mut(number as usize) {
            Some(thread) => {
                self.numbers.remove(thread);
                *thread = call.process.thread;
            }
            None => self.threads.push(call.process.thread),
        }
        self.numbers.insert(call.process.thread, number);
        number
    }

    /// Returns the number of a thread that has ended; `None` if all still run. A script starts one process after another, and one thread can replay them.
    fn free_number(&self) -> Option<u32> {
        let has_ended = |thread: &u32| *thread != 0 && !Path::new("/proc").join(thread.to_string()).exists();
        self.threads.iter().position(has_ended).map(|number| number as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::live_messages::TracedProcess;

    fn call(operation: &'static str, path: &str, thread: u32) -> TracedCall {
        TracedCall {
            id: 1,
            at_us: 100,
            took_us: 1,
            operation: operation.into(),
            path: path.to_owned(),
            to: None,
            offset: None,
            bytes: None,
            process: TracedProcess { pid: thread, thread, program: "sh".to_owned() },
            error: None,
            requests: Vec::new(),
        }
    }

    #[test]
    fn operations_become_the_calls_that_made_them() {
        let (mut steps, own) = (Steps::default(), std::process::id());
        let mut found = |call: &TracedCall| {
            let steps = steps.of(call).into_iter();
            steps.map(|step| serde_json::to_string(&step).unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(&call("CREATE", "a", own)), r#"{"t_us":0,"thread":0,"op":"create","path":"a"}"#);
        let write = TracedCall { at_us: 150, offset: Some(5), bytes: Some(9), ..call("WRITE", "a", own) };
        assert_eq!(found(&write), r#"{"t_us":50,"thread":0,"op":"write","path":"a","offset":5,"bytes":9}"#);
        assert!(found(&call("FLUSH", "a", own)).contains("close"));
        // The kernel's RELEASE after that is not a second close.
        assert_eq!(found(&call("RELEASE", "a", 0)), "");
        assert_eq!(found(&call("OPEN", "a", own)), "");
        let failed = TracedCall { error: Some("ENOENT".into()), ..call("LOOKUP", "b", own) };
        assert_eq!(found(&failed), "");
        assert_eq!(found(&call("GETATTR", "", own)), "");
        assert!(found(&call("SETATTR", "a", own)).is_empty());
        let truncate = TracedCall { bytes: Some(3), ..call("SETATTR", "a", own) };
        assert!(found(&truncate).contains(r#""op":"truncate","path":"a","bytes":3"#));
        let rename = TracedCall { to: Some("b".to_owned()), ..call("RENAME", "a", own) };
        assert!(found(&rename).contains(r#""op":"rename","path":"a","to":"b""#));
        let list = TracedCall { offset: Some(0), ..call("READDIRPLUS", "d", own) };
        assert!(found(&list).contains("list") && found(&TracedCall { offset: Some(7), ..list }).is_empty());
    }

    #[test]
    fn threads_that_have_ended_give_their_number_to_others() {
        let (mut steps, own) = (Steps::default(), std::process::id());
        let mut thread = |thread| steps.of(&call("LOOKUP", "a", thread))[0].thread;
        // No process has this id.
        let ended = u32::MAX;
        assert_eq!((thread(own), thread(ended), thread(own)), (0, 1, 0));
        assert_eq!(thread(1), 1);
        assert_eq!(thread(2), 2);
    }
}
