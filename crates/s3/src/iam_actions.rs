//! The IAM actions of S3 (Service Authorization Reference, "Actions defined by Amazon S3").
//!
//! Policies may name these actions and no others. An action that is not in the table is reserved to administrators.

use crate::operations::ResourceKind;
use crate::users::Role;

/// An IAM action.
#[derive(Debug)]
pub(crate) struct IamAction {
    pub(crate) name: &'static str,
    /// The kind of resource that the action applies to.
    pub(crate) on: ResourceKind,
    /// The least role that may perform the action where no policy decides.
    level: Level,
    /// The action that applies instead if the request names a version.
    of_version: Option<&'static str>,
}

/// The least role that may perform an action where no policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Read,
    Write,
    Admin,
}

use Level::{Admin, Read, Write};

/// Returns an action on objects.
const fn on_object(name: &'static str, level: Level) -> IamAction {
    IamAction { name, on: ResourceKind::Object, level, of_version: None }
}

/// Returns an action on objects that has another name for a version of an object.
const fn versioned(name: &'static str, level: Level, of_version: &'static str) -> IamAction {
    IamAction { name, on: ResourceKind::Object, level, of_version: Some(of_version) }
}

/// Returns an action on buckets.
const fn on_bucket(name: &'static str, level: Level) -> IamAction {
    IamAction { name, on: ResourceKind::Bucket, level, of_version: None }
}

pub(crate) static IAM_ACTIONS: [IamAction; 60] = [
    on_object("s3:AbortMultipartUpload", Write),
    on_object("s3:BypassGovernanceRetention", Admin),
    versioned("s3:DeleteObject", Write, "s3:DeleteObjectVersion"),
    versioned("s3:DeleteObjectTagging", Write, "s3:DeleteObjectVersionTagging"),
    on_object("s3:DeleteObjectVersion", Write),
    on_object("s3:DeleteObjectVersionTagging", Write),
    versioned("s3:GetObject", Read, "s3:GetObjectVersion"),
    versioned("s3:GetObjectAcl", Read, "s3:GetObjectVersionAcl"),
    versioned("s3:GetObjectAttributes", Read, "s3:GetObjectVersionAttributes"),
    on_object("s3:GetObjectLegalHold", Read),
    on_object("s3:GetObjectRetention", Read),
    versioned("s3:GetObjectTagging", Read, "s3:GetObjectVersionTagging"),
    on_object("s3:GetObjectTorrent", Read),
    on_object("s3:GetObjectVersion", Read),
    on_object("s3:GetObjectVersionAcl", Read),
    on_object("s3:GetObjectVersionAttributes", Read),
    on_object("s3:GetObjectVersionTagging", Read),
    on_object("s3:ListMultipartUploadParts", Read),
    on_object("s3:PutObject", Write),
    versioned("s3:PutObjectAcl", Write, "s3:PutObjectVersionAcl"),
    on_object("s3:PutObjectLegalHold", Admin),
    on_object("s3:PutObjectRetention", Admin),
    versioned("s3:PutObjectTagging", Write, "s3:PutObjectVersionTagging"),
    on_object("s3:PutObjectVersionAcl", Admin),
    on_object("s3:PutObjectVersionTagging", Write),
    on_object("s3:RenameObject", Admin),
    on_object("s3:RestoreObject", Write),
    on_bucket("s3:CreateBucket", Admin),
    on_bucket("s3:DeleteBucket", Admin),
    on_bucket("s3:DeleteBucketPolicy", Admin),
    on_bucket("s3:DeleteBucketWebsite", Admin),
    on_bucket("s3:GetAccelerateConfiguration", Admin),
    on_bucket("s3:GetAnalyticsConfiguration", Admin),
    on_bucket("s3:GetBucketAcl", Admin),
    on_bucket("s3:GetBucketCORS", Admin),
    on_bucket("s3:GetBucketLocation", Read),
    on_bucket("s3:GetBucketLogging", Admin),
    on_bucket("s3:GetBucketNotification", Admin),
    on_bucket("s3:GetBucketObjectLockConfiguration", Admin),
    on_bucket("s3:GetBucketOwnershipControls", Admin),
    on_bucket("s3:GetBucketPolicy", Admin),
    on_bucket("s3:GetBucketPolicyStatus", Admin),
    on_bucket("s3:GetBucketTagging", Admin),
    on_bucket("s3:GetBucketVersioning", Admin),
    on_bucket("s3:GetBucketWebsite", Admin),
    on_bucket("s3:GetLifecycleConfiguration", Admin),
    on_bucket("s3:ListAllMyBuckets", Read),
    on_bucket("s3:ListBucket", Read),
    on_bucket("s3:ListBucketMultipartUploads", Read),
    on_bucket("s3:ListBucketVersions", Read),
    on_bucket("s3:PutBucketAcl", Admin),
    on_bucket("s3:PutBucketCORS", Admin),
    on_bucket("s3:PutBucketNotification", Admin),
    on_bucket("s3:PutBucketObjectLockConfiguration", Admin),
    on_bucket("s3:PutBucketOwnershipControls", Admin),
    on_bucket("s3:PutBucketPolicy", Admin),
    on_bucket("s3:PutBucketTagging", Admin),
    on_bucket("s3:PutBucketVersioning", Admin),
    on_bucket("s3:PutBucketWebsite", Admin),
    on_bucket("s3:PutLifecycleConfiguration", Admin),
];

pub(crate) fn find(name: &str) -> Option<&'static IamAction> {
    IAM_ACTIONS.iter().find(|action| action.name == name)
}

/// Returns the action that applies instead of `name` if the request names a version; `name` itself if there is no
/// other.
pub(crate) fn of_version(name: &'static str) -> &'static str {
    find(name).and_then(|action| action.of_version).unwrap_or(name)
}

/// Returns whether a role allows an action where no policy decides.
pub(crate) fn role_allows(role: Role, name: &str) -> bool {
    let level_max = match role {
        Role::Admin => Admin,
        Role::ReadWrite => Write,
        Role::ReadOnly => Read,
        Role::PolicyOnly => return false,
    };
    find(name).map_or(Admin, |action| action.level) <= level_max
}

/// Returns whether a role sees all buckets. Other users see only their own.
pub(crate) fn sees_all_buckets(role: Role) -> bool {
    role_allows(role, "s3:ListAllMyBuckets")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_include_each_other() {
        for (name, roles) in [
            ("s3:GetObject", [true, true, true, false]),
            ("s3:PutObject", [true, true, false, false]),
            ("s3:PutObjectRetention", [true, false, false, false]),
            ("s3:PutBucketPolicy", [true, false, false, false]),
            ("s3:Unknown", [true, false, false, false]),
        ] {
            let allowed = [Role::Admin, Role::ReadWrite, Role::ReadOnly, Role::PolicyOnly];
            assert_eq!(allowed.map(|role| role_allows(role, name)), roles, "{name}");
        }
    }

    #[test]
    fn actions_on_versions_exist_and_are_in_order() {
        assert!(IAM_ACTIONS.iter().all(|action| action.of_version.is_none_or(|name| find(name).is_some())));
        for kind in [ResourceKind::Bucket, ResourceKind::Object] {
            let names = IAM_ACTIONS.iter().filter(|action| action.on == kind).map(|action| action.name);
            assert!(names.is_sorted_by(|one, other| one < other));
        }
        assert_eq!(of_version("s3:GetObject"), "s3:GetObjectVersion");
        assert_eq!(of_version("s3:GetObjectRetention"), "s3:GetObjectRetention");
    }
}
