//! The server's pages in a browser. Skipped with a message where there is no chromedriver.
//!
//! Promise: FL16: in Chromium
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::driver;
use crate::shared::facts;
use crate::shared::http;

use std::path::Path;
use std::process::{Command, Stdio};

use driver::Browser;
use facts::{commit, of};
use http::Served;

/// A name that tries to get out of its place.
const HOSTILE: &str = "</title><script>document.title='broken'</script>\\\"'><img src=x onerror=document.title='broken'>";

fn fleet(store: &Path, words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
    command.args(words).env("LWP_FLEET_STORE", store).stdin(Stdio::null());
    let output = command.output().expect("lwp-fleet starts");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A server of six commits, of which the fourth has a step.
fn served(dir: &Path) -> Served {
    let store = dir.join("store");
    fleet(&store, &["init"]);
    let server = Served::start(&store, &[]);
    for n in 1..=6 {
        let scale = if n < 4 { 100 } else { 130 };
        for benchmark in ["parse", HOSTILE] {
            let text = of(n, scale, benchmark, "main").replace("function_7", HOSTILE);
            let (status, _, body) = server.ask("POST", "/v1/recordings", text.as_bytes());
            assert_eq!(status, 201, "{body}");
        }
    }
    server
}

#[test]
fn pages_are_shown_without_errors_and_lead_from_a_step_to_its_flame_graph() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = served(dir.path());
    let site = format!("http://{}", server.address);
    // Without a token a browser is asked for one; with it, it is known.
    browser.open(&format!("{site}/"));
    assert_eq!(browser.script("return location.pathname"), "/enter");
    let type_in = format!(
        "document.querySelector('input[name=token]').value = '{}'; document.querySelector('main form').submit()",
        server.secret
    );
    browser.script(&type_in);
    browser.until("document.querySelector('main a.button')");
    let (a, b) = (commit(3), commit(4));
    let pages = [
        "/".to_owned(),
        "/benchmarks".to_owned(),
        "/history".to_owned(),
        "/history?f=function_7&filter=benchmark%3Dparse".to_owned(),
        "/steps".to_owned(),
        format!("/compare?a={a}&b={b}"),
        "/top".to_owned(),
        "/top?by=line".to_owned(),
        "/sql?q=select+*+from+recordings".to_owned(),
        "/of/none/all/summary".to_owned(),
        "/of/none/all/tree".to_owned(),
        "/of/none/benchmark=parse/calls".to_owned(),
    ];
    for page in &pages {
        browser.open(&format!("{site}{page}"));
        browser.until("document.documentElement.classList.contains('scripted')");
        let title = browser.script("return document.title").to_string();
        assert!(title.contains("lwp") && !title.starts_with("\"broken"), "{page}: {title}");
        let strange =
            "return document.images.length + document.querySelectorAll('body script').length";
        assert_eq!(browser.script(strange), 0, "{page}");
        let elsewhere = browser.script(
            "return performance.getEntriesByType('resource').filter(function (entry) { \
             return !entry.name.startsWith(location.origin + '/'); }).length",
        );
        assert_eq!(elsewhere, 0, "{page}");
        assert_eq!(browser.console(), Vec::<String>::new(), "{page}");
    }
    // The history's picture: six points, one step, which leads to the comparison, and that to the flame graph.
    browser.open(&format!("{site}/history?filter=benchmark%3Dparse"));
    browser.until("document.documentElement.classList.contains('scripted')");
    assert_eq!(browser.script("return document.querySelectorAll('svg.chart circle').length"), 6);
    assert_eq!(browser.script("return document.querySelectorAll('svg.chart a.step.up').length"), 1);
    browser.script("document.querySelector('svg.chart a.step').dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))");
    browser.until("document.body.dataset.view === 'compare'");
    let first = browser
        .script(
            "return document.querySelector('td.more') && document.querySelector('h2').textContent",
        )
        .to_string();
    assert!(first.contains("parse"), "{first}");
    browser.script("Array.from(document.querySelectorAll('h2 a')).find(function (a) { return a.textContent.startsWith('diff'); }).click()");
    browser.until("document.body.dataset.view === 'flame'");
    assert_eq!(
        browser.script("return document.querySelector('h1').firstChild.textContent.trim()"),
        "Icicle graph".replace("Icicle", "Differential flame").as_str()
    );
    browser.until("document.querySelectorAll('svg.flame .r1, svg.flame .r2').length > 3");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn notes_are_written_on_a_page_and_keys_lead_through_the_views() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = served(dir.path());
    let site = format!("http://{}", server.address);
    browser.open(&format!("{site}/enter/{}", server.secret));
    browser.open(&format!("{site}/history?filter=benchmark%3Dparse"));
    browser.until("document.documentElement.classList.contains('scripted')");
    // The step's commit is the one that the form offers.
    let offered = browser.script("return document.querySelector('select[name=commit]').value");
    assert_eq!(offered, commit(4).as_str());
    browser.script("document.querySelector('input[name=text]').value = 'expected: <b>the</b> new parser'; document.querySelector('form[action=\"/notes\"]').submit()");
    browser.until("document.querySelector('svg.chart a.noted')");
    let said = browser.script("return Array.from(document.querySelectorAll('td.said'), (cell) => cell.textContent).filter(Boolean)");
    assert_eq!(said, serde_json::json!(["expected: <b>the</b> new parser"]));
    for (key, view) in [
        ("2", "benchmarks"),
        ("3", "steps"),
        ("4", "compare"),
        ("5", "top"),
        ("6", "sql"),
        ("1", "recordings"),
    ] {
        browser.keys(key);
        browser.until(&format!("document.body.dataset.view === '{view}'"));
    }
    browser.keys("jj");
    browser.until("document.querySelectorAll('tr.here').length === 1");
    browser.keys("?");
    browser.until("document.getElementById('help').open");
    assert_eq!(browser.console(), Vec::<String>::new());
}
