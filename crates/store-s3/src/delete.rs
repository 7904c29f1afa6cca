//! Removing objects.
//!
//! Few servers honour a precondition of DELETE. So an etag is sent with the DELETE and, except on AWS, also checked
//! by a HEAD before. If no object may exist, only a HEAD is sent. On servers that ignore the precondition, a change
//! between the two requests goes unnoticed.

use super::S3Store;
use super::put::is_refused_condition;
use super::request_counts::RequestKind;
use http::Method;
use store::{ObjectKey, Precondition, Result, StoreError};

impl S3Store {
    pub(super) async fn delete_object(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        self.check_distinct(key).await?;
        let mut call = self.call(RequestKind::Delete, Method::DELETE, key)?;
        match &precondition {
            Precondition::None => {}
            // If the precondition holds, there is no object to remove.
            Precondition::Absent => return self.check(key, &precondition).await,
            Precondition::Matches(_) => {
                if !self.client.endpoint.is_aws() {
                    self.check(key, &precondition).await?;
                }
                call = call.condition(&precondition)?;
            }
        }
        let mut retry = self.client.retry();
        match self.client.fetch_as(&call, &mut retry, |_| Ok(())).await {
            Ok(()) => Ok(()),
            Err(failure) if precondition == Precondition::None => match failure.error {
                StoreError::NotFound(_) => Ok(()),
                error => Err(error),
            },
            Err(failure) if is_refused_condition(&failure, &precondition) => {
                // An earlier attempt may have removed the object.
                if retry.was_ambiguous() && self.check(key, &Precondition::Absent).await.is_ok() {
                    return Ok(());
                }
                Err(StoreError::PreconditionFailed(key.clone()))
            }
            Err(failure) => Err(failure.error),
        }
    }
}
