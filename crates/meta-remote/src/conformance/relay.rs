//! A relay in front of a server, which loses answers or holds requests back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// Handling of bytes that arrive at the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    Pass,
    /// Forwards requests, and closes the connection instead of the answer.
    LoseAnswers,
    /// Keeps requests until the mode changes, and closes the client's side at once.
    HoldRequests,
}

/// A running relay. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    mode: Arc<AtomicU8>,
}

impl Relay {
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, mode) = (listener.local_addr().unwrap(), Arc::new(AtomicU8::new(Mode::Pass as u8)));
        let shared = mode.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(upstream) else { continue };
                relay(client, server, &shared);
            }
        });
        Self { address, mode }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }
}

fn relay(client: TcpStream, server: TcpStream, mode: &Arc<AtomicU8>) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (requests, answers) = (mode.clone(), mode.clone());
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || forward_requests(from_client, to_server, &requests));
    thread::spawn(move || forward_answers(server, client, &answers));
}

fn forward_requests(mut client: TcpStream, mut server: TcpStream, mode: &AtomicU8) {
    let mut buffer = [0; 65536];
    while let Ok(len @ 1..) = client.read(&mut buffer) {
        while mode.load(Ordering::SeqCst) == Mode::HoldRequests as u8 {
            let _ = client.shutdown(Shutdown::Both);
            thread::sleep(Duration::from_millis(5));
        }
        if server.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The server does what it has received even if the client is gone.
    thread::sleep(Duration::from_millis(50));
    let _ = server.shutdown(Shutdown::Both);
}

fn forward_answers(mut server: TcpStream, mut client: TcpStream, mode: &AtomicU8) {
    let mut buffer = [0; 65536];
    while let Ok(len @ 1..) = server.read(&mut buffer) {
        let is_lost = mode.load(Ordering::SeqCst) == Mode::LoseAnswers as u8;
        if is_lost || client.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}
