//! Buckets of several accounts, each account with its own endpoint and credentials.
//!
//! Owns the names of such buckets: `ACCOUNT:BUCKET`, which is not a valid bucket name in S3.

use crate::{Buckets, ObjectStore, Result, StoreError, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Separates an account from its bucket.
const SEPARATOR: char = ':';

/// Splits a bucket's name into its account, if the name has one, and the name within the account.
pub fn account_of(name: &str) -> (Option<&str>, &str) {
    match name.split_once(SEPARATOR) {
        Some((account, bucket)) => (Some(account), bucket),
        None => (None, name),
    }
}

/// Returns the full name of a bucket in an account.
pub fn in_account(account: Option<&str>, bucket: &str) -> String {
    account.map_or_else(|| bucket.to_owned(), |account| format!("{account}{SEPARATOR}{bucket}"))
}

/// The buckets of several accounts. Buckets of the account without a name keep their names.
#[derive(Debug)]
pub struct Accounts(BTreeMap<Option<String>, Arc<dyn Buckets>>);

impl Accounts {
    /// Makes a set of the buckets of these accounts, by account name; `None` is the account without a name.
    pub fn new(accounts: BTreeMap<Option<String>, Arc<dyn Buckets>>) -> Self {
        Self(accounts)
    }

    /// Returns the buckets of the account that a name begins with, and the rest of the name.
    fn resolve<'n>(&self, name: &'n str) -> Result<(&dyn Buckets, &'n str)> {
        let (account, bucket) = account_of(name);
        let shown = account.unwrap_or("(default)");
        let unknown = || StoreError::Denied(format!("the account '{shown}' of '{name}' is not configured"));
        let buckets = self.0.get(&account.map(str::to_owned)).ok_or_else(unknown)?;
        Ok((buckets.as_ref(), bucket))
    }
}

#[async_trait::async_trait]
impl Buckets for Accounts {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let (buckets, bucket) = self.resolve(name)?;
        buckets.open(bucket).await
    }

    async fn create(&self, name: &str) -> Result<()> {
        let (buckets, bucket) = self.resolve(name)?;
        buckets.create(bucket).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let (buckets, bucket) = self.resolve(name)?;
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
        let (buckets, bucket) = self.resolve(name)?;
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
