//! Buckets of several accounts, each with an endpoint and a credential of its own.
//!
//! Owns how a bucket of another account is called: `ACCOUNT:BUCKET`, which no bucket of S3 is.

use crate::{Buckets, ObjectStore, Result, StoreError, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Between an account and its bucket.
const SEPARATOR: char = ':';

/// The account, if a bucket's name says one, and what the bucket is called there.
pub fn account_of(name: &str) -> (Option<&str>, &str) {
    match name.split_once(SEPARATOR) {
        Some((account, bucket)) => (Some(account), bucket),
        None => (None, name),
    }
}

/// What a bucket of an account is called.
pub fn in_account(account: Option<&str>, bucket: &str) -> String {
    account.map_or_else(|| bucket.to_owned(), |account| format!("{account}{SEPARATOR}{bucket}"))
}

/// The buckets of several accounts. Of that without a name they are called as they are.
#[derive(Debug)]
pub struct Accounts(BTreeMap<Option<String>, Arc<dyn Buckets>>);

impl Accounts {
    /// Of these accounts.
    pub fn new(accounts: BTreeMap<Option<String>, Arc<dyn Buckets>>) -> Self {
        Self(accounts)
    }

    fn at<'n>(&self, name: &'n str) -> Result<(&dyn Buckets, &'n str)> {
        let (account, bucket) = account_of(name);
        let whose = account.unwrap_or("of no name");
        let unknown = || StoreError::Denied(format!("the account '{whose}' of '{name}' is not known here"));
        let buckets = self.0.get(&account.map(str::to_owned)).ok_or_else(unknown)?;
        Ok((buckets.as_ref(), bucket))
    }
}

#[async_trait::async_trait]
impl Buckets for Accounts {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let (buckets, bucket) = self.at(name)?;
        buckets.open(bucket).await
    }

    async fn create(&self, name: &str) -> Result<()> {
        let (buckets, bucket) = self.at(name)?;
        buckets.create(bucket).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let (buckets, bucket) = self.at(name)?;
        buckets.delete(bucket).await
    }

    async fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (account, buckets) in &self.0 {
            let listed = buckets.list().await?;
            names.extend(listed.iter().map(|bucket| in_account(account.as_deref(), bucket)));
        }
        names.sort_unstable();
        Ok(names)
    }

    async fn made_at(&self, name: &str) -> Result<Timestamp> {
        let (buckets, bucket) = self.at(name)?;
        buckets.made_at(bucket).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;
    use crate::memory::MemoryBuckets;

    #[tokio::test]
    async fn buckets_of_one_name_are_told_apart_by_their_accounts() {
        let [own, other] = [(); 2].map(|()| Arc::new(MemoryBuckets::new(Arc::new(SystemClock))));
        let both: [(Option<String>, Arc<dyn Buckets>); 2] =
            [(None, own.clone()), (Some("lab".to_owned()), other.clone())];
        let accounts = Accounts::new(both.into());
        accounts.create("reads").await.unwrap();
        assert!(matches!(accounts.open("lab:reads").await, Err(StoreError::NoSuchBucket(_))));
        accounts.create("lab:reads").await.unwrap();
        accounts.create("lab:aaa").await.unwrap();
        assert_eq!(accounts.list().await.unwrap(), ["lab:aaa", "lab:reads", "reads"]);
        assert_eq!((own.list().await.unwrap().len(), other.list().await.unwrap().len()), (1, 2));
        accounts.delete("lab:reads").await.unwrap();
        assert!(accounts.open("reads").await.is_ok());
        let unknown = accounts.open("nobody:reads").await.unwrap_err();
        assert!(unknown.to_string().contains("the account 'nobody'"), "{unknown}");
    }
}
