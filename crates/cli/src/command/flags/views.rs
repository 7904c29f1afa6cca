//! Flags for views, event sources and event handlers.

use crate::event_handler::HandlerSettings;
use crate::event_handler::feeds::{FeedSettings, SourceAddress};
use crate::event_handler::remote::{HandlerAddress, RemoteHandlerSettings};
use clap::Args;
use events::Dialect;
use std::path::PathBuf;
use views::part::Part;

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
    /// Declare that the sources report reads of objects, so that rulesets may use access times
    #[arg(long)]
    pub(crate) access_events: bool,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
}

impl EventFlags {
    /// Returns the settings of the handler of this process.
    pub(crate) fn settings(&self) -> HandlerSettings {
        HandlerSettings {
            feeds: self.feeds(),
            part: self.part.unwrap_or(Part::ALL),
            reports_reads: self.access_events,
            memory_max_bytes: None,
        }
    }

    /// Returns the settings of the feeds.
    pub(crate) fn feeds(&self) -> FeedSettings {
        FeedSettings {
            sources: self.events.clone(),
            dialect: self.sources.event_dialect,
            secret_file: self.sources.event_secret.clone(),
        }
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

impl HandlerFlags {
    pub(crate) fn settings(&self) -> RemoteHandlerSettings {
        RemoteHandlerSettings {
            addresses: self.handler.clone(),
            token_file: self.handler_token.clone(),
            ca_bundle: self.handler_ca_bundle.clone(),
        }
    }
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
