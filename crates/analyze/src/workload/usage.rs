//! CPU time of the client, of a server with its children, of kernel threads, and of the whole machine, read from
//! `/proc`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// Length of a clock tick in `/proc` (`USER_HZ`); the same on every architecture of Linux.
const TICK_SECS: f64 = 0.01;

/// CPU seconds used in a time span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of this process: load generation, and tracing if it runs.
    pub client_secs: f64,
    /// CPU time of the server and all its descendants; `None` if no server process was given.
    pub server_secs: Option<f64>,
    /// CPU time of kernel threads named after the device (`xfsaild/loop0`, `jbd2/loop0-8`). Shared worker threads count in
    /// [`Usage::machine_secs`] only.
    pub kernel_secs: f64,
    /// CPU time of the whole machine, with interrupts and unrelated processes.
    pub machine_secs: f64,
}

impl Usage {
    /// Adds the usage of another time span.
    pub(crate) fn add(&mut self, span: &Self) {
        self.client_secs += span.client_secs;
        self.server_secs = self.server_secs.zip(span.server_secs).map(|(one, other)| one + other);
        self.kernel_secs += span.kernel_secs;
        self.machine_secs += span.machine_secs;
    }
}

/// A running measurement of CPU time.
#[derive(Debug)]
pub struct UsageMeter {
    server: Option<u32>,
    device: Option<String>,
    start: Snapshot,
}

#[derive(Debug, Default)]
struct Snapshot {
    client: f64,
    server: BTreeMap<u32, f64>,
    kernel: BTreeMap<u32, f64>,
    machine: f64,
}

impl UsageMeter {
    /// Starts to measure the CPU time of a server process, and of kernel threads named after a device (`loop0`).
    ///
    /// # Errors
    /// If `/proc` cannot be read, or the server process does not exist.
    pub fn start(server: Option<u32>, device: Option<&str>) -> io::Result<Self> {
        let device = device.map(str::to_owned);
        let start = Snapshot::take(server, device.as_deref())?;
        Ok(Self { server, device, start })
    }

    /// Returns the CPU time used since the start.
    ///
    /// # Errors
    /// As [`UsageMeter::start`].
    pub fn stop(&self) -> io::Result<Usage> {
        let end = Snapshot::take(self.server, self.device.as_deref())?;
        Ok(Usage {
            client_secs: end.client - self.start.client,
            server_secs: self.server.map(|_| cpu_difference(&self.start.server, &end.server)),
            kernel_secs: cpu_difference(&self.start.kernel, &end.kernel),
            machine_secs: end.machine - self.start.machine,
        })
    }
}

/// Returns the load average over the last minute. Figures measured on a busy machine mean less.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn load_average() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default())
}

impl Snapshot {
    fn take(server: Option<u32>, device: Option<&str>) -> io::Result<Self> {
        let mut taken = Self { machine: machine_secs()?, ..Self::default() };
        let processes = processes()?;
        taken.client = processes.get(&std::process::id()).map_or(0.0, |process| process.cpu_secs);
        for (pid, process) in &processes {
            if server.is_some_and(|server| is_descendant(*pid, server, &processes)) {
                taken.server.insert(*pid, process.cpu_secs);
            }
            if device.is_some_and(|device| process.is_kernel_thread && is_named_after(&process.name, device))
            {
                taken.kernel.insert(*pid, process.cpu_secs);
            }
        }
        match server {
            Some(pid) if !processes.contains_key(&pid) => {
                Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no process {pid}")))
            }
            _ => Ok(taken),
        }
    }
}

/// Returns the CPU time that processes used between two snapshots. The time of a process that ended is in the sum of its parent.
fn cpu_difference(start: &BTreeMap<u32, f64>, end: &BTreeMap<u32, f64>) -> f64 {
    let before: f64 = start.values().sum();
    (end.values().sum::<f64>() - before).max(0.0)
}

#[derive(Debug)]
struct Process {
    name: String,
    parent: u32,
    is_kernel_thread: bool,
    /// CPU time, with that of children that it waited for.
    cpu_secs: f64,
}

/// Pid of the parent of all kernel threads.
const KTHREADD: u32 = 2;

fn processes() -> io::Result<BTreeMap<u32, Process>> {
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    // A process that ends between the two reads is left out.
    Ok(pids
        .filter_map(|pid| Some((pid, parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect())
}

/// Parses proc_pid_stat(5).
fn parse_stat(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // proc(5) counts from 1: the name is field 2, the parent field 4, the CPU times fields 14 to 17. `fields` begins with field 3.
    let parent = number(1)? as u32;
    let ticks: u64 = (11..15).filter_map(number).sum();
    Some(Process {
        name: head.split_once('(')?.1.to_owned(),
        parent,
        is_kernel_thread: parent == KTHREADD,
        cpu_secs: ticks as f64 * TICK_SECS,
    })
}

/// Returns whether a process is `ancestor` or a descendant of it.
fn is_descendant(pid: u32, ancestor: u32, processes: &BTreeMap<u32, Process>) -> bool {
    let mut at = pid;
    while at != ancestor {
        match processes.get(&at) {
            Some(process) if process.parent != 0 => at = process.parent,
            _ => return false,
        }
    }
    true
}

/// Returns whether a thread's name contains the device's name as a word: `xfsaild/loop1` is named after `loop1`, not after `loop` or
/// `loop10`.
fn is_named_after(thread: &str, device: &str) -> bool {
    thread.match_indices(device).any(|(at, _)| {
        let continues_word = |char: Option<char>| char.is_some_and(|char| char.is_ascii_alphanumeric());
        !continues_word(thread[..at].chars().next_back())
            && !continues_word(thread[at + device.len()..].chars().next())
    })
}

/// Returns the CPU time of the machine without idle, I/O wait and stolen time (proc_stat(5)).
fn machine_secs() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum();
    Ok(busy as f64 * TICK_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_are_matched_by_device_name() {
        for (thread, device, expected) in [
            ("xfsaild/loop1", "loop1", true),
            ("jbd2/loop1-8", "loop1", true),
            ("xfsaild/loop10", "loop1", false),
            ("kworker/u8:3", "loop1", false),
        ] {
            assert_eq!(is_named_after(thread, device), expected, "{thread} {device}");
        }
    }

    #[test]
    fn a_process_name_may_contain_brackets_and_spaces() {
        let process = parse_stat("7 (a) b (c) S 1 7 7 0 -1 4 0 0 0 0 100 20 3 4 20 0 1").unwrap();
        assert_eq!((process.name.as_str(), process.parent), ("a) b (c", 1));
        assert!((process.cpu_secs - 1.27).abs() < 1e-9);
    }

    #[test]
    fn cpu_of_child_processes_counts_for_the_server() {
        let script = "while :; do :; done & wait";
        let mut shell = std::process::Command::new("sh");
        let mut server = std::os::unix::process::CommandExt::process_group(&mut shell, 0)
            .args(["-c", script])
            .spawn()
            .unwrap();
        let meter = UsageMeter::start(Some(server.id()), None).unwrap();
        // On a busy machine the child may get little CPU, so wait up to a minute until enough is counted.
        let used = (0..600).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            Some(meter.stop().unwrap()).filter(|used| used.server_secs.is_some_and(|secs| secs > 0.05))
        });
        let used = used.unwrap_or_else(|| meter.stop().unwrap());
        let group = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        server.wait().unwrap();
        assert!(used.server_secs.unwrap() > 0.05 && used.machine_secs > 0.05, "{used:?}");
        assert!(UsageMeter::start(Some(u32::MAX), None).is_err());
    }
}
