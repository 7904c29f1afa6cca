//! `tenon format`: makes an embedded volume.

use crate::volume::{self, Volume};
use anyhow::{Context, Result};
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

/// Make a volume in a local directory.
///
/// Buckets and file:// directories need no format: mount them as they are.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// A directory that is new or empty
    volume: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Format {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let volume = Volume::parse_unchecked(&self.volume)?;
        match &volume {
            Volume::Embedded { root } => {
                let record = volume::new_record(random_id()?, jiff::Timestamp::now());
                volume::format(root, &record)?;
                self.say(&volume, Some(&record.id));
            }
            Volume::S3 { .. } | Volume::Directory { .. } => self.say(&volume, None),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn say(&self, volume: &Volume, made: Option<&str>) {
        let url = volume.url();
        match made {
            _ if self.json => {
                println!("{}", serde_json::json!({ "volume": url, "made": made.is_some(), "id": made }))
            }
            Some(_) => println!("made the volume {url}; mount it with `tenon mount {url} DIR`"),
            None => println!("{url} needs no format; mount it with `tenon mount {url} DIR`"),
        }
    }
}

/// A number that no other volume has.
pub(crate) fn random_id() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot draw a random number from /dev/urandom")?;
    Ok(u64::from_le_bytes(bytes))
}
