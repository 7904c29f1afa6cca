//! HTTP requests as no browser sends them, each on a connection of its own.

use crate::fixture::{SECRET, TestConsole};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the value of a header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(header, _)| header.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value.trim())
    }
}

/// A client with the cookie of a session.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Client {
    pub(crate) fn without_session(console: &TestConsole) -> Self {
        Self { address: console.address(), cookie: String::new(), csrf: String::new() }
    }

    /// Signs a user in.
    pub(crate) fn sign_in(console: &TestConsole, user: &str) -> Self {
        let mut client = Self::without_session(console);
        let answer = client.try_sign_in(user, SECRET);
        assert_eq!((answer.status, answer.header("location")), (303, "/"), "{answer:?}");
        client.cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        let page = client.get("/buckets");
        let token = page.body.split_once("name=\"csrf\" content=\"").unwrap().1.split('"').next().unwrap();
        client.csrf = token.to_owned();
        client
    }

    pub(crate) fn try_sign_in(&self, user: &str, secret: &str) -> Answer {
        self.post_with("/sign-in", &[], &format!("access_key={user}&secret_key={secret}"))
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], b"")
    }

    /// Posts a form with the CSRF token of the session.
    pub(crate) fn post(&self, target: &str, form: &str) -> Answer {
        self.post_with(target, &[], &format!("csrf={}&{form}", self.csrf))
    }

    pub(crate) fn post_with(&self, target: &str, headers: &[(&str, &str)], form: &str) -> Answer {
        let mut all = vec![("content-type", "application/x-www-form-urlencoded")];
        all.extend(headers);
        self.send("POST", target, &all, form.as_bytes())
    }

    /// Sends bytes as the script uploads a file.
    pub(crate) fn upload(&self, target: &str, bytes: &[u8]) -> Answer {
        self.send("POST", target, &[("x-csrf-token", &self.csrf)], bytes)
    }

    pub(crate) fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let (address, length) = (self.address, body.len());
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        if !self.cookie.is_empty() {
            head.push_str(&format!("cookie: {}\r\n", self.cookie));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if length > 0 || method == "POST" {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // A refused body may not be read to its end.
        stream.write_all(body).ok();
        read_answer(stream)
    }
}

/// Reads a response until the end of the connection.
pub(crate) fn read_answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
