//! Records as JSON: one variant per family of the key schema. Numbers and names are those of [`meta`]; times are nanoseconds since 1970.

use super::text::Text;
use meta::codec::{
    DecodeError, InodeRecord, decode_batch, decode_dentry, decode_extent, decode_inode, decode_number,
    decode_quota, decode_refused_op, encode_batch, encode_dentry, encode_extent, encode_inode, encode_number,
    encode_quota, encode_refused_op,
};
use meta::{
    Batch, BatchId, BatchOutcome, Content, Dentry, Extent, Fingerprint, Ino, Inode, Kind, Limits, Moment,
    Name, Quota, RefusedOp, Stored, Summary, Usage, schema,
};
use serde::{Deserialize, Serialize};
use store::{ETag, ObjectKey, Timestamp};

/// A record of any family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Record {
    Dentry {
        dir: u64,
        name: Text,
        kind: KindName,
        ino: u64,
    },
    Extent {
        ino: u64,
        #[serde(flatten)]
        extent: ExtentFields,
    },
    HardLink {
        ino: u64,
        dir: u64,
        name: Text,
    },
    Inode(Box<InodeFields>),
    NextIno {
        ino: u64,
    },
    Orphan {
        ino: u64,
    },
    QuotaCount {
        count: u64,
    },
    Quota {
        dir: u64,
        bytes: Option<u64>,
        files: Option<u64>,
        bytes_used: i64,
        files_used: i64,
    },
    ObjectUses {
        ino: u64,
        key: Text,
        extents: u64,
    },
    SetGroup {
        dir: u64,
        gid: u64,
    },
    Tree {
        dir: u64,
        top: u64,
    },
    WaitingExport {
        ino: u64,
        change: u64,
    },
    Xattr {
        ino: u64,
        name: Text,
        value: Text,
    },
    Batch {
        dir: u64,
        /// The first leased inode number, which identifies the batch, and the number after the last.
        lease: (u64, u64),
        began: i64,
        at: (u64, u64),
        outcome: Option<OutcomeFields>,
    },
    RefusedOp {
        batch: u64,
        index: u64,
        op: Text,
        why: String,
        kept: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutcomeFields {
    merged: i64,
    accepted: u64,
    refused: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KindName {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExtentFields {
    offset: u64,
    len: u64,
    object_offset: u64,
    object: StoredFields,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredFields {
    /// The object's key; none if it follows from the file's path.
    key: Option<Text>,
    etag: String,
    version: Option<String>,
    last_modified: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InodeFields {
    ino: u64,
    kind: KindName,
    mode: u16,
    uid: u32,
    gid: u32,
    nlink: u32,
    rdev: u32,
    size_bytes: u64,
    mtime: i64,
    ctime: i64,
    atime: i64,
    btime: i64,
    /// Number of a mount, and nanoseconds since its start.
    observed_at: (u64, u64),
    exact: bool,
    /// Directory and name of the primary name.
    home: Option<(u64, Text)>,
    target: Option<Text>,
    content: ContentFields,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum ContentFields {
    /// All extents.
    Extents(Vec<ExtentFields>),
    /// The extents are records of their own; of an inode without summary only their number is known.
    Rows { extents: u64, summary: Option<SummaryFields> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SummaryFields {
    data_bytes: u64,
    at_path: u64,
    object: StoredFields,
    fingerprint: String,
}

impl Record {
    /// Converts a record of an engine.
    pub(super) fn of(key: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
        let ino = || schema::ino_of(key).map(|ino| ino.0);
        let name = || Ok::<_, DecodeError>(Text(schema::name_of(key)?.as_bytes().to_vec()));
        let unknown = DecodeError::Tag { what: "a key", found: key.first().copied().unwrap_or_default() };
        Ok(match key.first().ok_or(DecodeError::Truncated)? {
            b'D' => {
                let Dentry { kind, ino: target } = decode_dentry(value)?;
                Self::Dentry { dir: ino()?, name: name()?, kind: kind.into(), ino: target.0 }
            }
            b'E' => {
                let extent = decode_extent(schema::offset_of(key)?, value)?;
                Self::Extent { ino: ino()?, extent: (&extent).into() }
            }
            b'H' => {
                let (dir, name) = schema::link_of(key)?;
                Self::HardLink { ino: ino()?, dir: dir.0, name: Text(name.as_bytes().to_vec()) }
            }
            b'I' => Self::Inode(Box::new(decode_inode(Ino(ino()?), value)?.into())),
            b'N' => Self::NextIno { ino: decode_number(value)? },
            b'O' => Self::Orphan { ino: ino()? },
            b'Q' if key.len() == 1 => Self::QuotaCount { count: decode_number(value)? },
            b'Q' => {
                let Quota { limits, used } = decode_quota(value)?;
                let (bytes, files) = (limits.bytes, limits.files);
                Self::Quota { dir: ino()?, bytes, files, bytes_used: used.bytes, files_used: used.files }
            }
            b'R' => {
                let object = Text(schema::object_of(key)?.as_bytes().to_vec());
                Self::ObjectUses { ino: ino()?, key: object, extents: decode_number(value)? }
            }
            b'S' => Self::SetGroup { dir: ino()?, gid: decode_number(value)? },
            b'T' => Self::Tree { dir: ino()?, top: decode_number(value)? },
            b'W' => Self::WaitingExport { ino: ino()?, change: decode_number(value)? },
            b'X' => Self::Xattr {
                ino: ino()?,
                name: Text(schema::xattr_of(key)?.to_vec()),
                value: Text(value.to_vec()),
            },
            b'Z' => match schema::batch_of(key)? {
                (_, None) => decode_batch(value)?.into(),
                (batch, Some(index)) => {
                    let RefusedOp { op, why, kept } = decode_refused_op(value)?;
                    let (op, kept) = (Text(op.to_vec()), kept.map(|ino| ino.0));
                    Self::RefusedOp { batch: batch.0, index, op, why: why.into(), kept }
                }
            },
            _ => return Err(unknown),
        })
    }

    /// Converts to a record of an engine: key and value.
    pub(super) fn into_row(self) -> Result<(Vec<u8>, Vec<u8>), DecodeError> {
        Ok(match self {
            Self::Dentry { dir, name, kind, ino } => {
                let dentry = Dentry { kind: kind.into(), ino: Ino(ino) };
                (schema::dentry(Ino(dir), &name.into_name()?), encode_dentry(dentry))
            }
            Self::Extent { ino, extent } => {
                let extent = Extent::try_from(extent)?;
                (schema::extent(Ino(ino), extent.offset), encode_extent(&extent))
            }
            Self::HardLink { ino, dir, name } => {
                (schema::hard_link(Ino(ino), Ino(dir), &name.into_name()?), Vec::new())
            }
            Self::Inode(fields) => {
                let inode = Inode::try_from(*fields)?;
                (schema::inode(inode.ino), encode_inode(&inode))
            }
            Self::NextIno { ino } => (schema::next_ino(), encode_number(ino)),
            Self::Orphan { ino } => (schema::orphan(Ino(ino)), Vec::new()),
            Self::QuotaCount { count } => (schema::quotas_set(), encode_number(count)),
            Self::Quota { dir, bytes, files, bytes_used, files_used } => {
                let used = Usage { bytes: bytes_used, files: files_used };
                (schema::quota(Ino(dir)), encode_quota(&Quota { limits: Limits { bytes, files }, used }))
            }
            Self::ObjectUses { ino, key, extents } => {
                (schema::object_uses(Ino(ino), &key.into_key()?), encode_number(extents))
            }
            Self::SetGroup { dir, gid } => (schema::set_group(Ino(dir)), encode_number(gid)),
            Self::Tree { dir, top } => (schema::tree(Ino(dir)), encode_number(top)),
            Self::WaitingExport { ino, change } => (schema::waiting_export(Ino(ino)), encode_number(change)),
            Self::Xattr { ino, name, value } => (schema::xattr(Ino(ino), &name.0), value.0),
            Self::Batch { dir, lease, began, at, outcome } => {
                let batch = Batch {
                    dir: Ino(dir),
                    lease: Ino(lease.0)..Ino(lease.1),
                    began: Timestamp(began),
                    at: Moment { mount: at.0, nanos: at.1 },
                    outcome: outcome.map(Into::into),
                };
                (schema::batch(batch.id()), encode_batch(&batch))
            }
            Self::RefusedOp { batch, index, op, why, kept } => {
                let refused = RefusedOp { op: op.0.into(), why: why.into(), kept: kept.map(Ino) };
                (schema::refused_op(BatchId(batch), index), encode_refused_op(&refused))
            }
        })
    }
}

impl From<Batch> for Record {
    fn from(batch: Batch) -> Self {
        let Batch { dir, lease, began, at, outcome } = batch;
        let outcome = outcome.map(|BatchOutcome { merged, accepted, refused }| OutcomeFields {
            merged: merged.0,
            accepted,
            refused,
        });
        let (lease, at) = ((lease.start.0, lease.end.0), (at.mount, at.nanos));
        Self::Batch { dir: dir.0, lease, began: began.0, at, outcome }
    }
}

impl From<OutcomeFields> for BatchOutcome {
    fn from(fields: OutcomeFields) -> Self {
        let OutcomeFields { merged, accepted, refused } = fields;
        Self { merged: Timestamp(merged), accepted, refused }
    }
}

impl Text {
    fn into_name(self) -> Result<Name, DecodeError> {
        Name::new(&self.0).map_err(|_| DecodeError::Field("an invalid name"))
    }

    fn into_key(self) -> Result<ObjectKey, DecodeError> {
        ObjectKey::new(self.0).map_err(|_| DecodeError::Field("an invalid object key"))
    }
}

impl From<Kind> for KindName {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File => Self::File,
            Kind::Directory => Self::Directory,
            Kind::Symlink => Self::Symlink,
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::CharDevice => Self::CharDevice,
            Kind::BlockDevice => Self::BlockDevice,
        }
    }
}

impl From<KindName> for Kind {
    fn from(kind: KindName) -> Self {
        match kind {
            KindName::File => Self::File,
            KindName::Directory => Self::Directory,
            KindName::Symlink => Self::Symlink,
            KindName::Fifo => Self::Fifo,
            KindName::Socket => Self::Socket,
            KindName::CharDevice => Self::CharDevice,
            KindName::BlockDevice => Self::BlockDevice,
        }
    }
}

impl From<&Extent> for ExtentFields {
    fn from(extent: &Extent) -> Self {
        let Extent { offset, len, object, object_offset } = extent;
        Self { offset: *offset, len: *len, object_offset: *object_offset, object: object.into() }
    }
}

impl TryFrom<ExtentFields> for Extent {
    type Error = DecodeError;
    fn try_from(fields: ExtentFields) -> Result<Self, DecodeError> {
        let ExtentFields { offset, len, object_offset, object } = fields;
        Ok(Self { offset, len, object_offset, object: object.try_into()? })
    }
}

impl From<&Stored> for StoredFields {
    fn from(stored: &Stored) -> Self {
        Self {
            key: stored.key.as_ref().map(|key| Text(key.as_bytes().to_vec())),
            etag: stored.etag.as_str().to_owned(),
            version: stored.version.as_ref().map(|version| version.to_string()),
            last_modified: stored.last_modified.map(|time| time.0),
        }
    }
}

impl TryFrom<StoredFields> for Stored {
    type Error = DecodeError;
    fn try_from(fields: StoredFields) -> Result<Self, DecodeError> {
        Ok(Self {
            key: fields.key.map(Text::into_key).transpose()?,
            etag: ETag::new(&fields.etag),
            version: fields.version.map(Into::into),
            last_modified: fields.last_modified.map(Timestamp),
        })
    }
}

impl From<InodeRecord> for InodeFields {
    fn from(record: InodeRecord) -> Self {
        let InodeRecord { inode, unsummed } = record;
        let content = match &inode.content {
            _ if unsummed > 0 => ContentFields::Rows { extents: unsummed as u64, summary: None },
            Content::Inline(extents) => ContentFields::Extents(extents.iter().map(Into::into).collect()),
            Content::Rows(summary) => {
                ContentFields::Rows { extents: summary.extents, summary: Some(summary.into()) }
            }
        };
        Self {
            ino: inode.ino.0,
            kind: inode.kind.into(),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            rdev: inode.rdev,
            size_bytes: inode.size_bytes,
            mtime: inode.mtime.0,
            ctime: inode.ctime.0,
            atime: inode.atime.0,
            btime: inode.btime.0,
            observed_at: (inode.observed_at.mount, inode.observed_at.nanos),
            exact: inode.exact,
            home: inode.home.map(|(dir, name)| (dir.0, Text(name.as_bytes().to_vec()))),
            target: inode.target.map(|target| Text(target.to_vec())),
            content,
        }
    }
}

impl TryFrom<InodeFields> for Inode {
    type Error = DecodeError;
    fn try_from(fields: InodeFields) -> Result<Self, DecodeError> {
        let home = |(dir, name): (u64, Text)| Ok::<_, DecodeError>((Ino(dir), name.into_name()?));
        Ok(Self {
            ino: Ino(fields.ino),
            kind: fields.kind.into(),
            mode: fields.mode,
            uid: fields.uid,
            gid: fields.gid,
            nlink: fields.nlink,
            rdev: fields.rdev,
            size_bytes: fields.size_bytes,
            mtime: Timestamp(fields.mtime),
            ctime: Timestamp(fields.ctime),
            atime: Timestamp(fields.atime),
            btime: Timestamp(fields.btime),
            observed_at: Moment { mount: fields.observed_at.0, nanos: fields.observed_at.1 },
            exact: fields.exact,
            home: fields.home.map(home).transpose()?,
            target: fields.target.map(|target| target.0.into()),
            content: fields.content.try_into()?,
        })
    }
}

impl TryFrom<ContentFields> for Content {
    type Error = DecodeError;
    fn try_from(fields: ContentFields) -> Result<Self, DecodeError> {
        match fields {
            ContentFields::Extents(extents) => {
                extents.into_iter().map(Extent::try_from).collect::<Result<_, _>>().map(Content::Inline)
            }
            ContentFields::Rows { extents, summary: Some(summary) } => {
                Ok(Content::Rows(summary.into_summary(extents)?))
            }
            ContentFields::Rows { extents, summary: None } => Ok(Content::Rows(Summary {
                extents,
                data_bytes: 0,
                at_path: 0,
                object: Stored { key: None, etag: ETag::new(""), version: None, last_modified: None },
                fingerprint: Fingerprint([0; Fingerprint::BYTES]),
                has_counted_uses: false,
            })),
        }
    }
}

impl From<&Summary> for SummaryFields {
    fn from(summary: &Summary) -> Self {
        Self {
            data_bytes: summary.data_bytes,
            at_path: summary.at_path,
            object: (&summary.object).into(),
            fingerprint: store::hex(&summary.fingerprint.0),
        }
    }
}

impl SummaryFields {
    fn into_summary(self, extents: u64) -> Result<Summary, DecodeError> {
        let invalid = || DecodeError::Field("an invalid fingerprint");
        let digits = Some(&self.fingerprint).filter(|text| text.len() == 2 * Fingerprint::BYTES);
        let number = digits.and_then(|text| u128::from_str_radix(text, 16).ok()).ok_or_else(invalid)?;
        Ok(Summary {
            extents,
            data_bytes: self.data_bytes,
            at_path: self.at_path,
            object: self.object.try_into()?,
            fingerprint: Fingerprint(number.to_be_bytes()),
            has_counted_uses: true,
        })
    }
}
