//! Enumeration: a listing of all objects in key order, page by page (section 3.3).

use super::load::{Done, Load, LoadError};
use serde::Serialize;
use store::{ListEntry, ListPage, ListedObject};
use tokio::time::Instant;

/// The result of an enumeration.
#[derive(Debug, Clone, Serialize)]
pub struct Enumeration {
    /// Number of objects.
    pub objects: u64,
    /// Total size of the objects.
    pub bytes: u64,
}

impl Load {
    /// Lists all objects with the prefix, and checks that their number is `objects` and that each has a time and an etag.
    ///
    /// # Errors
    /// [`LoadError::WrongListing`] if the number is wrong, or an object is out of order or lacks a time or an etag;
    /// [`LoadError::Store`] if a page cannot be listed.
    pub async fn enumerate(&self, objects: u64) -> Result<(Done, Enumeration), LoadError> {
        let mut done = Done::default();
        let mut found = Enumeration { objects: 0, bytes: 0 };
        let (mut token, mut last) = (None, Vec::new());
        let start = Instant::now();
        loop {
            let asked = Instant::now();
            let page = self.list_page(token).await?;
            done.list.latency.record(asked.elapsed());
            done.list.amount += page.entries.len() as u64;
            found.add(&page, &mut last)?;
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        done.wall_secs = start.elapsed().as_secs_f64();
        if found.objects != objects {
            return Err(LoadError::WrongListing(format!("{} objects instead of {objects}", found.objects)));
        }
        Ok((done, found))
    }
}

impl Enumeration {
    fn add(&mut self, page: &ListPage, last: &mut Vec<u8>) -> Result<(), LoadError> {
        for entry in &page.entries {
            let ListEntry::Object(ListedObject { object, size_bytes, .. }) = entry else {
                return Err(LoadError::WrongListing(
                    "a common prefix in a listing without delimiter".to_owned(),
                ));
            };
            if object.key.as_bytes() <= last.as_slice() {
                return Err(LoadError::WrongListing(format!("{} is out of order", object.key)));
            }
            if object.last_modified.is_none() || object.etag.as_str().is_empty() {
                return Err(LoadError::WrongListing(format!("{} has no time or no etag", object.key)));
            }
            last.clear();
            last.extend_from_slice(object.key.as_bytes());
            self.objects += 1;
            self.bytes += size_bytes;
        }
        Ok(())
    }
}
