//! A proxy in front of a server that injects network and server faults on demand.
//!
//! It parses just enough HTTP to tell requests, heads and bodies apart. It reads the mode again for each piece that it forwards, so
//! that a change of mode takes effect in the middle of a transfer. Its threads end with the test process.

mod http;
mod relay;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The fault that the proxy injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Forwards everything.
    #[default]
    Pass,
    /// Closes all connections, new ones immediately.
    Refuse,
    /// Accepts connections and bytes, and forwards nothing. Held bytes continue once the mode changes.
    BlackHole,
    /// Forwards at most this many bytes per second on each connection.
    Throttle(u64),
    /// Answers each request with 503 and `SlowDown`.
    Busy,
    /// Answers each request with 500.
    Broken,
    /// Forwards requests, and closes the connection instead of sending the response.
    LoseReplies,
    /// Closes the connection after this many bytes of an object's body.
    CutBodies(u64),
    /// Changes one byte of each object's body.
    FlipBytes,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    switch: Arc<ModeSwitch>,
}

impl Proxy {
    /// Starts a proxy for a server such as `http://127.0.0.1:9000`.
    ///
    /// # Panics
    /// Panics if there is no free port.
    pub fn start(endpoint: &str) -> Self {
        let upstream = endpoint.trim_start_matches("http://").parse();
        let upstream: SocketAddr =
            upstream.unwrap_or_else(|error| panic!("the endpoint {endpoint} has no socket address: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0")
            .unwrap_or_else(|error| panic!("cannot listen on the loopback interface: {error}"));
        let address =
            listener.local_addr().unwrap_or_else(|error| panic!("the listener has no address: {error}"));
        let switch = Arc::<ModeSwitch>::default();
        let thread_switch = switch.clone();
        thread::spawn(move || accept(&listener, upstream, &thread_switch));
        Self { address, switch }
    }

    /// Returns the URL for clients.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the mode from now on.
    pub fn set(&self, mode: Mode) {
        self.switch.set(mode);
    }

    /// Returns the number of requests that arrived in a mode other than [`Mode::Pass`].
    pub fn struck(&self) -> u64 {
        self.switch.lock().struck
    }
}

fn accept(listener: &TcpListener, upstream: SocketAddr, switch: &Arc<ModeSwitch>) {
    for client in listener.incoming().flatten() {
        let switch = switch.clone();
        thread::spawn(move || {
            // The client sees a failed connection itself.
            let _ = serve(client, upstream, &switch);
        });
    }
}

fn serve(client: TcpStream, upstream: SocketAddr, switch: &ModeSwitch) -> std::io::Result<()> {
    switch.wait_to_proceed()?;
    client.set_nodelay(true)?;
    let server = TcpStream::connect(upstream)?;
    server.set_nodelay(true)?;
    relay::Relay::new(client, server, switch)?.run()
}

/// The current mode. Connections read it and wait for its changes.
#[derive(Debug, Default)]
struct ModeSwitch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    struck: u64,
}

impl ModeSwitch {
    fn set(&self, mode: Mode) {
        self.lock().mode = mode;
        self.changed.notify_all();
    }

    /// Returns the mode for a new request, and counts the request if the mode is a fault.
    fn count_request(&self) -> Mode {
        let mut state = self.lock();
        state.struck += u64::from(state.mode != Mode::Pass);
        state.mode
    }

    /// Waits while the mode is a black hole. Returns an error if connections are to end.
    fn wait_to_proceed(&self) -> std::io::Result<Mode> {
        let waiting = self.changed.wait_while(self.lock(), |state| state.mode == Mode::BlackHole);
        match waiting.unwrap_or_else(PoisonError::into_inner).mode {
            Mode::Refuse => Err(std::io::ErrorKind::ConnectionRefused.into()),
            mode => Ok(mode),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
