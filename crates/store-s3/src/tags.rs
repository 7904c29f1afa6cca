//! The requests that read and replace an object's tags.

use super::S3Store;
use super::request_counts::RequestKind;
use super::xml;
use http::Method;
use store::{ObjectKey, Payload, Result, Tags};

impl S3Store {
    pub(super) async fn get_tags(&self, key: &ObjectKey) -> Result<Tags> {
        let call = self.call(RequestKind::GetTags, Method::GET, key)?.query("tagging", "");
        let mut retry = self.client.retry();
        match self.client.fetch_as(&call, &mut retry, |answer| xml::parse_tags(&answer.body)).await {
            // Some servers return an error for an object without tags.
            Err(failure) if failure.code == "NoSuchTagSet" => Ok(Tags::new()),
            answered => Ok(answered?),
        }
    }

    pub(super) async fn put_tags(&self, key: &ObjectKey, tags: &Tags) -> Result<()> {
        self.check_distinct(key).await?;
        let body = Payload::from(xml::write_tagging(tags));
        let mut call = self.call(RequestKind::PutTags, Method::PUT, key)?.query("tagging", "").body(body);
        // S3 requires a checksum with every request document.
        call.checksum = Some(super::put::crc64nvme(&call.body));
        self.client.fetch(&call).await?;
        Ok(())
    }
}
