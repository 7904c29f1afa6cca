//! One connection through the proxy: requests and responses in turn.

use super::http::{Head, Length, error};
use super::{Mode, ModeSwitch};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// Maximum bytes of a body that are forwarded at once.
const PIECE_BYTES: usize = 16 << 10;

pub(super) struct Relay<'s> {
    client: BufReader<TcpStream>,
    to_client: TcpStream,
    server: BufReader<TcpStream>,
    to_server: TcpStream,
    switch: &'s ModeSwitch,
}

/// Which faults apply to a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Other,
    Object,
}

impl<'s> Relay<'s> {
    pub(super) fn new(client: TcpStream, server: TcpStream, switch: &'s ModeSwitch) -> io::Result<Self> {
        let (to_client, to_server) = (client.try_clone()?, server.try_clone()?);
        let (client, server) = (BufReader::new(client), BufReader::new(server));
        Ok(Self { client, to_client, server, to_server, switch })
    }

    /// Relays until either side closes the connection or the mode ends it.
    pub(super) fn run(mut self) -> io::Result<()> {
        while let Some(request) = Head::read(&mut self.client)? {
            self.switch.wait_to_proceed()?;
            match self.switch.count_request() {
                Mode::Busy => self.answer(&request, "503 Slow Down", "SlowDown")?,
                Mode::Broken => self.answer(&request, "500 Internal Server Error", "InternalError")?,
                _ => self.exchange(&request)?,
            }
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
        forward_body(&mut self.client, &mut self.to_server, request.length(), BodyKind::Other, self.switch)?;
        let Some(answer) = Head::read(&mut self.server)? else { return Err(ErrorKind::UnexpectedEof.into()) };
        if self.switch.wait_to_proceed()? == Mode::LoseReplies {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        self.to_client.write_all(&answer.bytes)?;
        if request.is_head() {
            return Ok(());
        }
        let body = if answer.is_object() { BodyKind::Object } else { BodyKind::Other };
        forward_body(&mut self.server, &mut self.to_client, answer.length(), body, self.switch)
    }
}

fn forward_body(
    from: &mut impl BufRead,
    to: &mut impl Write,
    length: Length,
    body: BodyKind,
    switch: &ModeSwitch,
) -> io::Result<()> {
    match length {
        Length::Bytes(bytes) => forward_bytes(from, to, bytes, body, switch),
        Length::Chunked => loop {
            let mut line = Vec::new();
            from.read_until(b'\n', &mut line)?;
            to.write_all(&line)?;
            let digits = String::from_utf8_lossy(&line).trim().to_owned();
            let bytes = u64::from_str_radix(&digits, 16).map_err(io::Error::other)?;
            // The line end after the chunk is part of the forwarded bytes.
            forward_bytes(from, to, bytes + 2, BodyKind::Other, switch)?;
            if bytes == 0 {
                return Ok(());
            }
        },
    }
}

fn forward_bytes(
    from: &mut impl Read,
    to: &mut impl Write,
    bytes: u64,
    body: BodyKind,
    switch: &ModeSwitch,
) -> io::Result<()> {
    let (mut forwarded, mut buffer) = (0, [0; PIECE_BYTES]);
    while forwarded < bytes {
        let wanted = buffer.len().min((bytes - forwarded) as usize);
        let piece = match from.read(&mut buffer[..wanted])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => &mut buffer[..count],
        };
        match (switch.wait_to_proceed()?, body) {
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
        to.write_all(piece)?;
        forwarded += piece.len() as u64;
    }
    Ok(())
}
