//! The arguments of `tenon mount` for a volume: the driver's own, and what the request and the volume's description ask for.

use crate::access::Access;
use crate::disk_cache::{CacheRoom, WantedCache, is_about_cache};
use crate::message::Texts;
use crate::mount_flags::MountFlags;
use crate::usage::Usage;
use crate::volume_place::VolumePlace;
use std::path::Path;
use tonic::Status;

/// Arguments of the driver for each mount.
#[derive(Debug, Clone, Default)]
pub struct MountArguments {
    /// URL of the server, unless the secret of a volume names one.
    pub endpoint_url: Option<String>,
    /// Region, likewise.
    pub region: Option<String>,
    /// Flags that choose the driver's own credentials, for volumes without an access key.
    pub credentials: Vec<String>,
    /// Further flags, which the options of a volume override.
    pub others: Vec<String>,
    /// The room for disk caches; none if volumes cannot have any.
    pub caches: Option<CacheRoom>,
}

/// The attributes of a volume, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeDescription {
    pub(crate) place: VolumePlace,
    pub(crate) is_anonymous: bool,
    pub(crate) is_read_only: bool,
    /// Mount options among the attributes.
    pub(crate) options: Vec<String>,
    /// The disk cache.
    pub(crate) cache: Option<WantedCache>,
}

impl VolumeDescription {
    /// Reads the attributes of a persistent volume: the place is the attribute `volume`, or the volume's id.
    pub(crate) fn of_persistent(id: &str, attributes: &Texts) -> Result<Self, Status> {
        let (description, is_scratch) =
            Self::read(attributes.get("volume").map_or(id, String::as_str), attributes)?;
        match is_scratch {
            true => Err(Status::invalid_argument("the attribute scratch is only for volumes in pods")),
            false => Ok(description),
        }
    }

    /// Reads the attributes of a volume in a pod. Also returns whether its objects end with the pod.
    pub(crate) fn of_inline(id: &str, attributes: &Texts) -> Result<(Self, bool), Status> {
        let url = attributes.get("volume");
        let url = url.ok_or_else(|| {
            Status::invalid_argument("the volume needs the attribute volume: s3://bucket/prefix")
        })?;
        let (mut description, is_scratch) = Self::read(url, attributes)?;
        description.cache = description.cache.map(WantedCache::of_inline).transpose()?;
        if is_scratch {
            description.place = description.place.below(id);
        }
        Ok((description, is_scratch))
    }

    fn read(url: &str, attributes: &Texts) -> Result<(Self, bool), Status> {
        let place = VolumePlace::parse(url).ok_or_else(|| {
            Status::invalid_argument(format!(
                "'{}' is not s3://bucket or s3://bucket/prefix",
                url.escape_debug()
            ))
        })?;
        let cache = WantedCache::read(attributes)?;
        let mut description =
            Self { place, is_anonymous: false, is_read_only: false, options: Vec::new(), cache };
        let mut is_scratch = false;
        for (name, value) in attributes {
            match name.as_str() {
                "volume" => {}
                "anonymous" => description.is_anonymous = switch(name, value)?,
                "readOnly" => description.is_read_only = switch(name, value)?,
                "scratch" => is_scratch = switch(name, value)?,
                "mountOptions" => {
                    let options = value.split(',').map(str::trim).filter(|option| !option.is_empty());
                    description.options = options.map(str::to_owned).collect();
                }
                name if is_about_cache(name) => {}
                // Names of the pod, the claim and the provisioner, which Kubernetes adds.
                name if name.starts_with("csi.storage.k8s.io/")
                    || name.starts_with("storage.kubernetes.io/") => {}
                name => {
                    return Err(Status::invalid_argument(format!(
                        "unknown attribute '{}' of the volume",
                        name.escape_debug()
                    )));
                }
            }
        }
        Ok((description, is_scratch))
    }
}

fn switch(name: &str, value: &str) -> Result<bool, Status> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Status::invalid_argument(format!("the attribute {name} is \"true\" or \"false\""))),
    }
}

impl MountArguments {
    /// Returns the flags for a use of the volume. The volume's own options override the flags that follow from the use.
    pub(crate) fn flags(&self, description: &VolumeDescription, usage: &Usage) -> Result<MountFlags, Status> {
        let mut flags = MountFlags::default();
        self.others.iter().for_each(|flag| flags.set(flag));
        if usage.is_shared() {
            flags.set("--shared");
        }
        if usage.is_read_only() || description.is_read_only {
            flags.set("--read-only");
        }
        let group = &usage.mount.volume_mount_group;
        if !group.is_empty() {
            let group: u32 = group
                .parse()
                .map_err(|_| Status::invalid_argument("the volume_mount_group is not a number"))?;
            for flag in [&format!("--gid={group}"), "--file-mode=664", "--dir-mode=775"] {
                flags.set(flag);
            }
        }
        if let Some(cache) = &description.cache {
            cache.flags(self.caches.as_ref())?.into_iter().for_each(|flag| flags.set(flag));
        }
        for option in description.options.iter().chain(&usage.mount.mount_flags) {
            flags.add_option(option)?;
        }
        Ok(flags)
    }

    /// Returns all arguments: those for the state directory, the server and the credentials, and the flags.
    pub(crate) fn complete(
        &self,
        flags: MountFlags,
        access: &Access,
        key: Option<&Path>,
        state_dir: &Path,
        is_anonymous: bool,
    ) -> Vec<String> {
        let mut arguments = vec!["--allow-other".to_owned(), format!("--state-dir={}", state_dir.display())];
        let chosen = |own: &Option<String>, given: &Option<String>| given.clone().or_else(|| own.clone());
        arguments.extend(
            chosen(&self.endpoint_url, &access.endpoint_url).map(|url| format!("--endpoint-url={url}")),
        );
        arguments.extend(chosen(&self.region, &access.region).map(|region| format!("--region={region}")));
        match key {
            _ if is_anonymous => arguments.push("--no-sign-request".to_owned()),
            Some(file) => arguments.push(format!("--access-key-file={}", file.display())),
            None => arguments.extend(self.credentials.iter().cloned()),
        }
        arguments.extend(flags.into_arguments());
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AccessMode, Mode, MountVolume, VolumeCapability};

    fn usage(mode: Mode, group: &str, flags: &[&str]) -> Usage {
        let mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mount =
            MountVolume { mount_flags, volume_mount_group: group.to_owned(), ..MountVolume::default() };
        let access_mode = Some(AccessMode { mode: mode.into() });
        Usage::of(Some(&VolumeCapability { block: None, mount: Some(mount), access_mode })).unwrap()
    }

    fn texts(entries: &[(&str, &str)]) -> Texts {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn arguments_follow_from_the_way_of_use() {
        let description = VolumeDescription::of_persistent("s3://data/a", &Texts::new()).unwrap();
        let arguments =
            MountArguments { credentials: vec!["--profile=p".into()], ..MountArguments::default() };
        let flags = |usage| arguments.flags(&description, &usage).unwrap().into_arguments();
        assert_eq!(flags(usage(Mode::SingleNodeWriter, "", &[])), [""; 0]);
        assert_eq!(flags(usage(Mode::MultiNodeReaderOnly, "", &[])), ["--read-only"]);
        assert_eq!(
            flags(usage(Mode::MultiNodeMultiWriter, "1000", &["dir-mode=700"])),
            ["--shared", "--gid=1000", "--file-mode=664", "--dir-mode=700"]
        );
        let complete = |key, is_anonymous| {
            arguments.complete(MountFlags::default(), &Access::default(), key, Path::new("/s"), is_anonymous)
        };
        assert_eq!(complete(None, false), ["--allow-other", "--state-dir=/s", "--profile=p"]);
        assert_eq!(complete(Some(Path::new("/k")), false)[2], "--access-key-file=/k");
        assert_eq!(complete(Some(Path::new("/k")), true)[2], "--no-sign-request");
    }

    #[test]
    fn attributes_of_volumes_are_checked() {
        let inline = |entries: &[(&str, &str)]| VolumeDescription::of_inline("csi-1", &texts(entries));
        let (description, is_scratch) = inline(&[("volume", "s3://data/tmp"), ("scratch", "true")]).unwrap();
        assert_eq!((description.place.to_string().as_str(), is_scratch), ("s3://data/tmp/csi-1", true));
        let given =
            [("volume", "s3://data"), ("mountOptions", "ro, gid=5"), ("csi.storage.k8s.io/pod.name", "p")];
        assert_eq!(inline(&given).unwrap().0.options, ["ro", "gid=5"]);
        inline(&[]).unwrap_err();
        inline(&[("volume", "file:///etc")]).unwrap_err();
        inline(&[("volume", "s3://data"), ("scratch", "yes")]).unwrap_err();
        inline(&[("volume", "s3://data"), ("secret", "x")]).unwrap_err();
        VolumeDescription::of_persistent("any", &texts(&[("volume", "s3://data")])).unwrap();
        VolumeDescription::of_persistent("s3://data", &texts(&[("scratch", "true")])).unwrap_err();
    }
}
