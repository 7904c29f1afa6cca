//! From events in the order of time to requests, calls and counts.
//!
//! A request to a device belongs to what its first bio belonged to when that entered the block layer: the file whose
//! data its thread was at, and the call or io_uring request that the thread was in.

use super::classifier::{FileId, Kinds};
use super::event::{Asked, Event, FilePoint, IoStep, PagePoint, What};
use super::syscalls::{self, Family};
use crate::model::{Kind, Operation, Request, SECTOR_BYTES};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The bits of a stream above the inode's are the device's.
const STREAM_DEVICE_SHIFT: u32 = 56;

/// io_uring's reads, writes and flushes: `IORING_OP_READV`, `WRITEV`, `FSYNC`, `READ_FIXED`, `WRITE_FIXED`, `READ`, `WRITE`.
const RING_IO: [u8; 7] = [1, 2, 3, 4, 5, 22, 23];

/// A call that did I/O or could have, and where its time went, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) family: Family,
    pub(crate) begin_ns: u64,
    pub(crate) vfs_ns: u64,
    pub(crate) file_system_ns: u64,
    pub(crate) block_ns: u64,
    pub(crate) device_ns: u64,
}

/// Something counted at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) at_ns: u64,
    pub(crate) what: Counted,
    /// Pages, names, or nanoseconds of waiting.
    pub(crate) amount: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Lookup,
    InodeMiss,
    PagesAdded,
    PagesDeleted,
    PagesWanted,
    PagesMissing,
    LockWait,
}

/// What events come to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digested {
    pub(crate) requests: Vec<Request>,
    pub(crate) calls: Vec<Call>,
    pub(crate) points: Vec<Point>,
    /// (phase, ns)
    pub(crate) marks: Vec<(u32, u64)>,
}

/// What is known of the node beside its events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) kinds: Kinds,
    /// The process of each thread that outlasted the trace; the others are taken for the first process's.
    pub(crate) process_of: HashMap<u32, u32>,
    pub(crate) first_process: u32,
    /// Descriptors that were open files of the node when the trace began: (process, descriptor).
    pub(crate) open_files: HashSet<(u32, i32)>,
}

/// The files whose data is mentioned, to be named.
pub(crate) fn files_seen(events: &[Event]) -> HashSet<FileId> {
    events
        .iter()
        .filter_map(|event| match event.what {
            What::File { point: FilePoint::Data, device, inode } => Some((device, inode)),
            _ => None,
        })
        .collect()
}

/// Digests events, which are in the order of time.
pub(crate) fn digest(events: &[Event], known: Known) -> Digested {
    let mut digest = Digest { files: known.open_files.clone(), known, ..Digest::default() };
    for event in events {
        digest.event(event);
    }
    digest.finish()
}

#[derive(Debug, Default)]
struct Digest {
    known: Known,
    files: HashSet<(u32, i32)>,
    threads: HashMap<u32, Thread>,
    /// Bios that were not issued, by device, operation and first sector.
    bios: BTreeMap<(u8, Operation, u64), Bio>,
    empty_flushes: HashMap<u8, VecDeque<Bio>>,
    /// Requests that are with a device: indexes into `requests`.
    issued: HashMap<(u8, Operation, u64), VecDeque<usize>>,
    requests: Vec<Request>,
    /// For each request: the draft it belongs to, and the thread that submitted it.
    owners: Vec<(Option<usize>, u32)>,
    drafts: Vec<Draft>,
    rings: HashMap<u64, usize>,
    points: Vec<Point>,
    marks: Vec<(u32, u64)>,
}

#[derive(Debug, Default)]
struct Thread {
    file: Option<FileId>,
    call: Option<usize>,
    ring: Option<usize>,
    waits: Vec<u64>,
    is_node: bool,
}

#[derive(Debug, Clone, Copy)]
struct Bio {
    end: u64,
    at_ns: u64,
    kind: Kind,
    stream: u64,
    owner: Option<usize>,
    tid: u32,
}

/// A call whose time is not yet told apart.
#[derive(Debug)]
struct Draft {
    family: Family,
    begin_ns: u64,
    /// 0 until it ends.
    end_ns: u64,
    /// The file system's first tracepoint.
    reached_ns: Option<u64>,
    /// Of a file of the node, as far as its arguments say.
    of_file: bool,
    opens: bool,
}

impl Digest {
    fn event(&mut self, event: &Event) {
        let (at_ns, tid) = (event.at_ns, event.tid);
        match event.what {
            What::Io { step: IoStep::Queue, device, asked, sectors, sector } => {
                self.queued(event, device, asked, sector, sectors)
            }
            What::Io { step: IoStep::Issue, device, asked, sectors, sector } => {
                self.issued(event, device, asked, sector, sectors)
            }
            What::Io { step: IoStep::Complete, device, asked, sectors, sector } => {
                self.completed(at_ns, with_device(device, asked, sector, sectors))
            }
            What::Enter { call, descriptor } => self.entered(at_ns, tid, call, descriptor),
            What::Exit { answer, .. } => self.left(at_ns, tid, answer),
            What::File { point, device, inode } => self.file(at_ns, tid, point, (device, inode)),
            What::Pages { point, pages } => {
                let what = match point {
                    PagePoint::Added => Counted::PagesAdded,
                    PagePoint::Deleted => Counted::PagesDeleted,
                    PagePoint::Wanted => Counted::PagesWanted,
                    PagePoint::Missing => Counted::PagesMissing,
                };
                self.points.push(Point { at_ns, what, amount: u64::from(pages) });
            }
            What::Lock { begins: true, .. } => self.thread(tid).waits.push(at_ns),
            What::Lock { begins: false, .. } => {
                if let Some(begin) = self.thread(tid).waits.pop() {
                    self.points.push(Point { at_ns, what: Counted::LockWait, amount: at_ns - begin });
                }
            }
            What::Ring { begins: true, opcode, request } => self.ring_begins(at_ns, tid, opcode, request),
            What::Ring { begins: false, request, .. } => {
                if let Some(draft) = self.rings.remove(&request) {
                    self.drafts[draft].end_ns = at_ns;
                }
            }
            What::Mark { phase } => self.marks.push((phase, at_ns)),
        }
    }

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    fn owner(&self, tid: u32) -> Option<usize> {
        self.threads.get(&tid).and_then(|thread| thread.ring.or(thread.call))
    }

    /// A flush is of no sectors and of all that was written, whatever the system.
    fn kind(&self, file: Option<FileId>, asked: Asked, sector: u64, sectors: u32) -> Kind {
        match sectors {
            0 => Kind::Unnamed,
            _ => self.known.kinds.of_io(file, asked.is_metadata(), sector),
        }
    }

    fn queued(&mut self, event: &Event, device: u8, asked: Asked, sector: u64, sectors: u32) {
        let file = self.threads.get(&event.tid).and_then(|thread| thread.file);
        let kind = self.kind(file, asked, sector, sectors);
        let stream = match file {
            Some((device, inode)) if !asked.is_metadata() => u64::from(device) << STREAM_DEVICE_SHIFT | inode,
            _ => Request::THREAD_STREAM | u64::from(event.tid),
        };
        let end = sector + u64::from(sectors);
        let bio = Bio { end, at_ns: event.at_ns, kind, stream, owner: self.owner(event.tid), tid: event.tid };
        if sectors == 0 {
            self.empty_flushes.entry(device).or_default().push_back(bio);
        } else {
            self.bios
                .entry((device, asked.operation(), sector))
                .and_modify(|before| before.end = before.end.max(end))
                .or_insert(bio);
        }
    }

    fn issued(&mut self, event: &Event, device: u8, asked: Asked, sector: u64, sectors: u32) {
        let operation = with_device(device, asked, sector, sectors).1;
        let bio = match operation {
            Operation::Flush => self.empty_flushes.get_mut(&device).and_then(VecDeque::pop_front),
            _ => self.take_bios(device, operation, sector, sector + u64::from(sectors)),
        };
        // A request that nobody queued is the block layer's own: a flush before a write, or one begun before the trace.
        let bio = bio.unwrap_or(Bio {
            end: 0,
            at_ns: event.at_ns,
            kind: self.kind(None, asked, sector, sectors),
            stream: Request::THREAD_STREAM | u64::from(event.tid),
            owner: self.owner(event.tid),
            tid: event.tid,
        });
        let key = with_device(device, asked, sector, sectors);
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
            stream: bio.stream,
            forced: asked.is_forced(),
        });
        self.owners.push((bio.owner, bio.tid));
    }

    /// Takes what is queued of these sectors; answers with the lowest bio, stamped as the earliest. What a split left
    /// of a bio stays.
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

    fn completed(&mut self, at_ns: u64, key: (u8, Operation, u64)) {
        let Some(waiting) = self.issued.get_mut(&key) else { return };
        if let Some(request) = waiting.pop_front() {
            self.requests[request].completed_ns = at_ns;
        }
        if waiting.is_empty() {
            self.issued.remove(&key);
        }
    }

    fn process(&self, tid: u32) -> u32 {
        self.known.process_of.get(&tid).copied().unwrap_or(self.known.first_process)
    }

    fn entered(&mut self, at_ns: u64, tid: u32, number: u16, descriptor: i32) {
        let Some(call) = syscalls::of_number(number) else { return };
        let file = (self.process(tid), descriptor);
        let of_file = if call.of_descriptor { self.files.contains(&file) } else { true };
        if syscalls::closes(number) {
            self.files.remove(&file);
        }
        let draft = (call.family != Family::Ring).then_some(self.drafts.len());
        let thread = self.thread(tid);
        thread.is_node = true;
        thread.call = draft;
        if draft.is_some() {
            self.drafts.push(Draft {
                family: call.family,
                begin_ns: at_ns,
                end_ns: 0,
                reached_ns: None,
                of_file,
                opens: syscalls::opens(number),
            });
        }
    }

    fn left(&mut self, at_ns: u64, tid: u32, answer: i64) {
        let process = self.process(tid);
        let thread = self.thread(tid);
        thread.ring = None;
        thread.file = None;
        if let Some(draft) = thread.call.take() {
            self.drafts[draft].end_ns = at_ns;
            if self.drafts[draft].opens && answer >= 0 {
                self.files.insert((process, answer as i32));
            }
        }
    }

    fn file(&mut self, at_ns: u64, tid: u32, point: FilePoint, file: FileId) {
        let thread = self.thread(tid);
        match point {
            FilePoint::Data => thread.file = Some(file),
            FilePoint::DataDone => thread.file = None,
            FilePoint::Work => (),
            FilePoint::Lookup => self.points.push(Point { at_ns, what: Counted::Lookup, amount: 1 }),
            FilePoint::InodeMiss => self.points.push(Point { at_ns, what: Counted::InodeMiss, amount: 1 }),
        }
        if let Some(owner) = self.owner(tid) {
            self.drafts[owner].reached_ns.get_or_insert(at_ns);
        }
    }

    fn ring_begins(&mut self, at_ns: u64, tid: u32, opcode: u8, request: u64) {
        let draft = RING_IO.contains(&opcode).then_some(self.drafts.len());
        let thread = self.thread(tid);
        thread.is_node = true;
        thread.file = None;
        thread.ring = draft;
        if let Some(draft) = draft {
            self.rings.insert(request, draft);
            self.drafts.push(Draft {
                family: Family::Ring,
                begin_ns: at_ns,
                end_ns: 0,
                reached_ns: None,
                of_file: true,
                opens: false,
            });
        }
    }

    fn finish(self) -> Digested {
        let own = self.requests_by_draft();
        let workers = self.requests_of_workers();
        let calls = self
            .drafts
            .iter()
            .enumerate()
            .filter(|(_, draft)| draft.end_ns > 0)
            .filter_map(|(index, draft)| {
                self.call(draft, own.get(&index).map_or(&[][..], Vec::as_slice), &workers)
            })
            .collect();
        Digested {
            calls,
            points: self.points,
            marks: self.marks,
            requests: self.requests.into_iter().filter(|request| request.completed_ns > 0).collect(),
        }
    }

    fn requests_by_draft(&self) -> HashMap<usize, Vec<usize>> {
        let mut own: HashMap<usize, Vec<usize>> = HashMap::new();
        for (request, (owner, _)) in self.owners.iter().enumerate() {
            if let Some(owner) = owner {
                own.entry(*owner).or_default().push(request);
            }
        }
        own
    }

    /// The requests that no thread of the node submitted, in the order of issue.
    fn requests_of_workers(&self) -> Workers {
        let is_node = |tid: &u32| self.threads.get(tid).is_some_and(|thread| thread.is_node);
        let indexes: Vec<usize> =
            (0..self.requests.len()).filter(|index| !is_node(&self.owners[*index].1)).collect();
        let longest_ns = indexes
            .iter()
            .map(|index| self.requests[*index].completed_ns.saturating_sub(self.requests[*index].queued_ns))
            .max()
            .unwrap_or(0);
        Workers { indexes, longest_ns }
    }

    /// Where the time of a call went; `None` if it was of no file, so no I/O.
    fn call(&self, draft: &Draft, own: &[usize], workers: &Workers) -> Option<Call> {
        if !draft.of_file && own.is_empty() && draft.reached_ns.is_none() {
            return None;
        }
        let span = (draft.begin_ns, draft.end_ns);
        let mut requests: Vec<&Request> = own.iter().map(|index| &self.requests[*index]).collect();
        if draft.family == Family::Flush {
            requests.extend(workers.during(span, &self.requests));
        }
        let ended: Vec<&Request> = requests.into_iter().filter(|request| request.completed_ns > 0).collect();
        let device = covered(ended.iter().map(|r| (r.issued_ns, r.completed_ns)), span);
        let below = covered(ended.iter().map(|r| (r.queued_ns, r.completed_ns)), span);
        // File systems say when they begin, not when they end; above them there is little left to do then.
        let submitted_ns = ended.iter().map(|request| request.queued_ns).min();
        let reached_ns = [draft.reached_ns, submitted_ns].into_iter().flatten().min();
        let from_file_system = reached_ns.map_or(0, |reached| span.1.saturating_sub(reached.max(span.0)));
        Some(Call {
            family: draft.family,
            begin_ns: draft.begin_ns,
            vfs_ns: (span.1 - span.0).saturating_sub(from_file_system),
            file_system_ns: from_file_system.saturating_sub(below),
            block_ns: below - device,
            device_ns: device,
        })
    }
}

/// What names a request between issue and completion. Flushes have no place, and the kernel writes 0 or -1 for it.
fn with_device(device: u8, asked: Asked, sector: u64, sectors: u32) -> (u8, Operation, u64) {
    match sectors {
        0 => (device, Operation::Flush, 0),
        _ => (device, asked.operation(), sector),
    }
}

#[derive(Debug)]
struct Workers {
    indexes: Vec<usize>,
    longest_ns: u64,
}

impl Workers {
    /// Those in flight during a span. Issue follows the queue by no more than the longest request lasted.
    fn during<'a>(&'a self, span: (u64, u64), requests: &'a [Request]) -> impl Iterator<Item = &'a Request> {
        let earliest = span.0.saturating_sub(self.longest_ns);
        let first = self.indexes.partition_point(|index| requests[*index].issued_ns < earliest);
        self.indexes[first..]
            .iter()
            .map(|index| &requests[*index])
            .take_while(move |request| request.issued_ns < span.1)
            .filter(move |request| request.completed_ns > span.0)
    }
}

/// Nanoseconds of `span` that at least one of the intervals covers.
fn covered(intervals: impl Iterator<Item = (u64, u64)>, span: (u64, u64)) -> u64 {
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
