//! The systems, and each of them running.

use super::cleanup::Undertaker;
use super::loop_device::{Backing, FileSystem, LoopDevice, free_bytes};
use super::memory_limit::MemoryLimit;
use super::server::{Recipe, Server, free_address};
use super::{SetupError, about, drop_caches, run};
use crate::model::{Naming, Region, Scope};
use crate::workload::Workload;
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
use store::s3::{Credentials, CredentialsSource, S3Buckets, S3Config};
use store::{Buckets, Clock, Entropy, ObjectStore, StoreError};
use tokio::time::Instant;

/// The bucket of every system.
pub(crate) const BUCKET: &str = "analyze";
const ACCESS_KEY: &str = "tenon-analyze";
/// Devices of the systems with erasure coding.
const ERASURE_DEVICES: u64 = 4;
/// Devices of these that may be lost: MinIO's default for four devices, and what the drive's array is made with.
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
    /// The same on ext4.
    DirExt4,
    /// Tenon's object drive on the raw device.
    Drive,
    /// A drive that computes the MD5 of each object, as MinIO does.
    DriveMd5,
    /// Tenon's object drive on an array of as many devices, with as many of them for parity, as [`System::MinioErasure`].
    DriveArray,
}

/// How often MinIO removes objects that were replaced.
const MINIO_CLEANUP_INTERVAL: &str = "10s";

/// Less is refused by `tenon serve`.
const MEMORY_LIMIT_BYTES_MIN: u64 = 64 << 20;

/// What runs the servers.
#[derive(Debug, Clone)]
pub struct Programs {
    /// MinIO, if there is one.
    pub minio: Option<PathBuf>,
    /// Tenon itself.
    pub tenon: PathBuf,
    /// The secret of the servers' only user.
    pub secret: String,
    /// What a drive that nobody serves says of its device; or why it does not, in a line.
    pub regions: fn(&Path) -> Result<Vec<Region>, String>,
}

/// A system with a fresh device and a server. Dropped, nothing of it is left.
#[derive(Debug)]
pub struct Running {
    system: System,
    server: Option<Server>,
    devices: Vec<LoopDevice>,
    mounts: Vec<PathBuf>,
    endpoint: String,
    secret: String,
    // Dropped last: it undoes all that the others are about.
    undertaker: Undertaker,
}

impl System {
    /// All.
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

    /// Its name on the command line.
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

    /// Its name in reports.
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

    /// Its name where there is little room, beside its title.
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

    /// When what it acknowledges is on the medium, as its calls show (`strace`) and its source says. How often it flushes
    /// is counted beside, by the device.
    pub fn durability(self) -> &'static str {
        match self {
            Self::MinioXfs | Self::MinioExt4 | Self::MinioErasure => MINIO_DURABILITY,
            Self::DirXfs | Self::DirExt4 => {
                "acknowledged after fsync of the object's file, its rename, and fsync of its directory"
            }
            Self::Drive | Self::DriveMd5 => {
                "acknowledged after the device's flush, one for all that wait (group commit)"
            }
            Self::DriveArray => {
                "acknowledged after the flush of all devices, one for all that wait (group commit)"
            }
        }
    }

    /// What is on each of its devices.
    pub fn file_system(self) -> Option<FileSystem> {
        match self {
            Self::MinioXfs | Self::MinioErasure | Self::DirXfs => Some(FileSystem::Xfs),
            Self::MinioExt4 | Self::DirExt4 => Some(FileSystem::Ext4),
            Self::Drive | Self::DriveMd5 | Self::DriveArray => None,
        }
    }

    /// What it computes of each object's bytes, beyond what their transport takes.
    pub fn checksums(self) -> &'static str {
        match self {
            Self::MinioXfs | Self::MinioExt4 | Self::MinioErasure => {
                "MD5 and HighwayHash of what is written, HighwayHash of what is read"
            }
            Self::DirXfs | Self::DirExt4 => "none",
            Self::Drive | Self::DriveArray => "CRC-32C of what is written and read; no MD5",
            Self::DriveMd5 => "MD5 and CRC-32C of what is written, CRC-32C of what is read",
        }
    }

    /// Options other than the defaults that the server is started with, in words.
    pub fn settings(self, memory_bytes: u64) -> String {
        let drive = drive_limit_bytes(memory_bytes);
        match self {
            system if system.is_drive() => format!(
                "--memory-limit {} MiB, of which {} MiB for objects that were read; the device is read past the page cache",
                drive >> 20,
                drive >> 21
            ),
            system if system.is_minio() => format!(
                "GOMEMLIMIT {} MiB, or it may be killed for memory; removes replaced objects every {MINIO_CLEANUP_INTERVAL}, not every 5 \
                 minutes, or its devices get full",
                minio_limit_bytes(memory_bytes) >> 20
            ),
            _ => "none".to_owned(),
        }
    }

    /// Whether a workload shows anything of it that another system does not show: MD5 is computed of what is written only.
    pub fn differs_in(self, workload: Workload) -> bool {
        use Workload::{AgedReadWrite, Put4K, Put64K, ReadWrite, WriteOnly};
        self != Self::DriveMd5 || matches!(workload, WriteOnly | ReadWrite | AgedReadWrite | Put4K | Put64K)
    }

    fn devices(self) -> u64 {
        if self.has_parity() { ERASURE_DEVICES } else { 1 }
    }

    /// Whether it survives the loss of devices.
    pub fn has_parity(self) -> bool {
        matches!(self, Self::MinioErasure | Self::DriveArray)
    }

    /// Whether it is Tenon's object drive, in whatever form.
    pub fn is_drive(self) -> bool {
        matches!(self, Self::Drive | Self::DriveMd5 | Self::DriveArray)
    }

    /// Whether it is MinIO, in whatever form.
    pub fn is_minio(self) -> bool {
        matches!(self, Self::MinioXfs | Self::MinioExt4 | Self::MinioErasure)
    }
}

const MINIO_DURABILITY: &str = "acknowledged after fdatasync of the object's file and a synchronous write of xl.meta (fdatasync of it \
     where that holds the object); the rename that gives both their name is not flushed";

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
        found.ok_or_else(|| format!("no system '{name}'; there are {}", names()))
    }
}

impl Programs {
    /// That everything is there that these systems need.
    ///
    /// # Errors
    /// What is to be installed.
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
        programs
            .into_iter()
            .try_for_each(|(program, version)| run(program, &[version], Stdio::null()).map(drop))
    }

    fn minio(&self) -> Result<PathBuf, SetupError> {
        self.minio.clone().ok_or_else(|| SetupError::NoProgram {
            program: "minio".to_owned(),
            advice: "install it, or say where it is with --minio",
        })
    }
}

impl Running {
    /// Makes device, file system, memory group and server, and the bucket in it.
    ///
    /// # Errors
    /// Whatever cannot be made; what was made is gone then.
    pub async fn start(
        system: System,
        backing: &Backing,
        programs: &Programs,
        memory_bytes: u64,
        world: (Arc<dyn Clock>, Arc<Entropy>),
    ) -> Result<Self, SetupError> {
        let mut undertaker = Undertaker::new()?;
        let devices = backing.attach(system.devices(), &mut undertaker)?;
        let mut mounts = Vec::new();
        if let Some(file_system) = system.file_system() {
            for device in &devices {
                let dir = backing.dir().join(device.name());
                device.mount(file_system, &dir, &mut undertaker)?;
                mounts.push(dir);
            }
        }
        let address = free_address()?;
        let mut running = Self {
            system,
            server: None,
            devices,
            mounts,
            endpoint: format!("http://{address}"),
            secret: programs.secret.clone(),
            undertaker,
        };
        let name = format!("tenon-analyze-{}", running.devices[0].name());
        let group = MemoryLimit::probe().group(&name, memory_bytes, &mut running.undertaker)?;
        let dir = backing.dir().to_owned();
        let (program, mut arguments) = running.prepare(programs, &dir, address.to_string())?;
        if system.is_drive() {
            arguments.extend(["--memory-limit".to_owned(), drive_limit_bytes(memory_bytes).to_string()]);
        }
        let recipe = Recipe {
            name: system.title().to_owned(),
            program,
            arguments,
            environment: environment(system, &programs.secret, memory_bytes),
            dir,
            address,
            ready: system.is_minio().then_some("/minio/health/ready"),
            group,
        };
        running.server = Some(Server::start(recipe, &mut running.undertaker)?);
        let created = running.buckets(world)?.create(BUCKET).await;
        created.map_err(|error| running.unserved(&error))?;
        Ok(running)
    }

    /// What is to be there before the server starts, and how that is started.
    fn prepare(
        &mut self,
        programs: &Programs,
        dir: &Path,
        address: String,
    ) -> Result<(PathBuf, Vec<String>), SetupError> {
        if self.system.is_minio() {
            let mut arguments = words(&["server", "--quiet", "--address", &address]);
            // Not the mount point itself: an unmounted one would be written to as well.
            arguments.extend(self.mounts.iter().map(|mount| mount.join("data").display().to_string()));
            return Ok((programs.minio()?, arguments));
        }
        let tenon = programs.tenon.to_string_lossy();
        let users = dir.join("users.toml");
        write_users(&users, &programs.secret)?;
        let buckets = match self.mounts.first() {
            Some(mount) => {
                let root = mount.join("data").display().to_string();
                self.undertaker.run("mkdir", &[&root])?;
                format!("dirs://{root}")
            }
            None => {
                let devices: Vec<String> =
                    self.devices.iter().map(|device| device.path().display().to_string()).collect();
                // There are bytes on it, as on every one of these devices, so that the file below has its blocks.
                let mut words = vec!["drive", "format", "--force"];
                let parity = PARITY_DEVICES.to_string();
                if self.system.has_parity() {
                    words.extend(["--parity", &parity]);
                }
                words.extend(devices.iter().map(String::as_str));
                self.undertaker.run(&tenon, &words)?;
                format!("drive://{}", devices.join(","))
            }
        };
        let (users, state) = (users.display().to_string(), dir.join("state").display().to_string());
        let arguments = ["serve", &buckets, "--listen", &address, "--users", &users, "--state-dir", &state];
        let mut arguments = words(&arguments);
        if self.system == System::DriveMd5 {
            arguments.push("--md5".to_owned());
        }
        Ok((programs.tenon.clone(), arguments))
    }

    /// As many clients of its bucket as asked for, each with connections of its own.
    ///
    /// # Errors
    /// If the server cannot be a client's.
    pub fn clients(
        &self,
        count: usize,
        world: &(Arc<dyn Clock>, Arc<Entropy>),
    ) -> Result<Vec<Arc<dyn ObjectStore>>, SetupError> {
        let client = || {
            let store = self.buckets(world.clone())?.store(BUCKET);
            Ok(Arc::new(store.map_err(|error| self.unserved(&error))?) as Arc<dyn ObjectStore>)
        };
        (0..count.max(1)).map(|_| client()).collect()
    }

    fn buckets(&self, (clock, entropy): (Arc<dyn Clock>, Arc<Entropy>)) -> Result<S3Buckets, SetupError> {
        let credentials = Credentials::new(ACCESS_KEY, &self.secret, None);
        let credentials =
            credentials.map_err(|error| self.unserved(&StoreError::Invalid(error.to_string())))?;
        let config = S3Config {
            endpoint: Some(self.endpoint.clone()),
            credentials: CredentialsSource::Fixed(Arc::new(credentials)),
            ..S3Config::default()
        };
        S3Buckets::new(config, clock, entropy)
            .map_err(|error| self.unserved(&StoreError::Invalid(error.to_string())))
    }

    fn unserved(&self, error: &StoreError) -> SetupError {
        SetupError::NotServing { system: self.system.title().to_owned(), reason: error.to_string() }
    }

    /// Starts its server anew, after everything that the kernel had cached was dropped.
    ///
    /// # Errors
    /// If it does not come back.
    pub fn restart_cold(&mut self) -> Result<(), SetupError> {
        self.while_stopped(|_| drop_caches())
    }

    /// How what is on its devices now is called, where that takes its server to be stopped for a while; else `None`: then the
    /// scope's naming holds.
    ///
    /// # Errors
    /// If the drive cannot be read, or the server does not come back.
    pub fn naming(&mut self, programs: &Programs) -> Result<Option<Naming>, SetupError> {
        // An array's addresses are not those of its devices.
        if !matches!(self.system, System::Drive | System::DriveMd5) {
            return Ok(None);
        }
        let mut regions = Err("its server was not running".to_owned());
        self.while_stopped(|running| {
            regions = (programs.regions)(running.devices[0].path());
            Ok(())
        })?;
        let failed = |reason| SetupError::Failed { program: "reading the drive's layout".to_owned(), reason };
        Ok(Some(Naming::Regions(regions.map_err(failed)?)))
    }

    fn while_stopped(
        &mut self,
        work: impl FnOnce(&Self) -> Result<(), SetupError>,
    ) -> Result<(), SetupError> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let recipe = server.stop(&mut self.undertaker)?;
        work(self)?;
        self.server = Some(Server::start(recipe, &mut self.undertaker)?);
        Ok(())
    }

    /// Writes what is not on the medium yet, and says how long that took: what is measured then is not billed for what
    /// came before, and what was measured shows what it left for later.
    ///
    /// # Errors
    /// If a device fails.
    pub fn settle(&self) -> Result<Duration, SetupError> {
        let begun = Instant::now();
        let of_mount = |mount: &PathBuf| rustix::fs::syncfs(fs::File::open(mount)?).map_err(Into::into);
        self.mounts.iter().try_for_each(|mount| of_mount(mount).map_err(about(mount)))?;
        for device in &self.devices {
            fs::File::open(device.path()).and_then(|file| file.sync_all()).map_err(about(device.path()))?;
        }
        Ok(begun.elapsed())
    }

    /// Which one it is.
    pub fn system(&self) -> System {
        self.system
    }

    /// Its server's process.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// Its devices.
    pub fn devices(&self) -> &[LoopDevice] {
        &self.devices
    }

    /// How many bytes of objects still fit, about.
    ///
    /// # Errors
    /// If its file system does not say.
    pub fn free_bytes(&self) -> Result<u64, SetupError> {
        let raw = match self.mounts.is_empty() {
            true => self.devices.iter().map(LoopDevice::size_bytes).sum(),
            false => self.mounts.iter().map(|mount| free_bytes(mount)).sum::<Result<u64, _>>()?,
        };
        let data_devices = self.system.devices() - if self.system.has_parity() { PARITY_DEVICES } else { 0 };
        Ok(raw / self.system.devices() * data_devices)
    }

    /// What a trace of it is to look at.
    pub fn scope(&self) -> Scope {
        Scope {
            devices: self.devices.iter().map(|device| device.path().to_owned()).collect(),
            mounts: self.mounts.clone(),
            processes: self.pid().into_iter().collect(),
            naming: match self.system {
                // What is where it says when it is not served: [`Running::naming`].
                system if system.is_drive() => Naming::Regions(Vec::new()),
                system if system.is_minio() => Naming::Minio,
                _ => Naming::Files,
            },
            ..Scope::default()
        }
    }
}

/// What a drive's server may use. Others leave the group's memory to the page cache; a quarter of it is for what is under way.
fn drive_limit_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 4 * 3).max(MEMORY_LIMIT_BYTES_MIN)
}

/// From where on MinIO's garbage collector works harder.
fn minio_limit_bytes(memory_bytes: u64) -> u64 {
    memory_bytes / 4 * 3
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn environment(system: System, secret: &str, memory_bytes: u64) -> Vec<(&'static str, String)> {
    if !system.is_minio() {
        return Vec::new();
    }
    // Go collects late enough to be killed by the group's limit, with four devices and 32 large PUTs at a time.
    let memory_limit = minio_limit_bytes(memory_bytes).to_string();
    [
        ("GOMEMLIMIT", memory_limit.as_str()),
        ("MINIO_ROOT_USER", ACCESS_KEY),
        ("MINIO_ROOT_PASSWORD", secret),
        ("MINIO_BROWSER", "off"),
        ("MINIO_UPDATE", "off"),
        ("MINIO_API_DELETE_CLEANUP_INTERVAL", MINIO_CLEANUP_INTERVAL),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// The endpoint's users, a file that only its owner reads.
fn write_users(path: &Path, secret: &str) -> Result<(), SetupError> {
    let text = format!("[[user]]\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{secret}\"\n");
    let mut options = fs::File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(about(path))
}
