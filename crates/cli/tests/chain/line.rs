//! A line between a client and a server that can be cut, and mended.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Its threads end with the test process.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    ends: Arc<Mutex<Ends>>,
}

#[derive(Debug, Default)]
struct Ends {
    is_cut: bool,
    /// All that clients have sent.
    sent: Vec<u8>,
    open: Vec<TcpStream>,
}

impl Line {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Self { address: listener.local_addr().unwrap(), ends: Arc::default() };
        let ends = Arc::clone(&line.ends);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that comes to nothing is the client's to see.
                let _ = connect(client, server, &ends);
            }
        });
        line
    }

    /// Ends what goes through, in the middle of whatever it is.
    pub(super) fn cut(&self) {
        let mut ends = self.ends.lock().unwrap();
        ends.is_cut = true;
        ends.open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// How often clients have sent a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let ends = self.ends.lock().unwrap();
        ends.sent.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }

    pub(super) fn mend(&self) {
        self.ends.lock().unwrap().is_cut = false;
    }
}

fn connect(client: TcpStream, server: SocketAddr, line: &Arc<Mutex<Ends>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let mut ends = line.lock().unwrap();
    if ends.is_cut {
        return Ok(());
    }
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        ends.open.push(stream.try_clone()?);
    }
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    let sent = Arc::clone(line);
    thread::spawn(move || pass(from, to, |bytes| sent.lock().unwrap().sent.extend_from_slice(bytes)));
    thread::spawn(move || pass(server, client, |_| {}));
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, note: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        note(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
