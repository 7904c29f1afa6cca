//! Replay of traced requests on a modelled device (section 5.1 and Figure 6 of the paper).
//!
//! The replay keeps the dependencies between requests. In the trace, a request arrived some time after the last completion before it; in the
//! replay it arrives the same time after the completion of those earlier requests. A slow device therefore gets fewer requests at the same
//! time, as from a real node, and its queue does not grow without bound.

use crate::model::{Kind, Operation, Request, SECTOR_BYTES, WhatIf, WhatIfKind};
use serde::Deserialize;

/// The crate's device parameter files: the devices of the paper.
const BUILT_IN: [&str; 2] = [
    include_str!("../../devices/seagate-kinetic-hdd.toml"),
    include_str!("../../devices/samsung-pm983-ssd.toml"),
];

/// The parameters of a modelled storage device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct DeviceModel {
    /// Name in reports.
    pub name: String,
    /// Source of the parameters.
    pub source: String,
    /// Parameters of its type of media.
    #[serde(flatten)]
    media: Media,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Media {
    Disk(Disk),
    Flash(Flash),
}

/// A hard disk with one arm.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Disk {
    capacity_bytes: u64,
    rotations_per_minute: f64,
    seek_track_ms: f64,
    seek_average_ms: f64,
    outer_bytes_per_second: f64,
    inner_bytes_per_second: f64,
    command_ms: f64,
}

/// Flash chips behind a controller.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flash {
    channels: usize,
    dies_per_channel: usize,
    page_bytes: u64,
    read_us: f64,
    program_us: f64,
    channel_bytes_per_second: f64,
    link_bytes_per_second: f64,
    command_us: f64,
    /// Size of the controller's write buffer, which survives loss of power. A write completes when it is in the buffer.
    buffer_bytes: u64,
}

impl DeviceModel {
    /// Parses a parameter file (TOML, as the files in the crate's `devices/`).
    ///
    /// # Errors
    /// A one-line description of the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let model: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match model.is_valid() {
            true => Ok(model),
            false => {
                Err("every parameter must be above 0, and seek_average_ms must be at least seek_track_ms"
                    .into())
            }
        }
    }

    /// Returns the crate's models: the paper's hard disk and solid-state drive.
    pub fn known() -> Vec<Self> {
        BUILT_IN.iter().filter_map(|text| Self::parse(text).ok()).collect()
    }

    fn is_valid(&self) -> bool {
        match &self.media {
            Media::Disk(disk) => {
                disk.capacity_bytes > 0
                    && disk.seek_average_ms >= disk.seek_track_ms
                    && [
                        disk.rotations_per_minute,
                        disk.seek_track_ms,
                        disk.outer_bytes_per_second,
                        disk.inner_bytes_per_second,
                    ]
                    .iter()
                    .all(|value| *value > 0.0)
                    && disk.command_ms >= 0.0
            }
            Media::Flash(flash) => {
                flash.channels > 0
                    && flash.dies_per_channel > 0
                    && flash.page_bytes > 0
                    && [
                        flash.read_us,
                        flash.program_us,
                        flash.channel_bytes_per_second,
                        flash.link_bytes_per_second,
                    ]
                    .iter()
                    .all(|value| *value > 0.0)
                    && flash.command_us >= 0.0
            }
        }
    }
}

/// Replays requests, in the order in which they were queued, on modelled devices: one for each device of the trace.
pub fn what_if(requests: &[Request], model: &DeviceModel) -> WhatIf {
    let mut requests: Vec<&Request> = requests.iter().collect();
    requests.sort_by_key(|request| request.queued_ns);
    let mut by_completion: Vec<usize> = (0..requests.len()).collect();
    by_completion.sort_by_key(|index| requests[*index].completed_ns);

    let devices = requests.iter().map(|request| request.device + 1).max().unwrap_or(0);
    let mut simulated: Vec<SimulatedDevice> = (0..devices).map(|_| SimulatedDevice::new(model)).collect();
    let mut modelled_ends = vec![0.0; requests.len()];
    let mut by_kind: Vec<WhatIfKind> = Kind::ALL
        .into_iter()
        .map(|kind| WhatIfKind { kind, requests: 0, host_seconds: 0.0, device_seconds: 0.0 })
        .collect();

    let begin_ns = requests.first().map_or(0, |request| request.queued_ns);
    let mut next_completion = 0;
    // Time of the last completion before the request, in the trace and in the replay.
    let (mut traced_from_ns, mut modelled_from) = (begin_ns, 0.0_f64);
    for (index, request) in requests.iter().enumerate() {
        while let Some(earlier) =
            by_completion.get(next_completion).filter(|i| requests[**i].completed_ns <= request.queued_ns)
        {
            traced_from_ns = requests[*earlier].completed_ns;
            modelled_from = modelled_from.max(modelled_ends[*earlier]);
            next_completion += 1;
        }
        let host_seconds = ns_to_s(request.issued_ns - request.queued_ns);
        let arrival = modelled_from + ns_to_s(request.queued_ns - traced_from_ns) + host_seconds;
        let end = simulated[request.device].serve(arrival, request);
        modelled_ends[index] = end;
        if let Some(part) = by_kind.iter_mut().find(|part| part.kind == request.kind) {
            part.requests += 1;
            part.host_seconds += host_seconds;
            part.device_seconds += end - arrival;
        }
    }
    by_kind.retain(|part| part.requests > 0);
    WhatIf {
        device: model.name.clone(),
        source: model.source.clone(),
        busy_seconds: simulated.iter().map(|device| device.busy_seconds).sum(),
        seconds: modelled_ends.iter().copied().fold(0.0, f64::max),
        by_kind,
    }
}

fn ns_to_s(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The state of a simulated device; times are seconds of the replay.
#[derive(Debug)]
struct SimulatedDevice<'a> {
    media: &'a Media,
    busy_seconds: f64,
    /// Time when the arm, or each die, becomes free.
    free: Vec<f64>,
    /// Time when the link to the host becomes free.
    link_free: f64,
    /// Position of the arm: the sector after the last request.
    head: u64,
    /// Buffered writes, oldest first: (time when the data is on flash, bytes).
    buffered: std::collections::VecDeque<(f64, u64)>,
    buffered_bytes: u64,
}

impl<'a> SimulatedDevice<'a> {
    fn new(model: &'a DeviceModel) -> Self {
        let units = match &model.media {
            Media::Disk(_) => 1,
            Media::Flash(flash) => flash.channels * flash.dies_per_channel,
        };
        Self {
            media: &model.media,
            busy_seconds: 0.0,
            free: vec![0.0; units],
            link_free: 0.0,
            head: 0,
            buffered: std::collections::VecDeque::new(),
            buffered_bytes: 0,
        }
    }

    /// Serves a request that arrives at `arrival`, and returns the time of its completion.
    fn serve(&mut self, arrival: f64, request: &Request) -> f64 {
        match self.media {
            Media::Disk(disk) => self.serve_disk(disk, arrival, request),
            Media::Flash(flash) => self.serve_flash(flash, arrival, request),
        }
    }

    /// Serves requests in the order of arrival. The model has no cache, so a flush takes no time, nor does a discard.
    fn serve_disk(&mut self, disk: &Disk, arrival: f64, request: &Request) -> f64 {
        if !matches!(request.operation, Operation::Read | Operation::Write) {
            return arrival;
        }
        let time = disk.positioning_seconds(self.head, request.sector)
            + request.size_bytes as f64 / disk.bytes_per_second(request.sector)
            + disk.command_ms / 1e3;
        let end = arrival.max(self.free[0]) + time;
        self.free[0] = end;
        self.busy_seconds += time;
        self.head = request.sector + request.size_bytes / SECTOR_BYTES;
        end
    }

    /// Serves a request on flash, whose pages are striped over the dies. A write completes when its last page is in
    /// the buffer, a read when its last page has crossed the link, a flush or discard after the time of a command.
    fn serve_flash(&mut self, flash: &Flash, arrival: f64, request: &Request) -> f64 {
        if !matches!(request.operation, Operation::Read | Operation::Write) {
            return arrival + flash.command_us / 1e6;
        }
        let begin = arrival + flash.command_us / 1e6;
        let first = request.sector * SECTOR_BYTES / flash.page_bytes;
        let last = (request.sector * SECTOR_BYTES + request.size_bytes.max(1) - 1) / flash.page_bytes;
        let mut end = begin;
        for page in first..=last {
            let page_begin = (page * flash.page_bytes).max(request.sector * SECTOR_BYTES);
            let page_end =
                ((page + 1) * flash.page_bytes).min(request.sector * SECTOR_BYTES + request.size_bytes);
            let bytes = page_end.saturating_sub(page_begin);
            end = end.max(match request.operation {
                Operation::Read => self.read_page(flash, begin, page, bytes),
                _ => self.write_page(flash, begin, page, bytes),
            });
        }
        end
    }

    fn read_page(&mut self, flash: &Flash, begin: f64, page: u64, bytes: u64) -> f64 {
        let time = flash.read_us / 1e6 + bytes as f64 / flash.channel_bytes_per_second;
        let ready = self.occupy(begin, page, time);
        self.transfer(flash, ready, bytes)
    }

    fn write_page(&mut self, flash: &Flash, begin: f64, page: u64, bytes: u64) -> f64 {
        let mut begin = begin;
        while self.buffered_bytes + bytes > flash.buffer_bytes {
            let Some((on_flash, freed)) = self.buffered.pop_front() else { break };
            begin = begin.max(on_flash);
            self.buffered_bytes -= freed;
        }
        let arrived = self.transfer(flash, begin, bytes);
        // Writes to parts of a page share one program operation, so each costs its share of the program time.
        let share = bytes as f64 / flash.page_bytes as f64;
        let time = share * flash.program_us / 1e6 + bytes as f64 / flash.channel_bytes_per_second;
        let on_flash = self.occupy(arrived, page, time);
        self.buffered.push_back((on_flash, bytes));
        self.buffered_bytes += bytes;
        arrived
    }

    /// Occupies the die of a page for `time`, from `begin` or when the die becomes free. Returns the end.
    fn occupy(&mut self, begin: f64, page: u64, time: f64) -> f64 {
        let dies = self.free.len() as u64;
        let die = &mut self.free[(page % dies) as usize];
        *die = begin.max(*die) + time;
        self.busy_seconds += time;
        *die
    }

    /// Transfers bytes over the link, from `ready` or when the link becomes free. Returns the end.
    fn transfer(&mut self, flash: &Flash, ready: f64, bytes: u64) -> f64 {
        self.link_free = self.link_free.max(ready) + bytes as f64 / flash.link_bytes_per_second;
        self.link_free
    }
}

impl Disk {
    /// Returns the time of a seek and half a rotation, or 0 if the head is already at the sector.
    ///
    /// The seek time grows with the square root of the distance. Over random pairs of positions the mean of that root is 8/15 of the root of a
    /// full stroke, so the time of a full stroke follows from the average seek.
    fn positioning_seconds(&self, head: u64, sector: u64) -> f64 {
        if head == sector {
            return 0.0;
        }
        let distance = head.abs_diff(sector) as f64 * SECTOR_BYTES as f64 / self.capacity_bytes as f64;
        let full_ms = (self.seek_average_ms - self.seek_track_ms) * 15.0 / 8.0;
        let seek_ms = self.seek_track_ms + full_ms * distance.min(1.0).sqrt();
        seek_ms / 1e3 + 30.0 / self.rotations_per_minute
    }

    /// Returns the transfer rate at a sector. The first sectors are on the outermost, longest tracks.
    fn bytes_per_second(&self, sector: u64) -> f64 {
        let depth = (sector as f64 * SECTOR_BYTES as f64 / self.capacity_bytes as f64).min(1.0);
        self.outer_bytes_per_second + (self.inner_bytes_per_second - self.outer_bytes_per_second) * depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: Operation, at_us: u64, sector: u64, size_bytes: u64) -> Request {
        Request {
            device: 0,
            operation,
            kind: Kind::ObjectData,
            sector,
            size_bytes,
            queued_ns: at_us * 1000,
            issued_ns: at_us * 1000,
            completed_ns: at_us * 1000 + 10_000,
            file_or_thread: 1,
            forced: false,
        }
    }

    fn run(requests: &[Request], model: &DeviceModel) -> WhatIf {
        what_if(requests, model)
    }

    fn disk() -> DeviceModel {
        DeviceModel::known().into_iter().find(|model| matches!(model.media, Media::Disk(_))).unwrap()
    }

    fn flash() -> DeviceModel {
        DeviceModel::known().into_iter().find(|model| matches!(model.media, Media::Flash(_))).unwrap()
    }

    #[test]
    fn a_disk_takes_longer_for_scattered_reads() {
        let sequential: Vec<Request> =
            (0..100).map(|i| request(Operation::Read, i * 20, i * 8, 4096)).collect();
        let scattered: Vec<Request> =
            (0..100).map(|i| request(Operation::Read, i * 20, (i * 7919 % 100) * 50_000_000, 4096)).collect();
        let near = run(&sequential, &disk());
        let far = run(&scattered, &disk());
        assert!(near.busy_seconds < 0.1, "{near:?}");
        // 100 seeks of about average length, each with half a rotation.
        assert!((1.0..2.5).contains(&far.busy_seconds), "{far:?}");
    }

    #[test]
    fn a_flash_page_takes_the_time_of_the_data_sheet() {
        let one = run(&[request(Operation::Read, 0, 0, 4096)], &flash());
        // Typical random read of the PM983: 85 us.
        assert!((70e-6..100e-6).contains(&one.by_kind[0].device_seconds), "{one:?}");
        let write = run(&[request(Operation::Write, 0, 0, 4096)], &flash());
        assert!(write.by_kind[0].device_seconds < 50e-6, "{write:?}");
    }

    /// 1 GiB in requests of 1 MiB that all arrive at the same time gets the sequential rates of the data sheet.
    #[test]
    fn flash_reaches_the_rates_of_the_data_sheet() {
        let rate = |operation| {
            let mut all: Vec<Request> = (0..1024).map(|i| request(operation, 0, i * 2048, 1 << 20)).collect();
            all.iter_mut().for_each(|request| request.completed_ns = u64::MAX);
            (1u64 << 30) as f64 / run(&all, &flash()).seconds
        };
        let (read, write) = (rate(Operation::Read), rate(Operation::Write));
        assert!((2.8e9..3.3e9).contains(&read), "{read}");
        assert!((1.7e9..2.4e9).contains(&write), "{write}");
    }

    #[test]
    fn a_request_that_waited_in_the_trace_waits_in_the_replay() {
        let first = request(Operation::Read, 0, 0, 4096);
        let later = request(Operation::Read, 100, 1 << 20, 4096);
        let at_once = request(Operation::Read, 5, 1 << 20, 4096);
        let model = disk();
        let dependent = run(&[first.clone(), later], &model);
        let together = run(&[first, at_once], &model);
        assert!((dependent.seconds - dependent.busy_seconds - 90e-6).abs() < 1e-9, "{dependent:?}");
        assert!(together.seconds <= together.busy_seconds + 1e-9, "{together:?}");
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let error = |text: &str| DeviceModel::parse(text).unwrap_err();
        assert!(error("name = 1").contains("expected a string"), "{}", error("name = 1"));
        let invalid = BUILT_IN[0].replace("rotations_per_minute = 5900.0", "rotations_per_minute = 0.0");
        assert!(error(&invalid).contains("above 0"));
        assert_eq!(DeviceModel::known().len(), BUILT_IN.len());
    }
}
