//! Pages in a browser. Skipped with a message where there is no chromedriver.

#[path = "shared/driver.rs"]
mod driver;
#[path = "shared/subjects.rs"]
#[allow(dead_code, reason = "the tests without a browser use the rest")]
mod subjects;

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
