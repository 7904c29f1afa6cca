//! Correlation of trace events into device requests, system calls and counts.
//!
//! A device request is attributed to a file and to a call when its first bio enters the block layer: to the file whose data the submitting
//! thread reads or writes at that moment, and to the system call or io_uring request that the thread executes.

use super::classifier::{FileId, IoClassifier};
use super::event::{Event, FileActivity, IoFlags, IoStage, PageActivity, Payload};
use super::syscalls::{self, Family};
use crate::model::{Kind, Operation, Request, SECTOR_BYTES};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The id of a file in [`Request::file_or_thread`] holds the device from this bit on, and the inode below it.
const FILE_ID_DEVICE_SHIFT: u32 = 56;

/// Opcodes of io_uring's reads, writes and flushes: `IORING_OP_READV`, `WRITEV`, `FSYNC`, `READ_FIXED`, `WRITE_FIXED`, `READ`, `WRITE`.
const RING_IO: [u8; 7] = [1, 2, 3, 4, 5, 22, 23];

/// A system call or io_uring request on a file, with its time in each layer in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) family: Family,
    pub(crate) begin_ns: u64,
    pub(crate) vfs_ns: u64,
    pub(crate) file_system_ns: u64,
    pub(crate) block_ns: u64,
    pub(crate) device_ns: u64,
}

/// An event that is counted, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) at_ns: u64,
    pub(crate) event: CountedEvent,
    /// Number of pages, lookups or inodes; for a lock wait its duration in ns.
    pub(crate) amount: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedEvent {
    Lookup,
    InodeMiss,
    PagesAdded,
    PagesDeleted,
    PagesLookedUp,
    PagesMissing,
    LockWait,
}

/// The activity found in a trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity {
    pub(crate) requests: Vec<Request>,
    pub(crate) calls: Vec<Call>,
    pub(crate) counts: Vec<Count>,
    /// (number of the phase, its start in ns)
    pub(crate) markers: Vec<(u32, u64)>,
}

/// Facts about the node that are not in its events.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeInfo {
    pub(crate) classifier: IoClassifier,
    /// The process of each thread that was still running when the trace ended. Other threads are attributed to the first process.
    pub(crate) process_of: HashMap<u32, u32>,
    pub(crate) first_process: u32,
    /// The node's files that were open when the trace began: (process, descriptor).
    pub(crate) open_files: HashSet<(u32, i32)>,
}

/// Returns the files whose data was read or written.
pub(crate) fn traced_files(events: &[Event]) -> HashSet<FileId> {
    events
        .iter()
        .filter_map(|event| match event.payload {
            Payload::File { activity: FileActivity::Data, device, inode } => Some((device, inode)),
            _ => None,
        })
        .collect()
}

/// Correlates events, which must be in time order.
pub(crate) fn correlate(events: &[Event], node: NodeInfo) -> Activity {
    let mut correlator = Correlator { files: node.open_files.clone(), node, ..Correlator::default() };
    for event in events {
        correlator.handle(event);
    }
    correlator.finish()
}

#[derive(Debug, Default)]
struct Correlator {
    node: NodeInfo,
    /// Descriptors that are open files now: (process, descriptor).
    files: HashSet<(u32, i32)>,
    threads: HashMap<u32, Thread>,
    /// Queued bios that are not issued yet, by device, operation and first sector.
    bios: BTreeMap<(u8, Operation, u64), Bio>,
    /// Queued flushes without data, by device.
    empty_flushes: HashMap<u8, VecDeque<Bio>>,
    /// Requests that the device has not completed yet: indexes into `requests`.
    issued: HashMap<(u8, Operation, u64), VecDeque<usize>>,
    requests: Vec<Request>,
    /// For each request: the index of the call that it belongs to, and the thread that submitted it.
    owners: Vec<(Option<usize>, u32)>,
    calls: Vec<TracedCall>,
    /// Indexes into `calls` of the io_uring requests in progress, by the kernel's address of the request.
    ring_calls: HashMap<u64, usize>,
    counts: Vec<Count>,
    markers: Vec<(u32, u64)>,
}

/// The current state of a thread.
#[derive(Debug, Default)]
struct Thread {
    /// The file whose data the thread reads or writes.
    file: Option<FileId>,
    /// Index of the system call that the thread executes.
    call: Option<usize>,
    /// Index of the io_uring request that the thread submits.
    ring_call: Option<usize>,
    /// Start times of the lock waits in progress, ns.
    waits: Vec<u64>,
    /// Whether the thread belongs to the node: it made a traced system call or io_uring request.
    is_node: bool,
}

#[derive(Debug, Clone, Copy)]
struct Bio {
    /// Sector after the last one.
    end: u64,
    at_ns: u64,
    kind: Kind,
    /// Id of the file or, without a file, of the submitting thread: the [`file_or_thread`](Request::file_or_thread) of its request.
    file_or_thread: u64,
    /// Index of the call to which the bio belongs.
    owner: Option<usize>,
    tid: u32,
}

/// A system call or io_uring request whose time is not divided among the layers yet.
#[derive(Debug)]
struct TracedCall {
    family: Family,
    begin_ns: u64,
    /// 0 until the call returns.
    end_ns: u64,
    /// Time of the first tracepoint of the file system in this call.
    file_system_ns: Option<u64>,
    /// Whether the arguments may name a file of the node.
    is_on_file: bool,
    /// Whether the call returns a new descriptor.
    opens: bool,
}

impl Correlator {
    fn handle(&mut self, event: &Event) {
        let (at_ns, tid) = (event.at_ns, event.tid);
        match event.payload {
            Payload::Io { stage: IoStage::Queue, device, flags, sectors, sector } => {
                self.on_queue(event, device, flags, sector, sectors)
            }
            Payload::Io { stage: IoStage::Issue, device, flags, sectors, sector } => {
                self.on_issue(event, device, flags, sector, sectors)
            }
            Payload::Io { stage: IoStage::Complete, device, flags, sectors, sector } => {
                self.on_complete(at_ns, request_key(device, flags, sector, sectors))
            }
            Payload::Enter { call, descriptor } => self.on_enter(at_ns, tid, call, descriptor),
            Payload::Exit { result, .. } => self.on_exit(at_ns, tid, result),
            Payload::File { activity, device, inode } => self.on_file(at_ns, tid, activity, (device, inode)),
            Payload::Pages { activity, pages } => {
                let event = match activity {
                    PageActivity::Added => CountedEvent::PagesAdded,
                    PageActivity::Deleted => CountedEvent::PagesDeleted,
                    PageActivity::LookedUp => CountedEvent::PagesLookedUp,
                    PageActivity::Missing => CountedEvent::PagesMissing,
                };
                self.counts.push(Count { at_ns, event, amount: u64::from(pages) });
            }
            Payload::Lock { begins: true, .. } => self.thread(tid).waits.push(at_ns),
            Payload::Lock { begins: false, .. } => {
                if let Some(begin) = self.thread(tid).waits.pop() {
                    self.counts.push(Count { at_ns, event: CountedEvent::LockWait, amount: at_ns - begin });
                }
            }
            Payload::Ring { begins: true, opcode, request } => {
                self.on_ring_submit(at_ns, tid, opcode, request)
            }
            Payload::Ring { begins: false, request, .. } => {
                if let Some(call) = self.ring_calls.remove(&request) {
                    self.calls[call].end_ns = at_ns;
                }
            }
            Payload::Marker { phase } => self.markers.push((phase, at_ns)),
        }
    }

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// Returns the index of the call to which I/O of this thread belongs now.
    fn current_call(&self, tid: u32) -> Option<usize> {
        self.threads.get(&tid).and_then(|thread| thread.ring_call.or(thread.call))
    }

    /// Returns the kind of an I/O. A flush has no sectors and applies to all that was written, so it is [`Kind::Unnamed`] on every system.
    fn kind(&self, file: Option<FileId>, flags: IoFlags, sector: u64, sectors: u32) -> Kind {
        match sectors {
            0 => Kind::Unnamed,
            _ => self.node.classifier.classify(file, flags.is_metadata(), sector),
        }
    }

    fn on_queue(&mut self, event: &Event, device: u8, flags: IoFlags, sector: u64, sectors: u32) {
        let file = self.threads.get(&event.tid).and_then(|thread| thread.file);
        let kind = self.kind(file, flags, sector, sectors);
        let file_or_thread = match file {
            Some((device, inode)) if !flags.is_metadata() => {
                u64::from(device) << FILE_ID_DEVICE_SHIFT | inode
            }
            _ => Request::THREAD | u64::from(event.tid),
        };
        let end = sector + u64::from(sectors);
        let bio = Bio {
            end,
            at_ns: event.at_ns,
            kind,
            file_or_thread,
            owner: self.current_call(event.tid),
            tid: event.tid,
        };
        if sectors == 0 {
            self.empty_flushes.entry(device).or_default().push_back(bio);
        } else {
            self.bios
                .entry((device, flags.operation(), sector))
                .and_modify(|before| before.end = before.end.max(end))
                .or_insert(bio);
        }
    }

    fn on_issue(&mut self, event: &Event, device: u8, flags: IoFlags, sector: u64, sectors: u32) {
        let operation = request_key(device, flags, sector, sectors).1;
        let bio = match operation {
            Operation::Flush => self.empty_flushes.get_mut(&device).and_then(VecDeque::pop_front),
            _ => self.take_bios(device, operation, sector, sector + u64::from(sectors)),
        };
        // A request without a queued bio comes from the block layer itself (a flush before a write), or was queued before the trace began.
        let bio = bio.unwrap_or(Bio {
            end: 0,
            at_ns: event.at_ns,
            kind: self.kind(None, flags, sector, sectors),
            file_or_thread: Request::THREAD | u64::from(event.tid),
            owner: self.current_call(event.tid),
            tid: event.tid,
        });
        let key = request_key(device, flags, sector, sectors);
        self.issued.entry(key).or_default().push_back(self.requests.len());
        self.requests.push(Request {
            device: usize::from(device),
            operation,
            kind: bio.kind,
            sector,
            size_bytes: u64::from(sectors) * SECTOR_BYTES,
            queued_ns: bio.at_ns,
            issued_ns: event.at_ns,
            completed_ns: 0,
            file_or_thread: bio.file_or_thread,
            forced: flags.is_forced(),
        });
        self.owners.push((bio.owner, bio.tid));
    }

    /// Removes the queued bios of these sectors. Returns the one with the lowest sector, with the earliest time of all. If a bio is only
    /// partly in the range, its other sectors stay queued.
    fn take_bios(&mut self, device: u8, operation: Operation, begin: u64, end: u64) -> Option<Bio> {
        let mut taken: Option<Bio> = None;
        while let Some((&key, &bio)) = self.bios.range(..(device, operation, end)).next_back() {
            if key.0 != device || key.1 != operation || bio.end <= begin {
                break;
            }
            self.bios.remove(&key);
            if bio.end > end {
                self.bios.insert((device, operation, end), bio);
            }
            let at_ns = taken.map_or(bio.at_ns, |later| later.at_ns.min(bio.at_ns));
            taken = Some(Bio { at_ns, ..bio });
            if key.2 < begin {
                self.bios.insert(key, Bio { end: begin, ..bio });
                break;
            }
        }
        taken
    }

    fn on_complete(&mut self, at_ns: u64, key: (u8, Operation, u64)) {
        let Some(waiting) = self.issued.get_mut(&key) else { return };
        if let Some(request) = waiting.pop_front() {
            self.requests[request].completed_ns = at_ns;
        }
        if waiting.is_empty() {
            self.issued.remove(&key);
        }
    }

    fn process_of(&self, tid: u32) -> u32 {
        self.node.process_of.get(&tid).copied().unwrap_or(self.node.first_process)
    }

    fn on_enter(&mut self, at_ns: u64, tid: u32, number: u16, descriptor: i32) {
        let Some(syscall) = syscalls::by_number(number) else { return };
        let file = (self.process_of(tid), descriptor);
        let is_on_file = if syscall.takes_descriptor { self.files.contains(&file) } else { true };
        if syscalls::is_close(number) {
            self.files.remove(&file);
        }
        let call = (syscall.family != Family::Ring).then_some(self.calls.len());
        let thread = self.thread(tid);
        thread.is_node = true;
        thread.call = call;
        if call.is_some() {
            self.calls.push(TracedCall {
                family: syscall.family,
                begin_ns: at_ns,
                end_ns: 0,
                file_system_ns: None,
                is_on_file,
                opens: syscalls::is_open(number),
            });
        }
    }

    fn on_exit(&mut self, at_ns: u64, tid: u32, result: i64) {
        let process = self.process_of(tid);
        let thread = self.thread(tid);
        thread.ring_call = None;
        thread.file = None;
        if let Some(call) = thread.call.take() {
            self.calls[call].end_ns = at_ns;
            if self.calls[call].opens && result >= 0 {
                self.files.insert((process, result as i32));
            }
        }
    }

    fn on_file(&mut self, at_ns: u64, tid: u32, activity: FileActivity, file: FileId) {
        let thread = self.thread(tid);
        match activity {
            FileActivity::Data => thread.file = Some(file),
            FileActivity::DataDone => thread.file = None,
            FileActivity::Work => (),
            FileActivity::Lookup => self.counts.push(Count { at_ns, event: CountedEvent::Lookup, amount: 1 }),
            FileActivity::InodeMiss => {
                self.counts.push(Count { at_ns, event: CountedEvent::InodeMiss, amount: 1 })
            }
        }
        if let Some(call) = self.current_call(tid) {
            self.calls[call].file_system_ns.get_or_insert(at_ns);
        }
    }

    fn on_ring_submit(&mut self, at_ns: u64, tid: u32, opcode: u8, request: u64) {
        let call = RING_IO.contains(&opcode).then_some(self.calls.len());
        let thread = self.thread(tid);
        thread.is_node = true;
        thread.file = None;
        thread.ring_call = call;
        if let Some(call) = call {
            self.ring_calls.insert(request, call);
            self.calls.push(TracedCall {
                family: Family::Ring,
                begin_ns: at_ns,
                end_ns: 0,
                file_system_ns: None,
                is_on_file: true,
                opens: false,
            });
        }
    }

    fn finish(self) -> Activity {
        let own = self.requests_by_call();
        let workers = self.worker_requests();
        let calls = self
            .calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.end_ns > 0)
            .filter_map(|(index, call)| {
                self.layer_times(call, own.get(&index).map_or(&[][..], Vec::as_slice), &workers)
            })
            .collect();
        Activity {
            calls,
            counts: self.counts,
            markers: self.markers,
            requests: self.requests.into_iter().filter(|request| request.completed_ns > 0).collect(),
        }
    }

    fn requests_by_call(&self) -> HashMap<usize, Vec<usize>> {
        let mut own: HashMap<usize, Vec<usize>> = HashMap::new();
        for (request, (owner, _)) in self.owners.iter().enumerate() {
            if let Some(owner) = owner {
                own.entry(*owner).or_default().push(request);
            }
        }
        own
    }

    /// Returns the requests that no thread of the node submitted, in the order of issue.
    fn worker_requests(&self) -> WorkerRequests {
        let is_node = |tid: &u32| self.threads.get(tid).is_some_and(|thread| thread.is_node);
        let indexes: Vec<usize> =
            (0..self.requests.len()).filter(|index| !is_node(&self.owners[*index].1)).collect();
        let longest_ns = indexes
            .iter()
            .map(|index| self.requests[*index].completed_ns.saturating_sub(self.requests[*index].queued_ns))
            .max()
            .unwrap_or(0);
        WorkerRequests { indexes, longest_ns }
    }

    /// Divides the time of a call among the layers. Returns `None` for a call that is on no file, such as one on a socket.
    fn layer_times(&self, call: &TracedCall, own: &[usize], workers: &WorkerRequests) -> Option<Call> {
        if !call.is_on_file && own.is_empty() && call.file_system_ns.is_none() {
            return None;
        }
        let span = (call.begin_ns, call.end_ns);
        let mut requests: Vec<&Request> = own.iter().map(|index| &self.requests[*index]).collect();
        if call.family == Family::Flush {
            // A flush waits for the writes that kernel workers send during it.
            requests.extend(workers.in_flight(span, &self.requests));
        }
        let completed: Vec<&Request> =
            requests.into_iter().filter(|request| request.completed_ns > 0).collect();
        let device = covered_ns(completed.iter().map(|r| (r.issued_ns, r.completed_ns)), span);
        let block_and_device = covered_ns(completed.iter().map(|r| (r.queued_ns, r.completed_ns)), span);
        // File systems have tracepoints for the beginning of their work but not for its end, so the short VFS work after that end counts as
        // the file system's.
        let submitted_ns = completed.iter().map(|request| request.queued_ns).min();
        let reached_ns = [call.file_system_ns, submitted_ns].into_iter().flatten().min();
        let below_vfs = reached_ns.map_or(0, |reached| span.1.saturating_sub(reached.max(span.0)));
        Some(Call {
            family: call.family,
            begin_ns: call.begin_ns,
            vfs_ns: (span.1 - span.0).saturating_sub(below_vfs),
            file_system_ns: below_vfs.saturating_sub(block_and_device),
            block_ns: block_and_device - device,
            device_ns: device,
        })
    }
}

/// Returns the key that identifies a request between issue and completion. Flushes have no sector; the kernel writes 0 or -1 for it.
fn request_key(device: u8, flags: IoFlags, sector: u64, sectors: u32) -> (u8, Operation, u64) {
    match sectors {
        0 => (device, Operation::Flush, 0),
        _ => (device, flags.operation(), sector),
    }
}

/// Requests submitted by kernel workers, not by threads of the node.
#[derive(Debug)]
struct WorkerRequests {
    /// Indexes into the requests, in the order of issue.
    indexes: Vec<usize>,
    /// The longest time from queue to completion.
    longest_ns: u64,
}

impl WorkerRequests {
    /// Returns the requests in flight during a span. A request in flight at the start of the span was issued at most `longest_ns` before it.
    fn in_flight<'a>(
        &'a self,
        span: (u64, u64),
        requests: &'a [Request],
    ) -> impl Iterator<Item = &'a Request> {
        let earliest = span.0.saturating_sub(self.longest_ns);
        let first = self.indexes.partition_point(|index| requests[*index].issued_ns < earliest);
        self.indexes[first..]
            .iter()
            .map(|index| &requests[*index])
            .take_while(move |request| request.issued_ns < span.1)
            .filter(move |request| request.completed_ns > span.0)
    }
}

/// Returns the nanoseconds of `span` that at least one of the intervals covers.
fn covered_ns(intervals: impl Iterator<Item = (u64, u64)>, span: (u64, u64)) -> u64 {
    let mut clipped: Vec<(u64, u64)> = intervals
        .map(|(begin, end)| (begin.max(span.0), end.min(span.1)))
        .filter(|(begin, end)| begin < end)
        .collect();
    clipped.sort_unstable();
    let mut until = 0;
    let mut sum = 0;
    for (begin, end) in clipped {
        let begin = begin.max(until);
        if end > begin {
            sum += end - begin;
            until = end;
        }
    }
    sum
}

#[cfg(test)]
mod tests;
