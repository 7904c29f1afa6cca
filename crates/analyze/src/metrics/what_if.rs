//! What the same requests would cost on another device (section 5.1 and Figure 6 of the paper).
//!
//! A replay keeps who waited for whom: a request arrives as long after the requests that had ended before it in the
//! trace as it did there. A slow device is so asked for less at once, as by a real node, not for ever more.

use crate::model::{Kind, Operation, Request, SECTOR_BYTES, WhatIf, WhatIfKind};
use serde::Deserialize;

/// Parameters files of the crate: the devices of the paper.
const KNOWN: [&str; 2] = [
    include_str!("../../devices/seagate-kinetic-hdd.toml"),
    include_str!("../../devices/samsung-pm983-ssd.toml"),
];

/// A storage device's parameters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct DeviceModel {
    /// For reports.
    pub name: String,
    /// Where the parameters are from.
    pub source: String,
    /// What kind of device it is.
    #[serde(flatten)]
    media: Media,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Media {
    Disk(Disk),
    Flash(Flash),
}

/// A disk with one arm.
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
    /// Written bytes are safe in the controller's memory, which outlasts loss of power.
    buffer_bytes: u64,
}

impl DeviceModel {
    /// From a parameters file's text (TOML, as those in the crate's `devices/`).
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let model: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match model.is_sensible() {
            true => Ok(model),
            false => {
                Err("every parameter must be above 0, and an average seek at least a seek to the next track"
                    .into())
            }
        }
    }

    /// The crate's own: the paper's hard disk and solid-state drive.
    pub fn known() -> Vec<Self> {
        KNOWN.iter().filter_map(|text| Self::parse(text).ok()).collect()
    }

    fn is_sensible(&self) -> bool {
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

/// What these requests, in the order of issue, would cost on such devices, one for each of the trace's.
pub fn what_if(requests: &[Request], model: &DeviceModel) -> WhatIf {
    let mut requests: Vec<&Request> = requests.iter().collect();
    requests.sort_by_key(|request| request.queued_ns);
    let mut ends: Vec<usize> = (0..requests.len()).collect();
    ends.sort_by_key(|index| requests[*index].completed_ns);

    let devices = requests.iter().map(|request| request.device + 1).max().unwrap_or(0);
    let mut simulated: Vec<Simulated> = (0..devices).map(|_| Simulated::new(model)).collect();
    let mut modelled_ends = vec![0.0; requests.len()];
    let mut by_kind: Vec<WhatIfKind> = Kind::ALL
        .into_iter()
        .map(|kind| WhatIfKind { kind, requests: 0, host_seconds: 0.0, device_seconds: 0.0 })
        .collect();

    let begin_ns = requests.first().map_or(0, |request| request.queued_ns);
    let mut next_end = 0;
    // The moment in the trace and in the model from which a request's thinking time counts.
    let (mut traced_from_ns, mut modelled_from) = (begin_ns, 0.0_f64);
    for (index, request) in requests.iter().enumerate() {
        while let Some(ended) = ends.get(next_end).filter(|e| requests[**e].completed_ns <= request.queued_ns)
        {
            traced_from_ns = requests[*ended].completed_ns;
            modelled_from = modelled_from.max(modelled_ends[*ended]);
            next_end += 1;
        }
        let host = ns_to_s(request.issued_ns - request.queued_ns);
        let arrival = modelled_from + ns_to_s(request.queued_ns - traced_from_ns) + host;
        let end = simulated[request.device].serve(arrival, request);
        modelled_ends[index] = end;
        if let Some(part) = by_kind.iter_mut().find(|part| part.kind == request.kind) {
            part.requests += 1;
            part.host_seconds += host;
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

/// A device at work; times in seconds.
#[derive(Debug)]
struct Simulated<'a> {
    media: &'a Media,
    busy_seconds: f64,
    /// When the arm, or each die, is free.
    free: Vec<f64>,
    /// When the link to the host is free.
    link_free: f64,
    /// Sector after the last one served: where the arm is.
    head: u64,
    /// When each buffered page will be on flash: bytes wait in the order they came.
    buffered: std::collections::VecDeque<(f64, u64)>,
    buffered_bytes: u64,
}

impl<'a> Simulated<'a> {
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

    /// When a request that arrives now ends.
    fn serve(&mut self, arrival: f64, request: &Request) -> f64 {
        match self.media {
            Media::Disk(disk) => self.serve_disk(disk, arrival, request),
            Media::Flash(flash) => self.serve_flash(flash, arrival, request),
        }
    }

    /// First come, first served; nothing is cached, so a flush has nothing to do.
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

    /// Pages lie on the dies by turns. A write ends when it is in the buffer; a read when its last page has crossed the link.
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
        self.cross(flash, ready, bytes)
    }

    fn write_page(&mut self, flash: &Flash, begin: f64, page: u64, bytes: u64) -> f64 {
        let mut begin = begin;
        while self.buffered_bytes + bytes > flash.buffer_bytes {
            let Some((on_flash, freed)) = self.buffered.pop_front() else { break };
            begin = begin.max(on_flash);
            self.buffered_bytes -= freed;
        }
        let arrived = self.cross(flash, begin, bytes);
        // Parts of a page share a program, so each costs its share of one.
        let share = bytes as f64 / flash.page_bytes as f64;
        let time = share * flash.program_us / 1e6 + bytes as f64 / flash.channel_bytes_per_second;
        let on_flash = self.occupy(arrived, page, time);
        self.buffered.push_back((on_flash, bytes));
        self.buffered_bytes += bytes;
        arrived
    }

    /// The die of a page works for `time` as soon as it can; when it is done.
    fn occupy(&mut self, begin: f64, page: u64, time: f64) -> f64 {
        let dies = self.free.len() as u64;
        let die = &mut self.free[(page % dies) as usize];
        *die = begin.max(*die) + time;
        self.busy_seconds += time;
        *die
    }

    fn cross(&mut self, flash: &Flash, ready: f64, bytes: u64) -> f64 {
        self.link_free = self.link_free.max(ready) + bytes as f64 / flash.link_bytes_per_second;
        self.link_free
    }
}

impl Disk {
    /// Seek and half a turn, unless the head is there already.
    ///
    /// A seek grows with the square root of its distance. Over random pairs of places that root is 8/15 of a full
    /// stroke's on average, which gives the full stroke from the average.
    fn positioning_seconds(&self, head: u64, sector: u64) -> f64 {
        if head == sector {
            return 0.0;
        }
        let distance = head.abs_diff(sector) as f64 * SECTOR_BYTES as f64 / self.capacity_bytes as f64;
        let full_ms = (self.seek_average_ms - self.seek_track_ms) * 15.0 / 8.0;
        let seek_ms = self.seek_track_ms + full_ms * distance.min(1.0).sqrt();
        seek_ms / 1e3 + 30.0 / self.rotations_per_minute
    }

    /// The first sectors are on the outermost, longest tracks.
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
            stream: 1,
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
    fn a_disk_pays_for_distance() {
        let sequential: Vec<Request> =
            (0..100).map(|i| request(Operation::Read, i * 20, i * 8, 4096)).collect();
        let scattered: Vec<Request> =
            (0..100).map(|i| request(Operation::Read, i * 20, (i * 7919 % 100) * 50_000_000, 4096)).collect();
        let near = run(&sequential, &disk());
        let far = run(&scattered, &disk());
        assert!(near.busy_seconds < 0.1, "{near:?}");
        // 100 seeks of about the average and half turns.
        assert!((1.0..2.5).contains(&far.busy_seconds), "{far:?}");
    }

    #[test]
    fn a_flash_page_takes_the_datasheets_time() {
        let one = run(&[request(Operation::Read, 0, 0, 4096)], &flash());
        // Random read of the PM983, typical: 85 us.
        assert!((70e-6..100e-6).contains(&one.by_kind[0].device_seconds), "{one:?}");
        let write = run(&[request(Operation::Write, 0, 0, 4096)], &flash());
        assert!(write.by_kind[0].device_seconds < 50e-6, "{write:?}");
    }

    /// A gigabyte in requests of 1 MiB, all there at once: the datasheet's sequential rates.
    #[test]
    fn flash_reaches_the_datasheets_rates() {
        let rate = |operation| {
            let mut all: Vec<Request> = (0..1024).map(|i| request(operation, 0, i * 2048, 1 << 20)).collect();
            all.iter_mut().for_each(|request| request.completed_ns = u64::MAX);
            (1u64 << 30) as f64 / run(&all, &flash()).seconds
        };
        let (read, write) = (rate(Operation::Read), rate(Operation::Write));
        assert!((2.8e9..3.3e9).contains(&read), "{read}");
        assert!((1.7e9..2.4e9).contains(&write), "{write}");
    }

    /// Two requests that waited for one another in the trace do so in the model.
    #[test]
    fn who_waited_waits() {
        let first = request(Operation::Read, 0, 0, 4096);
        let after = request(Operation::Read, 100, 1 << 20, 4096);
        let at_once = request(Operation::Read, 5, 1 << 20, 4096);
        let model = disk();
        let dependent = run(&[first.clone(), after], &model);
        let together = run(&[first, at_once], &model);
        assert!((dependent.seconds - dependent.busy_seconds - 90e-6).abs() < 1e-9, "{dependent:?}");
        assert!(together.seconds <= together.busy_seconds + 1e-9, "{together:?}");
    }

    #[test]
    fn bad_parameters_are_told() {
        let told = |text: &str| DeviceModel::parse(text).unwrap_err();
        assert!(told("name = 1").contains("expected a string"), "{}", told("name = 1"));
        let slow = KNOWN[0].replace("rotations_per_minute = 5900.0", "rotations_per_minute = 0.0");
        assert!(told(&slow).contains("above 0"));
        assert_eq!(DeviceModel::known().len(), KNOWN.len());
    }
}
