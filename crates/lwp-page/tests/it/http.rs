//! Pages over HTTP, without a browser: who is answered, what every answer says of itself, and that nothing a program
//! calls its functions gets out of its place.
//!
//! Promise: R58, R59

use crate::shared::subjects;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use lwp_page::{POLICY, Pages, Subject, View, router};
use std::sync::Arc;
use tower::ServiceExt;

const TOKEN: &str = "0123456789abcdef";

fn pages(subjects: Vec<Subject>) -> Pages {
    let shelf: Vec<Arc<Subject>> = subjects.into_iter().map(Arc::new).collect();
    Pages { shelf: Box::new(shelf), token: TOKEN.into(), hosts: vec!["127.0.0.1:80".into()] }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap()
}

async fn answer(pages: Pages, host: &str, method: &str, path: &str) -> (Response<()>, String) {
    let request = Request::builder().method(method).uri(path).header(header::HOST, host);
    let response = router(pages).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(parts, ()), String::from_utf8_lossy(&bytes).into_owned())
}

fn get(subjects: Vec<Subject>, path: &str) -> (StatusCode, String) {
    let path = format!("/{TOKEN}/{path}");
    let (response, body) =
        runtime().block_on(answer(pages(subjects), "127.0.0.1:80", "GET", &path));
    (response.status(), body)
}

#[test]
fn only_who_knows_the_address_is_answered() {
    let cases = [
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/"), StatusCode::OK),
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/functions"), StatusCode::OK),
        ("127.0.0.1:80", "GET", "/".into(), StatusCode::FORBIDDEN),
        ("127.0.0.1:80", "GET", "//".into(), StatusCode::FORBIDDEN),
        ("127.0.0.1:80", "GET", "/0123456789abcdee/".into(), StatusCode::FORBIDDEN),
        ("127.0.0.1:80", "GET", format!("/{}/", &TOKEN[..15]), StatusCode::FORBIDDEN),
        ("127.0.0.1:80", "GET", "/page.js".into(), StatusCode::FORBIDDEN),
        // A name elsewhere that was made to lead here.
        ("attacker.example:80", "GET", format!("/{TOKEN}/"), StatusCode::FORBIDDEN),
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/nothing"), StatusCode::NOT_FOUND),
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/../etc/passwd"), StatusCode::NOT_FOUND),
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/%2e%2e%2fetc"), StatusCode::NOT_FOUND),
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/functions?r=7"), StatusCode::NOT_FOUND),
        ("127.0.0.1:80", "GET", format!("/{TOKEN}/export?format=nothing"), StatusCode::NOT_FOUND),
        ("127.0.0.1:80", "POST", format!("/{TOKEN}/functions"), StatusCode::METHOD_NOT_ALLOWED),
    ];
    for (host, method, path, expected) in cases {
        let answered = answer(pages(vec![subjects::exact("f")]), host, method, &path);
        let (response, body) = runtime().block_on(answered);
        assert_eq!(response.status(), expected, "{method} {path} of {host}");
        let headers = response.headers();
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY, "{path}");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer", "{path}");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store", "{path}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        assert!(expected == StatusCode::OK || !body.contains(TOKEN), "{path}: {body}");
    }
}

#[test]
fn pages_need_nothing_from_elsewhere_and_no_inline_script_or_style() {
    for subject in [subjects::exact, subjects::sampled] {
        for (_, word, _) in View::ALL {
            let (status, body) = get(vec![subject("f"), subject("f")], word);
            assert_eq!(status, StatusCode::OK);
            for bad in
                ["http://", "https://", " style=", "javascript:", " onclick", "<style", "src=\"//"]
            {
                assert!(!body.contains(bad), "{word}: {bad}");
            }
            assert_eq!(body.matches("<script").count(), 1, "{word}");
        }
    }
    let script = include_str!("../../src/page.js");
    assert!(script.lines().count() < 300);
    assert!(!script.contains("eval(") && !script.contains("innerHTML"));
}

/// What a name may try: to end its element, its attribute, its address; to turn its line round; to end it.
const HOSTILE: &str =
    "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;`\u{1b}[2J\u{202e}\n\0";

#[test]
fn hostile_names_stay_in_their_places() {
    for subject in [subjects::exact, subjects::sampled] {
        for (_, word, _) in View::ALL {
            for words in [
                "",
                "base=0",
                "inv=1&fold=1",
                "by=thread",
                "q=%3Cscript%3E%22",
                "who=t0",
                "at=%3Cscript%3E",
                "f=%22%3E",
            ] {
                let path = format!("{word}?{words}");
                let (status, body) = get(vec![subject(HOSTILE), subject(HOSTILE)], &path);
                assert_eq!(status, StatusCode::OK, "{path}");
                assert_eq!(body.matches("<script").count(), 1, "{path}");
                assert!(!body.contains("<img"), "{path}");
                for bad in ['\u{1b}', '\u{202e}', '\0'] {
                    assert!(!body.contains(bad), "{path}: {bad:?}");
                }
                // A name is in attributes too.
                assert!(!body.contains("\"'><img") && !body.contains("\"&gt;<"), "{path}");
            }
        }
    }
}

#[test]
fn nonsense_in_an_address_is_harmless() {
    let words = [
        "r=-1",
        "r=99999999999999999999",
        "e=%00",
        "who=t99999",
        "who=p",
        "who=%C3%A9",
        "from=9&to=1",
        "from=x",
        "n=0",
        "n=18446744073709551615",
        "min=nan",
        "min=-1",
        "min=1e308",
        "at=0",
        "at=ffffffffffffffff",
        "f=0",
        "base=0&base=5",
        "sort=e99",
        "%",
        "=&&=",
        "by=%FF",
        "from=0&to=18446744073709551615",
        "from=18446744073709551614&to=18446744073709551615",
    ];
    for (_, word, _) in View::ALL {
        for words in words {
            let (status, _) =
                get(vec![subjects::sampled("f"), subjects::exact("f")], &format!("{word}?{words}"));
            assert!(
                status == StatusCode::OK || status == StatusCode::NOT_FOUND,
                "{word}?{words}: {status}"
            );
        }
    }
}

#[test]
fn deep_stacks_are_drawn_by_threads_with_little_stack() {
    for (_, word, _) in View::ALL {
        for words in ["", "inv=1", "fold=1&by=thread", "base=0", "min=0.0001"] {
            let subjects = vec![subjects::deep(4000), subjects::deep(3990)];
            let (status, body) = get(subjects, &format!("{word}?{words}"));
            assert_eq!(status, StatusCode::OK, "{word}?{words}");
            let drawn = word != "flame" || body.contains("level3800");
            assert!(drawn, "{word}?{words}");
        }
    }
}

#[test]
fn numbers_are_those_of_the_profile() {
    let (_, body) = get(vec![subjects::exact("inner")], "functions");
    // main counts 10 and calls inner three times, which counts 90; the estimate of main's inclusive count is all.
    for expected in ["90.00%", "100.00%", ">10<", ">90<", ">3<", ">inner</a>", "Total~"] {
        assert!(body.contains(expected), "{expected}");
    }
    let (_, body) = get(vec![subjects::exact("inner")], "functions?q=MAIN");
    assert!(body.contains(">main</a>") && !body.contains(">inner</a>"));
    let (_, body) = get(vec![subjects::sampled("inner")], "functions");
    assert!(body.contains("45.00%") && body.contains("Total") && !body.contains("Total~"));
}

/// Promise: R60
#[test]
fn views_follow_the_thread_and_the_span_that_are_selected() {
    // The first thread has all samples of inner, the second one those of main.
    let (_, body) = get(vec![subjects::sampled("inner")], "functions?who=t1");
    assert!(!body.contains(">inner</a>"), "the other thread's function");
    // inner was sampled in the second half of the first thread only.
    let (_, body) = get(vec![subjects::sampled("inner")], "functions?who=t0&from=0&to=450");
    assert!(!body.contains(">inner</a>") && body.contains(">main</a>"), "the first half");
    let (_, body) = get(vec![subjects::sampled("inner")], "flame?who=t0&from=450&to=900");
    assert!(body.contains("inner"), "the second half");
    let (_, body) = get(vec![subjects::sampled("inner")], "time");
    assert!(body.contains("data-whole=\"900\""), "the longest thread's own count");
}

#[test]
fn differences_have_signs_and_what_is_gone_is_said() {
    let (_, body) =
        get(vec![subjects::exact("inner"), subjects::exact("other")], "functions?r=1&base=0");
    for expected in ["+90", "-90", ">new<", ">gone<", "class=\"gone\">inner<"] {
        assert!(body.contains(expected), "{expected}");
    }
    let (_, body) =
        get(vec![subjects::exact("inner"), subjects::exact("other")], "flame?r=1&base=0");
    assert!(body.contains("Differential flame graph") && body.contains("class=\"r5\""));
}

#[test]
fn modules_are_compared_with_those_that_they_are_mapped_to() {
    let compared = |modules: &[(&str, &str)]| {
        let mut old = subjects::exact("inner").of;
        old.modules = modules.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        get(vec![Subject::new(old), subjects::exact("other")], "functions?r=1&base=0").1
    };
    // The programs are two: main is gone from one and new in the other.
    assert!(compared(&[]).contains("class=\"gone\">main<"));
    assert!(!compared(&[("bin/inner", "bin/other")]).contains("class=\"gone\">main<"));
    assert!(compared(&[("ner", "bin/other")]).contains("class=\"gone\">main<"));
}

#[test]
fn files_have_names_that_are_safe_and_content_that_is_lwp_s() {
    for (format, start) in
        [("csv", "self,"), ("svg", "<?xml"), ("json", "{"), ("text", "#"), ("html", "<!DOCTYPE")]
    {
        let path = format!("/{TOKEN}/export?format={format}");
        let answered = answer(pages(vec![subjects::exact(HOSTILE)]), "127.0.0.1:80", "GET", &path);
        let (response, body) = runtime().block_on(answered);
        assert!(body.starts_with(start), "{format}: {body}");
        let name = response.headers()[header::CONTENT_DISPOSITION].to_str().unwrap().to_owned();
        let name =
            name.strip_prefix("attachment; filename=\"").and_then(|name| name.strip_suffix('"'));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(
            name.is_some_and(|name| !name.starts_with('.') && name.chars().all(plain)),
            "{name:?}"
        );
    }
}

#[test]
fn interpreted_functions_have_lines_and_no_instructions() {
    let mut of = subjects::sampled("inner").of;
    of.profile.modules[0].path = "[python]/srv/app.py".into();
    let (_, body) = get(vec![Subject::new(of)], "code");
    for expected in [">app.py<", "main.c", "href=\"#s0-7\"", "id=\"s0-7\""] {
        assert!(body.contains(expected), "{expected}: {body}");
    }
    for other in ["class=\"assembly\"", "Intel's syntax", "(bytes not recorded)", "href=\"#i"] {
        assert!(!body.contains(other), "{other}: {body}");
    }
    let (_, body) = get(vec![subjects::sampled("inner")], "code");
    assert!(body.contains("class=\"assembly\"") && body.contains("Intel's syntax"));
}
