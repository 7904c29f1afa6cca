//! Headless Chromium, driven by WebDriver (W3C Recommendation "WebDriver") through Debian's `chromedriver`.

use crate::program::find_debian_program;
use crate::server::{Server, ServerSpec};
use base64::Engine as _;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Pause between two checks of a condition, and their maximum number.
const POLL_PAUSE: Duration = Duration::from_millis(25);
const POLLS_MAX: u32 = 1200;
/// Name of the property that refers to an element, by the standard.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Dropping it ends the browser and removes its profile.
#[derive(Debug)]
pub struct Browser {
    server: Server,
    session: String,
}

#[derive(Debug)]
struct Chromedriver;

impl ServerSpec for Chromedriver {
    fn name(&self) -> &'static str {
        "chromedriver"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(find_debian_program("chromedriver", "chromium chromium-driver"));
        command.arg(format!("--port={}", address.port())).env("TMPDIR", dir);
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }
}

impl Browser {
    /// Starts a browser with an empty profile and a window of 1400 by 1000 pixels.
    ///
    /// # Panics
    /// Panics if the browser does not start.
    pub fn start() -> Self {
        let server = Server::launch(Box::new(Chromedriver));
        let profile = format!("--user-data-dir={}", server.data_dir().join("profile").display());
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,1000",
            &profile,
        ];
        let options = json!({"browserName": "chrome", "goog:chromeOptions": {"args": flags}});
        let mut browser = Self { server, session: String::new() };
        let made = browser.call("POST", "/session", &json!({"capabilities": {"alwaysMatch": options}}));
        browser.session = format!("/session/{}", text(&made["sessionId"]));
        browser
    }

    /// Loads a page, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.session_call("POST", "/url", &json!({"url": url}));
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        text(&self.session_call("GET", "/url", &Value::Null)).to_owned()
    }

    /// Runs the body of a function in the page, with arguments, and returns its result.
    pub fn run(&self, script: &str, arguments: &[&str]) -> Value {
        self.session_call("POST", "/execute/sync", &json!({"script": script, "args": arguments}))
    }

    /// Clicks the first element that a CSS selector finds: one that changes the page, but does not load another (see [`Self::follow`]).
    ///
    /// # Panics
    /// Panics if there is no such element, or if it cannot be clicked because another element covers it.
    pub fn click(&self, selector: &str) {
        self.element_call(selector, "click", &json!({}));
    }

    /// Clicks the link or button that a CSS selector finds, and waits until the page that it loads has replaced this one.
    ///
    /// # Panics
    /// Panics like [`Self::click`], or if no page is loaded within 30 seconds.
    pub fn follow(&self, selector: &str) {
        // The driver does not wait for the answer to a form. A property of the window is lost when its document is replaced.
        self.run("window.isLeft = true", &[]);
        self.click(selector);
        self.wait_until("return !window.isLeft && document.readyState === 'complete'", &[]);
    }

    /// Types a text into the first element that a CSS selector finds. For the input of a file, the text is its path.
    ///
    /// # Panics
    /// Panics if there is no such element.
    pub fn type_into(&self, selector: &str, text: &str) {
        self.element_call(selector, "value", &json!({"text": text}));
    }

    /// Types a text or keys (WebDriver, "Keyboard actions") into the element that has the focus.
    pub fn press(&self, keys: &str) {
        let active = self.session_call("GET", "/element/active", &Value::Null);
        let path = format!("/element/{}/value", text(&active[ELEMENT]));
        self.session_call("POST", &path, &json!({"text": keys}));
    }

    /// Removes the text of the first element that a CSS selector finds.
    ///
    /// # Panics
    /// Panics if there is no such element.
    pub fn clear(&self, selector: &str) {
        self.element_call(selector, "clear", &json!({}));
    }

    /// Returns the text of the page that is visible.
    pub fn visible_text(&self) -> String {
        text(&self.run("return document.body.innerText", &[])).to_owned()
    }

    /// Waits until a script returns true.
    ///
    /// # Panics
    /// Panics if it does not within 30 seconds.
    pub fn wait_until(&self, script: &str, arguments: &[&str]) {
        for _ in 0..POLLS_MAX {
            if self.run(script, arguments) == json!(true) {
                return;
            }
            std::thread::sleep(POLL_PAUSE);
        }
        panic!("the page does not reach the state `{script}`; it is {}: {}", self.url(), self.visible_text());
    }

    /// Sets the size of the screen in pixels, and whether the user prefers dark colours.
    pub fn set_screen(&self, width: u32, height: u32, is_dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &media);
    }

    /// Returns a picture of the whole page as PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let taken = self.devtools("Page.captureScreenshot", &json!({"captureBeyondViewport": true}));
        let decoded = base64::engine::general_purpose::STANDARD.decode(text(&taken["data"]));
        decoded.unwrap_or_else(|error| panic!("the picture cannot be read: {error}"))
    }

    /// Removes all cookies.
    pub fn forget_cookies(&self) {
        self.session_call("DELETE", "/cookie", &Value::Null);
    }

    /// Makes a call of the DevTools protocol.
    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.session_call("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Makes a call about the first element that a selector finds. Finds it again if the page has replaced it meanwhile.
    fn element_call(&self, selector: &str, action: &str, body: &Value) {
        let wanted = json!({"using": "css selector", "value": selector});
        for _ in 0..POLLS_MAX {
            let found = self.session_call("POST", "/element", &wanted);
            let path = format!("{}/element/{}/{action}", self.session, text(&found[ELEMENT]));
            match self.try_call("POST", &path, body) {
                Err(error) if error.contains("stale element reference") => std::thread::sleep(POLL_PAUSE),
                result => {
                    return drop(result.unwrap_or_else(|error| panic!("{action} of {selector}: {error}")));
                }
            }
        }
        panic!("{action} of {selector}: the page replaces the element again and again");
    }

    fn session_call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("{}{path}", self.session), body)
    }

    /// Makes a call of WebDriver, and returns its value. Panics if the call fails.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Makes a call of WebDriver, and returns its value, or what was wrong.
    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answered = exchange(self.server.address(), method, path, &body);
        let (head, body) = answered.map_err(|error| error.to_string())?;
        if !head.contains(" 200 ") {
            return Err(body);
        }
        let document: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        Ok(document["value"].clone())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser. The driver is killed with its process group in any case.
        if !self.session.is_empty() {
            let _ = exchange(self.server.address(), "DELETE", &self.session, "");
        }
    }
}

/// Sends a request, and returns the head and the body of its response.
fn exchange(address: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes())?;
    let mut from = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while from.read_line(&mut head)? > 2 {
        let last = head.lines().last().unwrap_or_default().to_ascii_lowercase();
        if let Some(value) = last.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}
