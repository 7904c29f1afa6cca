//! A proxy in front of an S3 endpoint that counts requests, shapes the connection, and injects faults on demand.
//!
//! It parses just enough HTTP to tell requests, heads and bodies apart, and passes everything on as it came, the Host header too, so that
//! signatures hold. It reads the mode again for each piece that it forwards, so that a change of mode takes effect in the middle of a
//! transfer. The thread of a connection ends with the connection, the thread that accepts connections with the process.

mod http;
mod pacer;
mod relay;
mod traffic;

pub use pacer::Shape;
pub use traffic::{RequestKind, Traffic};

use pacer::{Direction, Pacers};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The fault that the proxy injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Forwards everything.
    #[default]
    Pass,
    /// Closes new connections immediately, and each existing one at its next request or next piece of a body.
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

/// A running proxy. Clones are handles of the one proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

/// State that all connections share.
#[derive(Debug)]
struct ProxyState {
    switch: ModeSwitch,
    /// Requests by kind. Bytes are counted apart, without a lock.
    requests: Mutex<BTreeMap<RequestKind, u64>>,
    uploaded_bytes: AtomicU64,
    downloaded_bytes: AtomicU64,
    pacers: Pacers,
}

impl Proxy {
    /// Starts a proxy for a server such as `http://127.0.0.1:9000`.
    ///
    /// # Errors
    /// If the endpoint has no host and port, or there is no free port.
    pub fn start(endpoint: &str) -> io::Result<Self> {
        Self::start_shaped(endpoint, Shape::default())
    }

    /// Starts a proxy whose connections have the latency and bandwidth of a network.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub fn start_shaped(endpoint: &str, shape: Shape) -> io::Result<Self> {
        let authority = endpoint.trim_start_matches("http://").trim_end_matches('/');
        let upstream = authority.to_socket_addrs()?.next();
        let upstream = upstream.ok_or_else(|| io::Error::other(format!("{endpoint} has no address")))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(ProxyState {
            switch: ModeSwitch::default(),
            requests: Mutex::default(),
            uploaded_bytes: AtomicU64::default(),
            downloaded_bytes: AtomicU64::default(),
            pacers: Pacers::new(shape),
        });
        let thread_state = state.clone();
        thread::spawn(move || accept(&listener, upstream, &thread_state));
        Ok(Self { address, state })
    }

    /// Returns the URL for clients.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the mode, for new requests and for bodies in transfer.
    pub fn set(&self, mode: Mode) {
        self.state.switch.set(mode);
    }

    /// Returns the number of requests that were forwarded or answered in a mode other than [`Mode::Pass`]. Requests that [`Mode::Refuse`]
    /// ends are not counted; requests held by [`Mode::BlackHole`] count by the mode that follows it.
    pub fn struck(&self) -> u64 {
        self.state.switch.lock().struck
    }

    /// Returns the requests and bytes since the start.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.state.requests().clone(),
            uploaded_bytes: self.state.uploaded_bytes.load(Ordering::Relaxed),
            downloaded_bytes: self.state.downloaded_bytes.load(Ordering::Relaxed),
        }
    }
}

impl ProxyState {
    fn requests(&self) -> MutexGuard<'_, BTreeMap<RequestKind, u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_request(&self, kind: RequestKind) {
        *self.requests().entry(kind).or_default() += 1;
    }

    fn count_bytes(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Up => &self.uploaded_bytes,
            Direction::Down => &self.downloaded_bytes,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, upstream: SocketAddr, state: &Arc<ProxyState>) {
    for client in listener.incoming().flatten() {
        let state = state.clone();
        thread::spawn(move || {
            // The client sees a failed connection itself.
            let _ = serve(client, upstream, &state);
        });
    }
}

fn serve(client: TcpStream, upstream: SocketAddr, state: &ProxyState) -> io::Result<()> {
    state.switch.wait_to_proceed()?;
    client.set_nodelay(true)?;
    let relay = relay::Relay::new(client, upstream, state)?;
    // A connection over a network takes a round trip before its first request.
    state.pacers.wait_round_trip();
    relay.run()
}

/// The current mode. Connections read it and wait for its changes.
#[derive(Debug, Default)]
struct ModeSwitch {
    state: Mutex<SwitchState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SwitchState {
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

    /// Waits while the mode is a black hole, and returns the mode then. Returns an error if the mode is [`Mode::Refuse`].
    fn wait_to_proceed(&self) -> io::Result<Mode> {
        let waiting = self.changed.wait_while(self.lock(), |state| state.mode == Mode::BlackHole);
        match waiting.unwrap_or_else(PoisonError::into_inner).mode {
            Mode::Refuse => Err(io::ErrorKind::ConnectionRefused.into()),
            mode => Ok(mode),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SwitchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stopwatch;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::time::Duration;

    /// Answers each request with a body of `bytes`, and closes the connection after `requests_each`.
    fn server(bytes: usize, requests_each: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                    let (mut client, body) = (client, vec![b'x'; bytes]);
                    for _ in 0..requests_each {
                        while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
                        client.write_all(head.as_bytes()).unwrap();
                        client.write_all(&body).unwrap();
                    }
                });
            }
        });
        address
    }

    fn get(stream: &mut TcpStream, bytes: usize) -> bool {
        stream.write_all(b"GET /b/k HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
        let mut from = BufReader::new(stream);
        let mut line = String::new();
        while from.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        let mut body = vec![0; bytes];
        from.read_exact(&mut body).is_ok()
    }

    /// A server may close a connection that the client keeps: the request goes through a new one, and is counted once.
    #[test]
    fn a_request_after_the_server_closed_an_idle_connection_is_counted_once() {
        let proxy = Proxy::start(&format!("http://{}", server(3, 1))).unwrap();
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        for count in 1..=3 {
            assert!(get(&mut stream, 3));
            assert_eq!(proxy.traffic().requests.get(&RequestKind::Get), Some(&count));
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(proxy.traffic().downloaded_bytes, 9);
    }

    /// Several streams share the bandwidth. A busy machine may be slower than the link for a moment, so the best of some tries counts; no
    /// try is faster.
    #[test]
    fn shaped_bandwidth_is_within_five_percent() {
        const BYTES: usize = 4 << 20;
        let bandwidth = 25_000_000;
        let shape = Shape { bandwidth_bytes: Some(bandwidth), ..Shape::default() };
        let proxy = Proxy::start_shaped(&format!("http://{}", server(BYTES, 2)), shape).unwrap();
        let address = proxy.address;
        let measure = || {
            let watch = Stopwatch::start();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| assert!(get(&mut TcpStream::connect(address).unwrap(), BYTES)));
                }
            });
            3.0 * BYTES as f64 / watch.elapsed().as_secs_f64() / bandwidth as f64
        };
        let mut shares = Vec::new();
        while shares.len() < 8 && !shares.iter().any(|share| *share > 0.95) {
            shares.push(measure());
        }
        assert!(shares.iter().all(|share| *share < 1.05), "{shares:?}");
        assert!(shares.last().unwrap() > &0.95, "{shares:?}");
    }
}
