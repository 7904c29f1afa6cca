//! The flags that several commands share. Every one of them is also a `key=value` of `mount -o`.

use crate::bucket::Account;
use crate::units;
use clap::{Args, ValueEnum};
use events::Dialect;
use std::path::PathBuf;
use std::time::Duration;
use views::part::Part;

/// How to reach the object store. Secrets are never flags: `ps` shows those to everybody.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Object store")]
pub(crate) struct StoreFlags {
    /// Server of an S3-compatible store, like http://127.0.0.1:9000 (AWS if not given)
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint_url: Option<String>,
    /// Region the bucket lives in
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// Section of the AWS credentials and config files
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
    /// PEM file of certificate authorities to trust besides the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,
    /// Have what there is of a pool of drives some of which are missing; what may be on those is an error
    #[arg(long)]
    pub(crate) degraded: bool,
    /// How long a failing request is repeated before it becomes an error
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::duration)]
    pub(crate) retry_timeout: Duration,
}

/// How a volume is opened.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Volume")]
pub(crate) struct VolumeFlags {
    /// Where the lock, the control socket, the log and the cache live
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Bound on metadata and data held in memory; of a drive that is mounted, half is the drive's
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = memory_limit)]
    pub(crate) memory_limit: u64,
    /// How long what is known of a name or an object is believed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::duration)]
    pub(crate) metadata_ttl: Duration,
    /// How often the bucket is asked in the background whether it still has what is known; 0 is never
    #[arg(long, value_name = "RATE", default_value = "6/m", value_parser = units::each)]
    pub(crate) list_budget: Duration,
    /// Store what is written to a file that stays open so long after, so that others see it grow; 0 is at fsync and close only
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::duration)]
    pub(crate) publish_interval: Duration,
    /// Where attributes come from: object headers (exact) or listings (fast)
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) attributes: Attributes,
    /// When reading changes access times
    #[arg(long, value_name = "WHEN", default_value = "relatime")]
    pub(crate) atime: Atime,
    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Owner of objects that do not say (default: who mounts)
    #[arg(long)]
    pub(crate) uid: Option<u32>,
    /// Group of objects that do not say (default: that of who mounts)
    #[arg(long)]
    pub(crate) gid: Option<u32>,
    /// Permissions of objects that do not say
    #[arg(long, value_name = "OCTAL", default_value = "644", value_parser = units::mode)]
    pub(crate) file_mode: u16,
    /// Permissions of directories that do not say
    #[arg(long, value_name = "OCTAL", default_value = "755", value_parser = units::mode)]
    pub(crate) dir_mode: u16,
    /// Size of the first parts of a large object; later ones grow
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = part_size)]
    pub(crate) part_size: u64,
    /// What is kept between a program and the bucket
    #[arg(long, value_name = "KIND", default_value = "full", value_enum)]
    pub(crate) cache: Cache,
    /// Other machines mount this bucket too, with this flag: agree with them in it, and refuse locks
    #[arg(long, conflicts_with = "writeback")]
    pub(crate) shared: bool,
    /// Acknowledge writes when they are in a log on this machine's disk; the bucket has them soon after
    ///
    /// With --read-only what the log holds goes up all the same, as it was acknowledged; programs change nothing.
    #[arg(long)]
    pub(crate) writeback: bool,
    /// Writers wait while the write-back log is longer
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = units::size_bytes)]
    pub(crate) writeback_limit: u64,
    /// Mount although damage took names from the write-back log, with the names from before it
    #[arg(long, requires = "writeback")]
    pub(crate) accept_lost_names: bool,
    /// Whose bytes have the name where an object changes in the bucket while its file is written here; noted in the volume
    #[arg(long, value_name = "POLICY")]
    pub(crate) conflict: Option<Conflict>,
    /// How long a termination signal waits for uploads
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
}

/// How the kernel shows it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mount")]
pub(crate) struct MountFlags {
    /// Mount it on this directory too; all show the same at any time (repeatable)
    #[arg(long, value_name = "DIR")]
    pub(crate) also: Vec<PathBuf>,
    /// Let other users in, not only the one who mounts
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Mount over a directory that is not empty
    #[arg(long)]
    pub(crate) nonempty: bool,
    /// Refuse to run programs from the mount
    #[arg(long)]
    pub(crate) noexec: bool,
    /// Obey set-user-id and set-group-id bits of programs (root only)
    #[arg(long)]
    pub(crate) allow_suid: bool,
    /// Open device files as devices (root only)
    #[arg(long)]
    pub(crate) allow_dev: bool,
}

/// Which directories are views.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Views")]
pub(crate) struct ViewFlags {
    /// YAML file of rulesets, each a directory: in .views of the volume, or without a volume in DIR itself
    #[arg(long, value_name = "FILE")]
    pub(crate) views: Option<PathBuf>,
    /// With --allow-other, let other users into .views, where files can be reached without passing through the directories
    /// that they lie in, whatever the permissions of these
    #[arg(long, requires_all = ["views", "allow_other"])]
    pub(crate) views_for_all: bool,
    #[command(flatten)]
    pub(crate) events: EventFlags,
    #[command(flatten)]
    pub(crate) handler: HandlerFlags,
}

/// What an event handler hears.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct EventFlags {
    /// Source of events, like webhook://ADDRESS:PORT/PATH or beanstalkd://HOST/TUBE (repeatable); of another account's
    /// buckets as ACCOUNT=URL
    #[arg(long, value_name = "[ACCOUNT=]URL")]
    pub(crate) events: Vec<SourceAt>,
    /// Keep only a part of all objects, like 2/3: other handlers keep the others, each with its own sources of all events
    #[arg(long, value_name = "PART")]
    pub(crate) part: Option<Part>,
    /// Events say when objects are read, so that rulesets may ask for it
    #[arg(long)]
    pub(crate) access_events: bool,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
}

/// Where events come from, and of whose buckets.
#[derive(Debug, Clone)]
pub(crate) struct SourceAt {
    pub(crate) account: Account,
    pub(crate) url: String,
}

impl From<&str> for SourceAt {
    fn from(text: &str) -> Self {
        // A URL may have the sign, too, behind its scheme.
        let named = text.split_once('=').filter(|(account, _)| !account.contains("://"));
        let (account, url) = named.map_or((None, text), |(account, url)| (Some(account.to_owned()), url));
        Self { account, url: url.to_owned() }
    }
}

/// What is to be known of sources of events.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Events")]
pub(crate) struct SourceFlags {
    /// How events are written: auto, s3, eventbridge, sns, gcs or openio
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = dialect)]
    pub(crate) event_dialect: Dialect,
    /// File whose first line a webhook's sender must know, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) event_secret: Option<PathBuf>,
}

fn dialect(name: &str) -> Result<Dialect, String> {
    let names = || Dialect::ALL.map(Dialect::name).join(", ");
    Dialect::named(name).ok_or_else(|| format!("there are {}", names()))
}

/// Where an event handler is that serves many clients.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Event handler")]
pub(crate) struct HandlerFlags {
    /// An event handler, where `tenon events serve` says it is (repeatable: where one does not answer the next is asked);
    /// with handlers of parts each as PART=URL, like 2/3=http://HOST:9100
    #[arg(long, value_name = "[PART=]URL", value_parser = handler_at)]
    pub(crate) handler: Vec<HandlerAt>,
    /// File whose first line is the handler's token, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "handler")]
    pub(crate) handler_token: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for the handler besides the system's
    #[arg(long, value_name = "FILE", requires = "handler")]
    pub(crate) handler_ca_bundle: Option<PathBuf>,
}

/// Where a handler is, and of which part of all objects it is.
#[derive(Debug, Clone)]
pub(crate) struct HandlerAt {
    pub(crate) part: Part,
    pub(crate) url: String,
}

fn handler_at(text: &str) -> Result<HandlerAt, String> {
    let named = text.split_once('=').map(|(part, url)| Ok((part.parse::<Part>()?, url)));
    let (part, url) = match named {
        Some(Ok(named)) => named,
        // An address may have the sign, too.
        Some(Err(error)) if !text.starts_with("http") => return Err(error),
        _ => (Part::ALL, text),
    };
    Ok(HandlerAt { part, url: url.to_owned() })
}

/// How it is served as objects.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "S3 endpoint")]
pub(crate) struct EndpointFlags {
    /// Name of the bucket (default: as the volume is called)
    #[arg(long, value_name = "NAME", conflicts_with = "directories_as_buckets")]
    pub(crate) bucket: Option<String>,
    /// Serve the directories at the volume's root as buckets, instead of the volume as one
    #[arg(long)]
    pub(crate) directories_as_buckets: bool,
    /// TOML file of users, readable by its owner only, read anew when it changes (default: one user, made at the first start)
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// PEM file of the certificate chain, for https
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Domain below which a bucket's name is the first part of the host
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Vec<String>,
    /// Compute the MD5 of every object that is stored by one call, as its etag where it lies on a drive
    #[arg(long)]
    pub(crate) md5: bool,
    /// State that all that is stored is encrypted at rest: requests for AES256 are accepted instead of refused
    #[arg(long)]
    pub(crate) encrypted_at_rest: bool,
    /// Requests answered at the same time, of one user at most 7/8 of what others leave; more are told to slow down
    #[arg(long, value_name = "COUNT", default_value = "256")]
    pub(crate) max_requests: usize,
    /// Write a line for each request to this file, or to standard error with "-"; SIGHUP opens the file anew
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// How a line of the access log looks
    #[arg(long, value_name = "FORMAT", default_value = "text", requires = "access_log")]
    pub(crate) access_log_format: LogFormat,
    /// Receiver of events, to which notification configurations send as arn:tenon:sqs::NAME:webhook
    #[arg(long, value_name = "NAME=URL", value_parser = name_and)]
    pub(crate) webhook: Vec<NameAnd>,
    /// File whose first line is a receiver's token, readable by its owner only (default: in TENON_WEBHOOK_TOKEN_NAME)
    #[arg(long, value_name = "NAME=FILE", value_parser = name_and)]
    pub(crate) webhook_token: Vec<NameAnd>,
}

/// Something that is said of a receiver.
#[derive(Debug, Clone)]
pub(crate) struct NameAnd {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// The longest name of a receiver.
const NAME_BYTES_MAX: usize = 32;

fn name_and(text: &str) -> Result<NameAnd, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_known) {
        return Err(
            "give a name of up to 32 lower-case letters, digits and '-', '=', and the value".to_owned()
        );
    }
    Ok(NameAnd { name: name.to_owned(), value: value.to_owned() })
}

/// Whose bytes have the name after a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflict {
    /// The bucket's: close fails, the file's bytes are kept under lost+found.
    BucketWins,
    /// The file's: the bucket's bytes are kept under lost+found.
    FileWins,
    /// The bucket's; the file goes on under another name beside it.
    KeepBoth,
    /// As bucket-wins, and the path takes no writes until the conflict is resolved.
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

/// Where attributes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attributes {
    /// Headers where Tenon has written before, else listings.
    Auto,
    /// Exact, by one HEAD per object.
    Headers,
    /// Size and time from the listing, defaults for the rest.
    Listing,
}

/// What is kept between a program and the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// What was read, in memory; what was written, until a close or an fsync.
    Full,
    /// Nothing: a write returns when its bytes are stored, a read asks the bucket.
    None,
}

/// When reading changes access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Atime {
    /// Whenever a read reaches Tenon; the kernel's page cache is not kept across opens.
    Strict,
    /// When it is older than the last change, or than a day.
    Relatime,
    /// Never.
    Off,
}

/// Less does not hold one file's parts beside the tables.
const MEMORY_LIMIT_MIN: u64 = 64 << 20;
/// What S3 allows for every part but the last (S3 User Guide, "Multipart upload limits").
const PART_SIZES: std::ops::RangeInclusive<u64> = 5 << 20..=5 << 30;

fn memory_limit(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if bytes < MEMORY_LIMIT_MIN => Err("the memory limit is at least 64MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn part_size(text: &str) -> Result<u64, String> {
    match units::size_bytes(text)? {
        bytes if PART_SIZES.contains(&bytes) => Ok(bytes),
        _ => Err("a part has between 5MiB and 5GiB".to_owned()),
    }
}

/// What is logged, and where.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogFlags {
    /// error, warn, info, debug, trace, or a filter like "info,fuse=debug"
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log_level: String,
    /// Log here instead of the state directory (or standard error with -f)
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// How a line of the log looks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}
