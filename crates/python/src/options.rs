//! The settings of a volume as Python passes them: keyword arguments in a dictionary.

use cli::library::{Access, Addressing, Caches, Credentials, DISK_CACHE_BYTES_MIN, Settings, SharedCache};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::types::{PyAnyMethods as _, PyDict, PyDictMethods as _, PyString, PyStringMethods as _};
use pyo3::{Bound, PyAny, PyResult};
use std::path::PathBuf;
use std::time::Duration;

/// Default limit on metadata and data held in memory, as for mounts.
const MEMORY_LIMIT_BYTES: u64 = 1 << 30;
/// Smallest memory limit: less could not hold the parts of one upload and the metadata.
const MEMORY_LIMIT_BYTES_MIN: u64 = 64 << 20;
/// How long cached metadata stays valid by default, in seconds, as for mounts.
const METADATA_TTL_S: f64 = 5.0;
/// How long a failing request is repeated by default, in seconds, as for mounts.
const RETRY_TIMEOUT_S: f64 = 30.0;

/// Default size of a disk cache, as for mounts.
const CACHE_BYTES: u64 = 10 << 30;

/// Returns the settings that the keyword arguments name. Fails for an unknown name, so that a misspelled option is noticed.
pub(crate) fn settings(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut options = Options { left: given.copy()? };
    let (key, secret) = (options.take::<String>("key")?, options.take::<String>("secret")?);
    let token = options.take::<String>("token")?;
    let credentials = match (key, secret) {
        (Some(key), Some(secret)) => Some(
            Credentials::new(&key, &secret, token.as_deref())
                .map_err(|error| PyValueError::new_err(error.to_string()))?,
        ),
        (None, None) if token.is_none() => None,
        _ => return Err(PyValueError::new_err("an access key needs both `key` and `secret`")),
    };
    let access = Access {
        endpoint_url: options.take("endpoint_url")?,
        region: options.take("region")?,
        profile: options.take("profile")?,
        credentials,
        is_anonymous: options.take("anon")?.unwrap_or(false),
        addressing: options.take::<String>("addressing")?.as_deref().map(addressing).transpose()?,
        ca_bundle: options.take::<PathBuf>("ca_bundle")?,
        retry_timeout: options.duration("retry_timeout", RETRY_TIMEOUT_S)?,
    };
    let memory_limit_bytes = options.take("memory_limit")?.unwrap_or(MEMORY_LIMIT_BYTES);
    if memory_limit_bytes < MEMORY_LIMIT_BYTES_MIN {
        return Err(PyValueError::new_err("memory_limit must be at least 64 MiB, in bytes"));
    }
    let settings = Settings {
        access,
        state_dir: options.take::<PathBuf>("state_dir")?,
        read_only: options.take("read_only")?.unwrap_or(false),
        memory_limit_bytes,
        metadata_ttl: options.duration("metadata_ttl", METADATA_TTL_S)?,
        reads_headers: options.take("exact_attributes")?.unwrap_or(false),
        caches: caches(&mut options)?,
    };
    options.check_empty()?;
    Ok(settings)
}

/// Returns the settings of the caches below memory.
fn caches(options: &mut Options<'_>) -> PyResult<Option<Caches>> {
    let (dir, size) = (options.take::<PathBuf>("cache_dir")?, options.take::<u64>("cache_size")?);
    let (url, profile) = (options.take("shared_cache")?, options.take("shared_cache_profile")?);
    if url.is_none() && profile.is_some() {
        return Err(PyValueError::new_err("shared_cache_profile needs shared_cache"));
    }
    let Some(dir) = dir else {
        return match size.is_some() || url.is_some() {
            true => Err(PyValueError::new_err("cache_size and shared_cache need cache_dir")),
            false => Ok(None),
        };
    };
    let limit_bytes = size.unwrap_or(CACHE_BYTES);
    if limit_bytes < DISK_CACHE_BYTES_MIN {
        return Err(PyValueError::new_err("cache_size must be at least 256 MiB, in bytes"));
    }
    Ok(Some(Caches { dir, limit_bytes, shared: url.map(|url| SharedCache { url, profile }) }))
}

/// Keyword arguments that were not read yet.
struct Options<'py> {
    left: Bound<'py, PyDict>,
}

impl<'py> Options<'py> {
    /// Returns an argument; `None` if it is missing or is Python's `None`.
    fn take<T: FromPyObjectOwned<'py>>(&mut self, name: &str) -> PyResult<Option<T>> {
        let Some(value) = self.left.get_item(name)? else { return Ok(None) };
        self.left.del_item(name)?;
        if value.is_none() {
            return Ok(None);
        }
        let wrong = |_| PyTypeError::new_err(format!("{name} has a value of the wrong type"));
        value.extract::<T>().map(Some).map_err(|error| wrong(error.into()))
    }

    fn duration(&mut self, name: &str, default_s: f64) -> PyResult<Duration> {
        let seconds = self.take::<f64>(name)?.unwrap_or(default_s);
        let wrong = |_| PyValueError::new_err(format!("{name} is not a number of seconds"));
        Duration::try_from_secs_f64(seconds).map_err(wrong)
    }

    fn check_empty(&self) -> PyResult<()> {
        let unknown: Option<Bound<'_, PyAny>> = self.left.keys().into_iter().next();
        match unknown {
            None => Ok(()),
            Some(name) => {
                let name = name.cast::<PyString>().map(|name| name.to_string_lossy().into_owned());
                Err(PyTypeError::new_err(format!("unknown option '{}'", name.unwrap_or_default())))
            }
        }
    }
}

fn addressing(text: &str) -> PyResult<Addressing> {
    match text {
        "path" => Ok(Addressing::Path),
        "virtual" => Ok(Addressing::Host),
        _ => Err(PyValueError::new_err("addressing is 'path' or 'virtual'")),
    }
}
