//! The console as an HTTP server.

use crate::application::Application;
use crate::options::ConsoleOptions;
use crate::process::Process;
use crate::router;
use listen::{Limits, ListenError, Listener};
use rustls::ServerConfig;
use s3::Endpoint;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy};
use tokio::task::AbortHandle;

/// Maximum number of connections.
const CONNECTIONS_MAX: u32 = 256;

/// A listening console. It ends when it is stopped or dropped.
#[derive(Debug)]
pub struct Console {
    listener: Listener,
    /// The task that records the figures of the plots.
    sampling: AbortHandle,
}

impl Console {
    /// Listens at an address and serves from then on, over TLS if `tls` is given. Port 0 chooses a free port.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub async fn start(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        endpoint: Endpoint,
        process: Arc<dyn Process>,
        options: ConsoleOptions,
        (clock, entropy): (Arc<dyn Clock>, Arc<Entropy>),
    ) -> Result<Self, ListenError> {
        let is_tls = tls.is_some();
        let application = Arc::new(Application::new(endpoint, process, options, is_tls, (clock, entropy)));
        let sampled = application.clone();
        let sample = move || sampled.clone().run_sampler();
        let sampling = tokio::spawn(store::supervise("plots of the console", sample)).abort_handle();
        let answer = move |request, peer| router::answer(application.clone(), request, peer);
        let limits = Limits { connections: CONNECTIONS_MAX, ..Limits::default() };
        let listener = Listener::start(address, limits, tls, answer).await;
        let listener = listener.inspect_err(|_| sampling.abort())?;
        Ok(Self { listener, sampling })
    }

    /// Returns the address that the console listens at.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the URL of the console's root.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// Accepts no further connections and requests. Waits at most `patience` for the requests in progress to end.
    pub async fn stop(&self, patience: Duration) {
        self.sampling.abort();
        if !self.listener.stop(patience).await {
            tracing::warn!(
                "the console no longer waits for the requests that are still in progress; their browsers may get no response, and uploads may be incomplete"
            );
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.sampling.abort();
    }
}
