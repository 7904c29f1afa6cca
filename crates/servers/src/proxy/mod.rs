//! A proxy in front of a server, which fails on demand as networks and servers do.
//!
//! It knows just enough HTTP to tell requests, heads and bodies apart. What it does is asked anew for every piece it hands
//! on, so that a change hits what is under way. Its threads end with the test process.

mod http;
mod relay;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What the proxy does with what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Hands it on.
    #[default]
    Pass,
    /// Ends connections, new ones at once.
    Refuse,
    /// Takes connections and bytes, and nothing comes of it. What it holds goes on with the next mode.
    BlackHole,
    /// Hands on so many bytes a second, on each connection.
    Throttle(u64),
    /// Answers every request with 503 and `SlowDown`.
    Busy,
    /// Answers every request with 500.
    Broken,
    /// Hands requests on, and ends the connection in place of the answer.
    LoseReplies,
    /// Breaks bodies of objects off after so many bytes.
    CutBodies(u64),
    /// Changes a byte in every body of an object.
    FlipBytes,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    switch: Arc<Switch>,
}

impl Proxy {
    /// Starts one in front of a server like `http://127.0.0.1:9000`.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(endpoint: &str) -> Self {
        let upstream = endpoint.trim_start_matches("http://").parse();
        let upstream: SocketAddr =
            upstream.unwrap_or_else(|error| panic!("no address in {endpoint}: {error}"));
        let listener =
            TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no free port: {error}"));
        let switch = Arc::<Switch>::default();
        let of_thread = switch.clone();
        thread::spawn(move || accept(&listener, upstream, &of_thread));
        Self { address, switch }
    }

    /// Where clients reach it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does from now on.
    pub fn set(&self, mode: Mode) {
        self.switch.set(mode);
    }

    /// Requests that came while it was not [`Mode::Pass`].
    pub fn struck(&self) -> u64 {
        self.switch.lock().struck
    }
}

fn accept(listener: &TcpListener, upstream: SocketAddr, switch: &Arc<Switch>) {
    for client in listener.incoming().flatten() {
        let switch = switch.clone();
        thread::spawn(move || {
            // A connection that fails is the client's to see.
            let _ = serve(client, upstream, &switch);
        });
    }
}

fn serve(client: TcpStream, upstream: SocketAddr, switch: &Switch) -> std::io::Result<()> {
    switch.go_on()?;
    client.set_nodelay(true)?;
    let server = TcpStream::connect(upstream)?;
    server.set_nodelay(true)?;
    relay::Relay::new(client, server, switch)?.run()
}

/// The mode, which connections look at and wait for.
#[derive(Debug, Default)]
struct Switch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    struck: u64,
}

impl Switch {
    fn set(&self, mode: Mode) {
        self.lock().mode = mode;
        self.changed.notify_all();
    }

    /// The mode now, counted for a request.
    fn strike(&self) -> Mode {
        let mut state = self.lock();
        state.struck += u64::from(state.mode != Mode::Pass);
        state.mode
    }

    /// Waits while nothing goes on; an error where connections end.
    fn go_on(&self) -> std::io::Result<Mode> {
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
