//! A process with contents for every page, and a record of what the console asks it to do.

use console::{
    Abilities, Batch, Conflict, Drive, Fact, Keep, Member, Process, RefusedChange, ScrubOutcome, Section,
    Side, Tone, View, Zone,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A text that a page must never run or lose.
pub(crate) const HOSTILE: &str = "<script>window.hacked=1</script> \"'&\n\u{202e}🦀";

#[derive(Debug, Default)]
pub(crate) struct FakeProcess {
    pub(crate) done: Mutex<Vec<String>>,
    pub(crate) log: Option<PathBuf>,
    samples: AtomicU64,
}

impl FakeProcess {
    pub(crate) fn with_log(log: PathBuf) -> Self {
        Self { log: Some(log), ..Self::default() }
    }

    fn note(&self, what: String) {
        self.done.lock().unwrap().push(what);
    }

    pub(crate) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }

    fn has_done(&self, what: &str) -> bool {
        self.done().iter().any(|done| done == what)
    }
}

fn fact(label: &str, value: &str, tone: Tone) -> Fact {
    Fact { label: label.into(), value: value.into(), tone }
}

#[async_trait::async_trait]
impl Process for FakeProcess {
    fn name(&self) -> String {
        "s3://a-bucket/with/a/rather/long/prefix".into()
    }

    fn abilities(&self) -> Abilities {
        Abilities { files: true, mounted: true, drives: true }
    }

    fn report(&self) -> Vec<Section> {
        let section = |title: &str, facts: Vec<Fact>| Section { title: title.into(), facts };
        vec![
            section(
                "Process",
                vec![
                    fact("Volume", HOSTILE, Tone::Plain),
                    fact("Process", "4711, version 0.1.0, up 3 hours", Tone::Plain),
                    fact("Space", "1 GiB free of 100 GiB", Tone::Warning),
                ],
            ),
            section(
                "Not stored yet",
                vec![fact("Refused", "2 changes are refused; see the log", Tone::Failure)],
            ),
            section(
                "Backup of the metadata",
                vec![fact("Newest", "complete as of 1 minute ago", Tone::Good)],
            ),
        ]
    }

    fn samples(&self) -> BTreeMap<String, f64> {
        let count = self.samples.fetch_add(1, Ordering::Relaxed) as f64;
        let operations = ["GetObject", "PutObject", "ListObjectsV2", "HeadObject", "<b>x</b>"];
        let of_operations = operations.iter().enumerate().map(|(at, operation)| {
            let value = (count * (at + 1) as f64 * 7.0) + (count * 0.7).sin() * 30.0 * at as f64 + 1000.0;
            (format!("tenon_s3_requests_total{{operation=\"{operation}\",status=\"200\"}}"), value)
        });
        let plain = [
            ("process_resident_memory_bytes".to_owned(), 2e8 + (count * 0.3).cos() * 3e7),
            ("tenon_memory_bytes{owner=\"reads\"}".to_owned(), 5e7),
            ("process_cpu_seconds_total".to_owned(), count * 0.03),
            ("tenon_s3_sent_bytes_total".to_owned(), count * count * 1e4),
        ];
        of_operations.chain(plain).collect()
    }

    async fn conflicts(&self) -> Vec<Conflict> {
        if self.has_done("resolve c-1 File") {
            return Vec::new();
        }
        let side = |key: &str| Some(Side { key: key.into(), etag: "d41d8cd9".into() });
        vec![Conflict {
            id: "c-1".into(),
            path: HOSTILE.into(),
            key: "reports/2026.csv".into(),
            at: "2026-11-26T08:00:00Z".into(),
            policy: "keep-both".into(),
            file: side("reports/2026 (conflict).csv"),
            bucket: side("reports/2026.csv"),
            all_bytes_kept: false,
            blocks: true,
        }]
    }

    async fn resolve_conflict(&self, id: &str, keep: Keep) -> Result<(), String> {
        if id != "c-1" {
            return Err(format!("there is no conflict '{id}'"));
        }
        self.note(format!("resolve {id} {keep:?}"));
        Ok(())
    }

    async fn batches(&self) -> Result<Vec<Batch>, String> {
        let batch = |id: &str, state: &str, refused| Batch {
            id: id.into(),
            path: Some(format!("jobs/{HOSTILE}")),
            began: "2026-11-26T08:00:00Z".into(),
            state: state.into(),
            changes: 12_345,
            refused,
        };
        let all = [batch("b-1", "mounted", 0), batch("b-2", "merged", 2)];
        Ok(all.into_iter().filter(|batch| !self.has_done(&format!("discard {}", batch.id))).collect())
    }

    async fn refused_changes(&self, batch: &str, from: u64) -> Result<Vec<RefusedChange>, String> {
        let change = |index| RefusedChange {
            index,
            change: format!("create {HOSTILE} of {batch}"),
            reason: "the name exists".into(),
            kept_as: Some("rescued/1".into()),
        };
        Ok((from..2).map(change).collect())
    }

    async fn discard_batch(&self, id: &str) -> Result<(), String> {
        self.note(format!("discard {id}"));
        Ok(())
    }

    fn views(&self) -> Vec<View> {
        let view = |name: &str, problems: Vec<String>| View { name: name.into(), objects: 4321, problems };
        vec![view("recent", Vec::new()), view(HOSTILE, vec!["the handler does not answer".into()])]
    }

    fn rulesets(&self) -> String {
        "texts:\n  container: bucket\n  object: \"**/*.txt\"\n".into()
    }

    fn drives(&self) -> Vec<Drive> {
        let zone = |number: u64| match number % 5 {
            0 => Zone::Free,
            1 | 2 => Zone::Runs((number % 17) << 24),
            _ => Zone::Pack((number % 13) << 24),
        };
        let member = |device: &str, state: &str| Member {
            device: device.into(),
            state: state.into(),
            is_in_sync: state == "in sync",
        };
        vec![Drive {
            id: "00000000deadbeef".into(),
            len_bytes: 500 << 28,
            available_bytes: 100 << 28,
            zone_bytes: 1 << 28,
            log_bytes: 1 << 20,
            zones: (0..500).map(zone).collect(),
            members: vec![member("/dev/sdb", "in sync"), member("/dev/sdc", "stale"), member("", "missing")],
        }]
    }

    async fn scrub(&self, objects: Arc<AtomicU64>) -> Result<Vec<ScrubOutcome>, String> {
        objects.store(77, Ordering::Relaxed);
        self.note("scrub".into());
        let damaged = vec![HOSTILE.to_owned()];
        Ok(vec![ScrubOutcome { objects: 99, bytes: 1 << 30, repaired: 3, damaged }])
    }

    fn log_file(&self) -> Option<PathBuf> {
        self.log.clone()
    }
}
