//! Bucket access control lists (S3 User Guide, "Access control list (ACL) overview").
//!
//! All objects belong to the bucket's owner. The ACL of an object is fixed and says just that.

use s3s::dto::{self, AccessControlPolicy, GetBucketAclOutput, GetObjectAclInput, GetObjectAclOutput};
use s3s::{S3Error, S3Result, s3_error};
use serde::{Deserialize, Serialize};

use crate::bucket::{Bucket, key};
use crate::error::{custom, invalid_argument, not_implemented};
use crate::ops::settings::{ENFORCED, OWNERSHIP};
use crate::users::Users;
use crate::version_lookup;

const SETTING: &str = "acl";
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const FULL_CONTROL: &str = "FULL_CONTROL";
const PERMISSIONS: [&str; 5] = [FULL_CONTROL, "READ", "READ_ACP", "WRITE", "WRITE_ACP"];
/// S3's maximum number of grants in an ACL.
const GRANTS_MAX: usize = 100;

/// A permission on a bucket, granted to somebody besides its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Grant {
    grantee: Grantee,
    permission: String,
}

/// The users to whom a grant gives a permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Grantee {
    Everybody,
    SignedIn,
    User(String),
}

impl Grantee {
    fn includes(&self, user: Option<&str>) -> bool {
        match self {
            Self::Everybody => true,
            Self::SignedIn => user.is_some(),
            Self::User(name) => user == Some(name.as_str()),
        }
    }

    fn dto(&self) -> dto::Grantee {
        let (kind, id, uri) = match self {
            Self::Everybody => ("Group", None, Some(ALL_USERS.to_owned())),
            Self::SignedIn => ("Group", None, Some(AUTHENTICATED_USERS.to_owned())),
            Self::User(name) => ("CanonicalUser", Some(name.clone()), None),
        };
        let type_ = dto::Type::from_static(kind);
        dto::Grantee { display_name: id.clone(), email_address: None, id, type_, uri }
    }
}

/// Returns whether the bucket's ACL allows the user an action on the bucket.
pub(crate) async fn allows(bucket: &Bucket, user: Option<&str>, action: &str) -> S3Result<bool> {
    let permission = match action {
        "s3:ListBucket" | "s3:ListBucketVersions" | "s3:ListBucketMultipartUploads" => "READ",
        "s3:PutObject" => "WRITE",
        "s3:GetBucketAcl" => "READ_ACP",
        "s3:PutBucketAcl" => "WRITE_ACP",
        _ => return Ok(false),
    };
    let grants = grants(bucket).await?;
    let allows = |grant: &Grant| {
        grant.grantee.includes(user) && [permission, FULL_CONTROL].contains(&grant.permission.as_str())
    };
    Ok(grants.iter().any(allows) && !is_acl_disabled(bucket).await?)
}

/// Returns the grants that a bucket stores.
async fn grants(bucket: &Bucket) -> S3Result<Vec<Grant>> {
    Ok(bucket.setting(SETTING).await?.unwrap_or_default())
}

/// Returns whether ACLs are disabled for the bucket, which is the default.
async fn is_acl_disabled(bucket: &Bucket) -> S3Result<bool> {
    let ownership: Option<String> = bucket.setting(OWNERSHIP).await?;
    Ok(ownership.is_none_or(|ownership| ownership == ENFORCED))
}

/// Returns the effective ACL. Stored grants have no effect while ACLs are disabled.
pub(crate) async fn get(bucket: &Bucket, owner: dto::Owner) -> S3Result<GetBucketAclOutput> {
    let grants = match is_acl_disabled(bucket).await? {
        true => Vec::new(),
        false => grants(bucket).await?,
    };
    let shown = grants.into_iter().map(|grant| dto::Grant {
        grantee: Some(grant.grantee.dto()),
        permission: Some(dto::Permission::from(grant.permission)),
    });
    let grants = Some(std::iter::once(owner_grant(&owner)).chain(shown).collect());
    Ok(GetBucketAclOutput { grants, owner: Some(owner) })
}

/// Returns the ACL of an object, which is fixed.
pub(crate) async fn get_object(
    bucket: &Bucket,
    owner: dto::Owner,
    input: &GetObjectAclInput,
) -> S3Result<GetObjectAclOutput> {
    version_lookup::head(bucket, &key(&input.key)?, input.version_id.as_deref()).await?;
    let grants = Some(vec![owner_grant(&owner)]);
    Ok(GetObjectAclOutput { grants, owner: Some(owner), ..Default::default() })
}

/// Returns the owner's grant of full control.
fn owner_grant(owner: &dto::Owner) -> dto::Grant {
    let owner = Grantee::User(owner.id.clone().unwrap_or_default());
    let permission = Some(dto::Permission::from_static(FULL_CONTROL));
    dto::Grant { grantee: Some(owner.dto()), permission }
}

/// An ACL in a request: a canned ACL, grant headers, or a document.
#[derive(Debug, Default)]
pub(crate) struct AclRequest {
    /// The name of a canned ACL.
    pub(crate) canned: Option<String>,
    /// Grantees by permission.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The ACL of the document.
    pub(crate) policy: Option<AccessControlPolicy>,
}

/// Collects the ACL fields of the input of CreateBucket or PutBucketAcl.
macro_rules! acl_request {
    ($input:expr, $policy:expr) => {
        $crate::ops::acl::AclRequest {
            canned: $input.acl.as_ref().map(|acl| acl.as_str().to_owned()),
            headers: [
                ("FULL_CONTROL", $input.grant_full_control.clone()),
                ("READ", $input.grant_read.clone()),
                ("READ_ACP", $input.grant_read_acp.clone()),
                ("WRITE", $input.grant_write.clone()),
                ("WRITE_ACP", $input.grant_write_acp.clone()),
            ]
            .into_iter()
            .filter_map(|(permission, given)| Some((permission, given?)))
            .collect(),
            policy: $policy,
        }
    };
}
pub(crate) use acl_request;

impl AclRequest {
    fn is_empty(&self) -> bool {
        self.canned.is_none() && self.headers.is_empty() && self.policy.is_none()
    }

    /// Returns the requested grants, without the owner's own.
    fn grants(self, users: &Users, owner: &str) -> S3Result<Vec<Grant>> {
        let mut grants = match (self.canned, self.headers.is_empty(), self.policy) {
            (None, true, None) => {
                let message = "Your request was missing a required header.";
                return Err(custom("MissingSecurityHeader", http::StatusCode::BAD_REQUEST, message));
            }
            (Some(_), false, None) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "Specifying both Canned ACLs and Header Grants is not allowed."
                ));
            }
            (Some(canned), true, None) => canned_grants(&canned)?,
            (None, false, None) => header_grants(self.headers, users)?,
            (None, true, Some(policy)) => document_grants(policy, users, owner)?,
            _ => return Err(s3_error!(UnexpectedContent, "This request does not support content.")),
        };
        if grants.len() > GRANTS_MAX {
            return Err(malformed());
        }
        let owner = Grant { grantee: Grantee::User(owner.to_owned()), permission: FULL_CONTROL.into() };
        grants.retain(|grant| *grant != owner);
        Ok(grants)
    }
}

/// Returns the grants of a canned ACL.
fn canned_grants(name: &str) -> S3Result<Vec<Grant>> {
    let grant = |grantee: &Grantee, permission: &str| Grant {
        grantee: grantee.clone(),
        permission: permission.to_owned(),
    };
    Ok(match name {
        "private" => Vec::new(),
        "public-read" => vec![grant(&Grantee::Everybody, "READ")],
        "public-read-write" => {
            vec![grant(&Grantee::Everybody, "READ"), grant(&Grantee::Everybody, "WRITE")]
        }
        "authenticated-read" => vec![grant(&Grantee::SignedIn, "READ")],
        other => return Err(invalid_argument("", "x-amz-acl", other)),
    })
}

/// Parses grant headers such as `id="name", uri="http://..."`, by permission.
fn header_grants(headers: Vec<(&'static str, String)>, users: &Users) -> S3Result<Vec<Grant>> {
    let mut grants = Vec::new();
    for (permission, list) in headers {
        for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let (kind, name) = one.split_once('=').unwrap_or(("id", one));
            let name = name.trim_matches('"').to_owned();
            let grantee = match kind {
                "id" => user(name, users)?,
                "uri" => group(&name)?,
                _ => return Err(not_implemented("A grant to an e-mail address")),
            };
            grants.push(Grant { grantee, permission: permission.to_owned() });
        }
    }
    Ok(grants)
}

/// Returns the grants of an ACL document. Fails if it names another owner.
fn document_grants(policy: AccessControlPolicy, users: &Users, owner: &str) -> S3Result<Vec<Grant>> {
    let named = policy.owner.and_then(|owner| owner.id).filter(|id| !id.is_empty()).ok_or_else(malformed)?;
    if named != owner {
        user(named, users)?;
        return Err(s3_error!(AccessDenied, "Access Denied."));
    }
    let mut grants = Vec::new();
    for given in policy.grants.unwrap_or_default() {
        let permission = given.permission.ok_or_else(malformed)?.as_str().to_owned();
        let grantee = given.grantee.ok_or_else(malformed)?;
        if !PERMISSIONS.contains(&permission.as_str()) {
            return Err(malformed());
        }
        let grantee = match grantee.type_.as_str() {
            "CanonicalUser" => user(grantee.id.filter(|id| !id.is_empty()).ok_or_else(malformed)?, users)?,
            "Group" => group(&grantee.uri.ok_or_else(malformed)?)?,
            "AmazonCustomerByEmail" => return Err(not_implemented("A grant to an e-mail address")),
            _ => return Err(malformed()),
        };
        grants.push(Grant { grantee, permission });
    }
    Ok(grants)
}

fn user(name: String, users: &Users) -> S3Result<Grantee> {
    match users.get(&name) {
        Some(_) => Ok(Grantee::User(name)),
        None => Err(invalid_argument("Invalid id", "CanonicalUser/ID", &name)),
    }
}

fn group(uri: &str) -> S3Result<Grantee> {
    match uri {
        ALL_USERS => Ok(Grantee::Everybody),
        AUTHENTICATED_USERS => Ok(Grantee::SignedIn),
        other => Err(invalid_argument("Invalid group uri", "Group/URI", other)),
    }
}

pub(crate) async fn put(bucket: &Bucket, given: AclRequest, users: &Users, owner: &str) -> S3Result<()> {
    if is_acl_disabled(bucket).await? {
        return Err(not_supported());
    }
    let grants = given.grants(users, owner)?;
    bucket.set(SETTING, (!grants.is_empty()).then_some(&grants)).await
}

/// Sets the ACL of a new bucket with the given object ownership.
pub(crate) async fn put_initial(
    bucket: &Bucket,
    given: AclRequest,
    ownership: &str,
    users: &Users,
    owner: &str,
) -> S3Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    let grants = given.grants(users, owner)?;
    if grants.is_empty() {
        return Ok(());
    }
    if ownership == ENFORCED {
        return Err(s3_error!(
            InvalidBucketAclWithObjectOwnership,
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"
        ));
    }
    bucket.set(SETTING, Some(&grants)).await
}

/// Refuses the ACL headers of a new object, unless they ask for the ACL that every object has anyway.
pub(crate) async fn check_object(bucket: &Bucket, headers: &http::HeaderMap) -> S3Result<()> {
    let canned = headers.get("x-amz-acl").map(http::HeaderValue::as_bytes);
    let is_granted = headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-"));
    match canned {
        None if !is_granted => Ok(()),
        // Every object belongs to the bucket's owner. So `private`, which rclone always sends, changes nothing.
        Some(b"bucket-owner-full-control" | b"private") if !is_granted => Ok(()),
        _ if is_acl_disabled(bucket).await? => Err(not_supported()),
        Some(b"bucket-owner-read") if !is_granted => Ok(()),
        _ => Err(not_implemented("An access control list of an object")),
    }
}

/// Refuses an ACL for an existing object, unless it is the one that every object has, or a canned ACL that
/// [`check_object`] accepts. Programs that copy objects send back the ACL that they read.
pub(crate) async fn put_object(
    bucket: &Bucket,
    owner: &dto::Owner,
    list: Option<&dto::AccessControlPolicy>,
    headers: &http::HeaderMap,
) -> S3Result<()> {
    let shown = owner_grant(owner);
    let is_owners = |grant: &dto::Grant| {
        let id = |grant: &dto::Grant| grant.grantee.as_ref().and_then(|grantee| grantee.id.clone());
        id(grant) == id(&shown) && grant.permission == shown.permission
    };
    match list.and_then(|list| list.grants.as_deref()) {
        Some([grant]) if is_owners(grant) => return Ok(()),
        None if headers.contains_key("x-amz-acl") => return check_object(bucket, headers).await,
        _ => {}
    }
    match is_acl_disabled(bucket).await? {
        true => Err(not_supported()),
        false => Err(not_implemented("An access control list of an object")),
    }
}

fn not_supported() -> S3Error {
    s3_error!(AccessControlListNotSupported, "The bucket does not allow ACLs.")
}

fn malformed() -> S3Error {
    s3_error!(
        MalformedACLError,
        "The XML you provided was not well-formed or did not validate against our published schema."
    )
}
