//! The store of builds, and debuginfod: reports of programs that have changed since, and of
//! stripped ones. The server is the test's own. A test whose tool is missing is skipped and says
//! so.
//!
//! Promise: R61
//! Promise: R62: with a server in the test
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

const PROGRAM: &str = "static volatile unsigned sink;
__attribute__((noinline)) static void NAME(unsigned n) { for (unsigned i = 0; i < n; i++) sink += i * n; }
int main(void) { NAME(5000); return 0; }
";

/// A directory with a program whose hot function is called `name`.
fn compiled(suite: &str, name: &str) -> Option<PathBuf> {
    let dir = fresh("builds", suite);
    (has("gcc") && compile(&dir, name)).then_some(dir)
}

fn compile(dir: &Path, name: &str) -> bool {
    std::fs::write(dir.join("program.c"), PROGRAM.replace("NAME", name)).expect("written");
    let words = ["gcc", "-O1", "-g", "-Wl,--build-id", "-o", "program", "program.c"];
    limited(dir, &words).status().expect("gcc starts").success()
}

/// Runs lwp with a cache of its own, asking these servers.
fn lwp(dir: &Path, servers: &str, words: &[&str]) -> Output {
    let mut command = limited(dir, &[&[LWP], words].concat());
    command.env("XDG_CACHE_HOME", dir.join("cache")).env("DEBUGINFOD_URLS", servers);
    command.env("DEBUGINFOD_TIMEOUT", "2").env_remove("LWP_BUILDS_LIMIT");
    command.output().expect("lwp starts")
}

fn record(dir: &Path, options: &[&str]) {
    let words = [&["record", "-q"], options, &["--", "./program"]].concat();
    let output = lwp(dir, "", &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The table, and what was said beside it.
fn report(dir: &Path, servers: &str, options: &[&str]) -> (String, String) {
    let output = lwp(dir, servers, &[&["report", "--stdio"], options].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_program_that_was_rebuilt_is_read_from_the_store() {
    let Some(dir) = compiled("rebuilt", "beforehand") else { return };
    record(&dir, &["--no-names"]);
    assert!(compile(&dir, "afterwards"));
    let (table, said) = report(&dir, "", &[]);
    assert!(table.contains("beforehand") && !table.contains("afterwards"), "{table}{said}");
    std::fs::remove_file(dir.join("program")).expect("removed");
    let (lines, said) = report(&dir, "", &["-s", "sym,srcline"]);
    assert!(lines.contains("program.c:2"), "{lines}{said}");
    // An archive has the program as it was.
    assert!(compile(&dir, "afterwards"));
    let archived = lwp(&dir, "", &["archive", "-o", "kept.archive"]);
    assert!(archived.status.success(), "{}", text(&archived.stderr));
    let listed = text(&lwp(&dir, "", &["cache", "list"]).stdout);
    assert!(listed.contains("programs, libraries and their debug information"), "{listed}");
    assert!(lwp(&dir, "", &["cache", "clear"]).status.success());
    let (table, said) = report(&dir, "", &[]);
    assert!(!table.contains("beforehand") && said.contains("has changed"), "{table}{said}");
    let (table, said) = report(&dir, "", &["-i", "kept.archive"]);
    assert!(table.contains("beforehand"), "{table}{said}");
}

#[test]
fn nothing_is_kept_unless_it_may_be() {
    let Some(dir) = compiled("unkept", "beforehand") else { return };
    let kept = || std::fs::read_dir(dir.join("cache/lwp/builds")).map_or(0, Iterator::count);
    record(&dir, &["--no-cache"]);
    assert_eq!(kept(), 0);
    record(&dir, &[]);
    assert!(kept() >= 2, "the program and its libraries");
    let mode = std::fs::metadata(dir.join("cache/lwp/builds")).expect("directory").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o700);
}

/// What a server has been asked, in order.
type Asked = Arc<Mutex<Vec<String>>>;

/// A server on this machine that answers with what `answer` makes of a path: a body, nothing (404),
/// or no answer ever.
fn serve(answer: impl Fn(&str) -> Reply + Send + 'static) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    // It ends with the test.
    let answers = move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let path = lines.next().and_then(|line| Some(line.split(' ').nth(1)?.to_owned()));
            let path = path.unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            log.lock().expect("no panic").push(path.clone());
            let (status, body) = match answer(&path) {
                Reply::Body(body) => ("200 OK", body),
                Reply::Nothing => ("404 Not Found", Vec::new()),
                Reply::Silence => {
                    silent.push(stream);
                    continue;
                }
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    };
    std::thread::Builder::new().spawn(answers).expect("a thread");
    (url, asked)
}

enum Reply {
    Body(Vec<u8>),
    Nothing,
    Silence,
}

/// A stripped program that has been recorded, its debug information, and the path that a server has
/// that under.
fn stripped(suite: &str) -> Option<(PathBuf, Vec<u8>, String)> {
    if !has("curl") || !has("strip") {
        return None;
    }
    let dir = compiled(suite, "beforehand")?;
    let debug = std::fs::read(dir.join("program")).expect("read");
    let id = lwp_symbols::build_id_of(&dir.join("program"));
    let id = id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(limited(&dir, &["strip", "program"]).status().expect("strip starts").success());
    record(&dir, &[]);
    Some((dir, debug, format!("/buildid/{id}/debuginfo")))
}

#[test]
fn debug_information_is_fetched_once_and_kept() {
    let Some((dir, debug, path)) = stripped("fetched") else { return };
    let wanted = path.clone();
    let (url, asked) = serve(move |path| match path == wanted {
        true => Reply::Body(debug.clone()),
        false => Reply::Nothing,
    });
    let times = || asked.lock().expect("no panic").iter().filter(|it| **it == path).count();
    let lines = ["-s", "sym,srcline"];
    let (table, said) = report(&dir, &url, &["--no-debuginfod", "-s", "sym,srcline"]);
    assert!(!table.contains("program.c") && !said.contains("asking"), "{table}{said}");
    assert_eq!(times(), 0);
    let (table, said) = report(&dir, &url, &lines);
    assert!(table.contains("beforehand") && table.contains("program.c:2"), "{table}{said}");
    assert!(said.contains(&format!("asking {url} for the debug information of program")), "{said}");
    let before = asked.lock().expect("no panic").len();
    let (again, said) = report(&dir, &url, &lines);
    assert_eq!(again, table);
    assert_eq!((times(), asked.lock().expect("no panic").len()), (1, before), "{said}");
    // What the server has not is not asked for again either, nor is anybody asked who need not be.
    assert!(!said.contains("asking"), "{said}");
    let (offline, _) = report(&dir, "", &lines);
    assert_eq!(offline, table);
}

#[test]
fn another_build_is_not_used() {
    let Some((dir, _, path)) = stripped("wrong") else { return };
    let other = std::fs::read(LWP).expect("read");
    let (url, asked) = serve(move |_| Reply::Body(other.clone()));
    let (table, said) = report(&dir, &url, &["-s", "sym,srcline"]);
    assert!(!table.contains("program.c"), "{table}");
    assert!(said.contains("a different build"), "{said}");
    assert!(asked.lock().expect("no panic").contains(&path));
    let builds = std::fs::read_dir(dir.join("cache/lwp/builds")).expect("directory");
    let debug = builds.filter(|it| {
        it.as_ref().is_ok_and(|it| it.file_name().to_string_lossy().ends_with(".debuginfo"))
    });
    assert_eq!(debug.count(), 0);
}

#[test]
fn a_server_that_does_not_answer_is_given_up_once() {
    let Some((dir, ..)) = stripped("silent") else { return };
    let (url, asked) = serve(|_| Reply::Silence);
    let started = std::time::Instant::now();
    let (table, said) = report(&dir, &url, &["-s", "sym,srcline"]);
    assert!(table.contains("%"), "{table}");
    assert!(said.contains("lwp does not ask it again (--no-debuginfod"), "{said}");
    assert_eq!(asked.lock().expect("no panic").len(), 1);
    assert!(started.elapsed() < Duration::from_secs(60));
}
