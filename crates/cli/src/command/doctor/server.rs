//! Checks of a volume's server: credentials, latency, clock, and the abilities that Tenon uses.

use super::finding::Finding;
use crate::bucket::Bucket;
use crate::bucket::credentials::StoreSettings;
use crate::process::context::ProcessContext;
use crate::volume::Volume;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Attributes, CopyOptions, GetOptions, ListRequest, ObjectKey, ObjectStore, Payload, Precondition,
    PutOptions, StoreError, Tags,
};
use tokio::time::Instant;

/// Requests by which latency is measured.
const PROBES: usize = 9;
/// Latency above which work on many small files is slow.
const LATENCY_GOOD: Duration = Duration::from_millis(50);
/// Difference of the clocks from which S3 servers refuse signatures (15 minutes), with some reserve.
const SKEW_MAX_SECS: i64 = 300;
/// Difference of the clocks from which times of files are misleading.
const SKEW_GOOD_SECS: i64 = 2;
/// Smallest part of a multipart upload.
const PART_BYTES: usize = 5 << 20;

/// Checks the server of a volume. Writes small objects below the volume's `.tenon/doctor/`, unless `read_only`.
pub(super) async fn check(volume: &str, read_only: bool, settings: &StoreSettings) -> Vec<Finding> {
    match open(volume, read_only, settings).await {
        Err(finding) => vec![*finding],
        Ok((checked, context)) => {
            let mut findings = vec![Finding::ok("credentials", format!("{} can be opened", checked.url))];
            findings.push(checked.latency().await);
            findings.push(checked.listing().await);
            if !read_only {
                findings.extend(checked.abilities(&context).await);
            }
            findings
        }
    }
}

/// The bucket that is checked.
struct Checked {
    url: String,
    prefix: Vec<u8>,
    store: Arc<dyn ObjectStore>,
}

async fn open(
    volume: &str,
    read_only: bool,
    settings: &StoreSettings,
) -> Result<(Checked, ProcessContext), Box<Finding>> {
    let failed = |error: anyhow::Error, advice: &str| {
        Box::new(Finding::failed("server", format!("{error:#}"), advice))
    };
    let volume = Volume::parse(volume).map_err(|error| failed(error, "write it like s3://bucket"))?;
    let context = ProcessContext::system().map_err(|error| failed(error, ""))?;
    let opened = Bucket::open_or_connect(&volume, settings, read_only, &context).await;
    let bucket = opened.map_err(|error| {
        failed(
            error,
            "check --endpoint-url, --region and the credentials (docs/mount.md lists where they are looked for)",
        )
    })?;
    let checked =
        Checked { url: volume.url(), prefix: volume.prefix().as_bytes().to_vec(), store: bucket.store };
    Ok((checked, context))
}

impl Checked {
    /// Returns the key of an object that the checks store.
    fn key(&self, name: &str) -> store::Result<ObjectKey> {
        Ok(ObjectKey::new([&self.prefix, format!(".tenon/doctor/{name}").as_bytes()].concat())?)
    }

    /// Measures the time of requests for an object that does not exist.
    async fn latency(&self) -> Finding {
        let check = "latency";
        let Ok(key) = self.key("missing") else { return Finding::ok(check, "not measured") };
        let mut times = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            let began = Instant::now();
            if let Err(error) = self.store.find(&key).await {
                return Finding::failed(check, error.to_string(), "the server must answer HEAD requests");
            }
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let median = times[times.len() / 2];
        let found = format!(
            "{:.1} ms for a HEAD (fastest {:.1}, slowest {:.1})",
            ms(median),
            ms(times[0]),
            ms(times[times.len() - 1])
        );
        match median > LATENCY_GOOD {
            true => Finding::warning(
                check,
                found,
                "work on many small files is slow at this distance; use a nearer region, or --writeback",
            ),
            false => Finding::ok(check, found),
        }
    }

    /// Checks whether the bucket can be listed.
    async fn listing(&self) -> Finding {
        let request =
            ListRequest { prefix: Bytes::from(self.prefix.clone()), limit: 1, ..ListRequest::default() };
        match self.store.list(request).await {
            Ok(_) => Finding::ok("list", "permitted"),
            Err(error) => Finding::failed("list", error.to_string(), "permit s3:ListBucket"),
        }
    }

    /// Checks what a mount that writes needs.
    async fn abilities(&self, context: &ProcessContext) -> Vec<Finding> {
        let id = format!("{:016x}", context.entropy.next_u64());
        let (Ok(first), Ok(second)) = (self.key(&format!("{id}-a")), self.key(&format!("{id}-b"))) else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        let put = self.put(&first, &mut findings, context).await;
        if put {
            findings.push(self.read(&first).await);
            findings.push(self.conditional(&first).await);
            findings.push(self.copy(&first, &second).await);
            findings.push(self.tags(&first).await);
            findings.push(self.multipart(&second).await);
        }
        findings.extend([self.remove(&first).await, self.remove(&second).await].into_iter().flatten().next());
        findings
    }

    /// Stores an object. Returns whether it is there.
    async fn put(&self, key: &ObjectKey, findings: &mut Vec<Finding>, context: &ProcessContext) -> bool {
        let user = [("doctor".to_owned(), "x".to_owned())].into();
        let attributes = Attributes { user, ..Attributes::default() };
        let options = PutOptions { attributes, ..PutOptions::default() };
        let before = context.clock.now();
        if let Err(error) = self.store.put(key, Payload::from("doctor"), options).await {
            findings.push(Finding::failed(
                "put",
                error.to_string(),
                "permit s3:PutObject, or mount with --read-only",
            ));
            return false;
        }
        findings.push(Finding::ok("put", "permitted"));
        let found = self.store.head(key).await;
        let stored = found.as_ref().ok().and_then(|meta| meta.object.last_modified);
        let has_metadata = found.as_ref().is_ok_and(|meta| meta.attributes.user.contains_key("doctor"));
        findings.push(match has_metadata {
            true => Finding::ok("user metadata", "kept"),
            false => Finding::warning(
                "user metadata",
                "the server does not keep it",
                "modes, owners and times of files are lost; mount with --attributes listings",
            ),
        });
        if let Some(stored) = stored {
            findings.push(skew(stored.secs() - before.secs()));
        }
        true
    }

    async fn read(&self, key: &ObjectKey) -> Finding {
        let options = GetOptions { range: Some(1..3), ..GetOptions::default() };
        let read = async {
            let object = self.store.get(key, options).await?;
            let pieces: Vec<Bytes> = object.body.try_collect().await?;
            Ok::<_, StoreError>(pieces.concat())
        };
        match read.await {
            Ok(bytes) if bytes == b"oc" => Finding::ok("get", "whole and in ranges"),
            Ok(_) => Finding::failed("get", "a range has other bytes", "Tenon needs ranged GETs"),
            Err(error) => Finding::failed("get", error.to_string(), "permit s3:GetObject"),
        }
    }

    /// Checks that the server honors conditions, without which concurrent writers overwrite each other.
    async fn conditional(&self, key: &ObjectKey) -> Finding {
        let options = PutOptions { precondition: Precondition::Absent, ..PutOptions::default() };
        match self.store.put(key, Payload::from("other"), options).await {
            Err(StoreError::PreconditionFailed(_)) => Finding::ok("conditional writes", "honored"),
            Err(error) => Finding::warning(
                "conditional writes",
                error.to_string(),
                "write through one mount only: two writers may overwrite each other",
            ),
            Ok(_) => Finding::warning(
                "conditional writes",
                "ignored",
                "write through one mount only: two writers may overwrite each other",
            ),
        }
    }

    async fn copy(&self, from: &ObjectKey, to: &ObjectKey) -> Finding {
        let copied = async {
            let source = self.store.head(from).await?.object;
            self.store.copy(&source, to, CopyOptions::default()).await
        };
        match copied.await {
            Ok(_) => Finding::ok("copies in the store", "permitted"),
            Err(error) => {
                Finding::warning("copies in the store", error.to_string(), "renames read and write all bytes")
            }
        }
    }

    async fn tags(&self, key: &ObjectKey) -> Finding {
        let tags: Tags = [("doctor".to_owned(), "x".to_owned())].into();
        let kept = async {
            self.store.set_tags(key, tags.clone()).await?;
            self.store.tags(key).await
        };
        match kept.await {
            Ok(found) if found == tags => Finding::ok("tags", "kept"),
            Ok(_) => Finding::warning("tags", "not kept", "extended attributes user.tag.* do not work"),
            Err(error) => {
                Finding::warning("tags", error.to_string(), "extended attributes user.tag.* do not work")
            }
        }
    }

    async fn multipart(&self, key: &ObjectKey) -> Finding {
        let stored = async {
            let upload = self.store.multipart(key, Attributes::default(), Tags::default()).await?;
            let parts = async {
                upload.put_part(1, Payload::from(vec![7; PART_BYTES])).await?;
                upload.put_part(2, Payload::from("end")).await?;
                upload.complete(Precondition::None).await
            };
            let outcome = parts.await;
            if outcome.is_err() {
                let _ = upload.abort().await;
            }
            outcome
        };
        let began = Instant::now();
        match stored.await {
            Ok(_) => {
                let rate = PART_BYTES as f64 / began.elapsed().as_secs_f64() / 1e6;
                Finding::ok("multipart uploads", format!("permitted, {rate:.0} MB/s for one part"))
            }
            Err(error) => {
                Finding::failed("multipart uploads", error.to_string(), "files of 8 MiB and more need them")
            }
        }
    }

    /// Removes an object of the checks. Returns a finding if that fails.
    async fn remove(&self, key: &ObjectKey) -> Option<Finding> {
        let error = self.store.delete(key, Precondition::None).await.err()?;
        Some(Finding::failed("delete", format!("{error}; {key} is left"), "permit s3:DeleteObject"))
    }
}

/// Judges the difference between the server's clock and this machine's, both in whole seconds.
fn skew(secs: i64) -> Finding {
    let found = format!("the server's differs by {secs} s");
    let advice = "synchronize this machine's clock (for instance with chrony)";
    match secs.abs() {
        skew if skew >= SKEW_MAX_SECS => Finding::failed("clock", found, advice),
        skew if skew > SKEW_GOOD_SECS => Finding::warning("clock", found, advice),
        _ => Finding::ok("clock", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn clocks_may_differ_a_little() {
        assert_eq!(
            [-1, 2, -60, 400].map(|secs| skew(secs).level),
            [Level::Ok, Level::Ok, Level::Warning, Level::Failed]
        );
    }
}
