//! One connection through the proxy: requests and responses in turn.

use super::http::{Head, Length, error};
use super::pacer::Direction;
use super::{Mode, ProxyState};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Maximum bytes of a body that are forwarded at once.
const PIECE_BYTES: usize = 64 << 10;

/// A connection of a client, and one to the server.
pub(super) struct Relay<'s> {
    client: BufReader<TcpStream>,
    to_client: TcpStream,
    server: BufReader<TcpStream>,
    to_server: TcpStream,
    upstream: SocketAddr,
    state: &'s ProxyState,
}

/// The kind of a body. Faults that cut or change bodies apply to objects only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Other,
    Object,
}

impl<'s> Relay<'s> {
    pub(super) fn new(client: TcpStream, upstream: SocketAddr, state: &'s ProxyState) -> io::Result<Self> {
        let (server, to_client) = (connect(upstream)?, client.try_clone()?);
        let to_server = server.try_clone()?;
        let (client, server) = (BufReader::new(client), BufReader::new(server));
        Ok(Self { client, to_client, server, to_server, upstream, state })
    }

    /// Relays until either side closes the connection or the mode ends it.
    pub(super) fn run(mut self) -> io::Result<()> {
        while let Some(request) = Head::read(&mut self.client)? {
            self.state.switch.wait_to_proceed()?;
            // Reconnect before the request is counted: a request that never reaches the server must not count.
            self.reconnect_if_closed()?;
            self.state.count_request(request.kind());
            match self.state.switch.count_request() {
                Mode::Busy => self.answer(&request, "503 Slow Down", "SlowDown")?,
                Mode::Broken => self.answer(&request, "500 Internal Server Error", "InternalError")?,
                _ => self.exchange(&request)?,
            }
        }
        Ok(())
    }

    /// Connects again if the server has closed the connection while it was idle.
    fn reconnect_if_closed(&mut self) -> io::Result<()> {
        if self.server.buffer().is_empty() && is_closed(self.server.get_ref())? {
            let server = connect(self.upstream)?;
            self.to_server = server.try_clone()?;
            self.server = BufReader::new(server);
        }
        Ok(())
    }

    /// Answers in place of the server.
    fn answer(&mut self, request: &Head, status: &str, code: &str) -> io::Result<()> {
        if let Length::Bytes(bytes) = request.length() {
            io::copy(&mut (&mut self.client).take(bytes), &mut io::sink())?;
        }
        let answer = error(status, code);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        self.to_client.write_all(if request.is_head() { &answer[..end] } else { &answer })
    }

    fn exchange(&mut self, request: &Head) -> io::Result<()> {
        self.to_server.write_all(&request.bytes)?;
        if request.awaits_continue() {
            let answer = self.read_answer()?;
            if !answer.is_interim() {
                // The server refuses the body. The client may send it all the same, so the connection cannot be used again.
                self.forward_answer(request, &answer)?;
                return Err(ErrorKind::ConnectionAborted.into());
            }
            self.to_client.write_all(&answer.bytes)?;
        }
        let mut up = Body::new(self.state, Direction::Up, BodyKind::Other);
        up.forward(&mut self.client, &mut self.to_server, request.length())?;
        let mut answer = self.read_answer()?;
        while answer.is_interim() {
            self.to_client.write_all(&answer.bytes)?;
            answer = self.read_answer()?;
        }
        self.forward_answer(request, &answer)
    }

    fn read_answer(&mut self) -> io::Result<Head> {
        Head::read(&mut self.server)?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    fn forward_answer(&mut self, request: &Head, answer: &Head) -> io::Result<()> {
        if self.state.switch.wait_to_proceed()? == Mode::LoseReplies {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        self.state.pacers.wait_round_trip();
        self.to_client.write_all(&answer.bytes)?;
        if request.is_head() {
            return Ok(());
        }
        let kind = if answer.is_object() { BodyKind::Object } else { BodyKind::Other };
        let mut down = Body::new(self.state, Direction::Down, kind);
        down.forward(&mut self.server, &mut self.to_client, answer.length())
    }
}

fn connect(upstream: SocketAddr) -> io::Result<TcpStream> {
    let server = TcpStream::connect(upstream)?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// Returns whether the other side of an idle connection has closed it.
fn is_closed(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(match peeked {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    })
}

/// A body that passes the proxy.
struct Body<'s> {
    state: &'s ProxyState,
    direction: Direction,
    kind: BodyKind,
}

impl<'s> Body<'s> {
    fn new(state: &'s ProxyState, direction: Direction, kind: BodyKind) -> Self {
        Self { state, direction, kind }
    }

    fn forward(&mut self, from: &mut impl BufRead, to: &mut impl Write, length: Length) -> io::Result<()> {
        match length {
            Length::Bytes(bytes) => self.forward_bytes(from, to, bytes),
            Length::Chunked => self.forward_chunks(from, to),
        }
    }

    /// Forwards a body in chunks. Faults of objects do not apply to it.
    fn forward_chunks(&mut self, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
        self.kind = BodyKind::Other;
        loop {
            let mut line = Vec::new();
            from.read_until(b'\n', &mut line)?;
            to.write_all(&line)?;
            let text = String::from_utf8_lossy(&line);
            let digits = text.split(';').next().unwrap_or_default().trim();
            let bytes = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
            // The line end after the chunk is part of the forwarded bytes.
            self.forward_bytes(from, to, bytes + 2)?;
            if bytes == 0 {
                return Ok(());
            }
        }
    }

    fn forward_bytes(&mut self, from: &mut impl Read, to: &mut impl Write, bytes: u64) -> io::Result<()> {
        let (mut forwarded, mut buffer) = (0, [0; PIECE_BYTES]);
        while forwarded < bytes {
            let wanted = buffer.len().min((bytes - forwarded) as usize);
            let piece = match from.read(&mut buffer[..wanted])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => &mut buffer[..count],
            };
            match (self.state.switch.wait_to_proceed()?, self.kind) {
                (Mode::Throttle(per_second), _) => {
                    thread::sleep(Duration::from_secs_f64(piece.len() as f64 / per_second.max(1) as f64));
                }
                (Mode::CutBodies(after), BodyKind::Object) if forwarded + piece.len() as u64 > after => {
                    to.write_all(&piece[..(after.saturating_sub(forwarded)) as usize])?;
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                (Mode::FlipBytes, BodyKind::Object) if forwarded == 0 => piece[0] ^= 0xff,
                _ => {}
            }
            self.state.pacers.wait_for_bytes(self.direction, piece.len());
            // Counted before the piece is sent: a client that has a whole body finds all its bytes counted.
            self.state.count_bytes(self.direction, piece.len());
            to.write_all(piece)?;
            forwarded += piece.len() as u64;
        }
        Ok(())
    }
}
