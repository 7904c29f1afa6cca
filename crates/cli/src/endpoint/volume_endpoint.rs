//! The S3 endpoint of a mounted or served volume: reachable by clients, or used by the console of the process alone.

use s3::{Endpoint, Server};
use std::time::Duration;

/// The endpoint of a volume.
#[derive(Debug)]
pub(crate) enum VolumeEndpoint {
    /// The volume has no endpoint.
    None,
    /// Only the console of this process sends requests to the endpoint.
    Console(Endpoint),
    /// Clients reach the endpoint at a URL, and so does the console.
    Served(Server),
}

impl VolumeEndpoint {
    /// Returns the endpoint of a volume from its server, if clients can reach it, and the endpoint of its console.
    pub(crate) fn new(server: Option<Server>, of_console: Option<&Endpoint>) -> Self {
        match (server, of_console) {
            (Some(server), _) => Self::Served(server),
            (None, Some(endpoint)) => Self::Console(endpoint.clone()),
            (None, None) => Self::None,
        }
    }

    /// Returns the endpoint, also if only the console uses it.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::None => None,
            Self::Console(endpoint) => Some(endpoint),
            Self::Served(server) => Some(server.endpoint()),
        }
    }

    /// Returns the URL at which clients reach the endpoint; `None` if they cannot.
    pub(crate) fn url(&self) -> Option<String> {
        if let Self::Served(server) = self { Some(server.url()) } else { None }
    }

    /// Waits at most `patience` for requests in progress to end and for events to be delivered. The console must have been stopped before.
    pub(crate) async fn stop(&self, patience: Duration) {
        match self {
            Self::None => {}
            Self::Console(endpoint) => endpoint.shut_down(patience).await,
            Self::Served(server) => server.stop(patience).await,
        }
    }
}
