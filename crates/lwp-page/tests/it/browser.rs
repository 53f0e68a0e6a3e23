//! Pages in a browser. Skipped with a message where there is no chromedriver.

use crate::shared::driver;
use crate::shared::subjects;

use std::sync::Arc;

use driver::Browser;
use lwp_page::{Pages, Server, Subject, View};

/// What a name may try.
const HOSTILE: &str = "</title><script>document.title='broken'</script>\"'><img src=x onerror=document.title='broken'>";

/// A server that runs as long as the test; its first page's address.
fn serve(subjects: Vec<Subject>) -> String {
    let server = Server::bind(0).expect("a free port");
    let token = lwp_page::token().expect("random numbers");
    let url = server.url(&token);
    let shelf: Vec<Arc<Subject>> = subjects.into_iter().map(Arc::new).collect();
    let pages = Pages { shelf: Box::new(shelf), token, hosts: server.hosts() };
    let server = std::thread::Builder::new().spawn(move || server.run(pages));
    server.expect("a thread");
    url
}

#[test]
fn views_are_shown_without_errors_and_nothing_is_loaded_from_elsewhere() {
    let Some(browser) = Browser::start() else { return };
    let url = serve(vec![
        subjects::sampled(HOSTILE),
        subjects::exact(HOSTILE),
        subjects::sampled(HOSTILE),
    ]);
    for (_, word, _) in View::ALL {
        for words in ["", "?r=1", "?r=2&base=0", "?inv=1&by=thread&up=1&q=main"] {
            browser.open(&format!("{url}{word}{words}"));
            browser.until("document.documentElement.classList.contains('scripted')");
            let title = browser.script("return document.title").to_string();
            assert!(
                title.contains("lwp") && !title.starts_with("\"broken"),
                "{word}{words}: {title}"
            );
            let images = browser.script(
                "return document.images.length + document.querySelectorAll('body script').length",
            );
            assert_eq!(images, 0, "{word}{words}");
            let elsewhere = browser.script(
                "return performance.getEntriesByType('resource').filter(function (entry) { \
                 return !entry.name.startsWith(location.origin + '/'); }).length",
            );
            assert_eq!(elsewhere, 0, "{word}{words}");
            assert_eq!(browser.console(), Vec::<String>::new(), "{word}{words}");
        }
    }
}

#[test]
fn keys_lead_through_the_views() {
    let Some(browser) = Browser::start() else { return };
    let url = serve(vec![subjects::exact("inner")]);
    browser.open(&url);
    browser.until("document.documentElement.classList.contains('scripted')");
    for (index, (_, word, _)) in View::ALL.iter().enumerate().rev() {
        browser.keys(&(index + 1).to_string());
        browser.until(&format!("document.body.dataset.view === '{word}'"));
    }
    browser.keys("2");
    browser.until("document.body.dataset.view === 'functions'");
    // A search is in the address, and the rows follow it.
    browser.keys("/main");
    browser.until("new URLSearchParams(location.search).get('q') === 'main'");
    browser.until("document.querySelectorAll('tr[data-row]').length === 1");
    browser.keys("\u{e00c}");
    browser.until("!document.activeElement.matches('input')");
    browser.keys("\u{e00c}");
    browser.until("document.querySelectorAll('tr[data-row]').length === 2");
    // The second row, and what is behind it.
    browser.keys("jjc");
    browser.until("document.body.dataset.view === 'code'");
    let name = browser.script("return document.querySelector('h1').textContent").to_string();
    assert!(name.contains("main"), "{name}");
    browser.keys("?");
    browser.until("document.getElementById('help').open");
    browser.keys("\u{e00c}");
    browser.until("!document.getElementById('help').open");
    browser.script("history.back()");
    browser.until("document.body.dataset.view === 'functions'");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn a_span_of_the_time_line_is_dragged_and_every_view_follows() {
    let Some(browser) = Browser::start() else { return };
    let url = serve(vec![subjects::sampled("inner")]);
    browser.open(&format!("{url}time"));
    browser.until("document.documentElement.classList.contains('scripted')");
    let side = |side: &str| {
        let script =
            format!("return document.querySelector('[data-brush]').getBoundingClientRect().{side}");
        browser.script(&script).as_f64().expect("a number") as i64
    };
    let (left, right, top) = (side("left"), side("right"), side("top") + 20);
    // The first thread's first half is main's.
    browser.drag((left + 2, top), (left + (right - left) * 2 / 5, top));
    browser.until("new URLSearchParams(location.search).get('to') > 0");
    browser.keys("2");
    browser.until("document.body.dataset.view === 'functions'");
    let names = browser
        .script("return Array.from(document.querySelectorAll('td a.fn'), (a) => a.textContent)");
    assert_eq!(names, serde_json::json!(["main"]));
    // A box of the picture is a page of its own; Escape leads out again.
    browser.open(&format!("{url}flame"));
    browser.until("document.documentElement.classList.contains('scripted')");
    browser.script("document.querySelectorAll('svg.flame a')[2].dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))");
    browser.until("new URLSearchParams(location.search).get('at')");
    browser.until("document.querySelector('.path strong').textContent === 'inner'");
    browser.keys("\u{e00c}");
    browser.until("!new URLSearchParams(location.search).get('at')");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// A browser without scripts, and what it shows of a page.
struct Plain(Browser);

impl Plain {
    fn start() -> Option<Self> {
        let browser = Browser::start()?;
        browser.switch_scripts_off();
        Some(Self(browser))
    }

    /// Clicks, and waits for the page that comes.
    fn click(&self, selector: &str) {
        self.0.script("document.body.setAttribute('data-before', '')");
        self.0.click(selector);
        self.0.until(
            "document.readyState === 'complete' && document.body && !document.body.hasAttribute('data-before')",
        );
        assert_eq!(self.texts("html.scripted").len(), 0, "no script has run");
    }

    fn view(&self) -> String {
        self.0.script("return document.body.dataset.view").as_str().unwrap_or("").to_owned()
    }

    fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return Array.from(document.querySelectorAll({selector:?}), (one) => one.textContent)"
        );
        let texts = self.0.script(&script);
        texts
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| Some(text.as_str()?.into()))
            .collect()
    }

    /// The number of elements that can be seen.
    fn seen(&self, selector: &str) -> u64 {
        let script = format!(
            "return Array.from(document.querySelectorAll({selector:?})).filter(function (one) {{ \
             var box = one.getBoundingClientRect(); return box.width >= 1 && box.height >= 1 && one.checkVisibility(); }}).length"
        );
        self.0.script(&script).as_u64().expect("a number")
    }

    fn word(&self, name: &str) -> String {
        let script = format!("return new URLSearchParams(location.search).get({name:?}) || ''");
        self.0.script(&script).as_str().unwrap_or("").to_owned()
    }
}

/// Promise: R59: in Chromium, if it is installed
#[test]
fn without_scripts_every_view_is_there_and_links_lead_on() {
    let Some(plain) = Plain::start() else { return };
    let url = serve(vec![subjects::exact("inner"), subjects::sampled("inner")]);
    plain.0.open(&url);
    // What is seen in each view: tables, boxes of pictures, branches, lanes.
    let seen = [
        ("summary", "main table tr"),
        ("functions", "main tr[data-row]"),
        ("tree", "main .tree .branch"),
        ("calls", "main tr[data-row]"),
        ("flame", "svg.flame rect"),
        ("code", "main .asm tr"),
        ("time", "svg.strip rect"),
    ];
    for ((_, word, _), (expected, selector)) in View::ALL.iter().zip(seen) {
        plain.click(&format!("nav a[href^='{word}']"));
        assert_eq!((plain.view().as_str(), *word), (expected, expected));
        assert!(plain.seen(selector) >= 1, "{word}: {selector}");
        // What only a script can do is not offered.
        assert_eq!(plain.seen("[data-help], #details"), 0, "{word}");
        assert_eq!(plain.seen(".controls button[type=submit]"), 1, "{word}");
    }
    // The exact recording, from the list of recordings: its table has calls.
    plain.click("nav a[href^='functions']");
    plain.0.click("select[name=r] option[value='0']");
    plain.click(".controls button[type=submit]");
    assert!(plain.texts("th").iter().any(|head| head.starts_with("Calls")));
    plain.click("td.name a.fn");
    assert_eq!(plain.view(), "calls");
    plain.click(".ways a[href^='code']");
    assert_eq!(plain.view(), "code");
    assert!(plain.seen(".asm tr.h8") == 1 && plain.seen(".hottest a") >= 1);
}

/// Promise: R59: in Chromium, if it is installed
#[test]
fn without_scripts_forms_search_select_and_zoom() {
    let Some(plain) = Plain::start() else { return };
    let url = serve(vec![subjects::sampled("inner")]);
    plain.0.open(&format!("{url}functions"));
    plain.0.fill(".search input", "mai");
    plain.click(".controls button[type=submit]");
    assert_eq!((plain.texts("td a.fn"), plain.word("q")), (vec!["main".to_owned()], "mai".into()));
    plain.0.fill(".search input", "");
    plain.click(".controls button[type=submit]");
    assert_eq!(plain.texts("td a.fn").len(), 2);
    // The second thread executed main alone.
    plain.0.click("select[name=who] option[value='t1']");
    plain.click(".controls button[type=submit]");
    assert_eq!((plain.texts("td a.fn"), plain.word("who")), (vec!["main".to_owned()], "t1".into()));
    plain.0.open(&format!("{url}time"));
    plain.0.fill("input[name=from]", "0");
    plain.0.fill("input[name=to]", "440");
    plain.click(".range button");
    assert_eq!(plain.seen(".chip"), 1);
    plain.click("nav a[href^='functions']");
    assert_eq!(plain.texts("td a.fn"), ["main"]);
    plain.click(".chip a");
    assert_eq!(plain.texts("td a.fn").len(), 2);
    // Switches, a branch that closes, a box that is zoomed to, and the way out.
    plain.0.open(&format!("{url}tree"));
    plain.click("a.switch[href*='inv=1']");
    assert_eq!(plain.texts("a.switch[aria-pressed=true]")[0], "from callees to callers");
    plain.0.open(&format!("{url}tree"));
    let branches = plain.seen(".branch");
    plain.0.click(".tree summary .t");
    assert!(plain.seen(".branch") < branches, "a branch is closed");
    plain.0.open(&format!("{url}flame"));
    plain.click("svg.flame a:nth-of-type(3) rect");
    assert_eq!(plain.texts(".path strong"), ["inner"]);
    plain.click("[data-out]");
    assert_eq!(plain.word("at"), "");
}
