//! Detection of servers that normalise keys such as `a//b`.
//!
//! A server on a file system may treat `/a`, `a//b` or `a/../b` as another key, so that a write would change the wrong
//! object. So before the first write to such a key, a probe with a random name checks how the server treats keys of this
//! kind. If the server normalises them, such keys are refused. AWS does not normalise keys and is not probed.

use super::S3Store;
use super::learned::KeyKind;
use super::request_counts::RequestKind;
use http::Method;
use store::{ObjectKey, Payload, Result, StoreError};

impl S3Store {
    /// Refuses a key that the server would confuse with another key. Costs nothing for clean paths.
    pub(super) async fn check_distinct(&self, key: &ObjectKey) -> Result<()> {
        if self.client.endpoint.is_aws() {
            return Ok(());
        }
        for kind in unclean_kinds(key.as_bytes()) {
            let normalizes = match self.client.learned.key_probes.normalizes(kind) {
                Some(known) => known,
                None => self.probe(kind).await?,
            };
            if normalizes {
                let reason = "the server would confuse this key with another key".to_owned();
                return Err(StoreError::InvalidKey { key: key.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Writes and removes an object to find out whether the server normalises keys of a kind. Records the result.
    async fn probe(&self, kind: KeyKind) -> Result<bool> {
        let name = format!("tenon-probe-{:016x}", self.client.entropy.next_u64());
        let (odd, clean) = match kind {
            KeyKind::LeadingSlash => (format!("/{name}"), name),
            KeyKind::DoubleSlash => (format!("{name}//x"), format!("{name}/x")),
            KeyKind::Dots => (format!("{name}/../{name}/x"), format!("{name}/x")),
        };
        let (odd, clean) = (ObjectKey::try_from(odd.as_str())?, ObjectKey::try_from(clean.as_str())?);
        let put = self.call(RequestKind::Put, Method::PUT, &odd)?.body(Payload::from("x"));
        let normalizes = match self.client.fetch(&put).await.map_err(StoreError::from) {
            Ok(_) => self.head_object(&clean).await.is_ok(),
            // A server that refuses such keys does not normalise them.
            Err(StoreError::InvalidKey { .. }) => false,
            Err(error) => return Err(error),
        };
        self.client.learned.key_probes.record(kind, normalizes);
        let found = if normalizes { clean } else { odd };
        let remove = self.call(RequestKind::Delete, Method::DELETE, &found)?;
        // Best effort: the key may not exist.
        let _ = self.client.fetch(&remove).await;
        Ok(normalizes)
    }
}

/// Returns the ways in which a key is not a clean path.
fn unclean_kinds(key: &[u8]) -> impl Iterator<Item = KeyKind> {
    let has = |part: &[u8]| key.split(|byte| *byte == b'/').any(|found| found == part);
    let leading = key.starts_with(b"/").then_some(KeyKind::LeadingSlash);
    let double = key.windows(2).any(|pair| pair == b"//").then_some(KeyKind::DoubleSlash);
    let dots = (has(b".") || has(b"..")).then_some(KeyKind::Dots);
    [leading, double, dots].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_paths_are_not_odd() {
        for key in ["a", "a/b", "a/", "...", ".hidden/..x", "a./b"] {
            assert_eq!(unclean_kinds(key.as_bytes()).next(), None, "{key}");
        }
        assert_eq!(unclean_kinds(b"//a/..").count(), 3);
        assert_eq!(unclean_kinds(b"./a").next(), Some(KeyKind::Dots));
    }
}
