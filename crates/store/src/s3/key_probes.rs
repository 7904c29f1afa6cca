//! Detection of servers that normalise keys such as `a//b`.
//!
//! A server on a file system may treat `/a`, `a//b` or `a/../b` as another key, so that a write would change the wrong
//! object. So before the first write to such a key, a probe with a random name checks how the server treats keys of this
//! kind. If the server normalises them, such keys are refused. AWS does not normalise keys and is not probed.

use super::S3Store;
use super::request_counts::RequestKind;
use crate::{ObjectKey, Payload, Result, StoreError};
use http::Method;
use std::sync::atomic::{AtomicU8, Ordering};

/// A kind of key that is not a clean path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Oddity {
    LeadingSlash,
    DoubleSlash,
    Dots,
}

/// Results of the probes: for each kind, a bit for "probed" and a bit for "normalises".
#[derive(Debug, Default)]
pub(super) struct OddKeys(AtomicU8);

impl OddKeys {
    fn mixes_up(&self, oddity: Oddity) -> Option<bool> {
        let known = self.0.load(Ordering::Relaxed) >> (2 * oddity as u8);
        (known & 1 == 1).then_some(known & 2 == 2)
    }

    fn learn(&self, oddity: Oddity, mixes_up: bool) {
        let known = 1 | u8::from(mixes_up) << 1;
        self.0.fetch_or(known << (2 * oddity as u8), Ordering::Relaxed);
    }
}

impl S3Store {
    /// Refuses a key that the server would confuse with another key. Costs nothing for clean paths.
    pub(super) async fn check_distinct(&self, key: &ObjectKey) -> Result<()> {
        if self.client.endpoint.is_aws() {
            return Ok(());
        }
        for oddity in oddities(key.as_bytes()) {
            let mixes_up = match self.client.odd_keys.mixes_up(oddity) {
                Some(known) => known,
                None => self.try_out(oddity).await?,
            };
            if mixes_up {
                let reason = "the server takes it for another key".to_owned();
                return Err(StoreError::InvalidKey { key: key.to_string(), reason });
            }
        }
        Ok(())
    }

    async fn try_out(&self, oddity: Oddity) -> Result<bool> {
        let name = format!("tenon-probe-{:016x}", self.client.entropy.next_u64());
        let (odd, clean) = match oddity {
            Oddity::LeadingSlash => (format!("/{name}"), name),
            Oddity::DoubleSlash => (format!("{name}//x"), format!("{name}/x")),
            Oddity::Dots => (format!("{name}/../{name}/x"), format!("{name}/x")),
        };
        let (odd, clean) = (ObjectKey::try_from(odd.as_str())?, ObjectKey::try_from(clean.as_str())?);
        let put = self.call(RequestKind::Put, Method::PUT, &odd)?.body(Payload::from("x"));
        let mixes_up = match self.client.fetch(&put).await.map_err(StoreError::from) {
            Ok(_) => self.head_object(&clean).await.is_ok(),
            // A server that refuses such keys does not normalise them.
            Err(StoreError::InvalidKey { .. }) => false,
            Err(error) => return Err(error),
        };
        self.client.odd_keys.learn(oddity, mixes_up);
        let found = if mixes_up { clean } else { odd };
        let remove = self.call(RequestKind::Delete, Method::DELETE, &found)?;
        // Best effort: the key may not exist.
        let _ = self.client.fetch(&remove).await;
        Ok(mixes_up)
    }
}

/// Returns the ways in which a key is not a clean path.
fn oddities(key: &[u8]) -> impl Iterator<Item = Oddity> {
    let has = |part: &[u8]| key.split(|byte| *byte == b'/').any(|found| found == part);
    let leading = key.starts_with(b"/").then_some(Oddity::LeadingSlash);
    let double = key.windows(2).any(|pair| pair == b"//").then_some(Oddity::DoubleSlash);
    let dots = (has(b".") || has(b"..")).then_some(Oddity::Dots);
    [leading, double, dots].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_paths_are_not_odd() {
        for key in ["a", "a/b", "a/", "...", ".hidden/..x", "a./b"] {
            assert_eq!(oddities(key.as_bytes()).next(), None, "{key}");
        }
        assert_eq!(oddities(b"//a/..").count(), 3);
        assert_eq!(oddities(b"./a").next(), Some(Oddity::Dots));
    }

    #[test]
    fn what_is_learnt_is_kept_apart() {
        let known = OddKeys::default();
        known.learn(Oddity::DoubleSlash, true);
        known.learn(Oddity::Dots, false);
        assert_eq!(known.mixes_up(Oddity::LeadingSlash), None);
        assert_eq!(known.mixes_up(Oddity::DoubleSlash), Some(true));
        assert_eq!(known.mixes_up(Oddity::Dots), Some(false));
    }
}
