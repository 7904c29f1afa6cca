//! Flags that several commands share. Each flag is also a `key=value` option of `mount -o`.

use crate::bucket::Account;
use crate::command::units;
use clap::{Args, ValueEnum};
use events::Dialect;
use std::path::PathBuf;
use std::time::Duration;
use views::part::Part;

/// Flags for reaching the object store. Secrets are never flags: `ps` shows flags to everybody.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Object store")]
pub(crate) struct StoreFlags {
    /// URL of an S3-compatible server, like http://127.0.0.1:9000 (default: AWS)
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint_url: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// Profile in the AWS credentials and config files
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// File whose first line is ACCESS-KEY:SECRET-KEY, readable by its owner only
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub(crate) access_key_file: Option<PathBuf>,
    /// Send requests without a signature (public buckets)
    #[arg(long)]
    pub(crate) no_sign_request: bool,
    /// Put the bucket in the URL's path (the default with --endpoint-url)
    #[arg(long, conflicts_with = "virtual_host_style")]
    pub(crate) force_path_style: bool,
    /// Put the bucket in the URL's host name
    #[arg(long)]
    pub(crate) virtual_host_style: bool,
    /// PEM file of certificate authorities to trust in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,
    /// Open a pool of drives although some are missing; access to what may be on a missing drive fails
    #[arg(long)]
    pub(crate) degraded: bool,
    /// How long to retry a failing request before reporting an error
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    pub(crate) retry_timeout: Duration,
}

/// Flags for opening a volume.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct VolumeFlags {
    /// Directory for the lock, the control socket, the log and the cache
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Limit on metadata and data held in memory; a mounted drive takes half of it
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory_limit)]
    pub(crate) memory_limit: u64,
    /// How long cached metadata of a name or an object stays valid
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration)]
    pub(crate) metadata_ttl: Duration,
    /// Rate of background LIST requests that compare known names with the bucket; 0 turns them off
    #[arg(long, value_name = "RATE", default_value = "6/m", value_parser = units::interval)]
    pub(crate) list_budget: Duration,
    /// Store changes of an open file this long after they are written, so that other clients see it grow; 0: only at
    /// fsync and close
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    pub(crate) publish_interval: Duration,
    /// Source of attributes: object headers (exact) or listings (fast)
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) attributes: Attributes,
    /// When reads update access times
    #[arg(long, value_name = "WHEN", default_value = "relatime")]
    pub(crate) atime: Atime,
    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Owner of objects without owner metadata (default: the mounting user)
    #[arg(long)]
    pub(crate) uid: Option<u32>,
    /// Group of objects without group metadata (default: the mounting user's group)
    #[arg(long)]
    pub(crate) gid: Option<u32>,
    /// Permissions of objects without mode metadata
    #[arg(long, value_name = "OCTAL", default_value = "644", value_parser = units::mode)]
    pub(crate) file_mode: u16,
    /// Permissions of directories without mode metadata
    #[arg(long, value_name = "OCTAL", default_value = "755", value_parser = units::mode)]
    pub(crate) dir_mode: u16,
    /// Size of the first parts of a multipart upload; later parts are larger
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = part_size)]
    pub(crate) part_size: u64,
    /// Data to cache between programs and the bucket
    #[arg(long, value_name = "KIND", default_value = "full", value_enum)]
    pub(crate) cache: Cache,
    /// Coordinate, by objects in the bucket, with other machines that mount it with --shared too; file locks are
    /// refused
    #[arg(long, conflicts_with = "writeback")]
    pub(crate) shared: bool,
    /// Acknowledge writes once they are in a log on the local disk, and upload them in the background
    ///
    /// With --read-only, changes already in the log are still uploaded, as they were acknowledged; programs cannot
    /// change anything.
    #[arg(long)]
    pub(crate) writeback: bool,
    /// Size of the write-back log above which writers wait
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = units::size_bytes)]
    pub(crate) writeback_limit: u64,
    /// Mount although disk damage destroyed names in the write-back log; names from before the damage are used
    #[arg(long, requires = "writeback")]
    pub(crate) accept_lost_names: bool,
    /// Which side keeps the name when an object changes in the bucket while its file is written here; stored in the
    /// volume
    #[arg(long, value_name = "POLICY")]
    pub(crate) conflict: Option<Conflict>,
    /// How long to wait for uploads after a termination signal
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
}

/// Flags of the kernel's mount.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mount")]
pub(crate) struct MountFlags {
    /// Mount the volume on this directory too; all its mount points show the same files at any time (repeatable)
    #[arg(long, value_name = "DIR")]
    pub(crate) also: Vec<PathBuf>,
    /// Allow access by other users, not only by the mounting user
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Mount over a directory that is not empty
    #[arg(long)]
    pub(crate) nonempty: bool,
    /// Refuse to run programs from the mount
    #[arg(long)]
    pub(crate) noexec: bool,
    /// Honor set-user-id and set-group-id bits of programs (root only)
    #[arg(long)]
    pub(crate) allow_suid: bool,
    /// Allow device files to be opened as devices (root only)
    #[arg(long)]
    pub(crate) allow_dev: bool,
}

/// Flags for views.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Views")]
pub(crate) struct ViewFlags {
    /// YAML file of rulesets; each is shown as a directory, in .views of the volume or, without a volume, in DIR
    /// itself
    #[arg(long, value_name = "FILE")]
    pub(crate) views: Option<PathBuf>,
    /// With --allow-other, let other users into .views too; files can be reached there whatever the permissions of
    /// the directories that contain them
    #[arg(long, requires_all = ["views", "allow_other"])]
    pub(crate) views_for_all: bool,
    #[command(flatten)]
    pub(crate) events: EventFlags,
    #[command(flatten)]
    pub(crate) handler: HandlerFlags,
}

/// Flags for events.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct EventFlags {
    /// Source of events, like webhook://ADDRESS:PORT/PATH or beanstalkd://HOST/TUBE (repeatable); ACCOUNT=URL for the
    /// buckets of another account
    #[arg(long, value_name = "[ACCOUNT=]URL")]
    pub(crate) events: Vec<SourceAddress>,
    /// Handle one part of all objects, like 2/3; each other part needs a handler of its own that also receives all
    /// events
    #[arg(long, value_name = "PART")]
    pub(crate) part: Option<Part>,
    /// The sources report reads of objects, so that rulesets may use access times
    #[arg(long)]
    pub(crate) access_events: bool,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
}

/// An event source, and the account whose buckets it reports on.
#[derive(Debug, Clone)]
pub(crate) struct SourceAddress {
    pub(crate) account: Account,
    pub(crate) url: String,
}

impl From<&str> for SourceAddress {
    fn from(text: &str) -> Self {
        // A URL may contain `=` after its scheme.
        let named = text.split_once('=').filter(|(account, _)| !account.contains("://"));
        let (account, url) = named.map_or((None, text), |(account, url)| (Some(account.to_owned()), url));
        Self { account, url: url.to_owned() }
    }
}

/// Flags for reading event sources.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct SourceFlags {
    /// Format of events: auto, s3, eventbridge, sns, gcs or openio
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_dialect)]
    pub(crate) event_dialect: Dialect,
    /// File whose first line is the secret that senders to a webhook must present, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) event_secret: Option<PathBuf>,
}

fn parse_dialect(name: &str) -> Result<Dialect, String> {
    let names = || Dialect::ALL.map(Dialect::name).join(", ");
    Dialect::named(name).ok_or_else(|| format!("use one of {}", names()))
}

/// Flags for reaching a remote event handler, which serves many clients.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Event handler")]
pub(crate) struct HandlerFlags {
    /// URL of an event handler, as `tenon events serve` prints it (repeatable; if one does not answer, the next is
    /// asked); PART=URL for a handler of one part, like 2/3=http://HOST:9100
    #[arg(long, value_name = "[PART=]URL", value_parser = parse_handler)]
    pub(crate) handler: Vec<HandlerAddress>,
    /// File whose first line is the handler's token, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "handler")]
    pub(crate) handler_token: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for the handler in addition to the system's
    #[arg(long, value_name = "FILE", requires = "handler")]
    pub(crate) handler_ca_bundle: Option<PathBuf>,
}

/// URL of an event handler, and the part of all objects that it handles.
#[derive(Debug, Clone)]
pub(crate) struct HandlerAddress {
    pub(crate) part: Part,
    pub(crate) url: String,
}

fn parse_handler(text: &str) -> Result<HandlerAddress, String> {
    let named = text.split_once('=').map(|(part, url)| Ok((part.parse::<Part>()?, url)));
    let (part, url) = match named {
        Some(Ok(named)) => named,
        // A URL may contain `=` too.
        Some(Err(error)) if !text.starts_with("http") => return Err(error),
        _ => (Part::ALL, text),
    };
    Ok(HandlerAddress { part, url: url.to_owned() })
}

/// Flags of the S3 endpoint.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "S3 endpoint")]
pub(crate) struct EndpointFlags {
    /// Name of the bucket (default: the volume's name)
    #[arg(long, value_name = "NAME", conflicts_with = "directories_as_buckets")]
    pub(crate) bucket: Option<String>,
    /// Serve each directory at the volume's root as a bucket, instead of the whole volume as one bucket
    #[arg(long)]
    pub(crate) directories_as_buckets: bool,
    /// TOML file of users, readable by its owner only; reloaded when it changes (default: one user, created at the
    /// first start)
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// PEM file of the certificate chain, for https
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Domain of the endpoint, so that clients may name a bucket in the host, as BUCKET.NAME (repeatable)
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Vec<String>,
    /// Compute the MD5 of every object stored by a single request; on a drive it becomes the etag
    #[arg(long)]
    pub(crate) md5: bool,
    /// Declare that everything stored is encrypted at rest: requests for AES256 are accepted instead of refused
    #[arg(long)]
    pub(crate) encrypted_at_rest: bool,
    /// Maximum concurrent requests; one user gets at most 7/8 of what others leave, further requests are answered
    /// with SlowDown
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) max_requests: usize,
    /// Write a line for each request to this file, or to standard error with "-"; SIGHUP reopens the file
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// Format of a line in the access log
    #[arg(long, value_name = "FORMAT", default_value = "text", requires = "access_log")]
    pub(crate) access_log_format: LogFormat,
    /// Receiver of events; notification configurations name it as arn:tenon:sqs::NAME:webhook (repeatable)
    #[arg(long, value_name = "NAME=URL", value_parser = parse_named_value)]
    pub(crate) webhook: Vec<NamedValue>,
    /// File whose first line is a receiver's token, readable by its owner only (default: the variable
    /// TENON_WEBHOOK_TOKEN_NAME)
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_named_value)]
    pub(crate) webhook_token: Vec<NamedValue>,
}

/// The value of a `NAME=VALUE` flag about a webhook receiver.
#[derive(Debug, Clone)]
pub(crate) struct NamedValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Maximum length of a receiver's name, in bytes.
const NAME_BYTES_MAX: usize = 32;

fn parse_named_value(text: &str) -> Result<NamedValue, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_known) {
        return Err("write NAME=VALUE; NAME has 1 to 32 lower-case letters, digits and '-'".to_owned());
    }
    Ok(NamedValue { name: name.to_owned(), value: value.to_owned() })
}

/// Policy for conflicts: which side keeps the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflict {
    /// The bucket's object keeps the name; close fails, and the file's bytes are kept under lost+found.
    BucketWins,
    /// The file keeps the name; the bucket's bytes are kept under lost+found.
    FileWins,
    /// The bucket's object keeps the name; the file continues under another name in the same directory.
    KeepBoth,
    /// Like bucket-wins, and the path refuses writes until the conflict is resolved.
    Fail,
}

impl From<Conflict> for vfs::ConflictPolicy {
    fn from(policy: Conflict) -> Self {
        match policy {
            Conflict::BucketWins => Self::BucketWins,
            Conflict::FileWins => Self::FileWins,
            Conflict::KeepBoth => Self::KeepBoth,
            Conflict::Fail => Self::Fail,
        }
    }
}

/// Source of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attributes {
    /// Headers in volumes that Tenon has written to, otherwise listings.
    Auto,
    /// Exact, with one HEAD per object.
    Headers,
    /// Size and time from the listing, defaults for the rest.
    Listing,
}

/// Data to cache between programs and the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Reads are cached in memory; writes are collected until close or fsync.
    Full,
    /// Nothing is cached: a write returns when its bytes are stored, a read asks the bucket.
    None,
}

/// When reads update access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Atime {
    /// On every read that reaches Tenon; the kernel's page cache is not kept across opens.
    Strict,
    /// If the access time is older than the last change, or than a day.
    Relatime,
    /// Never.
    Off,
}

/// Minimum memory limit. Less could not hold the parts of one file and the metadata tables.
const MEMORY_LIMIT_MIN: u64 = 64 << 20;
/// Sizes that S3 allows for all parts but the last (S3 User Guide, "Multipart upload limits").
const PART_SIZES: std::ops::RangeInclusive<u64> = 5 << 20..=5 << 30;

fn memory_limit(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if bytes < MEMORY_LIMIT_MIN => Err("the memory limit must be at least 64MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn part_size(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if PART_SIZES.contains(&bytes) => Ok(bytes),
        _ => Err("the part size must be between 5MiB and 5GiB".to_owned()),
    }
}

/// Flags of logging.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogFlags {
    /// Log level: error, warn, info, debug or trace, or a filter like "info,fuse=debug"
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log_level: String,
    /// Log to this file instead of the state directory (or standard error with -f)
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Format of a line in the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}
