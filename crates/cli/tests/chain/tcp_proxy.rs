//! A TCP proxy between a client and a server whose connections can be cut and restored.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A TCP proxy. Its threads end with the test process.
#[derive(Debug)]
pub(crate) struct TcpProxy {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    is_cut: bool,
    /// All bytes that clients have sent.
    sent: Vec<u8>,
    open: Vec<TcpStream>,
}

impl TcpProxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), connections: Arc::default() };
        let connections = Arc::clone(&proxy.connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server cannot be reached, the client sees its connection closed.
                let _ = connect(client, server, &connections);
            }
        });
        proxy
    }

    /// Closes all connections, in the middle of whatever they transfer, and refuses new ones.
    pub(super) fn cut(&self) {
        let mut connections = self.connections.lock().unwrap();
        connections.is_cut = true;
        connections.open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Counts how often clients have sent a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let connections = self.connections.lock().unwrap();
        connections.sent.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }

    pub(super) fn restore(&self) {
        self.connections.lock().unwrap().is_cut = false;
    }
}

fn connect(client: TcpStream, server: SocketAddr, shared: &Arc<Mutex<Connections>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let mut connections = shared.lock().unwrap();
    if connections.is_cut {
        return Ok(());
    }
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        connections.open.push(stream.try_clone()?);
    }
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    let sent = Arc::clone(shared);
    thread::spawn(move || transfer(from, to, |bytes| sent.lock().unwrap().sent.extend_from_slice(bytes)));
    thread::spawn(move || transfer(server, client, |_| {}));
    Ok(())
}

fn transfer(mut from: TcpStream, mut to: TcpStream, observe: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        observe(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
