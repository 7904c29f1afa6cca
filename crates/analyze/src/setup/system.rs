//! The systems to compare, and running instances of them.

use super::SetupError;
use super::loop_device::{Backing, FileSystem, LoopDevice, free_bytes};
use crate::model::{Naming, Region, Scope};
use crate::workload::Workload;
use harness::minio::READY;
use harness::{
    CleanupProcess, Error, MemoryLimit, Server, ServerSpec, drop_caches, file_error, free_address,
    run_program,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Clock, Entropy, ObjectStore, StoreError};
use store_s3::{Credentials, CredentialsSource, S3Buckets, S3Config};
use tokio::time::Instant;

/// Name of the bucket in every system.
pub(crate) const BUCKET: &str = "analyze";
const ACCESS_KEY: &str = "tenon-analyze";
/// Number of devices of a system with erasure coding.
const ERASURE_DEVICES: u64 = 4;
/// Number of parity devices of a system with erasure coding: MinIO's default for four devices, also used for the drive's array.
const PARITY_DEVICES: u64 = 2;

/// A storage node to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// MinIO with one drive on XFS.
    MinioXfs,
    /// MinIO with one drive on ext4.
    MinioExt4,
    /// MinIO with erasure coding over four devices with XFS.
    MinioErasure,
    /// Tenon's directory store behind its endpoint, on XFS.
    DirXfs,
    /// Tenon's directory store behind its endpoint, on ext4.
    DirExt4,
    /// Tenon's object drive on the raw device.
    Drive,
    /// Tenon's object drive with an MD5 of each object, as MinIO computes it.
    DriveMd5,
    /// Tenon's object drive on an array with as many devices and parity devices as [`System::MinioErasure`].
    DriveArray,
}

/// Interval at which MinIO removes replaced objects.
const MINIO_CLEANUP_INTERVAL: &str = "10s";

/// Minimum memory limit that `tenon serve` accepts.
const MEMORY_LIMIT_BYTES_MIN: u64 = 64 << 20;

/// The programs that run as servers, and their settings.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Path of MinIO, if it is installed.
    pub minio: Option<PathBuf>,
    /// Path of Tenon.
    pub tenon: PathBuf,
    /// Secret key of the servers' only user.
    pub secret: String,
    /// Reads the layout of a drive's device, which no server may have open. An error is one line.
    pub regions: fn(&Path) -> Result<Vec<Region>, String>,
}

/// A system with fresh devices and a running server. Dropping it removes everything.
#[derive(Debug)]
pub struct Running {
    system: System,
    server: Option<Server>,
    devices: Vec<LoopDevice>,
    mounts: Vec<PathBuf>,
    endpoint: String,
    secret: String,
    // Dropped last: it removes what the other fields refer to.
    cleanup: CleanupProcess,
}

impl System {
    /// All systems.
    pub const ALL: [Self; 8] = [
        Self::MinioXfs,
        Self::MinioExt4,
        Self::DirXfs,
        Self::DirExt4,
        Self::Drive,
        Self::DriveMd5,
        Self::MinioErasure,
        Self::DriveArray,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::MinioXfs => "minio-xfs",
            Self::MinioExt4 => "minio-ext4",
            Self::MinioErasure => "minio-erasure",
            Self::DirXfs => "dir-xfs",
            Self::DirExt4 => "dir-ext4",
            Self::Drive => "drive",
            Self::DriveMd5 => "drive-md5",
            Self::DriveArray => "drive-array",
        }
    }

    /// Returns the name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::MinioXfs => "MinIO on XFS",
            Self::MinioExt4 => "MinIO on ext4",
            Self::MinioErasure => "MinIO, 4 devices, 2 of them parity",
            Self::DirXfs => "Tenon's directory store on XFS",
            Self::DirExt4 => "Tenon's directory store on ext4",
            Self::Drive => "Tenon's drive",
            Self::DriveMd5 => "Tenon's drive, with MD5",
            Self::DriveArray => "Tenon's drive, 4 devices, 2 of them parity",
        }
    }

    /// Returns a short name for charts.
    pub fn short(self) -> &'static str {
        match self {
            Self::MinioXfs => "MinIO, XFS",
            Self::MinioExt4 => "MinIO, ext4",
            Self::MinioErasure => "MinIO, 4 devices",
            Self::DirXfs => "Directories, XFS",
            Self::DirExt4 => "Directories, ext4",
            Self::Drive => "Drive",
            Self::DriveMd5 => "Drive, MD5",
            Self::DriveArray => "Drive, 4 devices",
        }
    }

    /// Describes when acknowledged data is on the medium, according to its system calls (`strace`) and its source. Flushes are counted by the
    /// device in addition.
    pub fn durability(self) -> &'static str {
        match self {
            Self::MinioXfs | Self::MinioExt4 | Self::MinioErasure => MINIO_DURABILITY,
            Self::DirXfs | Self::DirExt4 => {
                "acknowledged after fsync of the object's file, its rename, and fsync of its directory"
            }
            Self::Drive | Self::DriveMd5 => {
                "acknowledged after a flush of the device, shared by concurrent requests (group commit)"
            }
            Self::DriveArray => {
                "acknowledged after a flush of all devices, shared by concurrent requests (group commit)"
            }
        }
    }

    /// Returns the file system on its devices; `None` for a system that uses raw devices.
    pub fn file_system(self) -> Option<FileSystem> {
        match self {
            Self::MinioXfs | Self::MinioErasure | Self::DirXfs => Some(FileSystem::Xfs),
            Self::MinioExt4 | Self::DirExt4 => Some(FileSystem::Ext4),
            Self::Drive | Self::DriveMd5 | Self::DriveArray => None,
        }
    }

    /// Describes the checksums computed over object content, without those of the transport.
    pub fn checksums(self) -> &'static str {
        match self {
            Self::MinioXfs | Self::MinioExt4 | Self::MinioErasure => {
                "MD5 and HighwayHash on write, HighwayHash on read"
            }
            Self::DirXfs | Self::DirExt4 => "none",
            Self::Drive | Self::DriveArray => "CRC-32C on write and read; no MD5",
            Self::DriveMd5 => "MD5 and CRC-32C on write, CRC-32C on read",
        }
    }

    /// Describes the settings of the server that differ from its defaults.
    pub fn settings(self, memory_bytes: u64) -> String {
        let drive = drive_limit_bytes(memory_bytes);
        match self {
            system if system.is_drive() => format!(
                "--memory-limit {} MiB, of which {} MiB for the read cache; reads its device past the page cache",
                drive >> 20,
                drive >> 21
            ),
            system if system.is_minio() => format!(
                "GOMEMLIMIT {} MiB, as it may be killed by the memory limit otherwise; removes replaced objects every {MINIO_CLEANUP_INTERVAL} \
                 instead of every 5 minutes, as its devices get full otherwise",
                minio_limit_bytes(memory_bytes) >> 20
            ),
            _ => "none".to_owned(),
        }
    }

    /// Returns whether the results of a workload can differ from those of a similar system. [`System::DriveMd5`] differs from
    /// [`System::Drive`] only in workloads that write, as MD5 is computed on write.
    pub fn differs_in(self, workload: Workload) -> bool {
        use Workload::{AgedReadWrite, Put4K, Put64K, ReadWrite, WriteOnly};
        self != Self::DriveMd5 || matches!(workload, WriteOnly | ReadWrite | AgedReadWrite | Put4K | Put64K)
    }

    fn device_count(self) -> u64 {
        if self.has_parity() { ERASURE_DEVICES } else { 1 }
    }

    /// Returns whether the system has parity devices.
    pub fn has_parity(self) -> bool {
        matches!(self, Self::MinioErasure | Self::DriveArray)
    }

    /// Returns whether the system is any form of Tenon's object drive.
    pub fn is_drive(self) -> bool {
        matches!(self, Self::Drive | Self::DriveMd5 | Self::DriveArray)
    }

    /// Returns whether the system is any form of MinIO.
    pub fn is_minio(self) -> bool {
        matches!(self, Self::MinioXfs | Self::MinioExt4 | Self::MinioErasure)
    }
}

const MINIO_DURABILITY: &str = "acknowledged after fdatasync of the object's file and a synchronous write of xl.meta (fdatasync of xl.meta \
     if it holds the object); the rename of both to their final name is not flushed";

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|system| system.name() == name);
        found.ok_or_else(|| format!("unknown system '{name}'; choose from {}", names()))
    }
}

impl Programs {
    /// Checks that all programs that these systems need are installed.
    ///
    /// # Errors
    /// [`SetupError::Machine`] with how to install the missing program.
    pub fn check(&self, systems: &[System]) -> Result<(), SetupError> {
        let mut programs = vec![("losetup", "--version"), ("mount", "--version"), ("umount", "--version")];
        for file_system in systems.iter().filter_map(|system| system.file_system()) {
            programs.push(match file_system {
                FileSystem::Xfs => ("mkfs.xfs", "-V"),
                FileSystem::Ext4 => ("mkfs.ext4", "-V"),
            });
        }
        if systems.iter().any(|system| system.is_minio()) {
            self.minio()?;
        }
        for (program, version) in programs {
            run_program(program, &[version], Stdio::null())?;
        }
        Ok(())
    }

    fn minio(&self) -> Result<PathBuf, SetupError> {
        let missing = || Error::NoProgram {
            program: "minio".to_owned(),
            advice: "install it, or give its path with --minio",
        };
        Ok(self.minio.clone().ok_or_else(missing)?)
    }
}

impl Running {
    /// Creates devices, file systems and control group, starts the server, and creates the bucket.
    ///
    /// # Errors
    /// If any step fails. Everything created before is then removed.
    pub async fn start(
        system: System,
        backing: &Backing,
        programs: &Programs,
        memory_bytes: u64,
        clock_and_entropy: (Arc<dyn Clock>, Arc<Entropy>),
    ) -> Result<Self, SetupError> {
        let mut cleanup = CleanupProcess::new()?;
        let devices = backing.attach(system.device_count(), &mut cleanup)?;
        let mut mounts = Vec::new();
        if let Some(file_system) = system.file_system() {
            for device in &devices {
                let dir = backing.dir().join(device.name());
                device.mount(file_system, &dir, &mut cleanup)?;
                mounts.push(dir);
            }
        }
        let address = free_address().map_err(file_error(Path::new("127.0.0.1")))?;
        let mut running = Self {
            system,
            server: None,
            devices,
            mounts,
            endpoint: format!("http://{address}"),
            secret: programs.secret.clone(),
            cleanup,
        };
        let name = format!("tenon-analyze-{}", running.devices[0].name());
        let group = MemoryLimit::probe().group(&name, memory_bytes, &mut running.cleanup)?;
        let dir = backing.dir().to_owned();
        let (program, mut arguments) = running.prepare(programs, &dir, address.to_string())?;
        if system.is_drive() {
            arguments.extend(["--memory-limit".to_owned(), drive_limit_bytes(memory_bytes).to_string()]);
        }
        let spec = ServerSpec {
            name: system.title().to_owned(),
            program,
            arguments,
            environment: environment(system, &programs.secret, memory_bytes),
            dir,
            address,
            ready: system.is_minio().then_some(READY),
            groups: group.into_iter().collect(),
        };
        running.server = Some(Server::start(spec, &mut running.cleanup)?);
        let created = running.buckets(clock_and_entropy)?.create(BUCKET).await;
        created.map_err(|error| running.not_serving(&error))?;
        Ok(running)
    }

    /// Prepares the devices and the users file, and returns program and arguments of the server.
    fn prepare(
        &mut self,
        programs: &Programs,
        dir: &Path,
        address: String,
    ) -> Result<(PathBuf, Vec<String>), SetupError> {
        if self.system.is_minio() {
            let mut arguments = to_strings(&["server", "--quiet", "--address", &address]);
            // A directory below the mount point: the mount point itself would accept writes also if nothing were mounted on it.
            arguments.extend(self.mounts.iter().map(|mount| mount.join("data").display().to_string()));
            return Ok((programs.minio()?, arguments));
        }
        let tenon = programs.tenon.to_string_lossy();
        let users = dir.join("users.toml");
        write_users(&users, &programs.secret)?;
        let buckets = match self.mounts.first() {
            Some(mount) => {
                let root = mount.join("data").display().to_string();
                self.cleanup.run("mkdir", &[&root])?;
                format!("dirs://{root}")
            }
            None => {
                let devices: Vec<String> =
                    self.devices.iter().map(|device| device.path().display().to_string()).collect();
                // --force: the devices may hold data of earlier systems, as the backing file keeps its blocks.
                let mut words = vec!["drive", "format", "--force"];
                let parity = PARITY_DEVICES.to_string();
                if self.system.has_parity() {
                    words.extend(["--parity", &parity]);
                }
                words.extend(devices.iter().map(String::as_str));
                self.cleanup.run(&tenon, &words)?;
                format!("drive://{}", devices.join(","))
            }
        };
        let (users, state) = (users.display().to_string(), dir.join("state").display().to_string());
        let arguments = ["serve", &buckets, "--listen", &address, "--users", &users, "--state-dir", &state];
        let mut arguments = to_strings(&arguments);
        if self.system == System::DriveMd5 {
            arguments.push("--md5".to_owned());
        }
        Ok((programs.tenon.clone(), arguments))
    }

    /// Makes `count` clients of the bucket, each with its own connections.
    ///
    /// # Errors
    /// If a client cannot be configured.
    pub fn clients(
        &self,
        count: usize,
        clock_and_entropy: &(Arc<dyn Clock>, Arc<Entropy>),
    ) -> Result<Vec<Arc<dyn ObjectStore>>, SetupError> {
        let client = || {
            let store = self.buckets(clock_and_entropy.clone())?.store(BUCKET);
            Ok(Arc::new(store.map_err(|error| self.not_serving(&error))?) as Arc<dyn ObjectStore>)
        };
        (0..count.max(1)).map(|_| client()).collect()
    }

    fn buckets(&self, (clock, entropy): (Arc<dyn Clock>, Arc<Entropy>)) -> Result<S3Buckets, SetupError> {
        let credentials = Credentials::new(ACCESS_KEY, &self.secret, None);
        let credentials =
            credentials.map_err(|error| self.not_serving(&StoreError::Invalid(error.to_string())))?;
        let config = S3Config {
            endpoint: Some(self.endpoint.clone()),
            credentials: CredentialsSource::Fixed(Arc::new(credentials)),
            ..S3Config::default()
        };
        S3Buckets::new(config, clock, entropy)
            .map_err(|error| self.not_serving(&StoreError::Invalid(error.to_string())))
    }

    fn not_serving(&self, error: &StoreError) -> SetupError {
        Error::NotServing { system: self.system.title().to_owned(), reason: error.to_string() }.into()
    }

    /// Stops the server, drops the kernel's caches, and starts the server again.
    ///
    /// # Errors
    /// If the server does not stop or start, or the caches cannot be dropped.
    pub fn restart_cold(&mut self) -> Result<(), SetupError> {
        self.while_stopped(|_| Ok(drop_caches()?))
    }

    /// Reads the current layout of the drive's device, for which the server is stopped and restarted. Returns `None`
    /// for other systems: the scope of a file system already has the naming, and for an array none is known.
    ///
    /// # Errors
    /// If the drive cannot be read, or the server does not start again.
    pub fn naming(&mut self, programs: &Programs) -> Result<Option<Naming>, SetupError> {
        // Addresses in an array's layout are not addresses of its devices.
        if !matches!(self.system, System::Drive | System::DriveMd5) {
            return Ok(None);
        }
        let mut regions = Err("the server was not running".to_owned());
        self.while_stopped(|running| {
            regions = (programs.regions)(running.devices[0].path());
            Ok(())
        })?;
        let failed = |reason| Error::Failed { program: "reading the drive's layout".to_owned(), reason };
        Ok(Some(Naming::Regions(regions.map_err(failed)?)))
    }

    /// Stops the server, runs `work`, and starts the server again. If `work` fails, the server stays stopped. Does
    /// nothing if no server runs.
    fn while_stopped(
        &mut self,
        work: impl FnOnce(&Self) -> Result<(), SetupError>,
    ) -> Result<(), SetupError> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let spec = server.stop(&mut self.cleanup)?;
        work(self)?;
        self.server = Some(Server::start(spec, &mut self.cleanup)?);
        Ok(())
    }

    /// Writes all dirty data to the devices and returns how long that took. Before a measurement this keeps earlier writes out of it; after a
    /// measurement it shows how much work was left.
    ///
    /// # Errors
    /// If a device fails.
    pub fn settle(&self) -> Result<Duration, SetupError> {
        let start = Instant::now();
        let sync_mount = |mount: &PathBuf| rustix::fs::syncfs(fs::File::open(mount)?).map_err(Into::into);
        self.mounts.iter().try_for_each(|mount| sync_mount(mount).map_err(file_error(mount)))?;
        for device in &self.devices {
            fs::File::open(device.path())
                .and_then(|file| file.sync_all())
                .map_err(file_error(device.path()))?;
        }
        Ok(start.elapsed())
    }

    /// Returns which system this is.
    pub fn system(&self) -> System {
        self.system
    }

    /// Returns the pid of the server.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// Returns the devices.
    pub fn devices(&self) -> &[LoopDevice] {
        &self.devices
    }

    /// Returns about how many bytes of objects fit into the free space of the file systems, or into the raw devices if they are empty.
    ///
    /// # Errors
    /// If the free space of a file system cannot be read.
    pub fn free_bytes(&self) -> Result<u64, SetupError> {
        let raw = match self.mounts.is_empty() {
            true => self.devices.iter().map(LoopDevice::size_bytes).sum(),
            false => self.mounts.iter().map(|mount| free_bytes(mount)).sum::<Result<u64, _>>()?,
        };
        let data_devices =
            self.system.device_count() - if self.system.has_parity() { PARITY_DEVICES } else { 0 };
        Ok(raw / self.system.device_count() * data_devices)
    }

    /// Returns the scope for tracing this system.
    pub fn scope(&self) -> Scope {
        Scope {
            devices: self.devices.iter().map(|device| device.path().to_owned()).collect(),
            mounts: self.mounts.clone(),
            processes: self.pid().into_iter().collect(),
            naming: match self.system {
                // The layout can be read only while the server is stopped: see [`Running::naming`].
                system if system.is_drive() => Naming::Regions(Vec::new()),
                system if system.is_minio() => Naming::Minio,
                _ => Naming::Files,
            },
            ..Scope::default()
        }
    }
}

/// Returns the `--memory-limit` of a drive's server. It reads past the page cache, so it gets most of the control group's memory; a quarter is
/// left for requests in flight.
fn drive_limit_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 4 * 3).max(MEMORY_LIMIT_BYTES_MIN)
}

/// Returns MinIO's `GOMEMLIMIT`, the heap size above which the Go garbage collector works harder.
fn minio_limit_bytes(memory_bytes: u64) -> u64 {
    memory_bytes / 4 * 3
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn environment(system: System, secret: &str, memory_bytes: u64) -> Vec<(String, String)> {
    if !system.is_minio() {
        return Vec::new();
    }
    // Without GOMEMLIMIT the garbage collector runs so late that the control group's limit kills MinIO (seen with four devices and 32
    // concurrent large PUTs).
    let memory_limit = minio_limit_bytes(memory_bytes).to_string();
    [
        ("GOMEMLIMIT", memory_limit.as_str()),
        ("MINIO_ROOT_USER", ACCESS_KEY),
        ("MINIO_ROOT_PASSWORD", secret),
        ("MINIO_BROWSER", "off"),
        ("MINIO_UPDATE", "off"),
        ("MINIO_API_DELETE_CLEANUP_INTERVAL", MINIO_CLEANUP_INTERVAL),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// Writes the endpoint's users file, readable by its owner only.
fn write_users(path: &Path, secret: &str) -> Result<(), SetupError> {
    let text = format!("[[user]]\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{secret}\"\n");
    let mut options = fs::File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    Ok(file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(file_error(path))?)
}
