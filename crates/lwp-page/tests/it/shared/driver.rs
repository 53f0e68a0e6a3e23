//! A browser that does what it is told, by the WebDriver protocol (W3C).
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A browser without a window; it ends when this is dropped.
pub struct Browser {
    driver: Child,
    /// Who reads the driver's words: without a reader it would end.
    _output: BufReader<ChildStdout>,
    port: u16,
    session: String,
}

/// The longest that one command may take: the machine may have much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

impl Browser {
    /// Starts one; `None`, with a message, where there is none.
    pub fn start() -> Option<Self> {
        let started = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut driver) = started else {
            eprintln!("skipped: there is no chromedriver (Debian: chromium-driver)");
            return None;
        };
        let mut output = BufReader::new(driver.stdout.take().expect("a pipe"));
        let port = output.by_ref().lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let port = port.expect("chromedriver says its port");
        let mut browser = Self { driver, _output: output, port, session: String::new() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.ask("POST", "/session", &capabilities);
        let Some(session) = session["sessionId"].as_str() else {
            eprintln!("skipped: no browser could be started: {session}");
            return None;
        };
        browser.session = session.to_owned();
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("it is sent");
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        let mut line = String::new();
        while answer.read_line(&mut line).expect("an answer in time") > 2 {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            line.clear();
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).expect("the whole answer");
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        answer["value"].clone()
    }

    fn command(&self, path: &str, body: Value) -> Value {
        let value = self.ask("POST", &format!("/session/{}/{path}", self.session), &body);
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    /// Opens an address, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.command("url", json!({ "url": url }));
    }

    /// Switches the scripts of pages off; those of the test go on.
    pub fn switch_scripts_off(&self) {
        let off = json!({
            "cmd": "Emulation.setScriptExecutionDisabled", "params": { "value": true },
        });
        self.command("goog/cdp/execute", off);
    }

    /// The first element that a selector finds.
    fn element(&self, selector: &str) -> String {
        let found = self.command("element", json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().and_then(|object| object.values().next()?.as_str());
        id.unwrap_or_else(|| panic!("no {selector}: {found}")).to_owned()
    }

    /// Clicks with the mouse on the first element that a selector finds.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.command(&format!("element/{element}/click"), json!({}));
    }

    /// Types into a field, instead of what is in it.
    pub fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.command(&format!("element/{element}/clear"), json!({}));
        self.command(&format!("element/{element}/value"), json!({ "text": text }));
    }

    /// Returns what a function body of JavaScript does.
    pub fn script(&self, text: &str) -> Value {
        self.command("execute/sync", json!({ "script": text, "args": [] }))
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) {
        for _ in 0..600 {
            if self.script(&format!("return !!({expression});")) == json!(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("never: {expression}; at {}", self.script("return location.href"));
    }

    /// Types keys.
    pub fn keys(&self, keys: &str) {
        let press = |key: char| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.command(
            "actions",
            json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }),
        );
    }

    /// Drags the mouse from one point of the window to another.
    pub fn drag(&self, from: (i64, i64), to: (i64, i64)) {
        let go =
            |(x, y): (i64, i64)| json!({ "type": "pointerMove", "duration": 0, "x": x, "y": y });
        let actions = json!([
            go(from),
            { "type": "pointerDown", "button": 0 },
            go(((from.0 + to.0) / 2, from.1)),
            go(to),
            { "type": "pointerUp", "button": 0 },
        ]);
        self.command(
            "actions",
            json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": actions }] }),
        );
    }

    /// What the console has said since it was last asked: errors of scripts, what the policy has blocked.
    pub fn console(&self) -> Vec<String> {
        let entries = self.command("se/log", json!({ "type": "browser" }));
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
