//! Actions on a target's bucket: create, clean, remove.

use super::{ActionError, Opened, Workbench, bucket_prefix, words_of};
use crate::journal::{Journal, JournaledBucket};
use crate::outcome::Phase;
use crate::package::{Action, Target};
use crate::platform::Platform;
use crate::raw_client::Bucket;
use std::fs;
use std::hash::{BuildHasher, RandomState};

impl Workbench<'_> {
    /// Creates a bucket for a target, with the given name or a new one, and returns its name.
    ///
    /// # Errors
    /// If no name is given and the target has a bucket on this platform, or the bucket exists.
    pub fn create_bucket(
        &self,
        target: &Target,
        platform: &Platform,
        bucket: Option<&str>,
    ) -> Result<String, ActionError> {
        let mut journal = self.journal()?;
        if bucket.is_none()
            && let Some(own) = self.own_bucket(&journal, target, platform)
        {
            return Err(ActionError::HasBucket(target.to_string(), own));
        }
        let opened = self.open(platform)?;
        self.make_bucket(&mut journal, target, platform, bucket, &opened)
    }

    /// Creates a bucket on a platform that runs, and journals it. Returns its name.
    pub(super) fn make_bucket(
        &self,
        journal: &mut Journal,
        target: &Target,
        platform: &Platform,
        bucket: Option<&str>,
        opened: &Opened,
    ) -> Result<String, ActionError> {
        let new_name = || format!("{}{:08x}", bucket_prefix(target), RandomState::new().hash_one(()) as u32);
        let name = bucket.map_or_else(new_name, str::to_owned);
        let spec = platform.spec.clone();
        let entry = JournaledBucket { platform: spec.clone(), bucket: name.clone(), is_temporary: false };
        journal.record_creation(entry)?;
        let created = match self.command(target, platform, Action::CreateBucket, &name, opened)? {
            true => Ok(()),
            false => {
                let created = Bucket::create(opened.endpoint.direct.as_ref(), &name);
                opened.runtime.block_on(created).map(drop)
            }
        };
        if let Err(error) = created {
            journal.record_removal(&spec, &name)?;
            return Err(ActionError::Store(name, error));
        }
        Ok(name)
    }

    /// Removes all objects of a target's bucket, and what the target knows of them. Returns the bucket's name.
    ///
    /// # Errors
    /// If the testbed did not create the bucket and `not_mine` is not set, or the target is mounted.
    pub fn clean_bucket(
        &self,
        target: &Target,
        platform: &Platform,
        bucket: Option<&str>,
        not_mine: bool,
    ) -> Result<String, ActionError> {
        let journal = self.journal()?;
        let name = self.changeable_bucket(&journal, target, platform, bucket, not_mine)?;
        self.empty_bucket(target, platform, &name, &self.open(platform)?)?;
        Ok(name)
    }

    /// Removes a target's bucket with its objects. Returns the bucket's name.
    ///
    /// # Errors
    /// As [`Workbench::clean_bucket`].
    pub fn remove_bucket(
        &self,
        target: &Target,
        platform: &Platform,
        bucket: Option<&str>,
        not_mine: bool,
    ) -> Result<String, ActionError> {
        let mut journal = self.journal()?;
        let name = self.changeable_bucket(&journal, target, platform, bucket, not_mine)?;
        let opened = self.open(platform)?;
        if !self.command(target, platform, Action::RemoveBucket, &name, &opened)? {
            self.empty_bucket(target, platform, &name, &opened)?;
            let removed = opened.endpoint.remove_bucket(&name, &opened.runtime);
            removed.map_err(|error| ActionError::Store(name.clone(), error))?;
        }
        journal.record_removal(&platform.spec, &name)?;
        Ok(name)
    }

    /// Returns the name of the bucket to change: the given one, or the target's own. Fails if the target is mounted, or the bucket may not be
    /// changed.
    fn changeable_bucket(
        &self,
        journal: &Journal,
        target: &Target,
        platform: &Platform,
        bucket: Option<&str>,
        not_mine: bool,
    ) -> Result<String, ActionError> {
        self.check_is_down(target)?;
        let own = || self.own_bucket(journal, target, platform);
        let name = bucket.map(str::to_owned).or_else(own);
        let name = name.ok_or_else(|| ActionError::NoBucket(target.to_string()))?;
        match not_mine || journal.has(&platform.spec, &name) {
            true => Ok(name),
            false => Err(ActionError::NotOurs(name)),
        }
    }

    fn empty_bucket(
        &self,
        target: &Target,
        platform: &Platform,
        name: &str,
        opened: &Opened,
    ) -> Result<(), ActionError> {
        if !self.command(target, platform, Action::CleanBucket, name, opened)? {
            let emptied =
                async { Bucket::open(opened.endpoint.direct.as_ref(), name).await?.remove_all().await };
            opened.runtime.block_on(emptied).map_err(|error| ActionError::Store(name.to_owned(), error))?;
        }
        // The target's own files on this machine describe objects that are gone.
        let dir = self.target_dir(target, platform);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ActionError::file(&dir)(error)),
            _ => Ok(()),
        }
    }

    /// Runs the package's own command for an action on its bucket. Returns whether it has one.
    fn command(
        &self,
        target: &Target,
        platform: &Platform,
        action: Action,
        bucket: &str,
        opened: &Opened,
    ) -> Result<bool, ActionError> {
        if !target.package.commands.contains_key(&action) {
            return Ok(false);
        }
        let dir = self.target_dir(target, platform);
        let places = (dir.as_path(), dir.join("mount"));
        let (values, surroundings) = self.prepare(target, &opened.endpoint, (places.0, &places.1), bucket)?;
        let Some(words) = words_of(target, action, &values)? else { return Ok(false) };
        surroundings.run_alone(&words, Phase::Format, self.limits.mount)?;
        Ok(true)
    }
}
